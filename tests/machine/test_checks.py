"""`lapidist.machine.check`: kernels as authors have them, what is found in them, and what is left out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rule_table

from lapidist.errors import ArgumentError, CompileError, DeviceError
from lapidist.launch import TensorMap
from lapidist.machine import check, run_ptx, schedule_budget
from lapidist.machine.authors import checks, framework_kernels
from lapidist.machine.authors.framework_kernels import (
    by_name,
    of_compiled,
    options_of,
    source_kind,
    triton_type,
)
from lapidist.machine.faults import MachineFault, OutOfBounds, Race
from lapidist.machine.rules import RULES
from snippets import HEADER, kernel

SHIFT = """
#include "sizes.h"
template <typename T> __global__ void scale(T* x, int n, T factor) {
    int i = threadIdx.x;
    if (i < n) x[i] *= factor;
}
__device__ float far(const float* tile) { return tile[(threadIdx.x + 32) % SIZE]; }
__global__ void shift(const float* x, float* y, int last = 63) {
    __shared__ float tile[SIZE];
    tile[threadIdx.x] = x[threadIdx.x];
    BARRIER;
    if (threadIdx.x <= last) y[threadIdx.x] = far(tile);
}
"""
FOUND, SOUND = {"BARRIER": ""}, {"BARRIER": "__syncthreads()"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "sizes.h").write_text("#define SIZE 64\n")
    path = tmp_path / "shift.cu"
    path.write_text(SHIFT)
    return path


def shifted(source: Path | str, define: dict[str, object], **options: Any) -> Any:
    x, y = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    options = {"entry": "shift", "include": [str(Path(source).parent / "headers")], "seeds": 4, **options}
    found = check(source, (1, 1, 1), (64, 1, 1), x, y, 63, define=define, **options)
    assert (y == (x + 32) % 64).all()
    return found


def test_a_schedule_of_many_warps_may_run_what_the_plain_run_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule runs each warp alone: 40 blocks of code hold for all of them in step, and not one by one."""
    source = """__global__ void meet(int* x) {
        for (int i = 0; i < 8; i++) { __syncthreads(); if (!x) *x = i; }
    }"""
    monkeypatch.setattr(checks, "DEFAULT_BUDGET", 40)
    x = np.zeros(1, "i4")
    assert "budget" in str(check(source, (1, 1, 1), (256, 1, 1), x, seeds=1))
    monkeypatch.setattr(schedule_budget, "COUNTED_FROM", 4)
    assert check(source, (1, 1, 1), (256, 1, 1), x, seeds=1)


def test_a_loop_without_end_is_found_by_a_budget_and_in_one_schedule() -> None:
    """Each run of the default budget takes minutes, and there were nine of them."""
    source = """__global__ void spin(int* x) {
        while (x[threadIdx.x] < 100) if (x[0] == 7) x[threadIdx.x]++;
    }"""
    found = check(source, (1, 1, 1), (32, 1, 1), np.zeros(32, "i4"), budget=500)
    assert [finding.rule for finding in found] == ["budget"]
    assert "ran 500 blocks of code and did not end; raise budget=" in str(found)
    assert str(found).endswith("1 errors and 0 warnings in 2 runs")
    with pytest.raises(ArgumentError, match="budget: must be"):
        check(source, (1, 1, 1), (32, 1, 1), np.zeros(32, "i4"), budget=0)


def test_a_sound_kernel_is_true_and_leaves_its_results(source: Path) -> None:
    found = shifted(source, SOUND)
    assert found
    assert list(found) == []
    assert str(found).endswith("shift(float const*, float*, int): 0 errors and 0 warnings in 5 runs")
    found.raise_errors()


def test_a_finding_names_rule_line_and_schedules(source: Path) -> None:
    found = shifted(source, FOUND)
    assert not found
    assert {finding.rule for finding in found} <= {"race", "uninitialised"}
    lines = {line for finding in found for line in finding.lines}
    assert "shift.cu:7" in lines  # inside far, and where that was inlined
    assert "shift.cu:12" in lines
    assert "shift.cu:10" in lines or all(finding.rule == "uninitialised" for finding in found)
    assert set(found[0].seeds) <= set(range(4))
    data = json.loads(json.dumps(found.data()))
    assert data["errors"] == len(found)
    assert data["findings"][0]["source"] == found[0].lines
    with pytest.raises(MachineFault):
        found.raise_errors()


@pytest.mark.parametrize(
    "options",
    [
        {"ignore": ["race", "uninitialised"]},
        {"ignore": ["shift.cu:12", "shift.cu:10"]},
        {"ignore": ["shift(float const*, float*, int)"]},
        {"levels": {"race": "off", "uninitialised": "off"}},
    ],
    ids=str,
)
def test_what_is_ignored(source: Path, options: dict[str, Any]) -> None:
    assert list(shifted(source, FOUND, **options)) == []


def test_a_comment_ignores_a_rule_on_its_line_or_the_next(source: Path) -> None:
    text = SHIFT.replace("= far(tile);", "= far(tile);  // lapidist: ignore race, uninitialised: as a test")
    before = "    // lapidist: ignore race (as a test)\n    tile[threadIdx.x] ="
    source.write_text(text.replace("    tile[threadIdx.x] =", before))
    assert list(shifted(source, FOUND)) == []


def test_warnings_are_no_errors(source: Path) -> None:
    found = shifted(source, FOUND, levels={"race": "warning", "uninitialised": "warning"})
    assert found
    assert {finding.level for finding in found} == {"warning"}
    assert "0 errors" in str(found)


def test_a_run_goes_on_behind_a_finding(source: Path) -> None:
    """Both sides of one fault, and two independent ones, in one schedule."""
    twice = SHIFT.replace(
        "    BARRIER;", "    BARRIER;\n    if (last) y[63 - threadIdx.x] = tile[63 - threadIdx.x];"
    )
    source.write_text(
        twice.replace("float far", "float unused").replace("far(tile)", "tile[threadIdx.x ^ 32]")
    )
    x, y = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    headers = [str(source.parent / "headers")]
    options: dict[str, Any] = {"include": headers, "define": FOUND, "seeds": 1, "entry": "shift"}
    found = check(source, (1, 1, 1), (64, 1, 1), x, y, 63, **options)
    assert len({line for finding in found for line in finding.lines}) >= 3


def test_cuda_as_text() -> None:
    x = np.ones(8, "f4")
    assert check(RawKernel.code, (1, 1, 1), (32, 1, 1), x, 8, define={"FACTOR": 5}, seeds=1)
    assert (x == 5).all()


def test_a_template_and_a_part_of_a_name(source: Path) -> None:
    x = np.ones(8, "f4")
    options: dict[str, Any] = {"include": [str(source.parent / "headers")], "define": SOUND, "seeds": 1}
    assert check(source, (1, 1, 1), (32, 1, 1), x, 8, 3.0, entry="scale<float>", **options)
    assert (x == 3).all()
    text = kernel("trap;").replace("k(", "first(") + kernel("").split(".address_size 64\n")[1]
    with pytest.raises(ArgumentError, match=r"entry: must name one kernel of the module: first, k; got ''"):
        check(text, (1, 1, 1), (1, 1, 1), x, x)
    assert not check(text, (1, 1, 1), (1, 1, 1), x, x, entry="fir", seeds=0)


# ---- what cannot be checked, in words ----


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.cuh", b"__device__ int f() { return 1; }", "none of it is compiled. Mark one __global__"),
        ("host.cu", b"#include <iostream>\nint main() {}", "It compiles device code alone"),
        ("away.cu", b'#include "away/tile.cuh"\n', "Name the folder of this header"),
        ("torch.cu", b"#include <ATen/ATen.h>\n", "give it the file with the kernel alone"),
        ("random.cu", b"#include <curand_away.h>\n", "with: pip install nvidia-curand. Name their folder"),
        ("picture.ptx", b"\x89PNG\0\0\1", "picture.ptx is binary"),
        ("words.ptx", b"hello", "must be PTX, which begins with .version.* got 'hello'"),
        ("later.ptx", HEADER.replace("sm_90a", "sm_100a").encode(), "got sm_100a. Compile for sm_90a"),
        ("other.ptx", HEADER.encode(), "none of it is compiled"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[:12] else "",
)
def test_files_without_a_kernel(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((ArgumentError, CompileError), match=words):
        check(tmp_path / name, (1, 1, 1), (32, 1, 1))


def test_other_values_in_words(source: Path) -> None:
    x = np.zeros(4, "f4")
    text = kernel("")
    for options, words in (
        ({"levels": {"speed": "off"}}, "levels: must name a rule: out-of-bounds"),
        ({"levels": {"race": "loud"}}, "levels: race must be one of error, warning, off"),
        ({"seeds": -1}, "seeds: must be a whole number from 0 on"),
        ({"block": None}, "block: must be the threads of a block"),
    ):
        with pytest.raises(ArgumentError, match=words):
            check(text, (1, 1, 1), **{"block": (1, 1, 1), **options})
    with pytest.raises(ArgumentError, match=r"arch: must be sm_90a or an older one.* got 'sm_100a'"):
        check(source, (1, 1, 1), (1, 1, 1), arch="sm_100a")
    with pytest.raises(ArgumentError, match="must be the path of a"):
        check(3, (1, 1, 1), (1, 1, 1))
    with pytest.raises(ArgumentError, match=r"parameter 1 \(out\) has no value"):
        check(text, (1, 1, 1), (1, 1, 1), x)
    for value, words in (
        (x, "parameter n is a .u32, not a pointer"),
        (2.5, "parameter n is a .u32; a float"),
    ):
        with pytest.raises(ArgumentError, match=words):
            check(RawKernel.code, (1, 1, 1), (32, 1, 1), x, value, define={"FACTOR": 5})
    with pytest.raises(ArgumentError, match="Compilers number parameters: give them by position"):
        run_ptx(text, "k", (1, 1, 1), (1, 1, 1), {"n": 1})


@pytest.mark.parametrize(
    "fields",
    [
        ("float32", 0, (16, 8), (64,), (16, 8)),
        (0, "float32", 16, 8, (16, 8)),
        (0, "no type", (16, 8), (64,), (16, 8)),
        (0, "float32", (16, 8.0), (64,), (16, 8)),
        (0, "float32", (64,), (16, 8), (16, 8)),
    ],
)
def test_a_tensor_map_with_its_fields_exchanged(fields: Any) -> None:
    text = f"{HEADER}.visible .entry k(.param .align 64 .b8 map[128]) {{ ret; }}"
    with pytest.raises(ArgumentError, match="tensor_maps: the map at offset 0 must have"):
        check(text, (1, 1, 1), (32, 1, 1), TensorMap(*fields))


# ---- kernels of frameworks ----


class RawKernel:
    """What CuPy's has: no GPU is asked for any of it."""

    code = (
        'extern "C" __global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= FACTOR; }'
    )
    name, options = "twice", ("-DFACTOR=2", "--gpu-architecture=sm_100")


def of_package(package: str, made: type) -> Any:
    return type(made.__name__, (made,), {"__module__": f"{package}.somewhere"})()


def test_a_raw_kernel_of_cupy() -> None:
    x = np.ones(8, "f4")
    assert check(of_package("cupy", RawKernel), (1, 1, 1), (32, 1, 1), x, 8, seeds=1)
    assert (x == 2).all()
    with pytest.raises(ArgumentError, match="of CuPy's, a RawKernel has the source"):
        check(of_package("cupy", object), (1, 1, 1), (32, 1, 1), x)
    with pytest.raises(ArgumentError, match="are for Triton's constants and options alone; got BLOCK"):
        check(of_package("cupy", RawKernel), (1, 1, 1), (32, 1, 1), x, 8, BLOCK=4)


def test_a_parameter_of_triton_s_that_bears_an_option_s_name_is_both() -> None:
    options, constants = options_of(["x", "num_warps"], {"num_warps": 8, "num_stages": None, "BLOCK": 4})
    assert (options, constants) == ({"num_warps": 8}, {"num_warps": 8, "BLOCK": 4})
    named = {"num_warps": 8, "enable_fp_fusion": False, "pre_hook": None, "BLOCK": 4}
    assert options_of(["x"], named) == ({"num_warps": 8, "enable_fp_fusion": False}, {"BLOCK": 4})


def test_none_for_an_array_is_a_constant_of_triton_s() -> None:
    given, constants = by_name("k", ["x", "index", "n", "BLOCK"], (1, None, 5), {"BLOCK": 4})
    assert (given, constants) == ({"x": 1, "n": 5}, {"BLOCK": 4, "index": None})
    with pytest.raises(ArgumentError, match="k takes x, n, and constexprs by name; got 1 values"):
        by_name("k", ["x", "n", "BLOCK"], (1,), {"BLOCK": 4})


def test_gluon_s_functions_are_compiled_as_gluon_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their source has a kind of its own, and a descriptor's type names the layout."""
    kinds = {"triton.compiler": "ASTSource", "triton.experimental.gluon._runtime": "GluonASTSource"}
    for module, kind in kinds.items():
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{kind: kind}))
    assert source_kind(SimpleNamespace(is_gluon=lambda: True)) == "GluonASTSource"
    assert source_kind(SimpleNamespace(is_gluon=lambda: False)) == source_kind(object()) == "ASTSource"
    monkeypatch.setattr(framework_kernels, "array_behind", lambda name, descriptor: descriptor.base)
    kind = type("TensorDescriptor", (SimpleNamespace,), {"__module__": "triton.tools"})
    fields = {"base": np.zeros((64, 64), "f2"), "block_shape": [32, 64]}
    assert triton_type("x", kind(**fields)) == "tensordesc<fp16[32, 64]>"
    assert triton_type("x", kind(**fields, layout=64)) == "tensordesc<fp16[32, 64],64>"


def test_scratch_memory_that_triton_asks_for() -> None:
    """So many bytes a block, at the first of the two hidden parameters, aligned as tensor maps are."""
    body = """mov.u32 %r1, %ctaid.x; mul.lo.u32 %r1, %r1, 256; cvt.u64.u32 %rd1, %r1;
        add.u64 %rd1, %rd1, %out; st.global.u32 [%rd1+252], %r1;
        and.b64 %rd1, %rd1, 127; setp.ne.u64 %p1, %rd1, 0; @%p1 trap;"""
    text = kernel(body).replace(" .param .u64 out", " .param .u64 out, .param .u64 profile")
    metadata = {"name": "k", "num_warps": 1, "shared": 0, "num_ctas": 1, "global_scratch_size": 256}
    compiled = SimpleNamespace(asm={"ptx": text}, metadata=SimpleNamespace(**metadata))
    x = np.zeros(4, "f4")
    launch = checks.launch_of(of_compiled(compiled, (x,)), (3, 1, 1), None, (), 0, (1, 1, 1), ())
    assert sorted(memory.nbytes for memory in launch.memory) == [16, 768]
    assert list(checks.check_launch(launch, of_compiled(compiled, (x,)), 1, (), {})) == []
    with pytest.raises(ArgumentError, match="must take its arguments, then a pointer to scratch memory"):
        of_compiled(compiled, (x, x))


@pytest.mark.parametrize("package", ["triton", "numba"])
def test_what_is_missing_is_said(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DeviceError, match=f"compiling it takes {package}, which cannot be imported whole"):
        check(of_package(package, object), (1, 1, 1), (32, 1, 1))


# ---- rules ----


def test_the_page_lists_the_rules() -> None:
    text = rule_table.PAGE.read_text()
    assert text == rule_table.page(text)


def test_each_fault_has_a_rule() -> None:
    kinds = MachineFault.__subclasses__()
    assert {kind.usual_name for kind in kinds} <= RULES.keys()
    assert Race("x").name == "race"
    assert OutOfBounds("x", name="trap").name == "trap"


UNROLLED = """
__global__ void sum(const float* x, float* y) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    float total = 0;
    #pragma unroll
    for (int n = 0; n < 6; ++n)
        total += tile[(threadIdx.x + 8 * n) % 64];
    y[threadIdx.x + BEYOND] = total;
}
"""


def test_copies_of_an_unrolled_line_are_one_finding() -> None:
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    found = check(UNROLLED, (1, 1, 1), (64, 1, 1), x, y, seeds=4, define={"BEYOND": 0})
    lines = [finding.lines[0] for finding in found if finding.rule == "race"]
    assert sorted(set(lines)) == sorted(lines)
    (read,) = [finding for finding in found if finding.lines == ["kernel.cu:8"] and finding.rule == "race"]
    assert len(read.ptx_lines) > 1
    assert read.data()["ptx_lines"] == list(read.ptx_lines)
    others = [str(line) for line in read.ptx_lines[1:]]
    assert f"PTX lines of its copies: {', '.join(others[:4])}" in str(read)


def test_a_race_names_the_source_lines_of_both_accesses() -> None:
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    found = check(UNROLLED, (1, 1, 1), (64, 1, 1), x, y, seeds=4, define={"BEYOND": 0})
    said = {finding.lines[0]: finding.fault.rule for finding in found if finding.rule == "race"}
    assert ", kernel.cu:4; nothing orders the two" in said["kernel.cu:8"] or (
        ", kernel.cu:8; nothing orders the two" in said["kernel.cu:4"]
    )


def test_a_race_is_left_out_at_either_of_its_lines() -> None:
    """By number, and by a comment; what was written there stays found where nothing says so."""
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")

    def races(source: str, **options: Any) -> list[Any]:
        found = check(source, (1, 1, 1), (64, 1, 1), x, y, seeds=4, define={"BEYOND": 0}, **options)
        return [finding for finding in found if finding.rule == "race"]

    assert len({finding.lines[0] for finding in races(UNROLLED)}) == 2
    for line in (4, 8):
        assert races(UNROLLED, ignore=[f"kernel.cu:{line}"]) == []
    for place in ("x[threadIdx.x];", "% 64];"):
        commented = UNROLLED.replace(place, f"{place}  // lapidist: ignore race: one barrier is enough", 1)
        assert races(commented) == []
    assert races(UNROLLED, ignore=["kernel.cu:9"]) != []


def test_what_can_leave_nothing_out_is_refused() -> None:
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    launch = {"define": {"BEYOND": 0}, "seeds": 1}
    for name in ("sum", "sum(float const*, float*)", "race", "other.cu:3"):
        check(UNROLLED, (1, 1, 1), (64, 1, 1), x, y, ignore=[name], **launch)
    words = r"ignore: must be a rule \(.*race.*\), FILE:LINE, or a kernel \(sum.*got 'rase'"
    with pytest.raises(ArgumentError, match=words):
        check(UNROLLED, (1, 1, 1), (64, 1, 1), x, y, ignore=["rase"], **launch)


def test_what_is_left_is_a_parameter_by_its_name_in_the_source() -> None:
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    found = check(UNROLLED, (1, 1, 1), (64, 1, 1), x, y, seeds=1, define={"BEYOND": 40})
    (outside,) = [finding for finding in found if finding.rule == "out-of-bounds"]
    assert "past the end of parameter y (256 bytes)" in outside.fault.rule


def test_headers_find_those_that_lie_beside_them(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "outer.h").write_text('#include "inner.h"\n')
    (tmp_path / "parts" / "inner.h").write_text("using T = float;\n")
    path = tmp_path / "k.cu"
    path.write_text(
        '#include "parts/outer.h"\n#include <cooperative_groups.h>\n'
        "__global__ void k(T* x) { cooperative_groups::this_grid().sync(); x[threadIdx.x] = 1; }\n"
    )
    x = np.zeros(32, "f4")
    assert check(path, (1, 1, 1), (32, 1, 1), x, seeds=1)
    assert (x == 1).all()


def test_missing_headers_of_the_cpp_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapidist.build.compiler.library_paths", lambda: ())
    with pytest.raises(CompileError, match=r'pip install "nvidia-cuda-cccl=='):
        check("#include <cuda/atomic>\n" + UNROLLED, (1, 1, 1), (64, 1, 1), define={"BEYOND": 0})


def test_warnings_never_end_a_run() -> None:
    """Each of 120 blocks initialises its mbarrier twice, and writes its number behind that."""
    source = """extern "C" __global__ void again(int* out) {
        __shared__ unsigned long long m;
        unsigned at = (unsigned)__cvta_generic_to_shared(&m);
        for (int i = 0; i < 2; i++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at) : "memory");
        out[blockIdx.x] = blockIdx.x;
    }"""
    out = np.zeros(120, "i4")
    found = check(source, (120, 1, 1), (1, 1, 1), out, seeds=1)
    assert [(finding.rule, finding.seeds) for finding in found] == [("mbarrier-init-again", (0, None))]
    assert (out == np.arange(120)).all()


def test_what_a_kernel_prints_is_seen_once(capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    #include <cstdio>
    extern "C" __global__ void tells(int* y) { if (blockIdx.x + threadIdx.x == 0) printf("%d\\n", y[0]); }
    """
    check(source, (schedule_budget.COUNTED_FROM + 1, 1, 1), (32, 1, 1), np.full(1, 7, "i4"), seeds=2)
    assert capsys.readouterr().out == "7\n"
