"""The list of commands in sections: what users need, what shows how kernels work, what develops Lapidist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer.core

SECTIONS = {
    "Commands": ("doctor", "plan", "kernels", "warm", "cache", "tune"),
    "Commands that show how kernels work": (
        "climb",
        "lesson",
        "puzzle",
        "explain",
        "static",
        "schedule",
        "check",
        "run",
        "run-ptx",
    ),
    "Commands for those who develop Lapidist": (
        "bench",
        "streamk",
        "fuzz",
        "mutants",
        "digests",
        "fit",
        "cover",
        "report",
    ),
}


SENTENCE = 200  # letters of a sentence that says what a command is for


class WholeSentences(typer.core.TyperGroup):
    """Commands whose sentences go on in the next line, where a terminal is narrow, and are not cut short."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # typer has a click of its own, or click's
        self.format_section(formatter, "Commands", self.commands)

    def format_section(self, formatter: Any, head: str, names: Iterable[str]) -> None:
        with formatter.section(head):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(SENTENCE)) for name in names])


class SectionedCommands(WholeSentences):
    """The commands, each section with a head of its own."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for head, names in SECTIONS.items():
            self.format_section(formatter, head, names)
