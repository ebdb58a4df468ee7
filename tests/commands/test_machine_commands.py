"""Commands of the machine: foreign kernels, explanations, mutants, plans."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from command_line import in_a_process, run
from in_turns import in_turns
from lapidist.commands import cli
from lapidist.device import chip
from lapidist.kernels.registry import kernel_named
from lapidist_lab.bench.protocol.cases import Part
from lapidist_lab.bench.studies import machine_runs
from lapidist_lab.commands import run_target
from lapidist_lab.machine_studies.explain import explain_kernel

SAXPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<6>;
    ld.param.u32 %r1, [n]; ld.param.f32 %f1, [a]; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1; @%p1 bra done;
    mad.wide.u32 %rd3, %r5, 4, %rd1; mad.wide.u32 %rd4, %r5, 4, %rd2;
    ld.global.f32 %f2, [%rd3]; ld.global.f32 %f3, [%rd4]; fma.rn.f32 %f3, %f1, %f2, %f3; st.global.f32
    [%rd4], %f3;
done:
    ret;
}
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "saxpy.ptx"
    path.write_text(SAXPY)
    return str(path)


def test_run_ptx_runs_a_foreign_kernel_on_arrays(module: str, tmp_path: Path) -> None:
    x = np.arange(100, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    values = [
        "--arg",
        "n=100",
        "--arg",
        "a=2",
        "--arg",
        f"x={tmp_path}/x.npy",
        "--arg",
        "y=float32[100]:ones",
    ]
    found = in_a_process(
        "run-ptx", module, "--entry", "saxpy", "--block", "128", *values, "--save", f"y={tmp_path}/y.npy"
    )
    assert found.returncode == 0, found.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), 2 * x + 1)
    assert "fma f32" in found.stdout


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arg", "n"], "--arg: must be NAME=VALUE; got 'n'"),
        (["--arg", "n=five"], "--arg: a value is a number, a .npy file, or a new array"),
        (["--arg", "n=nowhere.npy"], "--arg: must be a file of one array of numbers; 'nowhere.npy' is not"),
        (["--arg", "x=float32[99999999999]"], "--arg: a new array must have at most 4,294,967,296 bytes"),
        (
            ["--arg", "x=float32[99999999999999999999]"],
            "--arg: a new array must have at most 4,294,967,296 bytes",
        ),
        (["--arg", "x=object[3]"], "--arg object[3]: must be an array of plain numbers; got dtype object"),
        (["--arg", "²=3"], "args: '²' is no parameter"),
        (["--grid", "²"], "--grid: must be one to three positive numbers, X,Y,Z; got '²'"),
        (["--grid", "9" * 5000], "--grid: must be one to three positive numbers"),
        (
            ["--arg", "x=float32[1]", "--save", "x=/proc/none.npy"],
            "--save: must be writable; '/proc/none.npy' is not",
        ),
        (
            ["--arg", "x=float32[1]", "--save", "x=/nowhere/x.npy"],
            "--save: must lie in a folder that exists; '/nowhere' does not",
        ),
        (["--arg", "x=float32[1]", "--save", f"x=/tmp/{'x' * 300}.npy"], "--save: must be writable"),
        (["--arg", "n=5", "--arg", "n=6"], "--arg: n must be given once; got 'n=6' as well"),
        (["--arg", "n=5"], "args: parameter 1 (a) has no value; saxpy takes 0: n (.u32, 4 bytes)"),
        (["--block", "0"], "--block: must be one to three positive numbers, X,Y,Z; got '0'"),
    ],
)
def test_run_ptx_names_what_is_wrong(
    module: str,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["run-ptx", module, "--entry", "saxpy", *options], monkeypatch) == 2
    stderr = capsys.readouterr().err
    assert message in stderr
    assert "Traceback" not in stderr


def test_run_ptx_takes_no_pickled_objects(module: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "z.npz", x=np.ones(1))
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    for name in ("x.npy", "z.npy"):
        found = in_a_process("run-ptx", module, "--entry", "saxpy", "--arg", f"x={tmp_path / name}")
        assert found.returncode == 2
        assert "--arg: must be a file of one array of numbers" in found.stderr


def test_run_ptx_saves_to_the_file_that_was_named(module: str, tmp_path: Path) -> None:
    values = ["--arg", "n=0", "--arg", "a=2", "--arg", "x=float32[1]", "--arg", "y=float32[1]:ones"]
    found = in_a_process("run-ptx", module, "--entry", "saxpy", *values, "--save", f"y={tmp_path}/y.result")
    assert found.returncode == 0, found.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("y")] == ["y.result"]


def test_run_ptx_has_budgets(module: str) -> None:
    values = ["--arg", "n=0", "--arg", "a=2", "--arg", "x=float32[1]", "--arg", "y=float32[1]"]
    launch = ["run-ptx", module, "--entry", "saxpy", *values, "--grid", "2147483647"]
    assert "ran 50 blocks of code and did not end" in in_a_process(*launch, "--budget", "50").stderr
    assert (
        "--memory-budget: must hold what 512 resident blocks"
        in in_a_process(*launch, "--memory-budget", "1000").stderr
    )


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "options",
    [["--csv", "/proc/x.csv"], ["--html", "/proc/x.html"], ["--record", "/proc"], ["--csv", "/sys"]],
)
def test_places_that_cannot_be_written_are_refused_before_the_work(options: list[str]) -> None:
    found = in_a_process("climb", "--device", "machine", "--size", "4096", *options)
    assert found.returncode == 2
    assert f"{options[0]}: must be" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_nested_file_of_cases_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    for text in (
        "[" * 100_000,
        "[[" + "[" * 500 + "]" * 500 + "]]",
        '[{"m": 1, "n": 1, "k": 1, "dtype": []}]',
    ):
        path.write_text(text)
        found = in_a_process("bench", "cases", "--file", str(path))
        assert found.returncode == 2
        assert "Traceback" not in found.stderr
        assert len(found.stderr) < 1000


def test_run_ptx_keeps_what_was_written_before_a_fault_and_tells_the_seed(
    module: str, tmp_path: Path
) -> None:
    values = [
        "--arg",
        "a=2",
        "--arg",
        "x=float32[100]:ones",
        "--arg",
        "y=float32[100]",
        "--save",
        f"y={tmp_path}/y.npy",
    ]
    launch = ["run-ptx", module, "--entry", "saxpy", "--block", "32", "--grid", "5", "--sanitize", *values]
    whole = in_a_process(*launch, "--arg", "n=100")
    assert whole.returncode == 0, whole.stderr
    assert "no error found; replay with sanitize=True, seed=" in whole.stdout
    beyond = in_a_process(*launch, "--seed", "3", "--arg", "n=129")
    assert beyond.returncode == 1
    assert "replay with sanitize=True, seed=3" in beyond.stderr
    assert "the arrays hold what the kernel had written until then" in beyond.stderr
    assert set(np.load(tmp_path / "y.npy")) <= {0, 2}


def test_explain_names_the_bound_and_the_next_rung() -> None:
    found = in_a_process("explain", "shared_tile", "--size", "64")
    assert found.returncode == 0, found.stderr
    assert "bound by shared memory" in found.stdout
    assert "next rung padded_tile" in found.stdout


def test_explain_prints_each_rung_before_it_counts_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the size that the ladder climbs, where rungs differ."""
    printed, cases = [], []
    predict = functools.cache(machine_runs.predict)  # the rung is the same twice

    def watched(kernel: Any, device: Any, case: Any) -> Any:
        printed.append(capsys.readouterr().out)
        cases.append(case)
        return predict(kernel, device, replace(case, m=32, n=32, k=32))  # counted in less time

    monkeypatch.setattr(machine_runs, "climbable", lambda *_: [kernel_named("coalesced")] * 2)
    monkeypatch.setattr(machine_runs, "predict", watched)
    typer.main.get_command(cli.app)(["explain", "ladder"], standalone_mode=False)
    assert printed[0].startswith("4096^3, float32, predicted for H200")
    assert printed[1].startswith("  02 coalesced ")
    assert {case.extents for case in cases} == {(4096, 4096, 4096)}


@pytest.mark.parametrize(("rung", "scattered"), [("uncoalesced", True), ("coalesced", False)])
def test_only_scattered_loads_are_told_to_use_neighbours(rung: str, scattered: bool) -> None:
    """Coalesced loads of fp32 touch 2.5 sectors: a row of A, and the same four bytes of B for all lanes."""
    _, answer = explain_kernel(kernel_named(rung), chip("h200"), (128, 128, 64), "float32")
    assert answer.bound.name == "global requests"
    assert answer.advice.startswith("let neighbouring lanes" if scattered else "stage tiles")


def test_mutants_of_one_kernel() -> None:
    found = in_a_process("mutants", "--kernel", "thread_tile", "--seeds", "2", "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["found"]["barrier"] == {"found": 2, "equivalent": 0, "of": 2}


def test_parts_of_a_survey_are_counted_from_one() -> None:
    found = in_a_process("mutants", "--kernel", "padded_tile", "--part", "3/2")
    assert found.returncode == 2
    assert "--part: must be I/N with I from 1 to N, as 2/4; got '3/2'" in found.stderr


def test_products_may_be_named_one_after_the_other() -> None:
    cases = run_target.chosen_cases(None, ["7,8,9", "1,2,3"], None, "fp16", Part())
    assert [case.extents for case in cases] == [(7, 8, 9), (1, 2, 3)]
    assert run_target.chosen_cases(["sweep"], ["7,8,9"], None, "fp32", Part())[-1].extents == (7, 8, 9)


def test_a_plan_says_in_which_order_it_sums(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    product = ["plan", "--mnk", "4096,4096,4096", "--chip", "h200"]
    assert run(product, monkeypatch) == 0
    answer = capsys.readouterr().out
    assert "  sums      wgmma bf16, steps of 16, whole tiles\n" in answer
    assert "weighed" not in answer
    assert run([*product, "--weighed"], monkeypatch) == 0
    assert "refused:" in capsys.readouterr().out


CHOSEN = {"fp16": "mma", "fp32": "simt"}


@pytest.mark.parametrize(
    ("chip", "dtype"),
    in_turns(["a100", "rtx4090", "rtx5090"], CHOSEN, often=[("a100", "fp16"), ("rtx4090", "fp32")], share=1),
)
def test_plan_says_what_bounds_its_choice_on_a_chip(
    chip: str, dtype: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In whole tiles, and in that layout."""
    product = ["plan", "--mnk", "2048,2048,2048", "--dtype", dtype, "--layout", "rc", "--chip", chip]
    assert run([*product, "--explain", "--json"], monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)
    limits, bound = found["limits"], found["bound"][0]
    assert found["kernel"] == CHOSEN[dtype]
    assert found["explained_seconds"] >= limits[bound] == max(limits.values()) > 0
    assert found["predicted_seconds"] == pytest.approx(found["explained_seconds"], rel=0.25)  # two models
    assert run([*product, "--json"], monkeypatch) == 0
    assert "bound" not in json.loads(capsys.readouterr().out)
    assert run([*product, "--explain"], monkeypatch) == 0
    printed = capsys.readouterr().out
    assert f"bound by {bound}" in printed
    assert f"{found['explained_seconds'] * 1e3:.3f} ms predicted" in printed


def test_what_bounds_a_plan_is_asked_of_its_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lapidist_lab.machine_studies import explain

    asked: list[str] = []
    real = explain.product_of

    def product_of(*given: Any, **more: Any) -> Any:
        asked.append(f"{more['config']}, {given[3]}")
        return real(*given, **more)

    monkeypatch.setattr(explain, "product_of", product_of)
    product = ["plan", "--mnk", "512,512,512", "--dtype", "fp64", "--chip", "h100", "--layout", "cr"]
    assert run([*product, "--explain"], monkeypatch) == 0
    assert "bound by" in capsys.readouterr().out
    assert asked == ["32x32x32, warp 16x16, 4 stages, cr"] * 2
