"""`lapidist fuzz`: random calls, each judged; a line for each that went wrong, which repeats it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lapidist.commands.options import Json, one_of, require_one_of
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist_lab.fuzz.seeded_cases import Outcome, Run

EXAMPLES = ("fuzz --seconds 10", "fuzz --device machine --count 100 --seed 7")
DEVICES = ("host", "machine", "gpu")
FRAMEWORKS = ("numpy", "torch", "cupy", "jax")
SECONDS = 60.0  # where neither cases nor seconds are given
ABSENT = 3  # the exit code where a GPU or a framework is


def fuzz(
    seconds: Annotated[
        float | None, typer.Option(min=0, help="stop after so many; 60 where --count is not given")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="stop after so many calls")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="of all cases; a new one each time by default")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="host, machine or gpu", autocompletion=one_of(DEVICES))
    ] = "host",
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            autocompletion=one_of(FRAMEWORKS),
            help="whose arrays: numpy, torch, cupy, jax; those that fit, by default",
        ),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="the same cases whatever their number")] = 1,
    case: Annotated[
        int | None, typer.Option(min=0, help="this one only, and what it shares arrays and plan with")
    ] = None,
    tiles: Annotated[
        bool, typer.Option("--tiles", help="every config of every kernel, at the edges of its tile")
    ] = False,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="look for races and missing waits in the machine; slower")
    ] = False,
    as_json: Json = False,
) -> None:
    """Draw random calls and judge every one.

    Types, shapes, layouts, modes and mistakes are drawn; results are held against the float64 product.
    """
    from lapidist_lab.fuzz.seeded_cases import Run

    require_one_of("--device", device, DEVICES)
    if framework is not None:
        require_one_of("--framework", framework, FRAMEWORKS)
    require_place(device, tiles, sanitize)
    missing = absent(device, framework)
    if missing:
        typer.echo(f"lapidist: {missing}", err=True)
        raise typer.Exit(ABSENT)
    seed = time.time_ns() % 2**32 if seed is None else seed
    frameworks = (framework,) if framework else drawn_from(device, tiles)
    run = Run(device, seed, frameworks, tiles, sanitize)
    if case is not None:
        raise typer.Exit(repeat(run, framework, case, as_json))
    seconds = SECONDS if seconds is None and count is None else seconds
    raise typer.Exit(survey(run, framework, count, seconds, processes, as_json))


def require_place(device: str, tiles: bool, sanitize: bool) -> None:
    if tiles and device == "host":
        raise ArgumentError(
            "--tiles: needs --device machine or gpu; the host has no kernels. Add one of them"
        )
    if sanitize and device != "machine":
        raise ArgumentError(
            f"--sanitize: needs --device machine; got {device}. Add it, or leave --sanitize out"
        )


def survey(
    run: Run, framework: str | None, count: int | None, seconds: float | None, processes: int, as_json: bool
) -> int:
    """Ctrl-C ends it as the time does."""
    from lapidist_lab.fuzz.judging import WRONG
    from lapidist_lab.fuzz.parallel_runs import Extent, in_processes

    start, counts = time.monotonic(), Counter[str]()
    with suppress(KeyboardInterrupt):
        for outcome in in_processes(run, Extent(count, seconds), processes):
            counts[outcome.verdict] += 1
            if outcome.verdict == WRONG:
                print(line_of(run, framework, outcome, as_json), flush=True)
    took = time.monotonic() - start
    row = {"device": run.place, "seed": run.seed, "cases": counts.total(), **counts, "seconds": took}
    print(json.dumps(row) if as_json else summary(run, counts, took))
    return int(bool(counts[WRONG]))


def line_of(run: Run, framework: str | None, outcome: Outcome, as_json: bool) -> str:
    command = command_of(run, framework, outcome.number)
    if as_json:
        return json.dumps({"command": command, "verdict": outcome.verdict, "words": outcome.words})
    return f"{command}  # {outcome.words}"


def repeat(run: Run, framework: str | None, number: int, as_json: bool) -> int:
    """One case, said whatever its verdict; those before it that share its call run, too."""
    from lapidist_lab.fuzz.doses import GROUP
    from lapidist_lab.fuzz.judging import WRONG
    from lapidist_lab.fuzz.seeded_cases import call_of, outcomes

    *_, outcome = outcomes(run, number // GROUP, number)
    words = outcome.words or str(call_of(run, number // GROUP))
    text = words if as_json else f"{outcome.verdict}: {words}"
    print(line_of(run, framework, replace(outcome, words=text), as_json))
    return int(outcome.verdict == WRONG)


def command_of(run: Run, framework: str | None, number: int) -> str:
    which = f" --framework {framework}" if framework else ""
    which += " --tiles" * run.tiles + " --sanitize" * run.sanitized
    return f"lapidist fuzz --device {run.place}{which} --seed {run.seed} --case {number}"


def summary(run: Run, counts: Counter[str], seconds: float) -> str:
    from lapidist_lab.fuzz.judging import REFUSED, RIGHT, WRONG

    verdicts = f"{counts[RIGHT]} right, {counts[REFUSED]} refused, {counts[WRONG]} wrong"
    cases = f"{counts.total()} case{'' if counts.total() == 1 else 's'}"
    return f"{cases} on {run.place}, seed {run.seed}: {verdicts}, {seconds:.1f} s"


def installed(framework: str, device: str) -> bool:
    """For this device: builds for the CPU do not count on a GPU."""
    if importlib.util.find_spec(framework) is None:
        return False
    if framework == "torch" and device == "gpu":
        return importlib.import_module("torch").version.cuda is not None
    if framework == "jax" and device == "gpu":
        return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") is not None for version in (12, 13))
    return framework != "cupy" or device == "gpu"


def absent(device: str, framework: str | None) -> str:
    """What is needed and not here."""
    from lapidist.backends.gpu.driver import gpu_count

    if device == "gpu" and not gpu_count():
        return "--device: no GPU was found; lapidist doctor says why. Choose host or machine"
    if framework is not None and not installed(framework, device):
        return f"--framework: {framework} is not installed for {device}. Install it, or choose another"
    return ""


def drawn_from(device: str, tiles: bool) -> tuple[str, ...]:
    """NumPy's arrays on the host. On a GPU mostly torch's, and some of NumPy's and JAX's. These are copied,
    so they are no use where layouts are tried.
    """
    if device != "gpu":
        return ("numpy",)
    shares = {"torch": 12, "cupy": 2} if tiles else {"torch": 12, "cupy": 2, "jax": 1, "numpy": 1}
    return tuple(name for name, times in shares.items() if installed(name, device) for _ in range(times))
