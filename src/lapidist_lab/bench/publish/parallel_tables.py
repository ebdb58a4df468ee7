"""Products over several cards by the plan's ways, beside what else moves the bytes in the same turns."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from lapidist.device import like
from lapidist.distributed.exchange_plans import WAYS, ExchangePlan, exchange_of, plan_of
from lapidist.distributed.exchange_times import NVLINK, Product, Reach
from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import geomean, number, time_words, times_faster
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.record_views import shape_of, short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import Table, fold, table
from lapidist_lab.bench.studies.several_cards import ALONE, CARDS, GATHER, MODE, Case, cards_of

CALLS: list[str] = list(WAYS)
FEW_ROWS = 512
RESULT_BYTES = 2  # of bfloat16, in which the study stores


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


def case_of(record: Record) -> Case:
    return Case(record.kernel, *shape_of(record), record.dtype)  # type: ignore[arg-type]


def every_case(data: Data) -> str:
    columns = (
        ("call", lambda record: f"`{record.kernel}`"),
        ("type", lambda record: short_name(record.dtype)),
        ("cards", lambda record: str(cards_of(case_of(record)) or "-")),
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


# ---- what the plans' model says of more cards ----


class JointCase(NamedTuple):
    """A case of all cards together."""

    device: str
    product: Product
    rows: int
    n: int
    k: int
    dtype: str

    def of_each(self, cards: int) -> Case:
        n, k = (self.n // cards, self.k) if self.product == GATHER else (self.n, self.k // cards)
        return Case(self.product, self.rows, n, k, self.dtype)


def joint_case(record: Record, cards: int) -> JointCase:
    case = case_of(record)
    n, k = (case.n * cards, case.k) if case.product == GATHER else (case.n, case.k * cards)
    return JointCase(record.device, case.product, case.rows, n, k, case.dtype)


def joint_times(data: Data) -> dict[JointCase, dict[int, float]]:
    """Seconds of each case by the number of cards."""
    times_of: dict[JointCase, dict[int, float]] = {}
    for record in ours(data):
        cards = cards_of(case_of(record))
        if cards is not None and record.seconds:
            times_of.setdefault(joint_case(record, cards), {})[cards] = record.seconds
    return times_of


def predicted(joint: JointCase, cards: int) -> ExchangePlan:
    case = joint.of_each(cards)
    exchange = exchange_of(case.product, case.rows, case.n, case.k, case.dtype, cards, RESULT_BYTES)
    return plan_of(exchange, Reach(cards, like(joint.device), NVLINK))


def of_model(data: Data) -> str:
    """Measured times beside those of the model that plans choose by, which also tells of more cards."""
    times_of = joint_times(data)
    if not times_of:
        return ""
    seconds = {(joint, cards): predicted(joint, cards).seconds[0][1] for joint in times_of for cards in CARDS}
    off = [seconds[joint, cards] / time for joint, times in times_of.items() for cards, time in times.items()]
    heads = ["call", "type", "rows x n x k of all", "chip"]
    heads += chain.from_iterable((f"{cards} cards", f"{cards}, predicted") for cards in CARDS)
    rows = []
    for joint, times in times_of.items():
        words = [f"`{joint.product}`", short_name(joint.dtype), shape_words(joint.rows, joint.n, joint.k)]
        rows.append([*words, short_chip(joint.device)])
        for cards in CARDS:
            way = f"{time_words(seconds[joint, cards])}, `{predicted(joint, cards).way}`"
            rows[-1] += [time_words(times.get(cards)), way]
    words_above = (
        f"Predicted times over measured ones: {geomean(off):.2f} in the mean, {min(off):.2f} to"
        f" {max(off):.2f}. A dash says that nothing was measured. Constants are fitted to two cards."
    )
    return fold("What the model predicts for more cards", f"{words_above}\n\n{Table(heads, rows).markdown()}")


WORDS = (
    "Products whose rows, or whose sums, lie on the cards of one host"
    " ([several cards](../tutorials/several-cards.md)). Others are NCCL with cuBLAS, torch's products over"
    " symmetric memory, and cuBLAS with torch's one-shot all-reduce. All are captured in CUDA graphs where"
    " they can be, and take turns. Times are those of the slowest card."
    f" In the chart, few rows are up to {FEW_ROWS}."
)
PARALLEL = Section(lambda data: ours(data) and data, [WORDS, by_call, every_case, of_model, every_way])
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    [
        "Products over several cards have no Records yet. `torchrun --nproc-per-node 2 -m"
        " lapidist_lab.bench.studies.several_cards FILE` makes them."
    ],
)
