"""Where the rows of a run go: a table or JSON lines on stdout, and the files that were asked for."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lapidist.errors import ArgumentError
from lapidist.writable import require_folder, require_writable
from lapidist_lab.bench.protocol.record import Conditions, Record, run_name, write_csv, write_lines, write_run

if TYPE_CHECKING:
    from rich.console import Console

    from lapidist_lab.bench.publish.live_rows import LiveRows

KEEP_SECONDS = 5.0  # the file is written anew each time
PIPE_COLUMNS = 100


@dataclass(slots=True)
class Outputs:
    """The options that name outputs, and the rows so far."""

    as_json: bool
    csv: Path | None
    plot: Path | None
    html: Path | None
    record: Path | None
    name: str
    finished: Sequence[Record] = ()
    conditions: Conditions | None = None
    saved_at: float = field(default=-math.inf)
    live: LiveRows | None = None  # prints rows of the machine as they come
    lines_printed: int = 0  # of JSON

    def require_writable(self) -> None:
        for option, path in (("--csv", self.csv), ("--plot", self.plot), ("--html", self.html)):
            if path is not None:
                require_writable(option, path)
        if self.record is not None:
            require_folder("--record", self.record)
        if self.plot is not None:
            require_svg(self.plot)
        if self.plot is not None or self.html is not None:
            from lapidist_lab.bench.publish.charts import require_matplotlib

            require_matplotlib()

    def write(self, conditions: Conditions, records: Sequence[Record]) -> None:
        self.conditions, self.finished = conditions, records
        self.print_new(records)
        if not self.as_json:
            self.print_tables(records)
        if self.csv is not None:
            write_csv(self.csv, records)
        self.save(conditions, records)
        if self.plot is not None:
            from lapidist_lab.bench.publish.panels import file_of

            self.plot.write_text(file_of(conditions, records), encoding="utf-8")
        if self.html is not None:
            from lapidist_lab.bench.publish.html import page

            self.html.write_text(page(conditions, records), encoding="utf-8")

    def keep(self, conditions: Conditions, records: Sequence[Record]) -> None:
        """Print the new rows, remember all, and now and then write their file: a run that is stopped leaves
        what it measured."""
        self.conditions, self.finished = conditions, list(records)
        self.print_new(records)
        if time.monotonic() - self.saved_at > KEEP_SECONDS:
            self.save(conditions, records)
            self.saved_at = time.monotonic()

    def save(self, conditions: Conditions, records: Sequence[Record]) -> None:
        if self.record is not None:
            write_run(self.record / run_name(conditions, self.name), conditions, records)

    def write_finished(self) -> None:
        if self.conditions is not None:
            self.write(self.conditions, self.finished)

    def print_new(self, records: Sequence[Record]) -> None:
        """Print rows that were not printed: as JSON, or as lines of a table where the machine counts."""
        from lapidist_lab.bench.publish.live_rows import LiveRows

        if self.as_json:
            write_lines(sys.stdout, records[self.lines_printed :])
            self.lines_printed = len(records)
            sys.stdout.flush()
        elif records and all(record.mode == "machine" for record in records):
            self.live = self.live or LiveRows(console().width)
            self.live.print_new(list(records))

    def print_tables(self, records: Sequence[Record]) -> None:
        from lapidist_lab.bench.publish.terminal import print_words, show

        if self.live is not None and (note := self.live.note()):
            print_words(console(), note)
        show(console(), records, drawn=self.live is not None)


def console() -> Console:
    """What tables are printed to; in a pipe as wide as COLUMNS says."""
    from rich.console import Console

    piped = int(os.environ.get("COLUMNS") or PIPE_COLUMNS)
    return Console(width=None if sys.stdout.isatty() else piped)


def require_svg(path: Path) -> None:
    if path.suffix.lower() != ".svg":
        rule = f"must end in .svg, as that is what is drawn; got {str(path)!r}"
        raise ArgumentError(f"--plot: {rule}. Rename it, or take --html for a page with charts and tables")
