"""What the command line takes from lapidist-lab where it is installed; elsewhere, what it would do and how to
get it.

Nothing else of the package imports the lab; the doctor only looks whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import typer

from lapidist.errors import DeviceError

INSTALL = 'pip install "lapidist[lab]"'
MARK = "(lab)"
NOTE = f"Commands with {MARK} are not installed. Get them: {INSTALL}"
COMMANDS = {
    "bench": "Measure lists of products, or the host's costs, beside cuBLAS.",
    "climb": "Climb the ladder: every rung on one product, beside cuBLAS.",
    "tune": "Measure the planner's candidates, and keep the fastest.",
    "fit": "Measure random products, and fit the planner's times to them.",
    "streamk": "Measure Stream-K beside data-parallel tiles, split-K and cuBLAS.",
    "lesson": "A rung as a page that moves: lanes, banks, copies, barriers.",
    "puzzle": "Mend a rung that lacks one thing; the machine judges it.",
    "explain": "What bounds a kernel on a chip, from the machine's counts.",
    "static": "What the compiler made of a kernel: its mix, registers, spills.",
    "mutants": "Break kernels one barrier at a time: does the machine find it?",
    "fuzz": "Draw random calls and judge every one.",
    "digests": "Compare the bits of every type's products with another chip's.",
    "cover": "Find the few binaries that serve every shape well.",
    "report": "Write every published number from the Records under results/.",
}
ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


def lab_module(name: str, needed_by: str) -> ModuleType:
    """A module of the lab, by its name in lapidist_lab; a DeviceError that says how to get it where it is
    absent.
    """
    try:
        return import_module(f"lapidist_lab.{name}")
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "lapidist_lab"
        reason = "is not installed" if absent else f"cannot be imported ({error})"
        raise DeviceError(
            f"{needed_by} is a part of lapidist-lab, which {reason}. Get it: {INSTALL}"
        ) from error


def add_lab_commands(app: typer.Typer) -> None:
    """The lab's commands; where they are absent, commands of the same names that say how to get them."""
    try:
        lab_module("commands.registration", "").add_commands(app)
    except DeviceError:
        app.info.epilog = f"{app.info.epilog}\n\n{NOTE}"
        for name, purpose in COMMANDS.items():
            words = f"{MARK} {purpose}"
            add = app.command(name, short_help=words, context_settings=ANY_ARGUMENTS)
            add(absent_command(name, purpose))


def absent_command(name: str, purpose: str) -> Callable[[], None]:
    def command() -> None:
        lab_module("commands.registration", f"{name} ({purpose.rstrip('.')})")

    command.__doc__ = f"{purpose}\n\nIt is a part of lapidist-lab, which is not installed. Get it: {INSTALL}"
    return command
