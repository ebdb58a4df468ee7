"""The command line. Results go to stdout, progress and notes to stderr.

Exit codes: 0 all right, 1 a check failed, 2 usage, 3 what it needs is absent, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands import bench, climb, plan, study
from lapidist.commands.cache import cache
from lapidist.commands.cover import cover
from lapidist.commands.fuzz import fuzz
from lapidist.commands.lesson import EXAMPLES as LESSON_EXAMPLES
from lapidist.commands.lesson import lesson
from lapidist.commands.options import Html, JsonObject, examples
from lapidist.commands.schedule import schedule
from lapidist.commands.streamk import streamk
from lapidist.commands.tune import tune, warm
from lapidist.errors import DeviceError, LapidistError
from lapidist.visible import visible

FAILED, USAGE, ABSENT = 1, 2, 3
EPILOG = """\b
Exit codes: 0 all right, 1 a check failed, 2 wrong usage, 3 what it needs is absent.

""" + examples("doctor", "climb --device machine", "plan --mnk 300,520,200 --dtype bf16", "COMMAND -h")

log = logging.getLogger("lapidist")
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


def show_version(asked: bool) -> None:
    if asked:
        import lapidist

        print(f"lapidist {lapidist.__version__}")
        raise typer.Exit


@app.callback()
def begin(
    _version: Annotated[
        bool,
        typer.Option("--version", help="print the version and exit", callback=show_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, help="say what is compiled; twice: and what was cached"),
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no notes on stderr, errors only")] = False,
) -> None:
    """Dense matrix multiply on NVIDIA GPUs: climb the ladder of kernels, measure, report."""
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    log.setLevel(logging.ERROR if quiet else levels[min(verbose, 2)])


app.command(epilog=examples(*climb.EXAMPLES))(climb.climb)
app.add_typer(bench.app, name="bench", help="Measure lists of products, or the host's costs, beside cuBLAS.")
app.command(epilog=examples(*plan.PLAN_EXAMPLES))(plan.plan)
app.command(epilog=examples(*plan.KERNELS_EXAMPLES))(plan.kernels)


@app.command(epilog=examples("report", "report --check", "report --html all.html"))
def report(
    check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit 1 when a file differs from the Records")
    ] = False,
    root: Annotated[Path, typer.Option(help="the checkout whose files are written")] = Path(),
    html: Html = None,
    as_json: JsonObject = False,
) -> None:
    """Write every published number from the Records under results/."""
    from lapidist.writable import require_writable
    from lapidist_lab.bench.publish import report as writer

    if html is not None:
        require_writable("--html", html)
    found = [str(path) for path in writer.publish(root, check, html)]
    if as_json:
        print(json.dumps({"differs" if check else "written": found}))
    raise typer.Exit(FAILED if check and found else 0)


app.command(epilog=examples("tune --mnk 4096,4096,1024 --dtype bf16", "tune --corpus 20"))(tune)
app.command(epilog=examples("warm --dtype bf16", "warm --mnk 300,520,200 --chip h100"))(warm)
app.command(epilog=examples("cover --jobs 8", "cover --shapes 100 --out sets.json"))(cover)
app.command(epilog=examples("cache", "cache --clear", "cache --json"))(cache)
app.command(
    epilog=examples(
        "schedule --mnk 1024,1152,4096 --stream-k",
        "schedule --mnk 4096,4096,4096 --kernel wgmma --dtype bf16 --svg blocks.svg",
    )
)(schedule)
app.command(epilog=examples("streamk table --mnk 2048,2048,2048", "streamk corpus --dtype fp16 --count 100"))(
    streamk
)
app.command(epilog=examples("fuzz --seconds 10", "fuzz --device machine --count 100 --seed 7"))(fuzz)
app.command(epilog=examples(*study.EXAMPLES["static"]))(study.static)
app.command(epilog=examples(*study.EXAMPLES["explain"]))(study.explain)
app.command(epilog=examples(*LESSON_EXAMPLES))(lesson)
app.command(epilog=examples(*study.EXAMPLES["mutants"]))(study.mutants)
app.command("run-ptx", epilog=examples(*study.EXAMPLES["run-ptx"]))(study.run_ptx)


@app.command(epilog=examples("doctor", "doctor --json"))
def doctor(as_json: Annotated[bool, typer.Option("--json", help="JSON lines, one a part")] = False) -> None:
    """What was found on this computer, and how to get what is missing."""
    from lapidist.backends.gpu import doctor

    raise typer.Exit(ABSENT if doctor.run(as_json) else 0)


def exit_code(error: LapidistError | OSError) -> int:
    """By what went wrong: something is absent, a program failed, or the command was given the wrong thing."""
    if isinstance(error, DeviceError):
        return ABSENT
    return USAGE if isinstance(error, (ValueError, TypeError, OSError)) else FAILED


def main() -> None:
    """Entry point: errors that lapidist raises on purpose become one line, and so does what the system
    refuses.
    """
    with streams():
        log.handlers[:] = [logging.StreamHandler(sys.stderr)]
        try:
            app()
        except (LapidistError, OSError) as error:
            log.error("lapidist: %s", visible(str(error)))
            sys.exit(exit_code(error))


@contextmanager
def streams() -> Iterator[None]:
    """Under pythonw and in daemons sys.stdout and sys.stderr are None."""
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stdout(sys.stdout or nowhere),
        redirect_stderr(sys.stderr or nowhere),
    ):
        yield


if __name__ == "__main__":
    main()
