"""Where the rows of a run go: a table or JSON lines on stdout, and the files that were asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lapidist.bench.record import Conditions, Record, run_name, write_csv, write_lines, write_run
from lapidist.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Outputs:
    """The options that name outputs. They are checked before anything is measured."""

    as_json: bool
    csv: Path | None
    plot: Path | None
    html: Path | None
    record: Path | None
    name: str

    def require_writable(self) -> None:
        for option, path in (("--csv", self.csv), ("--plot", self.plot), ("--html", self.html)):
            if path is not None:
                require_writable(option, path)
        if self.record is not None:
            require_folder("--record", self.record)
        if self.plot is not None:
            from lapidist.bench.plots import require_matplotlib

            require_matplotlib(self.plot)

    def write(self, conditions: Conditions, records: Sequence[Record]) -> None:
        if self.as_json:
            write_lines(sys.stdout, records)
        else:
            self.print_tables(records)
        if self.csv is not None:
            write_csv(self.csv, records)
        self.keep(conditions, records)
        if self.plot is not None:
            from lapidist.bench.plots import draw

            draw(self.plot, conditions, records)
        if self.html is not None:
            from lapidist.bench.html import page

            self.html.write_text(page(conditions, records))

    def keep(self, conditions: Conditions, records: Sequence[Record]) -> None:
        """The file of Records so far: a run that is stopped half way leaves what it measured."""
        if self.record is not None:
            write_run(self.record / run_name(conditions, self.name), conditions, records)

    def print_tables(self, records: Sequence[Record]) -> None:
        from rich.console import Console

        from lapidist.bench.tables import show

        width = None if sys.stdout.isatty() else 150
        show(Console(width=width), records)


def require_writable(option: str, path: Path) -> None:
    """Raise unless a file can be made or replaced there."""
    folder = path.parent
    if path.is_dir():
        raise ArgumentError(f"{option}: must be a file; {str(path)!r} is a folder. Name a file in it")
    if not folder.is_dir():
        raise ArgumentError(f"{option}: must lie in a folder that exists; {str(folder)!r} does not. Make it, or choose another")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ArgumentError(f"{option}: must be writable; {str(path)!r} is not. Choose another place")


def require_folder(option: str, folder: Path) -> None:
    if not folder.is_dir():
        raise ArgumentError(f"{option}: must be a folder that exists; {str(folder)!r} is none. Make it, or choose another")
    if not os.access(folder, os.W_OK):
        raise ArgumentError(f"{option}: must be writable; {str(folder)!r} is not. Choose another folder")
