"""Emulated float32 products beside cuBLAS' float32 in the same turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lapidist_lab.bench.protocol.cases import RAGGED, shape_words
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish import charts
from lapidist_lab.bench.publish.cells import geomean, ratios, times_faster, worst
from lapidist_lab.bench.publish.charts import Chart, Series
from lapidist_lab.bench.publish.curves import Axis, curves
from lapidist_lab.bench.publish.record_views import shape_of, short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import Table, table
from lapidist_lab.bench.studies.emulated_errors import MODES, NAMES
from lapidist_lab.bench.studies.emulated_products import MODE


def ours(data: Data) -> list[Record]:
    names = list(NAMES.values())
    rows = [record for record in data.of(MODE) if record.kernel in names and record.ratio]
    return sorted(rows, key=lambda record: names.index(record.kernel))


def of_emulated(data: Data) -> str:
    return "; ".join(filter(None, (of_precision(data, name) for name in NAMES.values())))


def of_precision(data: Data, name: str) -> str:
    rows = [record for record in ours(data) if record.kernel == name]
    if not rows:
        return ""
    least = worst(rows)
    return (
        f"{spoken(name)} {geomean(ratios(rows)):.2f}x cuBLAS' float32 on an {short_chip(rows[-1].device)} in"
        f" the geometric mean of {len(rows)} products, {least.ratio:.2f}x at least"
        f" ({shape_words(*shape_of(least))})"
    )


def of_ragged(data: Data) -> str:
    """The geometric means over the ragged list alone."""
    rows = {
        name: [record for record in ours(data) if record.kernel == name and shape_of(record)[:3] in RAGGED]
        for name in NAMES.values()
    }
    means = [
        f"{spoken(name)} {geomean(ratios(of_name)):.2f}x ({len(of_name)} products)"
        for name, of_name in rows.items()
        if of_name
    ]
    return f"\nRagged ones alone, in the geometric mean: {', '.join(means)}.\n" if means else ""


def spoken(name: str) -> str:
    """`precision=` as a caller writes it."""
    return f'`"{next(precision for precision, of_it in NAMES.items() if of_it == name)}"`'


def gain(record: Record, data: Data) -> str:
    """The time of our own float32 product in the same turns, over that of the emulated one."""
    alike = (r for r in data.of(MODE) if r.kernel == LIBRARY and r.device == record.device)
    plain = next((r for r in alike if shape_of(r) == shape_of(record)), None)
    if plain is None or not plain.seconds or not record.seconds:
        return "-"
    return f"{plain.seconds / record.seconds:.2f}x"


def every_product(data: Data) -> str:
    columns = (
        ("precision", lambda record: spoken(record.kernel)),
        ("m x n x k", lambda record: shape_words(*shape_of(record))),
        "chip | time | TFLOP/s",
        ("cuBLAS' float32 over it", times_faster),
        ("our float32 over it", lambda record: gain(record, data)),
        "error/bound",
    )
    return table(columns, ours(data)).markdown()


def by_range(data: Data) -> str:
    """Errors by phi and k, a row for each pair, a column for each way."""
    rows = data.of(*MODES)
    if not rows:
        return ""
    names = list(dict.fromkeys(record.kernel for record in rows))
    errors = {(r.mode, r.k, r.kernel): r.largest_error for r in rows}
    pairs = list(dict.fromkeys((record.mode, record.k) for record in rows))
    heads = ["phi", "k", *map(said, names)]
    cells = [
        [f"{MODES[mode]:g}", str(k), *(bits(errors.get((mode, k, name))) for name in names)]
        for mode, k in pairs
    ]
    return RANGE_WORDS + Table(heads, cells).markdown()


# ---- pictures ----

AT_PHI, AT_K = 1.0, 4096  # what the pictures of errors hold still


def error_series(rows: Sequence[Record], x: Callable[[Record], float]) -> list[Series]:
    """The largest errors of each way, as powers of two."""
    points: dict[str, list[tuple[float, float]]] = {}
    for record in sorted(rows, key=x):
        if record.largest_error:
            points.setdefault(record.kernel, []).append((x(record), math.log2(record.largest_error)))
    return [(said(name), of_way) for name, of_way in points.items()]


def error_charts(data: Data) -> list[str | Chart]:
    """Against k at one phi, and against phi at one k."""
    rows = data.of(*MODES)
    by_k = error_series([r for r in rows if MODES[r.mode] == AT_PHI], lambda r: float(r.k))
    by_phi = error_series([r for r in rows if r.k == AT_K], lambda r: MODES[r.mode])
    if not by_k or not by_phi:
        return []
    heights = [height for series in (*by_k, *by_phi) for _, height in series[1]]
    y = Axis("log2 of the largest error over |A||B|", (math.floor(min(heights)) - 1, math.ceil(max(heights))))
    ticks = sorted({x for _, points in by_k for x, _ in points})
    words = "The largest error of an element by cuBLAS, tf32 and both emulated precisions, against"
    at_k, at_phi = f"k, phi = {AT_PHI:g}", f"phi, k = {AT_K}"
    return [
        curves("emulated-errors-k", by_k, f"{words} {at_k}", Axis(at_k, ticks, True), y),
        curves("emulated-errors-phi", by_phi, f"{words} {at_phi}", Axis(at_phi, sorted(MODES.values())), y),
    ]


def said(name: str) -> str:
    return "cuBLAS" if name == "cublas" else name.removeprefix("lapidist, ")


def speed_chart(data: Data) -> Chart | None:
    """TFLOP/s of squares against their size."""
    names = {"cublas": "cuBLAS", LIBRARY: "our float32"} | {name: said(name) for name in NAMES.values()}
    rows = [r for r in data.of(MODE) if r.m == r.n == r.k and r.tflops and r.kernel in names]
    series = [
        (words, sorted((float(r.m), r.tflops or 0.0) for r in rows if r.kernel == name))
        for name, words in names.items()
    ]
    series = [(words, points) for words, points in series if len(points) > 1]
    words = "TFLOP/s of float32 products against their size, m = n = k"
    return charts.lines("emulated-sizes", series, words) if series else None


def bits(error: float | None) -> str:
    return "-" if error is None else f"2^{math.log2(error):.1f}" if error else "0"


WORDS = (
    "Both precisions multiply float32 [on tensor cores of other types](../numerics.md#emulated): by three"
    " slices of 8 bits, and by two fp16 or three bfloat16. Numbers are standard normal. Calls are captured"
    " in CUDA graphs and take turns with cuBLAS, without rest. *Over it* is the other product's time over"
    " that of the emulated one.\n\n"
)
RANGE_WORDS = (
    "\nThe largest error of an element, over the product of magnitudes, of 512 x 384 x k. Numbers are"
    " `(U - 0.5) exp(phi N)`. Where slices do not hold them, `emulated` has the bits of `simt`.\n\n"
)
EMULATED = Section(
    lambda data: ours(data) and data,
    [lambda data: WORDS + every_product(data), of_ragged, speed_chart, by_range, error_charts],
)
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    ["Emulated products have no Records yet. `lapidist bench emulated --record results` makes them."],
)
