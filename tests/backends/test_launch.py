"""A Launch's argument bytes are laid out as the compiler lays out the kernel's parameters."""

from __future__ import annotations

import re
import struct
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lapidist.backends.gpu.launcher import GpuKernel
from lapidist.calls import prepared as prepare
from lapidist.calls.arguments import Arguments
from lapidist.calls.form import Form
from lapidist.errors import LaunchError
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.kernels.row import Kernel
from lapidist.launch import Launch, ParameterBlock
from lapidist.static import binary_of, sample_problem
from typed import TYPED, TYPED_IDS

DECLARATION = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+\w+_param_\d+(?:\[(\d+)\])?")
BYTES = {"u32": 4, "s32": 4, "f32": 4, "u64": 8, "s64": 8, "f64": 8, "b8": 1}
STRUCTS = {"tensormap", "schedule", "workspace", "modes", "scales", "order"}
KINDS = {
    "u32": {"i32"},
    "s32": {"i32"},
    "u64": {"i64", "pointer"},
    "f32": {"f32"},
    "f64": {"f64"},
    "b8": STRUCTS,
}


def declared(ptx: str, entry: str) -> list[tuple[str, int, int]]:
    """(PTX type, offset, bytes) of each parameter of a kernel, from its declaration alone."""
    header = ptx[ptx.index(f".entry {entry}(") :].partition(")")[0]
    found, end = [], 0
    for align, kind, count in DECLARATION.findall(header):
        size = BYTES[kind] * int(count or 1)
        step = int(align or BYTES[kind])
        start = -(-end // step) * step
        found.append((kind, start, size))
        end = start + size
    return found


@pytest.mark.parametrize(("kernel", "dtype"), TYPED, ids=TYPED_IDS)
def test_offsets_and_kinds_are_those_of_the_compiled_kernel(kernel: Kernel, dtype: str) -> None:
    binary = binary_of(kernel, kernel.config_for(dtype), dtype, "sm_90a")
    block = kernel.signature.block(sample_problem(kernel, dtype))
    parameters = declared(binary.ptx, kernel.entry)
    assert [start for _, start, _ in parameters] == list(block.offsets.values())
    assert block.nbytes == parameters[-1][1] + parameters[-1][2]
    for (kind, _, _), (name, own) in zip(parameters, block.parameters, strict=True):
        assert own in KINDS[kind], name


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_the_names_are_those_of_the_source(kernel: Kernel) -> None:
    """M, N, K, ... in the order of the kernel's own parameter list."""
    from lapidist.build.compiler import CUDA_SOURCES

    text = (CUDA_SOURCES / kernel.source).read_text()
    listed = re.search(rf"\b{kernel.entry}\((.*?)\)\s*{{", text, re.S)
    assert listed is not None
    # empty but where a problem is given as lists of arrays, or with factors
    macros = (" LISTS", " SCALES_PARAMETER")
    listing = listed[1].removesuffix(macros[1]).removesuffix(macros[0])
    names = [re.search(r"(\w+)\s*$", part)[1] for part in listing.split(",")]  # type: ignore[index]
    same = {
        "A": {"A", "a_map"},
        "B": {"B", "b_map"},
        "D": {"C", "D"},
        "ldd": {"ldc", "ldd"},
        "b_col": {"ldb", "b_col"},
    }
    for name, (own, _) in zip(names, kernel.signature.parameters, strict=True):
        assert name in same.get(own, {own})


def test_natural_alignment_leaves_gaps() -> None:
    block = ParameterBlock(
        [("a", "i32"), ("b", "pointer"), ("c", "f32"), ("d", "tensormap"), ("e", "i32"), ("f", "f64")]
    )
    assert block.offsets == {"a": 0, "b": 8, "c": 16, "d": 64, "e": 192, "f": 200}
    assert block.nbytes == 208


def test_values_land_at_their_offsets() -> None:
    block = ParameterBlock([("a", "i32"), ("b", "pointer"), ("c", "f32"), ("d", "i64"), ("e", "f64")])
    content = bytes(block.pack({"a": -3, "b": 2**63 + 5, "c": 1.5, "d": -(2**40), "e": 0.1}))
    assert struct.unpack_from("<i", content, 0)[0] == -3
    assert struct.unpack_from("<Q", content, 8)[0] == 2**63 + 5
    assert struct.unpack_from("<f", content, 16)[0] == 1.5
    assert struct.unpack_from("<q", content, 24)[0] == -(2**40)
    assert struct.unpack_from("<d", content, 32)[0] == 0.1


def test_what_has_no_value_yet_is_zero() -> None:
    block = ParameterBlock([("a", "pointer"), ("b", "i32")])
    assert bytes(block.pack({"b": 7})) == bytes(8) + b"\x07\0\0\0"


def test_places_of_a_kind() -> None:
    block = ParameterBlock([("a", "pointer"), ("n", "i32"), ("b", "pointer")])
    assert block.places("pointer") == {"a": 0, "b": 16}
    assert block.places("tensormap") == {}


# ---- a whole launch ----


def launch_of(kernel: str, m: int, n: int, k: int, *, order: str = "C") -> tuple[Launch, Any, Any, Any]:
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    out = np.ones((m, n), np.float32, order=order)  # type: ignore[call-overload]
    arguments = Arguments(a, b, None, out, Form(alpha=2.0))
    ready = prepare.Gemm(arguments, prepare.Choices("machine", kernel))
    assert ready.plan is not None
    assert arguments.out is not None
    return ready.plan.launch(arguments.a, arguments.b, None, arguments.out, 2.0, 0.0), a, b, out


def test_a_launch_carries_the_operands() -> None:
    launch, a, b, out = launch_of("large_tile", 200, 300, 40)
    block = kernel_named("large_tile").signature.block(sample_problem(kernel_named("large_tile"), "float32"))

    def value(name: str, code: str) -> Any:
        return struct.unpack_from(code, launch.arguments, block.offsets[name])[0]

    assert [value(name, "<i") for name in "MNK"] == [200, 300, 40]
    assert [value(name, "<Q") for name in "ABD"] == [x.ctypes.data for x in (a, b, out)]
    assert [value(name, "<q") for name in ("lda", "ldb", "ldd")] == [40, 300, 300]
    assert (value("alpha", "<f"), value("beta", "<f")) == (2.0, 0.0)
    assert (launch.grid, launch.block, launch.shared_bytes) == ((2 * 3, 1, 1), (256, 1, 1), 0)


def test_a_launch_names_the_memory_it_may_touch() -> None:
    launch, a, b, out = launch_of("large_tile", 20, 30, 40)
    ranges = {memory.name: (memory.address, memory.nbytes) for memory in launch.memory}
    assert ranges == {name: (x.ctypes.data, x.nbytes) for name, x in (("a", a), ("b", b), ("out", out))}


def test_a_column_major_output_exchanges_the_operands() -> None:
    launch, a, b, _ = launch_of("simt", 20, 30, 40, order="F")
    block = kernel_named("simt").signature.block(sample_problem(kernel_named("simt"), "float32"))
    assert struct.unpack_from("<Q", launch.arguments, block.offsets["A"])[0] == b.ctypes.data
    assert struct.unpack_from("<Q", launch.arguments, block.offsets["B"])[0] == a.ctypes.data
    assert struct.unpack_from("<ii", launch.arguments, block.offsets["M"]) == (30, 20)


def test_tensor_maps_stand_at_their_parameters() -> None:
    launch, a, b, _ = launch_of("tma_producer", 256, 128, 64)
    (a_place, a_map), (b_place, b_map) = launch.tensor_maps
    parameters = [start for kind, start, _ in declared(launch.binary.ptx, "tma_producer") if kind == "b8"]
    assert [a_place, b_place] == parameters[:2]  # the others are structs of numbers
    assert (a_map.address, a_map.shape, a_map.strides) == (a.ctypes.data, (64, 256), (64 * 4,))
    assert (b_map.address, b_map.shape, b_map.strides) == (b.ctypes.data, (128, 64), (128 * 4,))
    config = kernel_named("tma_producer").config
    assert a_map.box == (config.bk, config.bm)
    assert a_map.box[0] * 4 <= 128  # a box of 128-byte swizzle is no wider than its pattern


# ---- the launch path, with a driver that only counts ----


def test_a_launch_that_failed_half_way_is_prepared_anew() -> None:
    """Maps that could not be encoded must not be taken for those of the pointers that stand beside them."""
    launched: list[list[int]] = []
    block = SimpleNamespace(
        a=0, b=1, c=2, d=3, words=[0] * 4, config=SimpleNamespace(hStream=None), arguments=None, address=0
    )
    driver = SimpleNamespace(
        CUstream=int, cuLaunchKernelEx=lambda *_: launched.append([*block.words, *block.maps]) or (0,)
    )
    kernel = object.__new__(GpuKernel)
    kernel.plan, kernel._function = SimpleNamespace(workspace_bytes=0), None  # type: ignore[assignment]
    kernel._local, kernel._map_places = SimpleNamespace(block=block), {"A": 0}  # type: ignore[assignment]
    kernel._workspace = None
    encodable = [True]

    def place_maps(block: Any, a: int, b: int, d: int) -> None:
        if not encodable[0]:
            raise LaunchError("no such map")
        block.maps = (a, b, d)

    kernel._place_maps = place_maps  # type: ignore[method-assign]
    start = kernel._starter(driver)
    start(16, 32, 0, 48, 0)
    encodable[0] = False
    for _ in range(2):  # again: the pointers are those of the call that failed
        with pytest.raises(LaunchError, match="no such map"):
            start(64, 32, 0, 48, 0)
    encodable[0] = True
    start(64, 32, 0, 48, 0)
    start(16, 32, 0, 48, 0)
    assert launched == [[16, 32, 0, 48, 16, 32, 48], [64, 32, 0, 48, 64, 32, 48], [16, 32, 0, 48, 16, 32, 48]]


def test_new_pointers_cost_less_than_a_microsecond() -> None:
    """Beyond the launch itself: the least of many turns, since other programs may hold one up."""
    block = SimpleNamespace(
        a=0, b=1, c=2, d=3, words=[0] * 4, config=SimpleNamespace(hStream=None), arguments=None, address=0
    )
    driver = SimpleNamespace(CUstream=int, cuLaunchKernelEx=lambda *_: (0,))
    kernel = object.__new__(GpuKernel)
    kernel.plan, kernel._function = SimpleNamespace(workspace_bytes=0), None  # type: ignore[assignment]
    kernel._local, kernel._map_places = SimpleNamespace(block=block), {}  # type: ignore[assignment]
    kernel._workspace = None
    start = kernel._starter(driver)

    def least(step: int) -> float:
        turns = []
        for _ in range(50):
            begin = time.perf_counter()
            for number in range(200):
                start(16 + number * step, 32, 0, 48, 0)
            turns.append((time.perf_counter() - begin) / 200)
        return min(turns)

    same, new = least(0), least(16)
    assert block.words == [16 + 199 * 16, 32, 0, 48]
    assert new - same < 1e-6
