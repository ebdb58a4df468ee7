"""Grouped products beside the fastest peer and one dense product. `ratio` is the peer's time over ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish import bar_charts
from lapidist_lab.bench.publish.bar_charts import Bar
from lapidist_lab.bench.publish.cells import (
    chip,
    geomean,
    kind,
    number,
    percent,
    ratios,
    span,
    speed,
    times_and_least,
    times_faster,
    worst,
)
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.record_views import short_chip
from lapidist_lab.bench.publish.section import Data, Section, joined
from lapidist_lab.bench.publish.tables import Column, fold, table
from lapidist_lab.bench.studies.group_cases import (
    DECODE,
    FORWARD,
    LAYERS,
    SPREADS,
    TO_WEIGHTS,
    WAYS,
    ZIPF,
    GroupCase,
    case_of,
)
from lapidist_lab.bench.studies.group_contenders import CUBLASLT, DENSE, TRITON
from lapidist_lab.bench.studies.grouped_products import MODE

LONG = 512  # rows a group from which one dense product is the measure
LAYERS_BY_NAME = {layer.name: layer for layer in LAYERS}


def case_named(record: Record) -> GroupCase:
    """The case of a row, whose name is in that of its kernel."""
    _, layer, way, spread = record.kernel.split(", ")
    rows = record.k if way == TO_WEIGHTS else record.m
    return case_of(LAYERS_BY_NAME[layer], way, rows, spread, record.dtype)


def in_order(data: Data) -> list[Record]:
    """Our rows, chip by chip and type by type, in the order of the layers."""
    layers, ways, spreads = list(LAYERS_BY_NAME), list(WAYS.values()), list(SPREADS)

    def place(record: Record) -> tuple[object, ...]:
        case = case_named(record)
        at = layers.index(case.layer), ways.index(case.way), case.rows, spreads.index(case.spread)
        return record.device, record.dtype, *at

    return sorted(data.ours(MODE), key=place)


# ---- in words ----


def gain_words(rows: Sequence[Record]) -> str:
    """The mean over the fastest peer, and the worst case."""
    case = case_named(worst(rows))
    return times_and_least(ratios(rows), "the fastest peer", f"{case.name}, {case.rows} rows")


def of_groups(data: Data) -> str:
    rows = in_order(data)
    return f"On an {' and '.join(dict.fromkeys(map(chip, rows)))}, {gain_words(rows)}" if rows else ""


def way_words(data: Data) -> str:
    """A line for each chip, type and way."""
    parts: dict[tuple[str, str, str], list[Record]] = {}
    for record in in_order(data):
        parts.setdefault((record.device, record.dtype, case_named(record).way), []).append(record)
    return "\n".join(
        f"- {kind(rows[0])}, {way}, {short_chip(device)}: {gain_words(rows)}."
        for (device, _, way), rows in parts.items()
    )


def decode_words(rows: Sequence[Record]) -> str:
    """How fast few rows read the weights that they need."""
    few = [(case_named(record), record) for record in rows]
    rates = [
        case.weight_bytes / record.seconds / 1e12
        for case, record in few
        if case.rows <= DECODE and case.way != TO_WEIGHTS and record.seconds
    ]
    return (
        f"With {DECODE} rows the weights of groups that have rows are read at {span(rates, '.2f', ' TB/s')}."
        if rates
        else ""
    )


def dense_words(rows: Sequence[Record], dense: Mapping[object, Record]) -> str:
    shares = [share for record in rows if long_groups(record) and (share := over_it(record, dense))]
    if not shares:
        return ""
    return (
        f"With {LONG} rows and more a group, the speed is {geomean(shares):.2f}x that of one dense product."
        f" The least is {min(shares):.2f}x."
    )


def long_groups(record: Record) -> bool:
    case = case_named(record)
    return case.rows >= LONG * case.groups_hit


class OptionalPeer(NamedTuple):
    """A peer that not each run has."""

    who: str
    head: str  # of its column
    missing: str
    words: str  # with a place for its times


OPTIONAL = (
    OptionalPeer(
        CUBLASLT,
        "cuBLASLt's",
        "cuBLASLt's grouped layouts, which CUDA has from 13.3 on, were not among the peers.",
        "In bf16, a peer is also cuBLASLt with grouped layouts, of a newer CUDA than torch's. Its arrays of"
        " sizes and addresses are ready before the time begins. It takes {}. For groups on Hopper its manual"
        " has no factors of rows, which 8 bits have here.",
    ),
    OptionalPeer(
        TRITON,
        "Triton's",
        "A kernel in Triton was not among the peers.",
        "A kernel in Triton, after its tutorial on groups, is a peer as well. Its tiles are tried out for"
        " each case before the time begins, and the fastest is measured. It takes {}.",
    ),
)


def optional_words(peer: OptionalPeer, data: Data) -> str:
    """Whether a peer was measured, and how long it took."""
    peers = peers_of(peer.who, data)
    times = [(time, record) for record in in_order(data) if (time := over_it(record, peers))]
    if not times:
        return peer.missing
    case = case_named(min(times, key=lambda pair: pair[0])[1])
    least = f"{case.name}, {case.rows} rows"
    return peer.words.format(times_and_least([time for time, _ in times], "our time", least))


# ---- others on the same case ----


def key_of(record: Record) -> object:
    return record.device, record.dtype, record.kernel.partition(", ")[2], record.m, record.n, record.k


def peers_of(who: str, data: Data) -> dict[object, Record]:
    return {key_of(r): r for r in data.of(MODE) if r.kernel.startswith(f"{who}, ") and r.seconds}


def over_it(record: Record, peers: Mapping[object, Record]) -> float | None:
    """The other's time over ours."""
    other = peers.get(key_of(record))
    return other.seconds / record.seconds if other and other.seconds and record.seconds else None


# ---- the page ----

WORDS = (
    "`lapidist.grouped` multiplies the rows of each [group](../glossary.md#group) by weights of their own, in"
    " one launch. Groups are those of layers of experts in three models. Their lengths are even, fall as"
    " 1 / i (zipf), or one group has all rows. Peers are `torch._grouped_mm`, a loop of `torch.mm` in a"
    " graph, and `torch.bmm` of padded groups where padding adds at most three times the rows. The loop and"
    " the padded batch know the lengths on the host. *To data* and *to weights* are the two products of a"
    " backward pass. Turns are without rest."
)
# Of kernels that nobody has measured beside ours.
PUBLISHED = """What [others](https://github.com/deepseek-ai/DeepGEMM) publish, on chips of their own:

| library | type | chip | groups | TFLOP/s |
|---|---|---|---|---:|
| DeepGEMM | e4m3, factors of blocks | H800 | 4, 8192 x 4096 x 7168 | 1381 |
| DeepGEMM | e4m3, factors of blocks | H800 | 4, 8192 x 7168 x 2048 | 1262 |
| DeepGEMM | e4m3, factors of blocks | H800 | parts of k, as of gradients of weights | 900 to 1044 |

cuBLASLt's grouped layouts of CUDA 13.4 take 7.5 % less time than torch's kernel in the median, on an H100
([pytorch #196645](https://github.com/pytorch/pytorch/issues/196645))."""


def summary(data: Data) -> str:
    rows = in_order(data)
    peers = [optional_words(peer, data) for peer in OPTIONAL]
    words = joined(WORDS, *peers, decode_words(rows), dense_words(rows, peers_of(DENSE, data)))
    return f"{words}\n\n{way_words(data)}"


def group_chart(data: Data) -> Chart | None:
    """Bars of the fastest peer's time over ours, for many rows of uneven groups."""
    cases = [(case_named(record), record) for record in in_order(data)]
    forward = [(case, record) for case, record in cases if (case.way, case.spread) == (FORWARD, ZIPF)]
    if not forward:
        return None
    first, most = forward[0][1], max(case.rows for case, _ in forward)
    drawn = [
        Bar(case.layer, 100 * (r.ratio or 0.0), f"{speed(r)} TFLOP/s, {percent(r.ratio)} %")
        for case, r in forward
        if (case.rows, r.device, r.dtype) == (most, first.device, first.dtype)
    ]
    words = f"The fastest peer's time over ours, in %, {kind(first)}, forward, {most} rows by Zipf's law"
    return bar_charts.bars("grouped", drawn, [("fastest peer", 100.0)], words, losses=True)


def share_of(record: Record, peers: Mapping[object, Record]) -> str:
    return number(over_it(record, peers), ".2f")


def every_case(data: Data) -> str:
    dense = peers_of(DENSE, data)
    optional = [(peer.head, peers_of(peer.who, data)) for peer in OPTIONAL]
    columns: Sequence[Column] = (
        ("layer", lambda r: case_named(r).layer),
        ("way", lambda r: case_named(r).way),
        ("rows", lambda r: str(case_named(r).rows)),
        ("lengths", lambda r: case_named(r).spread),
        "type | time | TFLOP/s",
        ("fastest peer", lambda r: r.peer or "-"),
        ("its time over ours", times_faster),
        *((head, partial(share_of, peers=peers)) for head, peers in optional if peers),
        ("dense product's time over ours", partial(share_of, peers=dense)),
        ("weights read", lambda r: r.note or ""),
        "chip | chosen | error/bound",
    )
    words = ("way", "lengths", "fastest peer", "weights read")
    return fold("Every case", table(columns, in_order(data), words).markdown())


GROUPS = Section(lambda data: data.ours(MODE) and data, [summary, group_chart, every_case, PUBLISHED])
NO_GROUPS = Section(
    lambda data: data.records and not data.ours(MODE),
    ["Grouped products have no Records yet. `lapidist bench grouped --record results` makes them."],
)
