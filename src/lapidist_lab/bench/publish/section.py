"""What answers a question, as a declaration: the rows that it needs, and its words, charts and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.tables import Column, fold, table
from lapidist_lab.bench.publish.withdrawn import Withdrawal


class Data(NamedTuple):
    """The newest Records, all runs, and what is not published of them."""

    records: Sequence[Record]
    runs: Sequence[Run] = ()
    withdrawals: Sequence[Withdrawal] = ()

    def of(self, *modes: str) -> list[Record]:
        return [record for mode in modes for record in self.records if record.mode == mode]

    def ours(self, *modes: str) -> list[Record]:
        """Those of a study that have a peer."""
        found = [record for record in self.of(*modes) if record.kind != "peer" and record.ratio]
        return sorted(found, key=lambda r: (modes.index(r.mode), r.device, r.kernel, r.dtype, r.m))


Written = list[str | Chart]
# as it stands, or made of the rows
Part = str | Callable[[Any], str | Chart | Sequence[str | Chart] | None]


class Section(NamedTuple):
    """Nothing where there are no rows."""

    rows: Callable[[Data], Any]
    parts: Sequence[Part]

    def written(self, data: Data) -> Written:
        rows = self.rows(data)
        found: Written = []
        for part in self.parts if rows else ():
            made = part if isinstance(part, str) else part(rows)
            found += [made] if isinstance(made, str | Chart) else made or []
        return [each for each in found if each]


def folded(title: str, *columns: Column, words: str = "") -> Part:
    """A table below its title, after its words."""
    return lambda rows: fold(title, f"{words}\n\n{table(columns, rows).markdown()}")


def joined(*said: str, by: str = " ") -> str:
    return by.join(filter(None, said))
