"""The command line. Results go to stdout, progress and notes to stderr.

Exit codes: 0 all right, 1 a check failed or a named kernel refused, 2 usage, 3 what it needs is absent, 130
stopped by Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Annotated

import typer

from lapidist.commands import cache, check, plan, run, run_ptx, schedule, warm
from lapidist.commands.lab import add_lab_commands
from lapidist.commands.options import examples
from lapidist.commands.sections import SectionedCommands
from lapidist.errors import DeviceError, LapidistError
from lapidist.visible import visible

FAILED, USAGE, ABSENT = 1, 2, 3
EPILOG = """\b
Exit codes: 0 all right, 1 a check failed or a kernel that
was named refused, 2 wrong usage, 3 what it needs is absent.

""" + examples("doctor", "plan --mnk 300,520,200 --dtype bf16", "warm --dtype bf16", "COMMAND -h")

log = logging.getLogger("lapidist")
app = typer.Typer(
    cls=SectionedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


def show_version(wanted: bool) -> None:
    if wanted:
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
    """Dense matrix multiply on NVIDIA GPUs: plan, compile, run in the machine; with the lab, measure."""
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    log.setLevel(logging.ERROR if quiet else levels[min(verbose, 2)])


app.command(epilog=examples(*plan.PLAN_EXAMPLES))(plan.plan)
app.command(epilog=examples(*plan.KERNELS_EXAMPLES))(plan.kernels)
app.command(epilog=examples(*warm.EXAMPLES))(warm.warm)
app.command(epilog=examples(*cache.EXAMPLES))(cache.cache)
app.command(epilog=examples(*schedule.EXAMPLES))(schedule.schedule)
app.command(epilog=examples(*check.EXAMPLES))(check.check)
app.command(context_settings=run.ALL_TO_THE_PROGRAM, epilog=examples(*run.EXAMPLES))(run.run)
app.command("run-ptx", epilog=examples(*run_ptx.EXAMPLES))(run_ptx.run_ptx)


@app.command(epilog=examples("doctor", "doctor --json"))
def doctor(as_json: Annotated[bool, typer.Option("--json", help="JSON lines, one a part")] = False) -> None:
    """What was found on this computer, and how to get what is missing."""
    from lapidist.backends.gpu import doctor
    from lapidist.commands.fold import folded

    raise typer.Exit(ABSENT if doctor.run(as_json, folded) else 0)


add_lab_commands(app)


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
            log.error("lapidist: %s", visible(with_option_name(str(error), sys.argv)))
            sys.exit(exit_code(error))


def with_option_name(message: str, words: list[str]) -> str:
    """The message; where it begins with an argument that came as an option, with that option's name."""
    argument, colon, rest = message.partition(":")
    option = f"--{argument.replace('_', '-')}"
    came = any(word.partition("=")[0] == option for word in words)
    return f"{option}{colon}{rest}" if came else message


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
