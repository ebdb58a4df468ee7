"""The list of commands in sections: what users need, what shows how kernels work, what develops Lapidist."""

from __future__ import annotations

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


class SectionedCommands(typer.core.TyperGroup):
    """The commands, each section with a head of its own."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # typer has a click of its own, or click's
        width = formatter.width - 6 - max(map(len, self.commands))
        for head, names in SECTIONS.items():
            rows = [(name, self.commands[name].get_short_help_str(width)) for name in names]
            with formatter.section(head):
                formatter.write_dl(rows)
