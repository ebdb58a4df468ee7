"""The registry: names, entries and configs that compile for every chip they promise, without spills."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lapidist.build.compiler import CUDA_SOURCES, compile_kernel
from lapidist.config import Config
from lapidist.device import STATIC_SHARED, chip
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import BY_NAME, DETOURS, KERNELS, PRODUCTION, RUNGS, kernel_named
from lapidist.kernels.sgemm.family import SGEMM
from lapidist.planning.cost_table import as_computed
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from lapidist_lab.sass import Static, analyse, binary_of, sample_problem
from lapidist_lab.sass.analysis import resources
from offenders import each_holds
from typed import TYPED, TYPED_IDS

SHARED_LIMIT = 227 * 1024


def named(kernel: Kernel) -> str:
    return kernel.name


# ---- names ----


def test_names_are_unique_and_found() -> None:
    assert len(BY_NAME) == len(KERNELS)
    for kernel in KERNELS:
        assert kernel_named(kernel.name) is kernel


def test_a_rung_answers_to_its_number() -> None:
    for number, kernel in enumerate(RUNGS, 1):
        assert kernel_named(str(number)) is kernel_named(number) is kernel
        assert kernel.source.startswith(f"ladder/{number:02d}_")


@pytest.mark.parametrize("name", ["0", "99", "-1", "", "naive", "LARGE_TILE"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(
        ArgumentError, match=r"kernel: must be a kernel's name, or a rung's number from 1 to 31; got "
    ):
        kernel_named(name)


def test_every_source_is_registered_and_every_row_has_its_source() -> None:
    """But the probe of where blocks lie, second passes over results, what makes slices, and what adds terms
    of ranks: they multiply nothing of the caller's. Weights of few bits are no matrices that a Problem
    describes."""
    sources = {
        str(path.relative_to(CUDA_SOURCES))
        for path in CUDA_SOURCES.rglob("*.cu")
        if path.parent.name not in ("second", "emulated", "quantised", "exchange")
    }
    # what is beside real products
    of_complex = {"packing/widen.cu", "gemm/complex_tile.cu", "gemm/complex_mma.cu"}
    assert sources == {kernel.source for kernel in KERNELS} | {"placement.cu"} | of_complex


def test_kinds() -> None:
    assert {kernel.kind for kernel in RUNGS} == {"rung"}
    assert {kernel.kind for kernel in DETOURS} == {"detour"}
    assert {kernel.kind for kernel in PRODUCTION} == {"production"}
    for kernel in KERNELS:
        assert kernel.idea
        assert 0 < kernel.efficiency <= 1


@pytest.mark.parametrize("kernel", KERNELS, ids=named)
def test_one_entry_by_the_files_name(kernel: Kernel) -> None:
    text = (CUDA_SOURCES / kernel.source).read_text()
    assert re.findall(
        r'extern\s+"C"\s+__global__\s+(?:CLUSTERED\s+)?void\s+__launch_bounds__\([^;{]*?\)\s+(\w+)\(', text
    ) == [kernel.entry]


# ---- what the compiler makes of them ----


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "math"), TYPED, ids=TYPED_IDS)
def test_every_kernel_compiles_for_every_type(kernel: Kernel, math: str) -> None:
    """Of many configs the largest alone, which asks for most; the machine runs the small ones. Clusters of
    eight have stages that fit where B lies by columns.
    """
    configs, sample = [config for config, _ in kernel.configs_for(math)], sample_problem(kernel, math)
    by_columns = dense_problem(4096, 4096, 4096, math, "rc")
    for config in configs if len(configs) < 8 else configs[:1]:
        binary = binary_of(kernel, config, math, "sm_90a")
        registers, shared, _ = resources(binary)
        assert 0 < registers * config.threads <= 65536
        assert shared <= STATIC_SHARED
        assert all(
            shared + kernel.shared_bytes(each, as_computed(of, each)) <= SHARED_LIMIT
            for each in configs
            for of in [by_columns if each.cluster > 4 else sample]
        )
        multiplies(kernel, math, binary.ptx)


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "math"), TYPED, ids=TYPED_IDS)
def test_every_kernel_takes_rows_that_start_anywhere(kernel: Kernel, math: str) -> None:
    """Or as little alignment as it asks for."""
    config = kernel.config_for(math)
    macros = kernel.macros(sample_problem(kernel, math, aligned=False), config)
    binary = compile_kernel(kernel.source, kernel.entry, macros, "sm_90a", kernel.options, assembled=False)
    multiplies(kernel, math, binary.ptx)


def multiplies(kernel: Kernel, math: str, ptx: str) -> None:
    fused = f"fma.rn.{'f64' if math == 'float64' else 'f32'}"
    assert f".visible .entry {kernel.entry}(" in ptx
    assert re.search({"fma": fused, "mma": r"\bmma\.sync", "wgmma": r"\bwgmma\.mma_async"}[kernel.unit], ptx)


@pytest.mark.survey
@pytest.mark.parametrize("kernel", KERNELS, ids=named)
def test_every_kernel_compiles_for_the_oldest_chip_it_promises(kernel: Kernel) -> None:
    major, minor = kernel.capability
    architecture = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    math = "float16" if kernel.unit != "fma" else "float32"
    assert f".target {architecture}" in binary_of(kernel, kernel.config_for(math), math, architecture).ptx


@pytest.mark.survey
@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if "float32" in kernel.types.maths], ids=named
)
def test_nothing_spills_in_float(kernel: Kernel) -> None:
    """Aligned; without alignment the addresses of single elements may cost a rung some, in newer compilers.

    sgemm keeps the order of the source, and newer compilers then spill where it hands sums on between tiles;
    never in its loop. Rung 15 fills its 128 registers, and puts some values away before its loop."""
    for config, _ in kernel.configs_for("float32"):
        for aligned in (True, False) if kernel.kind == "production" else (True,):
            found = analyse(kernel, config, "float32", "sm_90a", aligned=aligned)
            assert found.mix.get("local", 0) == 0, str(config)
            assert found.spills == 0 or kernel in (SGEMM, kernel_named("wide_copies")), str(config)


def share(name: str, dtype: str = "float32") -> Static:
    return analyse(kernel_named(name), None, dtype, "sm_90a")


def test_the_ladder_climbs_in_the_share_of_multiply_adds() -> None:
    """Each of these rungs exists to spend fewer instructions on anything else."""
    climbed = [
        share(name).ffma_share
        for name in ("coalesced", "hoisted_indices", "padded_tile", "thread_column", "vector_loads")
    ]
    assert climbed == sorted(climbed)
    assert share("thread_tile").ffma_share > share("vector_loads").ffma_share
    assert share("large_tile").ffma_share > share("thread_tile").ffma_share


def test_vectors_are_as_wide_as_the_lesson_says() -> None:
    assert set(share("thread_column").widths["ldg"]) == {4}
    assert set(share("vector_loads").widths["ldg"]) == {16}
    assert set(share("transposed_a").widths["lds"]) == {16}
    assert share("async_pipeline").widths["ldgsts"]
    assert not share("double_buffer").widths["ldgsts"]


@pytest.mark.often(2)
@pytest.mark.parametrize("name", ["shared_tile", "large_tile", "double_buffer"])
def test_barriers_a_step(name: str) -> None:
    """Two to fill and drain one buffer, one with two buffers."""
    assert share(name).barriers == (1 if name == "double_buffer" else 2)


# ---- configs ----


def has_whole_configs(kernel: Kernel, math: str) -> None:
    for config, efficiency in kernel.configs_for(math):
        assert config.threads % 32 == 0
        assert config.threads <= 1024
        assert 0 < efficiency <= 1
        if config.wm:
            assert (config.bm % config.wm, config.bn % config.wn) == (0, 0)
        if not config.by_warps:
            assert config.bm % config.tm == 0
            assert config.bn % config.tn == 0
            assert not config.wm or config.wm // config.tm * (config.wn // config.tn) == 32


def test_every_registered_config_is_whole() -> None:
    each_holds(has_whole_configs, TYPED)


def test_a_config_prints_what_it_is() -> None:
    assert str(Config(128, 64, 8, 32, 16, 8, 4, stages=3)) == "128x64x8, warp 32x16, thread 8x4, 3 stages"
    assert str(Config(32, 32)) == "32x32, thread 1x1"
    assert Config(128, 128, 8, tm=8, tn=8, producers=32).threads == 256 + 32
    by_warps = Config(128, 64, 16, 32, 32, 0, 0, stages=4)
    assert (str(by_warps), by_warps.threads) == ("128x64x16, warp 32x32, 4 stages", 256)
    assert Config(32, 16).defines() == {"BM": 32, "BN": 16, "TM": 1, "TN": 1}


def test_tiles_of_simt_that_static_shared_memory_does_not_hold_are_refused() -> None:
    """As the compiler would, but in words, and before it runs: a kernel may declare 2 x 24 x 200 floats, and
    not 2 x 32 x 200.
    """
    kernel = kernel_named("simt")
    problem, device = sample_problem(kernel, "float32"), chip("h200")
    assert kernel.refuse(problem, replace(kernel.config, bk=24), device) is None
    words = (
        f"tiles of A and B take 51200 bytes of static shared memory, of which a kernel has {STATIC_SHARED}"
    )
    with pytest.raises(RefusalError, match=words):
        make_plan(problem, device, kernel, replace(kernel.config, bk=32))
