"""What one kernel run needs, as plain values: the GPU's launcher and the machine read the same Launch.

A Launch knows nothing of frameworks or arrays. Its arguments are the bytes of the kernel's parameter space,
laid out as the CUDA ABI does it (each parameter at its natural alignment). Its patch table says where in them
stands what changes from run to run: addresses, alpha and beta. Tensor maps are kept as what they mean; the
launcher encodes them into the parameter bytes, the machine reads them as they are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from types import MappingProxyType
from typing import Any

from lapidist.errors import LaunchError

Dim3 = tuple[int, int, int]
Scalars = tuple[float, float]  # alpha and beta
AS_IT_IS: Scalars = 1.0, 0.0
Operands = tuple[int, int, int, int]  # addresses of A, B, C and D
ARRAYS_AT_ONCE = 64  # in a launch: lists of pointers travel as kernel parameters
INT_LIMIT = 2**31 - 1  # kernels count extents, tiles, products and iterations with 32 bits
MAP_BYTES, MOST_OWNERS = 128, 16
MOST_PAIRS = 72  # of blocks of a launch, each with an entry in their order

# kind of a parameter: (struct code, bytes, alignment). A tensor map is 128 opaque bytes, passed by value; a
# schedule is the Schedule of share/schedule.cuh, ints and divisors of two words; a workspace is two pointers,
# to the flags and to the partial sums.
PARAMETER_KINDS = {
    "pointer": ("Q", 8, 8),
    "i32": ("i", 4, 4),
    "i64": ("q", 8, 8),
    "f16": ("e", 2, 2),
    "f32": ("f", 4, 4),
    "f64": ("d", 8, 8),
    "tensormap": (f"{MAP_BYTES}s", MAP_BYTES, 64),
    "schedule": ("20i26I", 184, 4),
    "workspace": ("2Q", 16, 8),
    "modes": ("6Q5q", 88, 8),
    "scales": ("2Q4q", 48, 8),
    "ragged": ("Q3i4x2q", 40, 8),
    "arrivals": ("2Qq2i", 32, 8),
    "order": (f"{MOST_PAIRS}b", MOST_PAIRS, 1),  # of the clusters of a launch: zeros leave it as it is
    "lists": (f"{4 * ARRAYS_AT_ONCE}Q", 32 * ARRAYS_AT_ONCE, 8),
    "addresses": ("4Q", 32, 8),
    # maps of so many owners, and two numbers
    **{f"owners{n}": (f"{MAP_BYTES * n}x2i56x", MAP_BYTES * n + 64, 64) for n in range(1, MOST_OWNERS + 1)},
    # terms and flags of so many ranks, where they report, and numbers (exchange/add_terms.cu)
    **{f"meeting{n}": (f"{2 * n}QQqQ4i", 16 * n + 40, 8) for n in range(2, MOST_OWNERS + 1)},
    # what is sent, where to and flags of so many ranks, and numbers (exchange/send_terms.cu)
    **{f"sending{n}": (f"{3 * n}QQqQ4q", 24 * n + 56, 8) for n in range(2, MOST_OWNERS + 1)},
    **{f"epilogue{n}": (f"{5 * n}q", 40 * n, 8) for n in range(1, 17)},  # with so many operands
}
# of these structs the addresses alone change from run to run: their first members
PATCHED = {"modes": "6Q", "scales": "2Q", "ragged": "Q"}


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel. PTX is what the machine runs, the cubin what the GPU runs; both come from one
    compilation. For the machine alone there may be no cubin, and no log of the assembler."""

    entry: str
    architecture: str
    ptx: str
    cubin: bytes
    log: str
    # whether it was compiled for clusters of one size, so that the launch need not ask for them
    has_cluster: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_cluster", ".reqnctapercluster" in self.ptx)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A strided view of global memory for TMA: what cuTensorMapEncodeTiled is given.

    Extents count elements and start with the innermost dimension; `strides` are bytes and leave that one out.
    """

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0  # bytes of the pattern: 0 (none), 32, 64 or 128
    fetched: int = 256  # bytes that the L2 fetches together: 64, 128 or 256


@dataclass(frozen=True, slots=True)
class Memory:
    """A range of addresses that the launch may touch, and the object that owns it (host memory for the
    machine). `undefined` has for each byte the bits that nobody wrote; None where all were.
    """

    name: str
    address: int
    nbytes: int
    owner: Any
    undefined: Any = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Where a value goes in the parameter bytes, and how struct packs it; `only`: the one that the binary
    knows."""

    offset: int
    code: str
    only: float | None = None

    def write(self, content: bytearray | memoryview, name: str, value: Any) -> None:
        if self.only is not None and value != self.only:
            raise LaunchError(
                f"{name}: this plan was made for {self.only:g}, and its kernel knows no other; got {value}."
                " Plan with it"
            )
        pack(content, self.offset, self.code, value)


def pack(content: bytearray | memoryview, offset: int, code: str, value: Any) -> None:
    """A number, or a tuple for the members of a struct. alpha and beta come as floats, also for sums of
    integers.
    """
    if value.__class__ is tuple:
        struct.pack_into(code, content, offset, *value)
    else:
        struct.pack_into(code, content, offset, int(value) if code == "<i" else value)


# the tensor maps, each with its offset in the arguments, of operands and a workspace at these addresses
Maps = Callable[[Mapping[str, int]], tuple[tuple[int, TensorMap], ...]]


class ParameterBlock:
    """The byte layout of a kernel's parameters, by name: offsets follow the ABI's natural alignment."""

    def __init__(self, parameters: Sequence[tuple[str, str]]) -> None:
        self.parameters = tuple(parameters)
        self.offsets: dict[str, int] = {}
        end = 0
        for name, kind in parameters:
            _, size, alignment = PARAMETER_KINDS[kind]
            start = -(-end // alignment) * alignment
            self.offsets[name] = start
            end = start + size
        self.nbytes = end
        self._named, self._numbers, self._structs = self._packed_together()
        self._patches = MappingProxyType(
            {
                name: Patch(self.offsets[name], "<" + PATCHED.get(kind, PARAMETER_KINDS[kind][0]))
                for name, kind in parameters
                if kind != "tensormap"
            }
        )
        self.has_maps = any(kind == "tensormap" for _, kind in parameters)

    def _packed_together(self) -> tuple[list[str], struct.Struct, list[tuple[str, int, str]]]:
        """The names of all numbers, the struct that packs them at once, and the offset of each struct
        parameter.
        """
        names: list[str] = []
        structs: list[tuple[str, int, str]] = []
        code, end = "<", 0
        for name, kind in self.parameters:
            (letters, size, _), offset = PARAMETER_KINDS[kind], self.offsets[name]
            if len(letters) > 1:
                structs.append((name, offset, "<" + letters))
                continue
            names.append(name)
            code += f"{offset - end}x{letters}"
            end = offset + size
        return names, struct.Struct(code), structs

    def pack(self, values: Mapping[str, Any]) -> bytearray:
        """The parameter bytes. A parameter without a value (a pointer or map yet to come) is zero; a struct's
        is a tuple.
        """
        content = bytearray(self.nbytes)
        self._numbers.pack_into(content, 0, *map(values.get, self._named, repeat(0)))
        for name, offset, code in self._structs:
            if name in values:
                pack(content, offset, code, values[name])
        return content

    def of_kind(self, kind: str) -> dict[str, int]:
        """Offset of each parameter of a kind, by name."""
        return {
            name: self.offsets[name] for name, parameter_kind in self.parameters if parameter_kind == kind
        }

    @cached_property
    def map_offsets(self) -> dict[str, int]:
        """Offset of each tensor map, by name, also of those in a struct of owners."""
        offsets = self.of_kind("tensormap")
        for name, kind in self.parameters:
            if kind.startswith("owners"):
                for owner in range(int(kind.removeprefix("owners"))):
                    offsets[f"owner {owner}"] = self.offsets[name] + MAP_BYTES * owner
        return offsets

    def patches(self) -> Mapping[str, Patch]:
        """The patch table: all but tensor maps, which the launch makes."""
        return self._patches

    @cached_property
    def patches_of_one(self) -> Mapping[str, Patch]:
        """The patch table of a binary that is compiled for alpha = 1."""
        return MappingProxyType({**self._patches, "alpha": replace(self._patches["alpha"], only=1.0)})


NO_PARAMETERS = ParameterBlock(())


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel run, or all that its runs have in common: then `patches` says where in `arguments` the rest
    goes, by name, and `maps` makes the tensor maps.

    `grid` counts blocks (not clusters); `tensor_maps` pairs a byte offset in `arguments` with a map."""

    binary: Binary
    grid: Dim3
    block: Dim3
    arguments: bytes
    shared_bytes: int = 0  # dynamic shared memory
    cluster: Dim3 = (1, 1, 1)
    tensor_maps: tuple[tuple[int, TensorMap], ...] = ()
    memory: tuple[Memory, ...] = ()
    variables: tuple[Memory, ...] = ()  # of the module, by name, that are arrays of the caller's
    cooperative: bool = False  # all blocks are on the chip at once, so they may wait for each other
    # blocks may start before the last launch has ended; they wait for its end before they touch global memory
    overlaps: bool = False
    parameters: ParameterBlock = NO_PARAMETERS
    patches: Mapping[str, Patch] = field(default_factory=dict)
    maps: Maps | None = None
    scratch: tuple[int, int] = (0, 0)  # bytes of flags, and of the room behind them, that a run needs

    def write(self, content: bytearray | memoryview, values: Mapping[str, Any]) -> None:
        """Write values into parameter bytes that began as `arguments`. Values that the kernel does not take
        are left out.
        """
        for name, value in values.items():
            patch = self.patches.get(name)
            if patch is not None:
                patch.write(content, name, value)

    def patched(self, values: Mapping[str, Any]) -> Launch:
        content = bytearray(self.arguments)
        self.write(content, values)
        return replace(self, arguments=bytes(content))

    def placed(
        self, at: Mapping[str, int], workspace: tuple[int, int] = (0, 0), memory: tuple[Memory, ...] = ()
    ) -> Launch:
        """The launch with operands at these addresses, and with the workspace's flags and room at those."""
        maps = () if self.maps is None else self.maps({**at, "workspace": workspace[1]})
        filled = self.patched({**at, "workspace": workspace})
        return replace(filled, tensor_maps=maps, memory=memory)
