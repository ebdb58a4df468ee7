"""What answers a question, as a declaration: the rows that it needs, and its words, charts and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.tables import Column, fold, table
from lapidist_lab.bench.publish.withdrawn import Withdrawal


class Data(NamedTuple):
    """The newest Records, all runs, and the withdrawals."""

    records: Sequence[Record]
    runs: Sequence[Run] = ()
    withdrawals: Sequence[Withdrawal] = ()

    def of(self, *modes: str) -> list[Record]:
        return [record for mode in modes for record in self.records if record.mode == mode]

    def ours(self, *modes: str) -> list[Record]:
        """The rows of a study that have a ratio to a peer, in order."""
        records = [record for record in self.of(*modes) if record.kind != "peer" and record.ratio]
        return sorted(records, key=lambda r: (modes.index(r.mode), r.device, r.kernel, r.dtype, r.m))


Written = list[str | Chart]
# as it stands, or made of the rows
Part = str | Callable[[Any], str | Chart | Sequence[str | Chart] | None]


class Section(NamedTuple):
    """What answers a part of a question; nothing where there are no rows."""

    rows: Callable[[Data], Any]
    parts: Sequence[Part]

    def written(self, data: Data) -> Written:
        rows = self.rows(data)
        texts: Written = []
        for part in self.parts if rows else ():
            content = part if isinstance(part, str) else part(rows)
            texts += [content] if isinstance(content, str | Chart) else content or []
        return [text for text in texts if text]


def folded(title: str, *columns: Column, words: str = "") -> Part:
    """A table folded below its title, with `words` above it."""
    return lambda rows: fold(title, f"{words}\n\n{table(columns, rows).markdown()}")


def joined(*sentences: str, by: str = " ") -> str:
    return by.join(filter(None, sentences))
