"""Products over several cards by the plan's ways, beside what else moves the bytes in the same turns."""

from __future__ import annotations

from lapidist.distributed.exchange_plans import WAYS
from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import geomean, number, time_words, times_faster
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.record_views import shape_of, short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import fold, table
from lapidist_lab.bench.studies.several_cards import ALONE, MODE

CALLS: list[str] = list(WAYS)
FEW_ROWS = 512


def ours(data: Data) -> list[Record]:
    """The ways that plans chose."""
    rows = [record for record in data.of(MODE) if record.kernel in WAYS and record.ratio]
    return sorted(rows, key=lambda r: (r.device, r.dtype, CALLS.index(r.kernel), r.n, r.k, r.m))


def of_alone(record: Record, data: Data) -> float | None:
    """The time of the product alone, of one card's part, over that with the exchange."""
    name = f"{ALONE}, {record.kernel}"
    same = (r for r in data.of(MODE) if (r.kernel, r.device, r.dtype) == (name, record.device, record.dtype))
    alone = next((r for r in same if shape_of(r) == shape_of(record)), None)
    return alone.seconds / record.seconds if alone and alone.seconds and record.seconds else None


def of_parallel(data: Data) -> str:
    rows = ours(data)
    if not rows:
        return ""
    parts = []
    for product in WAYS:
        times = [record.ratio or 0.0 for record in rows if record.kernel == product]
        if times:
            parts.append(f"`{product}` {geomean(times):.2f} times, {min(times):.2f} at least")
    return f"On {short_chip(rows[-1].device)} cards, of the fastest other way: {'; '.join(parts)}"


def by_call(data: Data) -> Chart:
    """Each call in each type, of few rows and of many: the exchange is most of the time of the first."""
    groups: dict[str, list[float]] = {}
    for record in ours(data):
        call = record.kernel.replace("_matmul", "").replace("matmul_", "")
        rows = "few rows" if record.m <= FEW_ROWS else "more rows"
        title = f"{call}, {short_name(record.dtype)}, {rows}"
        groups.setdefault(title, []).append(record.ratio or 0.0)
    words = "Products over cards beside the fastest other way: the mean, and the worst case; losses are red"
    return mean_and_worst("several-cards", groups, words, "another way")


def every_case(data: Data) -> str:
    columns = (
        ("call", lambda record: f"`{record.kernel}`"),
        ("type", lambda record: short_name(record.dtype)),
        ("rows x n x k of a card", lambda record: shape_words(*shape_of(record))),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
        ("fastest other way", lambda record: record.peer or ""),
        ("its time over ours", times_faster),
        ("product alone over ours", lambda record: f"{number(of_alone(record, data), '.2f')}x"),
    )
    return fold("Every case", table(columns, ours(data)).markdown())


def every_way(data: Data) -> str:
    rows = [record for record in data.of(MODE) if record.kind != "peer"]
    columns = (
        ("call", lambda record: record.kernel),
        ("type", lambda record: short_name(record.dtype)),
        ("rows x n x k of a card", lambda record: shape_words(*shape_of(record))),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
    )
    return fold("Every way that was timed", table(columns, rows).markdown())


WORDS = (
    "Products whose rows, or whose sums, lie on the cards of one host"
    " ([several cards](../tutorials/several-cards.md)). Others are NCCL with cuBLAS, torch's products over"
    " symmetric memory, and cuBLAS with torch's one-shot all-reduce. All are captured in CUDA graphs where"
    " they can be, and take turns. Times are those of the slowest card."
    f" In the chart, few rows are up to {FEW_ROWS}."
)
PARALLEL = Section(lambda data: ours(data) and data, [WORDS, by_call, every_case, every_way])
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    [
        "Products over several cards have no Records yet. `torchrun --nproc-per-node 2 -m"
        " lapidist_lab.bench.studies.several_cards FILE` makes them."
    ],
)
