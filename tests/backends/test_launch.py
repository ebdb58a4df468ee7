"""A Launch's argument bytes are laid out as the compiler lays out the kernel's parameters."""

from __future__ import annotations

import ctypes
import re
import struct
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lapidist.backends.gpu import launcher
from lapidist.backends.gpu.launcher import GpuKernel
from lapidist.calls.bound import Bound
from lapidist.calls.executable import Gemm
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation
from lapidist.errors import LaunchError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.launch import AS_IT_IS, Binary, Launch, ParameterBlock, TensorMap
from lapidist_lab.sass import binary_of, sample_problem
from offenders import each_holds
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


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "dtype"), TYPED, ids=TYPED_IDS)
def test_offsets_and_kinds_are_those_of_the_compiled_kernel(kernel: Kernel, dtype: str) -> None:
    binary = binary_of(kernel, kernel.config_for(dtype), dtype, "sm_90a")
    block = kernel.family.block(sample_problem(kernel, dtype))
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
    # empty but where a problem is given as lists of arrays, with factors, groups, or with a caller's function
    listing = re.sub(r"\s+(LISTS|\w+_PARAMETER)\b", "", listed[1])
    names = [re.search(r"(\w+)\s*$", part)[1] for part in listing.split(",")]  # type: ignore[index]
    same = {
        "A": {"A", "a_map"},
        "B": {"B", "b_map"},
        "D": {"C", "D"},
        "ldd": {"ldc", "ldd"},
        "b_col": {"ldb", "b_col"},
    }
    for name, (own, _) in zip(names, kernel.family.parameters, strict=True):
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
    assert block.of_kind("pointer") == {"a": 0, "b": 16}
    assert block.of_kind("tensormap") == {}


# ---- a whole launch ----


def launch_of(kernel: str, m: int, n: int, k: int, *, order: str = "C") -> tuple[Launch, Any, Any, Any]:
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    out = np.ones((m, n), np.float32, order=order)  # type: ignore[call-overload]
    bound = Bound(a, b, None, out, Operation(alpha=2.0))
    ready = Gemm(bound, Choices("machine", kernel))
    assert ready.plan is not None
    assert bound.out is not None
    return ready.plan.launch(bound.a, bound.b, None, bound.out, 2.0, 0.0), a, b, out


def test_a_launch_carries_the_operands() -> None:
    launch, a, b, out = launch_of("large_tile", 200, 300, 40)
    block = kernel_named("large_tile").family.block(sample_problem(kernel_named("large_tile"), "float32"))

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
    block = kernel_named("simt").family.block(sample_problem(kernel_named("simt"), "float32"))
    assert struct.unpack_from("<Q", launch.arguments, block.offsets["A"])[0] == b.ctypes.data
    assert struct.unpack_from("<Q", launch.arguments, block.offsets["B"])[0] == a.ctypes.data
    assert struct.unpack_from("<ii", launch.arguments, block.offsets["M"]) == (30, 20)


def test_tensor_maps_stand_at_their_parameters() -> None:
    launch, a, b, _ = launch_of("tma_streamk", 256, 128, 64)
    (a_place, a_map), (b_place, b_map) = launch.tensor_maps
    parameters = [start for kind, start, _ in declared(launch.binary.ptx, "tma_streamk") if kind == "b8"]
    assert [a_place, b_place] == parameters[:2]  # the others are structs of numbers
    assert (a_map.address, a_map.shape, a_map.strides) == (a.ctypes.data, (64, 256), (64 * 4,))
    assert (b_map.address, b_map.shape, b_map.strides) == (b.ctypes.data, (128, 64), (128 * 4,))
    config = kernel_named("tma_streamk").config
    assert a_map.box == (config.bk, config.bm)
    assert a_map.box[0] * 4 <= 128  # a box of 128-byte swizzle is no wider than its pattern


# ---- the patch table ----


def test_a_patch_writes_what_changes_and_nothing_else() -> None:
    launch, a, b, out = launch_of("large_tile", 20, 30, 40)
    other = launch.patched({"A": 1 << 40, "alpha": 0.5, "beta": -3, "modes": (1, 2, 3, 4, 5, 6)})
    offsets = launch.parameters.offsets
    changed = {
        name
        for name, start in offsets.items()
        if launch.arguments[start : start + 4] != other.arguments[start : start + 4]
        or launch.arguments[start : start + 8] != other.arguments[start : start + 8]
    }
    assert {"A", "alpha", "beta"} <= changed
    assert struct.unpack_from("<f", other.arguments, offsets["alpha"])[0] == 0.5
    back = other.patched({"A": a.ctypes.data, "alpha": 2.0, "beta": 0.0})
    assert back.arguments == launch.arguments
    assert launch.patched({"A": a.ctypes.data, "B": b.ctypes.data, "D": out.ctypes.data}) == launch


def test_every_kernel_takes_alpha_and_beta_through_the_patch_table() -> None:
    def takes(kernel: Kernel, dtype: str) -> None:
        patches = kernel.family.block(sample_problem(kernel, dtype)).patches()
        assert {"alpha", "beta"} <= patches.keys(), kernel.name

    each_holds(takes, TYPED)


def test_scalars_of_integers_are_whole() -> None:
    block = ParameterBlock([("alpha", "i32")])
    launch = Launch(BINARY, ONE, ONE, bytes(4), patches=block.patches())
    assert launch.patched({"alpha": -7.0}).arguments == struct.pack("<i", -7)


# ---- the launch path, with a driver that only counts ----

ONE = 1, 1, 1
BINARY = Binary("kernel", "sm_90a", "", b"", "")
PARAMETERS = ParameterBlock(
    [*((letter, "pointer") for letter in "ABCD"), ("alpha", "f32"), ("beta", "f32"), ("A_map", "tensormap")]
)


class CountingDriver:
    """Of cuLaunchKernelEx it keeps the parameter bytes."""

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.config: Any = None

    def cuCtxGetCurrent(self) -> tuple[Any, int]:
        return SimpleNamespace(value=0), 1

    def CUlaunchConfig(self) -> Any:
        self.config = SimpleNamespace(hStream=None)
        return self.config

    def CUstream(self, handle: int) -> int:
        return handle

    def cuLaunchKernelEx(self, config: Any, function: Any, address: int, extra: int) -> tuple[int]:
        starts = (ctypes.c_void_p * len(PARAMETERS.offsets)).from_address(address)
        values = [ctypes.c_uint64.from_address(starts[index]).value for index in range(4)]
        scalars = [ctypes.c_float.from_address(starts[index]).value for index in (4, 5)]
        encoded = ctypes.string_at(starts[6], 128) if len(starts) > 6 else b""
        self.launched.append((*values, *scalars, config.hStream, encoded[:8]))
        return (0,)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> CountingDriver:
    counting = CountingDriver()
    monkeypatch.setattr(launcher, "load_driver", lambda: counting)
    monkeypatch.setattr(launcher, "primary_context", lambda ordinal: 1)
    monkeypatch.setattr(launcher, "gpu_count", lambda: 1)
    monkeypatch.setattr(launcher, "load_binary", lambda *_: None)
    monkeypatch.setattr(launcher, "encode_tensor_map", lambda each: struct.pack("<Q120x", each.address))
    return counting


def kernel(maps: Any = None) -> GpuKernel:
    return GpuKernel(
        Launch(
            BINARY,
            ONE,
            ONE,
            bytes(PARAMETERS.nbytes),
            parameters=PARAMETERS,
            patches=PARAMETERS.patches(),
            maps=maps,
        ),
        0,
    )


def map_of_a(at: Any) -> Any:
    return ((PARAMETERS.offsets["A_map"], TensorMap(at["A"], "float32", (1, 1), (16,), (1, 1))),)


def test_a_repeated_launch_patches_what_moved(driver: CountingDriver) -> None:
    start = kernel().start
    for call in (
        (16, 32, 0, 48, (1.0, 0.0), 0),
        (16, 32, 0, 48, (0.5, 0.0), 0),
        (16, 32, 0, 48, (0.75, 0.25), 0),
        (64, 32, 0, 48, (0.75, 0.25), 9),
    ):
        start(call[:4], *call[4:])
        assert driver.launched[-1][:7] == (*call[:4], *call[4], call[5])


def test_a_launch_that_failed_half_way_is_prepared_anew(driver: CountingDriver) -> None:
    """Maps that could not be encoded must not be taken for those of the pointers that stand beside them."""
    encodable = [True]

    def maps(at: Any) -> Any:
        if not encodable[0]:
            raise LaunchError("no such map")
        return map_of_a(at)

    start = kernel(maps).start
    start((16, 32, 0, 48), AS_IT_IS, 0)
    encodable[0] = False
    for _ in range(2):  # again: the pointers are those of the call that failed
        with pytest.raises(LaunchError, match="no such map"):
            start((64, 32, 0, 48), AS_IT_IS, 0)
    encodable[0] = True
    start((64, 32, 0, 48), AS_IT_IS, 0)
    start((16, 32, 0, 48), AS_IT_IS, 0)
    assert [(a, struct.unpack("<Q", encoded)[0]) for a, *_, encoded in driver.launched] == [
        (16, 16),
        (64, 64),
        (16, 16),
    ]


def test_a_kernel_is_loaded_on_its_gpu(driver: CountingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, loaded = kernel().launch, []
    monkeypatch.setattr(launcher, "load_binary", lambda *how: loaded.append(how))
    GpuKernel(launch, 1)
    assert loaded == [(launch.binary, 1, launch.shared_bytes)]


def test_a_refused_alpha_is_refused_again(driver: CountingDriver) -> None:
    ready = kernel()
    only = {**ready.launch.patches, "alpha": replace(ready.launch.patches["alpha"], only=1.0)}
    start = GpuKernel(replace(ready.launch, patches=only), 0).start
    for _ in range(2):
        with pytest.raises(LaunchError, match="alpha: this plan was made for 1"):
            start((16, 32, 0, 48), (2.0, 0.0), 0)
    start((16, 32, 0, 48), AS_IT_IS, 0)
    assert len(driver.launched) == 1


def test_new_pointers_cost_less_than_a_microsecond(
    driver: CountingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the launch itself: the least of many turns, since other programs may hold one up."""
    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *_: (0,))
    start = kernel().start

    def least(step: int) -> float:
        turns = []
        for _ in range(50):
            begin = time.perf_counter()
            for number in range(200):
                start((16 + number * step, 32, 0, 48), AS_IT_IS, 0)
            turns.append((time.perf_counter() - begin) / 200)
        return min(turns)

    same, new = least(0), least(16)
    assert new - same < 1e-6
