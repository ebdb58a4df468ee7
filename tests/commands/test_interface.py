"""The command line as an interface: help, JSON, exit codes, what is listed and logged."""

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

import pytest
import typer
from rich.console import Console

import lapidist
from command_line import in_a_process, run
from lapidist.commands import cli, options
from lapidist.device import CHIPS
from lapidist.dtypes import MATHS, math_named
from lapidist.kernels.registry import RUNGS
from lapidist.verify.sum_bound import Verdict
from lapidist_lab.bench.protocol.cases import CORPUS, LISTS
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.terminal import show_errors
from lapidist_lab.bench.studies import ladder_runs
from lapidist_lab.commands import bench, run_target
from lapidist_lab.sass import hashes


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
    assert options.kernels_like("2,tma_s") == ["2,tma_streamk"]


def test_the_version_and_the_short_help() -> None:
    assert in_a_process("--version").stdout == f"lapidist {lapidist.__version__}\n"
    assert in_a_process("climb", "-h").stdout == in_a_process("climb", "--help").stdout


@pytest.mark.parametrize("group", ["--help", "bench --help"])
def test_lists_of_commands_cut_no_sentence_short(group: str) -> None:
    text = in_a_process(*group.split()).stdout
    assert "..." not in text.partition("Commands:")[2]
    assert "\b" not in text


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
    assert text.startswith(("300 x 520 x 200 bfloat16", "520 x 300 x 200 bfloat16"))  # A and B exchanged
    assert "because" in text
    assert "simt is refused: it multiplies float16" in text
    assert "small is refused: a matrix of D is at most bm x bn = 64 x 64" in text
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
    whole = ladder_runs.run_in_machine

    def stopped(case: Any, contender: Any, rounds: int = 1) -> Any:
        if contender.name == "thread_tile":
            raise KeyboardInterrupt
        return whole(case, contender, rounds)

    monkeypatch.setattr(ladder_runs, "run_in_machine", stopped)
    arguments = ["climb", "--size", "16", "--kernel", "2,5,8,9", "--json", "--record", str(tmp_path)]
    assert run(arguments, monkeypatch) == run_target.STOPPED
    answer = capsys.readouterr()
    assert [json.loads(line)["kernel"] for line in answer.out.splitlines()] == ["coalesced", "padded_tile"]
    assert "stopped; 2 rows were finished" in answer.err
    assert len(list(tmp_path.glob("*.jsonl"))) == 1


@pytest.mark.usefixtures("no_gpu")
def test_a_wrong_result_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder_runs, "judge", lambda *_, **__: Verdict(7.0, (0, 0)))
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
    """Rungs fed by TMA take rows that start on 16 bytes: their place in the table says so."""
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["climb", "--device", "machine", "--mnk", "35,35,35", "--kernel", "8,16,20"], monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines if line.startswith((" 16 tma_tiles", " 20 tma"))] == [
        "refused"
    ] * 2
    reasons = " ".join(lines[next(i for i, line in enumerate(lines) if line.startswith("refused by")) :])
    assert reasons.startswith("refused by 16 tma_tiles, 20 tma_streamk: TMA needs A's pointer")
