"""cuBLASLt's grouped layouts, from a library that the command line names: a peer of grouped products.

Sizes, line lengths and addresses of groups are arrays on the device. Names and values are cublasLt.h's.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lapidist.errors import ArgumentError, DeviceError

LAYOUT_CREATE = "cublasLtGroupedMatrixLayoutCreate"
FIRST_ON_HOPPER = 130600  # of cublasLtGetVersion, in CUDA 13.3
SUCCESS, COMPUTE_32F = 0, 68  # CUBLAS_STATUS_SUCCESS, CUBLAS_COMPUTE_32F
R_32F, R_16BF = 0, 14  # cudaDataType: CUDA_R_32F, CUDA_R_16BF
OP_N, OP_T = 0, 1
DESC_TRANSA, DESC_TRANSB = 3, 4
PREF_MAX_WORKSPACE_BYTES = 1
PREF_AVERAGE_K, PREF_D_AVERAGE_ROWS, PREF_D_AVERAGE_COLS = 13, 14, 15
WORKSPACE_BYTES = 32 << 20  # what torch gives cuBLASLt on Hopper


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace_size", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves_count", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Order(NamedTuple):
    """How cuBLAS, which counts by columns, sees the transpose of a matrix: as it is, or to be transposed."""

    operation: int
    rows: int
    columns: int
    line: int


def order_of(shape: Sequence[int], strides: Sequence[int]) -> Order:
    (rows, columns), (down, along) = shape, strides
    return Order(OP_N, columns, rows, down) if along == 1 else Order(OP_T, rows, columns, along)


@dataclass(frozen=True)
class Groups:
    """One operand of every group, as arrays of the device: int32, but for the addresses."""

    operation: int
    rows: Any
    columns: Any
    lines: Any
    addresses: Any


def groups_of(torch: Any, matrices: Sequence[Any]) -> Groups:
    """Matrices of one order. A group without rows has an order, too."""
    orders = [order_of(matrix.shape, matrix.stride()) for matrix in matrices]
    device = matrices[0].device

    def array(values: Sequence[int], kind: Any) -> Any:
        return torch.tensor(values, dtype=kind, device=device)

    sizes = ([order[place] for order in orders] for place in (1, 2, 3))
    rows, columns, lines = (array(values, torch.int32) for values in sizes)
    addresses = array(list(map(address_of, matrices)), torch.int64)
    return Groups(orders[0].operation, rows, columns, lines, addresses)


def address_of(matrix: Any) -> int:
    """Also of a group without rows, whose data_ptr torch answers with zero."""
    start: int = matrix.untyped_storage().data_ptr()
    return start + matrix.storage_offset() * matrix.element_size()


class Library:
    """The functions of a libcublasLt that are needed."""

    def __init__(self, path: Path) -> None:
        # torch's libcublas asks for a libcublasLt by name, and gets the one that was loaded first: so torch
        # comes first, with its own. Neither one's symbols may stand in for the other's.
        import torch  # noqa: F401

        mode = os.RTLD_LOCAL | os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0)
        try:
            self.functions = ctypes.CDLL(str(path), mode=mode)
            self.functions.cublasLtGetVersion.restype = ctypes.c_size_t
            self.version = self.functions.cublasLtGetVersion()
        except (OSError, AttributeError) as error:
            raise ArgumentError(f"--cublaslt: must be a libcublasLt.so; {path} is not: {error}") from None
        if self.version < FIRST_ON_HOPPER:
            first, version = map(version_words, (FIRST_ON_HOPPER, self.version))
            raise ArgumentError(
                f"--cublaslt: must be of cuBLAS {first} or later, which has groups on Hopper; {path} is of"
                f" {version}. Name a newer one, or leave the option out"
            )
        self.functions.cublasLtGetStatusString.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()

    def begin(self) -> None:
        """Make the handle, on the current device."""
        if not self.handle:
            self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.functions, name)(*arguments)
        if status != SUCCESS:
            words = self.functions.cublasLtGetStatusString(status).decode()
            raise DeviceError(f"peer cuBLASLt: {name} answered status {status}, {words}")

    def create(self, kind: str, *arguments: Any, function: str = "") -> ctypes.c_void_p:
        """A descriptor, which ends with what refers to it."""
        descriptor = ctypes.c_void_p()
        self.call(function or f"cublasLt{kind}Create", ctypes.byref(descriptor), *arguments)
        end = getattr(self.functions, f"cublasLt{kind}Destroy")
        weakref.finalize(descriptor, end, ctypes.c_void_p(descriptor.value))
        return descriptor

    def set(self, kind: str, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self.call(f"cublasLt{kind}SetAttribute", descriptor, attribute, ctypes.byref(value), size)

    def layout(self, groups: Groups) -> ctypes.c_void_p:
        arrays = [ctypes.c_void_p(array.data_ptr()) for array in (groups.rows, groups.columns, groups.lines)]
        return self.create("MatrixLayout", R_16BF, len(groups.rows), *arrays, function=LAYOUT_CREATE)


class GroupedProduct:
    """D = A B of every group, in row-major order: cuBLAS multiplies the transposes, B's first."""

    def __init__(self, library: Library, torch: Any, device: Any, averages: Sequence[int]) -> None:
        """`averages`: of the groups' m, n and k, by which it chooses an algorithm."""
        library.begin()
        self.library, self.torch, self.averages = library, torch, averages
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self.one, self.zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self.algorithm: HeuristicResult | None = None

    def prepared(self, a: Sequence[Any], b: Sequence[Any], d: Sequence[Any]) -> Callable[[], None]:
        """What starts the product of these groups. Their arrays are ready before."""
        library = self.library
        groups = [groups_of(self.torch, matrices) for matrices in (b, a, d)]
        layouts = [library.layout(operand) for operand in groups]
        product = library.create("MatmulDesc", COMPUTE_32F, R_32F)
        for attribute, operand in zip((DESC_TRANSA, DESC_TRANSB), groups, strict=False):
            library.set("MatmulDesc", product, attribute, ctypes.c_int32(operand.operation))
        self.algorithm = self.algorithm or self.chosen(product, layouts)
        return partial(self.start, product, groups, layouts)

    def chosen(self, product: ctypes.c_void_p, layouts: Sequence[ctypes.c_void_p]) -> HeuristicResult:
        """The library's first choice."""
        library = self.library
        m, n, k = self.averages
        preference = library.create("MatmulPreference")
        set_preference = partial(library.set, "MatmulPreference", preference)
        set_preference(PREF_MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_BYTES))
        # eight bytes each, though the header calls them uint32_t
        set_preference(PREF_D_AVERAGE_ROWS, ctypes.c_int64(n))
        set_preference(PREF_D_AVERAGE_COLS, ctypes.c_int64(m))
        set_preference(PREF_AVERAGE_K, ctypes.c_int64(k))
        result, count = HeuristicResult(), ctypes.c_int()
        of_b, of_a, of_d = layouts
        operands = library.handle, product, of_b, of_a, of_d, of_d, preference
        results = ctypes.byref(result), ctypes.byref(count)
        library.call("cublasLtMatmulAlgoGetHeuristic", *operands, 1, *results)
        if not count.value or result.state != SUCCESS:
            raise DeviceError(f"peer cuBLASLt: has no algorithm for groups of {m} x {n} x {k} in the mean")
        return result

    def start(
        self, product: ctypes.c_void_p, groups: Sequence[Groups], layouts: Sequence[ctypes.c_void_p]
    ) -> None:
        """On torch's current stream; beta is zero, so D stands for C."""
        b, a, d = (ctypes.c_void_p(operand.addresses.data_ptr()) for operand in groups)
        of_b, of_a, of_d = layouts
        assert self.algorithm is not None
        one, zero, algorithm = (ctypes.byref(value) for value in (self.one, self.zero, self.algorithm))
        sources = one, b, of_b, a, of_a, zero
        room = ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_size_t(WORKSPACE_BYTES)
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        library = self.library
        library.call(
            "cublasLtMatmul", library.handle, product, *sources, d, of_d, d, of_d, algorithm, *room, stream
        )


def version_words(version: int) -> str:
    """130600: 13.6."""
    return f"{version // 10000}.{version // 100 % 100}"
