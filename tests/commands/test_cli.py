"""The command line: what goes to stdout, what wrong arguments answer, what happens without a GPU."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from rich.console import Console

import lapidist
from lapidist.backends.gpu import driver
from lapidist.bench.protocol.cases import CORPUS, LISTS, Part
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish.tables import show_errors
from lapidist.bench.studies import climb
from lapidist.commands import bench, cli, options, works
from lapidist.device import CHIPS
from lapidist.dtypes import MATHS, math_named
from lapidist.errors import DeviceError
from lapidist.kernels.registry import RUNGS
from lapidist.static import hashes
from lapidist.verify import Verdict


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """main() in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["lapidist", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return int(exit_.value.code or 0)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise DeviceError("device: no usable NVIDIA driver")

    monkeypatch.setattr(driver, "gpu_count", lambda: 0)
    monkeypatch.setattr(driver, "load_driver", absent)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["climb", "--size", "0"], ["--size", "m must be", "got 0"]),
        (["climb", "--size", "-5"], ["--size", "got -5", "at least 1"]),
        (["climb", "--size", "many"], ["--size", "whole number", "'many'"]),
        (["climb", "--size", "4", "--mnk", "1,2,3"], ["--size", "--mnk"]),
        (["climb", "--mnk", "1,2"], ["--mnk", "three", "'1,2'"]),
        (["climb", "--mnk", "1,0,2"], ["--mnk", "n must be", "got 0"]),
        (["climb", "--dtype", "int7"], ["--dtype", "tf32", "'int7'"]),
        (["climb", "--kernel", "2,cublas"], ["--kernel", "'cublas'", "every run on a GPU"]),
        (["climb", "--record", "/nowhere"], ["--record", "folder that exists", "/nowhere"]),
        (["bench", "limits", "--device", "machine"], ["--device", "bench limits", "machine"]),
        (["bench", "scaled", "--device", "machine"], ["--device", "bench scaled", "machine"]),
        (["climb", "--kernel", "best"], ["--kernel", "coalesced", "'best'"]),
        (["climb", "--device", "tpu"], ["--device", "machine", "'tpu'"]),
        (["climb", "--rounds", "0"], ["--rounds", "at least 1", "got 0"]),
        (["climb", "--csv", "/nowhere/rows.csv"], ["--csv", "folder that exists", "/nowhere"]),
        (["climb", "--html", "/"], ["--html", "is a folder"]),
        (["climb", "--plot", "ladder.txt"], ["--plot", ".svg", "ladder.txt"]),
        (
            ["schedule", "--mnk", "64,64,64", "--kernel", "wgmma"],
            ["--kernel", "wgmma", "float32", "Name another type"],
        ),
        (["bench", "cases"], ["--mnk", "must name a product", "--file"]),
        (["bench", "cases", "--file", "/nowhere.json"], ["--file", "/nowhere.json"]),
        (["bench", "launch", "--device", "machine"], ["--device", "machine"]),
        (["plan", "--mnk", "1,2"], ["--mnk", "three", "'1,2'"]),
        (["plan", "--mnk", "1,2,3", "--layout", "nt"], ["--layout", "rr, rc, cr, cc", "'nt'"]),
        (["report", "--root", "/nowhere"], ["--root", "results", "/nowhere"]),
        (["static", "nothing"], ["kernel", "coalesced", "'nothing'"]),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    arguments: list[str],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(arguments, monkeypatch) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err.startswith("lapidist: ")
    assert answer.err.count("\n") == 1
    for word in words:
        assert word in answer.err


def test_a_plot_is_an_svg_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--plot", str(tmp_path / "ladder.png")], monkeypatch) == 2
    assert "--plot: must end in .svg" in capsys.readouterr().err


def test_missing_torch_and_cupy_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapidist.bench.protocol.frameworks import find_framework

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    find_framework.cache_clear()
    with pytest.raises(DeviceError, match=r"framework: .*pip install .torch>=2\.7., or: pip install .cupy"):
        find_framework()


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_rungs_are_compiled_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--size", "4096", "--kernel", "2,8", "--json"], monkeypatch) == 0
    answer = capsys.readouterr()
    assert "no GPU was found, so nothing was timed" in answer.err
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert [row["kernel"] for row in rows] == ["coalesced", "thread_tile"]
    for row in rows:
        assert row["seconds"] is None
        assert not row["ok"]
        assert row["registers"] > 0
    assert rows[1]["shared_bytes"] > 0


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_small_products_run_in_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["climb", "--kernel", "2"], monkeypatch) == 0
    answer = capsys.readouterr()
    assert "no GPU was found, so nothing was timed" in answer.err
    assert "256^3 float32 on machine" in answer.out


@pytest.mark.usefixtures("no_gpu")
def test_asking_for_a_gpu_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for device in ("0", "gpu"):
        assert run(["climb", "--device", device], monkeypatch) == 3
    assert "no usable NVIDIA driver" in capsys.readouterr().err


def test_the_machine_judges_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    html, csv, folder = tmp_path / "page.html", tmp_path / "rows.csv", tmp_path / "kept"
    folder.mkdir()
    outputs = ["--html", str(html), "--csv", str(csv), "--record", str(folder), "--json"]
    assert (
        run(
            ["climb", "--device", "machine", "--mnk", "40,36,20", "--kernel", "2,8,b_transposed", *outputs],
            monkeypatch,
        )
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["layout"] for row in rows] == ["rrr", "rrr", "rcr"]
    for row in rows:
        assert row["ok"], row["error"]
        assert 0 < row["worst"] <= 1
        assert row["seconds"] > 0
        assert row["ratio"] is None
    assert "PTX machine" in html.read_text()
    assert len(csv.read_text().splitlines()) == 4
    assert len(list(folder.glob("machine-*.jsonl"))) == 1


@pytest.mark.parametrize(
    ("short", "math", "out"),
    [("bf16", "bfloat16", "bfloat16"), ("tf32", "tf32", "float32"), ("int8", "int8", "int32")],
)
def test_the_machine_climbs_in_other_types(
    short: str, math: str, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            [
                "climb",
                "--device",
                "machine",
                "--size",
                "40",
                "--dtype",
                short,
                "--kernel",
                "21,22,24,mma",
                "--json",
            ],
            monkeypatch,
        )
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kernel"] for row in rows] == ["wmma_simple", "wmma_shared", "mma_multistage", "mma"]
    for row in rows:
        assert row["ok"], row["error"]
        assert (row["dtype"], row["out_dtype"], row["unit"]) == (math, out, "mma")
        assert 0 < row["ffma_share"] < 1


def test_a_kernel_that_lacks_the_type_is_a_row_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(
            ["climb", "--device", "machine", "--size", "16", "--dtype", "e4m3", "--kernel", "21", "--json"],
            monkeypatch,
        )
        == 0
    )
    row = json.loads(capsys.readouterr().out)
    assert not row["ok"]
    assert "the type is float8_e4m3fn" in row["error"]


def test_a_plot_is_drawn_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ladder.svg"
    assert (
        run(
            ["climb", "--device", "machine", "--size", "32", "--kernel", "2", "--plot", str(file), "--json"],
            monkeypatch,
        )
        == 0
    )
    root = ElementTree.fromstring(file.read_text())
    assert root.tag.endswith("svg")
    assert "32^3" in "".join(root.itertext())


def test_the_module_runs_and_imports_lazily() -> None:
    heavy = "'numpy', 'cuda.bindings', 'torch'"
    code = f"import sys, lapidist.commands.cli; print(any(name in sys.modules for name in ({heavy})))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
    help_ = subprocess.run(
        [sys.executable, "-m", "lapidist", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("climb", "bench", "report", "static", "doctor"):
        assert command in help_.stdout


# ---- the machine's commands ----

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


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lapidist", *arguments], capture_output=True, text=True)


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
def test_run_ptx_names_what_is_wrong(module: str, options: list[str], message: str) -> None:
    found = in_a_process("run-ptx", module, "--entry", "saxpy", *options)
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


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
        "memory_budget: must hold what 512 resident blocks"
        in in_a_process(*launch, "--memory-budget", "1000").stderr
    )


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
    assert "no fault found; replay with sanitize=True, seed=" in whole.stdout
    beyond = in_a_process(*launch, "--seed", "3", "--arg", "n=129")
    assert beyond.returncode == 1
    assert "replay with sanitize=True, seed=3" in beyond.stderr
    assert "the arrays hold what the kernel had written until then" in beyond.stderr
    assert set(np.load(tmp_path / "y.npy")) <= {0, 2}


def test_explain_names_the_bound_and_the_next_rung() -> None:
    found = in_a_process("explain", "shared_tile", "--size", "128")
    assert found.returncode == 0, found.stderr
    assert "bound by shared memory" in found.stdout
    assert "next rung padded_tile" in found.stdout


def test_mutants_of_one_kernel() -> None:
    found = in_a_process("mutants", "--kernel", "thread_tile", "--seeds", "2", "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["found"]["barrier"] == {"found": 2, "equivalent": 0, "of": 2}


def test_parts_of_a_survey_are_counted_from_one() -> None:
    found = in_a_process("mutants", "--kernel", "padded_tile", "--part", "3/2")
    assert found.returncode == 2
    assert "--part: must be I/N with I from 1 to N, as 2/4; got '3/2'" in found.stderr


def test_products_may_be_named_one_after_the_other() -> None:
    cases = works.chosen_cases(None, ["7,8,9", "1,2,3"], None, "fp16", Part())
    assert [case.extents for case in cases] == [(7, 8, 9), (1, 2, 3)]
    assert works.chosen_cases(["sweep"], ["7,8,9"], None, "fp32", Part())[-1].extents == (7, 8, 9)


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


# ---- the interface itself ----


def commands() -> list[tuple[str, Any]]:
    """Every command with its name, those of `bench` too."""
    found, waiting = [], [("", typer.main.get_command(cli.app))]
    while waiting:
        name, command = waiting.pop()
        found.append((name, command))
        waiting += [(f"{name} {each}".strip(), one) for each, one in getattr(command, "commands", {}).items()]
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda each: str(each))
def test_every_help_page_has_examples_that_parse(name: str, command: Any) -> None:
    examples = re.findall(r"^  lapidist (.+)$", command.epilog or "", re.M)
    assert examples
    known = dict(commands())
    for example in examples:
        words = shlex.split(example)
        if words[0] == "COMMAND":
            continue
        called = " ".join(words[:2]) if words[0] == "bench" else words[0]
        assert called.startswith(name)
        known[called].make_context(called, words[len(called.split()) :])


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda each: str(each))
def test_every_command_answers_in_json_and_names_things_alike(name: str, command: Any) -> None:
    options = {option for each in command.params for option in each.opts}
    assert "--json" in options or hasattr(command, "commands")
    assert not options & {"--kernels", "--cases", "--launch", "--limits", "--scaled", "--layouts"}


def test_help_lists_the_choices() -> None:
    """They stand in the options as words, so that help needs no NumPy."""
    assert set(options.CHIPS) == set(CHIPS)
    assert {math_named(short) for short in options.TYPES} == set(MATHS)
    assert options.LAYOUTS == hashes.LAYOUTS
    assert {*bench.LISTS, "corpus"} == {*LISTS, CORPUS}
    assert options.kernels_like("2,tma_p") == ["2,tma_producer"]


def test_the_version_and_the_short_help() -> None:
    assert in_a_process("--version").stdout == f"lapidist {lapidist.__version__}\n"
    assert in_a_process("climb", "-h").stdout == in_a_process("climb", "--help").stdout


def test_wrong_usage_is_exit_code_2() -> None:
    for arguments in (["climb", "--nonsense"], ["nonsense"], ["bench", "squars"]):
        assert in_a_process(*arguments).returncode == 2


def test_a_plan_prints_its_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.main.get_command(cli.app)
    asked = ["plan", "--mnk", "300,520,200", "--dtype", "bf16", "--chip", "h200"]
    app(asked, standalone_mode=False)
    text = capsys.readouterr().out
    assert text.startswith("300 x 520 x 200 bfloat16")
    assert "predicted" in text
    app([*asked, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["kernel"] in text.splitlines()[1]
    assert any(each["refusal"] for each in found["weighed"])


def test_kernels_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    typer.main.get_command(cli.app)(["kernels", "--dtype", "fp16", "--json"], standalone_mode=False)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    numbers = {row["kernel"]: row["number"] for row in rows}
    assert numbers["wmma_simple"] == [rung.name for rung in RUNGS].index("wmma_simple") + 1
    assert numbers["wgmma"] is None
    assert all("fp16" in row["types"] for row in rows)


@pytest.mark.usefixtures("no_gpu")
def test_ctrl_c_prints_the_rows_that_are_finished(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = climb.run_in_machine

    def stopped(case: Any, contender: Any, rounds: int = 1) -> Any:
        if contender.name == "thread_tile":
            raise KeyboardInterrupt
        return whole(case, contender, rounds)

    monkeypatch.setattr(climb, "run_in_machine", stopped)
    arguments = ["climb", "--size", "16", "--kernel", "2,5,8,9", "--json", "--record", str(tmp_path)]
    assert run(arguments, monkeypatch) == works.STOPPED
    answer = capsys.readouterr()
    assert [json.loads(line)["kernel"] for line in answer.out.splitlines()] == ["coalesced", "padded_tile"]
    assert "stopped; 2 rows were finished" in answer.err
    assert len(list(tmp_path.glob("*.jsonl"))) == 1


@pytest.mark.usefixtures("no_gpu")
def test_a_wrong_result_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb, "judge", lambda *_, **__: Verdict(7.0, (0, 0)))
    assert run(["climb", "--size", "16", "--kernel", "2", "--json"], monkeypatch) == 1


def test_what_is_compiled_is_logged(tmp_path: Path) -> None:
    asked = ["climb", "--device", "machine", "--size", "16", "--kernel", "2", "--json"]
    environment = {**os.environ, "LAPIDIST_CACHE_DIR": str(tmp_path)}
    call = [sys.executable, "-m", "lapidist"]
    loud = subprocess.run([*call, "-v", *asked], capture_output=True, text=True, env=environment)
    assert "compiled coalesced of ladder/02_coalesced.cu for sm_90a in " in loud.stderr
    quiet = subprocess.run([*call, "-q", *asked], capture_output=True, text=True, env=environment)
    assert quiet.stderr == ""


def test_colour_is_left_out_where_nobody_wants_it() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, _environ={"NO_COLOR": "1", "TERM": "xterm-256color"})
    show_errors(console, [replace(blank_row(), error="a reason")])
    assert "\x1b[31m" not in shown.getvalue()
    assert "a reason" in shown.getvalue()


def blank_row() -> Record:
    head = ("coalesced", "rung", "gpu", "float32", "rrr", 1, 1, 1)
    return Record(*head, None, None, None, None, None, False)


def test_climb_says_refused_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rungs fed by the copy engine take rows that start on 16 bytes: their place in the table says so."""
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["climb", "--device", "machine", "--mnk", "35,35,35", "--kernel", "8,16,20"], monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines if line.startswith((" 16 tma_tiles", " 20 tma"))] == [
        "refused"
    ] * 2
    reasons = " ".join(lines[next(i for i, line in enumerate(lines) if line.startswith("refused by")) :])
    assert reasons.startswith("refused by 16 tma_tiles, 20 tma_producer: the copy engine needs A's pointer")
