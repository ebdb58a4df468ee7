"""Compiling ahead of need: which configurations, that they are the ones plans use, and what the command
says.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from in_turns import surveyed
from lapidist.build import processes
from lapidist.build.folder import cache_directory
from lapidist.calls.bound import Bound
from lapidist.calls.operation import Factors, Operation
from lapidist.commands.cli import app
from lapidist.device import chip
from lapidist.errors import LaunchError
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Launch
from lapidist.planning.plans import make_plan
from lapidist.planning.warm import (
    LAYERS,
    LAYOUTS,
    ROWS,
    Build,
    anything,
    build_all,
    builds_of,
    ordinary,
    path_of,
    plans_of,
)
from lapidist.problems.problem import Problem, dense_problem
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import KernelContender
from lapidist_lab.bench.protocol.record import read_runs
from lapidist_lab.bench.studies import ladder_runs
from lapidist_lab.bench.studies.ladder_runs import Work, compile_first, compile_only
from lapidist_lab.sass.listing import ptx_lines
from published import page_of

H200 = chip("h200")
MOST_BUILDS = 84  # of a type: at 0.4 seconds each, one core has them in little more than half a minute
DIVISION = 15  # more instructions than one that the assembler makes of it


@pytest.mark.often(2)
@pytest.mark.parametrize("math", ["float16", "bfloat16", "float32", "tf32", "float8_e4m3fn", "int8"])
def test_few_configurations_serve_ordinary_products(math: str) -> None:
    problems = ordinary(math)
    plans = plans_of(problems, H200)
    assert len(plans) == len(problems) > 100
    builds = builds_of(plans)
    assert 5 < len(builds) <= MOST_BUILDS, Counter(build.kernel for build in builds)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("m", "n", "k", "math", "layouts", "most"),
    [
        (4096, 4096, 4096, "bfloat16", "rr", 1075),
        (2048, 8192, 28672, "bfloat16", "rr", 2150),
        (4095, 4097, 4093, "tf32", "rr", 2750),
        (1903, 15099, 5617, "float8_e4m3fn", "rr", 2450),
        (1903, 15099, 5617, "int8", "rr", 2500),
        (1024, 1024, 1024, "float32", "rr", 2750),
        (571, 2115, 465, "float32", "rr", 3800),
        *surveyed(
            [
                (4095, 4097, 4093, "bfloat16", "rr", 2150),
                (2048, 8192, 28672, "tf32", "rc", 2250),
                (512, 28672, 8192, "tf32", "cr", 2050),
                (4095, 4097, 4093, "float8_e4m3fn", "rr", 2400),
                (512, 512, 512, "float32", "rr", 2650),
                (64, 8192, 8192, "float32", "cr", 3550),
                (1903, 2229, 2357, "float32", "rr", 3150),
                (323, 2029, 10295, "float32", "rr", 3600),
            ]
        ),
    ],
)
def test_kernels_stay_short(m: int, n: int, k: int, math: str, layouts: str, most: int) -> None:
    """The longest of each kind: what grows beyond takes NVRTC more than a second. A timer would tell how busy
    the computer is.
    """
    binary = make_plan(dense_problem(m, n, k, math, layouts), H200).unassembled
    divisions = len(re.findall(r"\b(?:div|rem)\.[us]32", binary.ptx))
    assert len(ptx_lines(binary)) + DIVISION * divisions < most


@pytest.mark.parametrize("math", ["bfloat16", "float32"])
def test_without_c_there_is_no_code_for_it(math: str) -> None:
    """C, and an alpha other than one, which `lapidist warm` does not ask for, bring one other build each."""
    problem = dense_problem(2048, 2048, 2048, math)
    times_alpha, with_c = replace(problem, one_alpha=False), replace(problem, c=problem.d)
    plain, times, added = (
        dict(make_plan(each, H200).problem_macros) for each in (problem, times_alpha, with_c)
    )
    assert plain == {**added, "ADDEND": 0, "ALPHA": 0}
    assert times == {**added, "ADDEND": 0}
    assert not {"ADDEND", "ALPHA"} & set(added)
    assert (
        make_plan(replace(with_c, one_alpha=False), H200).problem_macros
        == make_plan(with_c, H200).problem_macros
    )


@pytest.mark.parametrize(
    ("operation", "plain"),
    [
        (Operation(), True),
        (Operation(alpha=2.0), False),
        (Operation(alpha=np.ones(1, np.float32)), False),  # from memory: nobody knows
        (Operation(factors=Factors(2.0, 0.5)), True),
        (Operation(factors=Factors(2.0, None)), False),
    ],
    ids=str,
)
def test_what_is_called_is_what_was_compiled_ahead(operation: Operation, plain: bool) -> None:
    """Where alpha is one, numbers among the factors included."""
    dtype = ml_dtypes.float8_e4m3fn if operation.factors.any else np.float32
    a, b = np.zeros((2048, 256), dtype), np.zeros((2048, 256), dtype).T
    problem = Bound(a, b, None, None, operation).problem()
    ahead = dense_problem(2048, 2048, 256, problem.math, "rc")
    assert problem.one_alpha is plain
    assert (make_plan(problem, H200).problem_macros == make_plan(ahead, H200).problem_macros) is plain


def test_a_plan_for_an_alpha_of_one_takes_no_other() -> None:
    problem = dense_problem(2048, 2048, 2048, "bfloat16")
    launch = common_launch(problem)
    assert alpha_of(launch.patched({"alpha": 1.0})) == 1
    with pytest.raises(
        LaunchError, match=r"alpha: this plan was made for 1, and its kernel knows no other; got 2\.0"
    ):
        launch.patched({"alpha": 2.0})
    assert alpha_of(common_launch(replace(problem, c=problem.d)).patched({"alpha": 2.0})) == 2
    assert alpha_of(common_launch(replace(problem, k=0)).patched({"alpha": math.nan})) == 0


def common_launch(problem: Problem) -> Launch:
    plan = make_plan(problem, H200)
    return plan.common_launch(plan.unassembled)


def alpha_of(launch: Launch) -> float:
    return float(struct.unpack_from("<f", launch.arguments, launch.parameters.offsets["alpha"])[0])


def test_ordinary_products_have_every_layout_and_ragged_ones() -> None:
    problems = ordinary("bfloat16")
    layouts = {problem.layouts for problem in problems if problem.m > 1}
    assert layouts == {f"{layout}r" for layout in LAYOUTS}
    assert {(problem.n, problem.k) for problem in problems} >= set(LAYERS)
    assert {problem.m for problem in problems} >= set(ROWS)
    assert sum(problem.a.alignment < 16 for problem in problems) > 30


def test_a_chip_without_the_unit_gets_what_it_can_run() -> None:
    assert {build.architecture for build in builds_of(plans_of(ordinary("float32"), chip("a100")))} == {
        "sm_80"
    }
    assert plans_of(ordinary("float8_e5m2"), chip("a100")) == []
    assert "wgmma" not in {build.kernel for build in builds_of(plans_of(ordinary("float16"), chip("a100")))}


def small_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Build]:
    """Two that compile fast, in a cache of their own."""
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    plans = [
        make_plan(dense_problem(64, 64, 64, "float32"), H200, kernel_named(name))
        for name in ("coalesced", "shared_tile")
    ]
    return builds_of([*plans, *plans])


@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_built_is_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    builds = small_builds(tmp_path, monkeypatch)
    assert len(builds) == 2
    built = build_all(builds, processes)
    assert [each.error for each in built] == [None, None]
    assert all(each.seconds > 0 and path_of(each.build).exists() for each in built)
    assert all(each.seconds == 0 for each in build_all(builds, processes))  # and is not built again
    kept = sorted(cache_directory().iterdir())
    _ = make_plan(dense_problem(64, 64, 64, "float32"), H200, kernel_named("coalesced")).binary
    assert sorted(cache_directory().iterdir()) == kept == sorted(path_of(build) for build in builds)


def test_what_does_not_compile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = small_builds(tmp_path, monkeypatch)[0]
    wrong = [build._replace(macros=(*build.macros, ("T", f"no_such_type_{i}"))) for i in range(3)]
    for built in [*build_all(wrong[:1]), *build_all(wrong[1:], 2)]:  # here, and in processes
        assert built.error is not None
        assert "NVRTC" in built.error


def test_a_compiler_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = small_builds(tmp_path, monkeypatch)
    monkeypatch.setattr(processes, "SERVE", "import no_such_module")
    for built in build_all(builds, 2):
        assert built.error == "the compiler's process ended (1)"
        assert not path_of(built.build).exists()


def test_random_products_are_odd_and_even() -> None:
    problems = anything("bfloat16", 61)
    odd = [problem for problem in problems if problem.k % 2]
    assert len(problems) == 61
    assert len(odd) == 30
    assert {problem.layouts for problem in problems if problem not in odd} == {
        f"{layout}r" for layout in LAYOUTS
    }
    assert all(
        problem.a.alignment >= 16 and problem.b.alignment >= 16 for problem in problems if problem not in odd
    )


def test_a_bench_compiles_all_before_it_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = small_builds(tmp_path, monkeypatch)
    case = Case(64, 64, 64)
    compile_first(
        [Work(case, tuple(KernelContender(kernel_named(build.kernel), case.math) for build in builds))], H200
    )
    assert all(path_of(build).exists() for build in builds)


def test_without_a_gpu_a_bench_compiles_as_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is read off their machine code is asked for of few, as on a GPU."""
    asked: list[Build] = []
    monkeypatch.setattr(ladder_runs, "build_all", asked.extend)
    contenders = [
        KernelContender(kernel_named(name), "float32", disassembled=name == "coalesced")
        for name in ("uncoalesced", "coalesced")
    ]
    _, rows = compile_only([Work(Case(64, 64, 64), tuple(contenders))])
    assert [build.kernel for build in asked] == ["uncoalesced", "coalesced"]
    assert [row.ffma_share is None for row in rows] == [True, False]


def test_the_command_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    arguments = [
        "warm",
        "--dtype",
        "fp32",
        "--mnk",
        "100,100,100",
        "--mnk",
        "101,101,101",
        "--chip",
        "a100",
        "--jobs",
        "1",
    ]
    for words, folder in (
        ("1 were compiled, 0 were there", "first"),
        ("0 were compiled, 1 were there", "second"),
    ):
        (tmp_path / folder).mkdir()
        with pytest.raises(SystemExit) as stopped:
            app([*arguments, "--record", str(tmp_path / folder)])
        assert stopped.value.code == 0
        answer = capsys.readouterr().out
        assert re.search(r"2 plans for A100 use (\d) configurations: \d of ", answer)
        count = re.findall(r"use (\d)", answer)[0]
        assert words.replace("1", count) in answer
        (run,) = read_runs(tmp_path / folder)
        row, *alone = run.records
        assert len(alone) == (folder == "first")
        for each in alone:
            assert (each.kernel, each.mode, each.calls) == ("the longest of 2 plans", "warm, alone", 3)
            assert 0 < each.seconds_min <= each.seconds <= each.seconds_max
            assert re.fullmatch(r"simt, \d+ x \d+ x \d+", each.note)
            assert f"alone the longest takes {each.seconds:.2f} s: {each.note}" in answer
            assert f"| fp32 | {each.kernel} | {each.note} |" in page_of("launch", run.records)
        assert row.calls == (int(count) if folder == "first" else 0)
        assert (row.seconds_max is not None and 0 < row.seconds_max <= row.seconds) == (folder == "first")
        assert f"| fp32 | 1 at once, for 2 plans | {row.calls} |" in page_of("launch", run.records)


def test_products_with_c_have_kernels_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    found = {}
    for more in ([], ["--with-c"]):
        folder = tmp_path / f"records{len(more)}"
        folder.mkdir()
        with pytest.raises(SystemExit):
            app(
                [
                    "warm",
                    "--dtype",
                    "bf16",
                    "--mnk",
                    "100,104,96",
                    "--chip",
                    "h200",
                    "--record",
                    str(folder),
                    *more,
                ]
            )
        (run,) = read_runs(folder)
        found[len(more)], alone = run.records
        assert alone.kernel == "the longest of 1 plan" + (" with C" if more else "")
    assert found[1].kernel == found[0].kernel + " with C"
    assert found[0].calls == found[1].calls == 1
    assert "has 1 product and takes" in page_of("launch", [found[1]])


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["warm", "--layout", "nt"], "--layout: must be one of rr, rc, cr, cc; got 'nt'"),
        (["warm", "--chip", "k80"], "chip: must be one of"),
        (["warm", "--chip", "v100"], "--chip: must be one that some kernel runs on; got V100"),
        (["tune"], "--mnk: must name a product"),
        (["tune", "--mnk", "1,2"], "--mnk: must be three whole numbers"),
        (["bench", "squares", "--skip", "99"], "--skip: must leave something of squares; got 99"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str) -> None:
    from lapidist.errors import ArgumentError

    with pytest.raises(ArgumentError, match=re.escape(words)):
        app(arguments, standalone_mode=False)
