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
from lapidist.commands import cli, options, sections
from lapidist.device import CHIPS
from lapidist.dtypes import MATHS, math_named
from lapidist.kernels.registry import RUNGS
from lapidist.verify.sum_bound import Verdict
from lapidist_lab.bench.protocol.cases import CORPUS, LISTS
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.terminal import show_errors
from lapidist_lab.bench.studies import ladder_runs
from lapidist_lab.commands import bench, climb, run_target
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
    assert tuple(rung.name for rung in RUNGS) == options.RUNGS
    assert {*bench.LISTS, "corpus"} == {*LISTS, CORPUS}
    assert options.kernels_like("2,tma_s") == ["2,tma_streamk"]


def test_arguments_that_take_rungs_list_them() -> None:
    for name in ("climb", "explain", "lesson", "static"):
        assert "20 tma_streamk" in in_a_process(name, "-h").stdout


def test_the_list_of_commands_has_sections() -> None:
    """A user's commands come first, and those of developers stand in a section of their own."""
    text = in_a_process("-h").stdout
    heads = re.findall(r"^(Commands.*):$", text, re.M)
    assert heads == list(sections.SECTIONS)
    for head, names in sections.SECTIONS.items():
        part = text.partition(f"\n{head}:\n")[2].partition("\n\n")[0]
        assert tuple(re.findall(r"^  (\S+)", part, re.M)) == names
    every = {name for name, _ in commands() if name and " " not in name}
    assert {name for names in sections.SECTIONS.values() for name in names} == every


def test_messages_name_the_option_as_it_was_typed() -> None:
    message = "avail_sms: must be at least 1; got 0. Pass 1 or more"
    assert cli.with_option_name(message, ["schedule", "--avail-sms", "0"]) == f"--avail-sms{message[9:]}"
    assert cli.with_option_name(message, ["schedule", "--avail-sms=0"]) == f"--avail-sms{message[9:]}"
    assert cli.with_option_name(message, ["schedule", "--sms", "0"]) == message


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--mnk", "300,520,200"],
        ["kernels"],
        ["schedule", "--mnk", "1024,1152,4096", "--stream-k", "--rows", "2"],
        ["climb", "--device", "machine", "--size", "32", "--kernel", "2,16"],
        ["puzzle"],
        ["static", "18", "--dtype", "fp16"],
    ],
    ids=lambda words: words[0],
)
def test_narrow_terminals_keep_words_and_units_whole(
    arguments: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    run(arguments, monkeypatch)
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", str(width))
    run(arguments, monkeypatch)
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= width
    if arguments[0] in ("plan", "kernels", "puzzle", "static"):
        assert narrow.split() == wide.split()
    assert not re.search(r"\d\n\s*(us|bytes|threads|iterations|stages)\b", narrow)


@pytest.mark.usefixtures("no_gpu")
def test_rows_of_the_machine_are_printed_as_they_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each row is there before the next kernel runs."""
    printed = []
    run_one = ladder_runs.run_in_machine

    def watched(case: Any, contender: Any, rounds: int = 1) -> Any:
        printed.append(capsys.readouterr().out)
        return run_one(case, contender, rounds)

    monkeypatch.setattr(ladder_runs, "run_in_machine", watched)
    run(["climb", "--size", "16", "--kernel", "2,5,8"], monkeypatch)
    assert printed[0] == ""
    assert "\n02 coalesced" in printed[1]
    assert printed[2].startswith("05 padded_tile")
    printed.append(capsys.readouterr().out)
    assert printed[3].startswith("08 thread_tile")
    assert "02 coalesced" not in printed[3]
    printed.clear()
    run(["climb", "--size", "16", "--kernel", "2,5", "--json"], monkeypatch)
    assert json.loads(printed[1])["kernel"] == "coalesced"


def test_the_demo_ends_with_what_to_do_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels with one bound share a line, and the last lines are commands that parse."""
    monkeypatch.setenv("COLUMNS", "200")
    run(["climb", "--device", "machine", "--size", "32", "--kernel", "1,2,3,8"], monkeypatch)
    text = capsys.readouterr().out
    assert text.count("neighbouring lanes") == 1
    assert "  02 to 03: " in text
    last = text.partition("What next:\n")[2].splitlines()
    known = dict(commands())
    for line in last:
        name, *words = shlex.split(line.partition(": ")[0])[1:]
        known[name].make_context(name, words)
    assert len(last) == len(climb.NEXT)


@pytest.mark.usefixtures("no_gpu")
def test_measuring_without_a_gpu_is_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "squares", "--count", "1"], monkeypatch) == 3
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "--device machine" in answer.err


def test_the_version_and_the_short_help() -> None:
    assert in_a_process("--version").stdout == f"lapidist {lapidist.__version__}\n"
    assert in_a_process("climb", "-h").stdout == in_a_process("climb", "--help").stdout


@pytest.mark.parametrize("columns", ["60", "120"])
@pytest.mark.parametrize("group", ["--help", "bench --help"])
def test_lists_of_commands_cut_no_sentence_short(
    group: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
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
    assert text.startswith("300 x 520 x 200 bfloat16, layouts rrr on H200\n")
    assert "computed  as D' = B' A', 520 x 300 x 200\n" in text
    assert "because" in text
    assert "times are fitted on H200 and H100\n" in text
    assert "simt is refused: it multiplies float16" in text
    assert "small is refused: a matrix of D is at most bm x bn = 64 x 64" in text
    app([*asked, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["problem"].startswith("300 x 520 x 200 ")
    assert found["kernel"] in text.splitlines()[2]
    assert any(each["refusal"] for each in found["weighed"])
    app([*asked[:-1], "a100"], standalone_mode=False)
    assert "none of its architecture was fitted" in capsys.readouterr().out


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
    assert run(["climb", "--device", "machine", "--mnk", "35,35,35", "--kernel", "8,16,20"], monkeypatch) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines if line.startswith(("16 tma_tiles", "20 tma"))] == [
        "refused"
    ] * 2
    reasons = " ".join(lines[next(i for i, line in enumerate(lines) if line.startswith("refused by")) :])
    assert reasons.startswith("refused by 16 tma_tiles, 20 tma_streamk: TMA needs A's pointer")
