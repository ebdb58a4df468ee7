"""Where the rows of a run go: a table or JSON lines on stdout, and the files that were asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lapidist.bench.record import Conditions, Record, run_name, write_csv, write_lines, write_run
from lapidist.writable import require_folder, require_writable


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
