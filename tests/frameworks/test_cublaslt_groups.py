"""cuBLASLt's grouped layouts, whose library is played by torch on the host: which sizes, lines and addresses
it is given, and what refuses.
"""

from __future__ import annotations

import builtins
import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from host_torch import HostTorch
from lapidist.errors import ArgumentError, DeviceError
from lapidist_lab.bench.protocol.array_library import Torch
from lapidist_lab.bench.studies import cublaslt_groups, grouped_products
from lapidist_lab.bench.studies.cublaslt_groups import FIRST_ON_HOPPER, HeuristicResult, Library, order_of
from lapidist_lab.bench.studies.group_cases import FORWARD, LAYERS, WAYS, GroupCase, Layer, case_of
from lapidist_lab.bench.studies.group_contenders import CublasLtGrouped, contenders_of

pytestmark = pytest.mark.frameworks
SMALL = Layer("Mixtral up", 5, 32, 48)
BYTES = 2  # of bfloat16
# of attributes, as cuBLASLt 13.10 answers where it is asked with no room
WIDTHS = {
    **{("MatmulPreference", attribute): 8 for attribute in (1, 13, 14, 15)},
    **{("MatmulDesc", attribute): 4 for attribute in (3, 4)},
}


class Played(Library):
    """Answers as the library does: descriptors are numbers, and a product reads memory of the host."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.handle, self.made_of = torch, ctypes.c_void_p(), {}
        self.algorithms, self.states = 1, [0]

    def call(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    def cublasLtCreate(self, handle: Any) -> None:
        handle._obj.value = 1

    def create(self, kind: str, *arguments: Any, function: str = "") -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p(len(self.made_of) + 1)
        self.made_of[descriptor.value] = {"kind": kind, "of": arguments}
        return descriptor

    def set(self, kind: str, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        assert self.made_of[descriptor.value]["kind"] == kind
        assert ctypes.sizeof(value) == WIDTHS[kind, attribute]
        self.made_of[descriptor.value][attribute] = value.value

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> None:
        *_, preference, asked, result, count = arguments
        self.preferences = self.made_of[preference.value]
        assert asked == 1
        result._obj.algo[0], count._obj.value = 77, self.algorithms

    def cublasLtMatmul(self, handle: Any, product: Any, *arguments: Any) -> None:
        """D = alpha op(A) op(B) + beta C, all by columns."""
        one, a, of_a, b, of_b, zero, c, of_c, d, of_d, algorithm, room, size, stream = arguments
        assert (one._obj.value, zero._obj.value, algorithm._obj.algo[0]) == (1.0, 0.0, 77)
        assert (c.value, of_c, stream.value) == (d.value, of_d, 7)
        assert room.value
        assert size.value == cublaslt_groups.WORKSPACE_BYTES
        flags = [self.made_of[product.value][attribute] for attribute in (3, 4)]
        for left, right, out in zip(*map(self.groups, (of_a, of_b, of_d), (a, b, d)), strict=True):
            left, right = (x.T if flag else x for x, flag in zip((left, right), flags, strict=True))
            out.copy_(left.float() @ right.float())

    def groups(self, layout: Any, addresses: Any) -> list[Any]:
        kind, count, *arrays = self.made_of[layout.value]["of"]
        assert kind == cublaslt_groups.R_16BF
        sizes = [(ctypes.c_int32 * count).from_address(array.value) for array in arrays]
        starts = (ctypes.c_int64 * count).from_address(addresses.value)
        return [self.by_columns(start, *size) for start, *size in zip(starts, *sizes, strict=True)]

    def by_columns(self, start: int, rows: int, columns: int, line: int) -> Any:
        assert line >= rows
        if not rows or not columns:
            return self.torch.empty(rows, columns, dtype=self.torch.bfloat16)
        numbers = (columns - 1) * line + rows
        memory = (ctypes.c_char * (BYTES * numbers)).from_address(start)
        flat = self.torch.frombuffer(memory, dtype=self.torch.bfloat16)
        return flat.as_strided((rows, columns), (1, line))


@pytest.fixture
def played(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    return Played(torch)


def operands(torch: Any, case: GroupCase) -> tuple[Any, Any, Any]:
    a = torch.randn(case.k, case.m).T if case.layout[0] == "c" else torch.randn(case.m, case.k)
    if case.way not in (FORWARD, WAYS["data"]):
        b, d = torch.randn(case.k, case.n), torch.full((case.batch, case.m, case.n), float("nan"))
    else:
        b, d = torch.randn(case.batch, case.k, case.n), torch.full((case.m, case.n), float("nan"))
        b = b.mT.contiguous().mT if case.way == FORWARD else b
    return tuple(x.bfloat16() for x in (a, b, d))  # type: ignore[return-value]


@pytest.mark.parametrize("spread", ["even", "zipf", "one"])
@pytest.mark.parametrize("way", WAYS.values())
def test_groups_are_multiplied(torch: Any, played: Played, way: str, spread: str) -> None:
    case = case_of(SMALL, way, 80, spread, "bfloat16")
    a, b, d = operands(torch, case)
    contender = next(x for x in contenders_of(case, Torch(), played) if isinstance(x, CublasLtGrouped))
    contender.prepare(case, [a], [b], [d])(0)
    lengths = case.lengths()
    assert (0 in lengths) == (spread == "one")
    for group in range(case.batch):
        product = contender.product(0, group)
        expected = product.a.float() @ product.b.float()
        torch.testing.assert_close(product.d.float(), expected, rtol=1e-2, atol=1e-2)
    means = {FORWARD: (48, 16, 32), WAYS["data"]: (32, 16, 48), WAYS["weights"]: (48, 32, 16)}
    assert tuple(played.preferences[attribute] for attribute in (14, 15, 13)) == means[way]


def test_it_stands_behind_ours_where_its_library_was_named(torch: Any, played: Played) -> None:
    case = case_of(SMALL, FORWARD, 80, "even", "bfloat16")
    assert [x.name.partition(",")[0] for x in contenders_of(case, Torch(), played)][:3] == [
        "torch._grouped_mm",
        "lapidist",
        "cuBLASLt grouped",
    ]
    eight_bits = case_of(SMALL, FORWARD, 80, "even", "float8_e4m3fn")
    for which, library in ((case, None), (eight_bits, played)):
        assert not any(isinstance(x, CublasLtGrouped) for x in contenders_of(which, Torch(), library))
    assert grouped_products.library_of(None, Torch())[1].startswith("without cuBLASLt's grouped layouts")


def test_no_algorithm_is_an_error_in_words(torch: Any, played: Played) -> None:
    case = case_of(SMALL, FORWARD, 80, "even", "bfloat16")
    contender = contenders_of(case, Torch(), played)[2]
    played.algorithms = 0
    with pytest.raises(DeviceError, match="has no algorithm for groups of 16 x 48 x 32 in the mean"):
        contender.prepare(case, *([x] for x in operands(torch, case)))


def test_orders_are_those_of_the_transpose() -> None:
    assert order_of((3, 8), (8, 1)) == (cublaslt_groups.OP_N, 8, 3, 8)
    assert order_of((3, 8), (1, 3)) == (cublaslt_groups.OP_T, 3, 8, 3)


def test_lines_of_all_layers_are_aligned_as_the_library_expects() -> None:
    """Preferences say 256 bytes unless they are told otherwise."""
    assert all(BYTES * extent % 256 == 0 for layer in LAYERS for extent in (layer.k, layer.n))


def test_the_result_of_heuristics_lies_as_in_the_header() -> None:
    places = {name: getattr(HeuristicResult, name).offset for name, _ in HeuristicResult._fields_}
    assert places == {"algo": 0, "workspace_size": 64, "state": 72, "waves_count": 76, "reserved": 80}
    assert ctypes.sizeof(HeuristicResult) == 96


def answering(version: int) -> Callable[..., Any]:
    def load(path: str, mode: int = 0) -> Any:
        return SimpleNamespace(
            cublasLtGetVersion=lambda: version,
            cublasLtGetStatusString=lambda status: b"no",
            cublasLtCreate=lambda handle: 1,
        )

    return load


def test_other_libraries_are_refused(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match=r"--cublaslt: must be a libcublasLt.so; .* is not"):
        Library(tmp_path / "libcublasLt.so.13")
    monkeypatch.setattr(ctypes, "CDLL", answering(130000))
    with pytest.raises(ArgumentError, match=r"must be of cuBLAS 13.6 or later, .* is of 13.0"):
        Library(tmp_path)
    monkeypatch.setattr(ctypes, "CDLL", answering(FIRST_ON_HOPPER))
    with pytest.raises(DeviceError, match="cublasLtCreate answered status 1, no"):
        Library(tmp_path).begin()


def test_torch_is_loaded_first_and_multiplies_still(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else torch's libcublas takes this libcublasLt for its own: all its products failed on an H200."""
    seen: list[str] = []
    load, plain = answering(FIRST_ON_HOPPER), builtins.__import__
    monkeypatch.setattr(ctypes, "CDLL", lambda *path, **mode: seen.append("library") or load(*path, **mode))

    def watched(name: str, *rest: Any) -> Any:
        seen.extend([name] if name == "torch" else [])
        return plain(name, *rest)

    framework = HostTorch()
    monkeypatch.setattr(builtins, "__import__", watched)
    words = grouped_products.library_of(tmp_path, framework)[1]
    monkeypatch.setattr(builtins, "__import__", plain)
    assert words == "grouped layouts of cuBLASLt 13.6"
    assert seen[:2] == ["torch", "library"]
    monkeypatch.setattr(framework, "random", lambda *_: Broken())
    with pytest.raises(DeviceError, match="must leave torch's own products right"):
        grouped_products.library_of(tmp_path, framework)


class Broken:
    def __matmul__(self, other: Any) -> Any:
        raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")
