"""Products of complex numbers, beside cuBLAS's in the same turns."""

from __future__ import annotations

import itertools

from lapidist.dtypes import IEEE
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import geomean, ratios, time_words, times_faster
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.record_views import shape_of, short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import fold, table
from lapidist_lab.bench.studies.complex_products import MATHS, MODE, NAMES


def of_contender(data: Data, name: str) -> list[Record]:
    rows = [record for record in data.of(MODE) if record.kernel == name and record.ratio]
    return sorted(rows, key=lambda r: (r.device, MATHS.index(r.dtype), r.batch or 1, r.m * r.n * r.k))


def ours(data: Data) -> list[Record]:
    return of_contender(data, NAMES[IEEE])


def other_ways(data: Data) -> list[list[Record]]:
    """complex64 by each way that has to be asked for."""
    return [rows for asked in NAMES if asked != IEEE and (rows := of_contender(data, NAMES[asked]))]


def by_way(data: Data) -> dict[str, list[float]]:
    """How many times as fast as cuBLAS, by type, and by way where it has to be asked for."""
    rows = ours(data)
    groups = {math: [record for record in rows if record.dtype == math] for math in MATHS}
    groups |= {ways[0].kernel.replace(LIBRARY, "complex64"): ways for ways in other_ways(data)}
    return {name: ratios(records) for name, records in groups.items() if records}


def of_complex(data: Data) -> str:
    rows = ours(data)
    parts = [
        f"{words} {geomean(times):.2f} times, {min(times):.2f} at least"
        for words, times in by_way(data).items()
    ]
    return f"On an {short_chip(rows[-1].device)}, of cuBLAS's: {'; '.join(parts)}" if parts else ""


def ways_chart(data: Data) -> Chart:
    words = "Complex products beside cuBLAS's: the mean, and the worst case; losses are red"
    return mean_and_worst("complex", by_way(data), words, "cuBLAS")


def every_case(data: Data) -> str:
    columns = (
        ("type", lambda record: record.dtype),
        ("way", lambda record: record.kernel),
        ("m x n x k", lambda record: shape_words(*shape_of(record), record.batch or 1)),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
        ("cuBLAS over it", times_faster),
    )
    rows = [*ours(data), *itertools.chain(*other_ways(data))]
    return fold("Every case", table(columns, rows).markdown())


WORDS = (
    "A complex product runs as one of real numbers: a launch before it widens each number of B to two rows"
    " and two columns. Small matrices, and middle ones in complex128, are multiplied where they lie. Calls"
    " are captured in CUDA graphs, in turns with cuBLAS's, without rest. tf32 is beside cuBLAS with TF32"
    " allowed."
)
COMPLEX = Section(lambda data: ours(data) and data, [WORDS, ways_chart, every_case])
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    ["Complex numbers have no Records yet. `lapidist bench complex --record results` makes them."],
)
