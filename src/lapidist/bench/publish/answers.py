"""The answers of the pages in a sentence, and the charts beside them, out of the newest Records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lapidist.bench.protocol.cases import LISTS, shape_words
from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish import charts
from lapidist.bench.publish.charts import Bar, Chart
from lapidist.bench.publish.corpora import DECODE, PADDED, TURNS, Corpora, Corpus, ragged_of, weights_read
from lapidist.bench.publish.markdown import row_of, rule, speed
from lapidist.bench.publish.sharing_report import by_shape, gains
from lapidist.bench.publish.squares import (
    MODE_WORDS,
    SUMMARY_SIZE,
    at_square,
    extents_of,
    vendor_of,
    worst_square,
)
from lapidist.bench.publish.tables import geomean, percent, time_words
from lapidist.bench.publish.views import (
    LIES,
    TIMED_MODES,
    Found,
    in_math,
    in_order,
    label,
    maths_in,
    on,
    shape_of,
    short_chip,
    squares,
)
from lapidist.dtypes import short_name

CLIMBED = (4096, 4096, 4096)
SMALL = (512, 1024)
SHOWN_CALLS = (
    "plan.execute",
    "matmul(out)",
    "gemm(out)",
    "gemm(c, out)",
    "matmul",
    "torch.mm",
    "torch.mm, new output",
    "torch.addmm",
)


# ---- types ----


def of_type(records: Sequence[Record]) -> str:
    """The planner's choice on a large square, sustained and in bursts, and where it is worst."""
    said = [words for mode in TIMED_MODES if (words := reached_words(records, mode))]
    if not said:
        return "cuBLAS has no such product, or none was measured beside it."
    share = at_square(records, SUMMARY_SIZE, "sustained")
    if share and share.limit_share is not None:
        said.append(f"That is {percent(share.limit_share)} % of the chip's limit for this type, sustained.")
    if least := least_words(records):
        said.append(least)
    if worst_square(records, "burst") is None:
        said.append("In bursts none of them was measured.")
    return " ".join(said)


def reached_words(records: Sequence[Record], mode: str) -> str:
    record = at_square(records, SUMMARY_SIZE, mode)
    if record is None:
        return ""
    where = f"At {record.m}^3, sustained, the planner's choice" if mode == "sustained" else "In bursts it"
    return f"{where} reaches **{speed(record)} TFLOP/s**, {percent(record.ratio)} % of cuBLAS."


def least_words(records: Sequence[Record]) -> str:
    """Of squares of any size, in each mode."""
    worst = {mode: found for mode in TIMED_MODES if (found := worst_square(records, mode))}
    least = [
        f"{percent(record.ratio)} % of cuBLAS {MODE_WORDS[mode]} (at {record.m}^3)"
        for mode, record in worst.items()
    ]
    return f"Squares of {extents_of(records)} have at least {' and '.join(least)}." if least else ""


def in_short(records: Sequence[Record], kind: str) -> str:
    said = []
    for mode in TIMED_MODES:
        record = at_square(in_math(records, kind), SUMMARY_SIZE, mode)
        if record:
            said.append(f"{speed(record)} TFLOP/s {MODE_WORDS[mode]} ({percent(record.ratio)} % of cuBLAS)")
    return f"{', '.join(said)} at {SUMMARY_SIZE}^3. {least_words(in_math(records, kind))}" if said else ""


def sizes_chart(short: str, records: Sequence[Record]) -> Chart | None:
    """Speed against size: ours and cuBLAS in the same run, in both modes."""
    series: list[charts.Series] = []
    for mode in TIMED_MODES:
        timed = [record for record in records if record.mode == mode]
        ours = next((each for each in squares(timed) if each.kernel == LIBRARY), None)
        if ours is None:
            continue
        beside = [vendor_of(record) for record in ours.records if record.ratio]
        for name, rows in ((f"cuBLAS, {mode}", beside), (f"lapidist, {mode}", ours.records)):
            series.append((name, [(float(record.m), record.tflops or 0.0) for record in rows]))
    shown = [each for each in series if len(each[1]) > 1]
    words = f"TFLOP/s of the planner's choice and of cuBLAS against m = n = k, {short}"
    return charts.lines(f"sizes-{short}", shown, words) if shown else None


def climbed(records: Sequence[Record]) -> list[Record]:
    """The ladder and the production kernels at its main shape, where enough of it was climbed."""
    rows = [record for record in on(records, CLIMBED) if record.kind in ("rung", "production", "peer")]
    timed = [record for record in in_order(rows) if record.ratio is not None]
    return timed if sum(record.kind == "rung" for record in timed) > 1 else []


def beside_cublas(name: str, records: Sequence[Record], words: str) -> Chart:
    """Bars of each kernel's share of cuBLAS in its own run; the line is cuBLAS."""
    rows = [
        Bar(label(r.kernel), 100 * (r.ratio or 0.0), f"{speed(r)} TFLOP/s, {percent(r.ratio)} %", r.kind)
        for r in records
        if r.ratio is not None and r.kernel != "cublas"
    ]
    return charts.bars(name, rows, [("cuBLAS", 100.0)], words)


def ladder_words(short: str, records: Sequence[Record]) -> str:
    device = records[0].device.removeprefix("NVIDIA ")
    return f"Each kernel's share of cuBLAS at 4096^3, {short}, sustained, on one {device}"


# ---- ragged products ----


def of_ragged(found: Corpora) -> list[str]:
    """Each type's gain over the vendor, in every mode: of ragged products, then of aligned ones."""
    said = [gain_words(kind, modes) for kind, modes in ragged_of(found).items()]
    said += [aligned_words(corpus, modes) for corpus, modes in found.items() if corpus.multiple > 1]
    return [each for each in said if each]


def gain_words(kind: str, modes: Mapping[str, Found]) -> str:
    said: list[str] = []
    for mode, rows in modes.items():
        groups = by_shape([record for record, _ in rows])
        values, padded = (gains(groups, LIBRARY, rival) for rival in ("cublas", PADDED))
        if values:
            mean = f"{geomean(values):.2f} times cuBLAS in the geometric mean of {len(values)}"
            chip = short_chip(rows[0][0].device)
            head = TURNS[mode] if said else f"{short_name(kind)} on an {chip}, {TURNS[mode].lower()}"
            said.append(f"{head}: {mean} ragged products, {min(values):.2f} at least.")
        if padded:
            said.append(
                f"Beside cuBLAS with operands padded by hand first: {geomean(padded):.2f} times,"
                f" {min(padded):.2f} at least."
            )
    return " ".join(said)


def aligned_words(corpus: Corpus, modes: Mapping[str, Found]) -> str:
    said = []
    for mode, rows in modes.items():
        values = gains(by_shape([record for record, _ in rows]), LIBRARY, "cublas")
        if values:
            whose = f"{short_name(corpus.kind)} on an {short_chip(corpus.chip)}, {TURNS[mode].lower()}"
            head = f"{whose}, multiples of {corpus.multiple}, {LIES[corpus.layout]}"
            mean = f"{geomean(values):.3f} times cuBLAS in the geometric mean of {len(values)}"
            said.append(f"{head}: {mean}. The least is {min(values):.3f}.")
    return " ".join(said)


# ---- decode ----


def sustained_layers(records: Sequence[Record]) -> list[Record]:
    return [
        record
        for record in records
        if record.kernel == LIBRARY
        and record.mode == "sustained"
        and shape_of(record) in LISTS["layers"]
        and record.seconds
    ]


def decoded(records: Sequence[Record]) -> list[Record]:
    return [record for record in sustained_layers(records) if record.m <= DECODE]


def of_decode(records: Sequence[Record]) -> str:
    rows = decoded(records)
    if not rows:
        return ""
    read = [weights_read(record) for record in rows]
    others = [record for record in sustained_layers(records) if record.m > DECODE]
    said = (
        f"Weights are read at {min(read):.2f} to {max(read):.2f} TB/s on an {short_chip(rows[0].device)},"
        f" sustained, for 1 to {DECODE} rows in {len(maths_in(rows))} types."
    )
    mean, of_more = mean_words(rows), mean_words(others)
    more = f" With {min(r.m for r in others)} rows and more it is {of_more}." if of_more else ""
    return said + (f" That is {mean}.{more}" if mean else "")


def mean_words(records: Sequence[Record]) -> str:
    """Of those that cuBLAS was measured beside, with the worst. Empty without any."""
    timed = [record for record in records if record.ratio]
    if not timed:
        return ""
    worst = min(timed, key=lambda record: record.ratio or 0.0)
    mean = f"{geomean([record.ratio or 0.0 for record in timed]):.2f} times cuBLAS in the geometric mean"
    place = f"{short_name(worst.dtype)}, {shape_words(*shape_of(worst))}"
    return f"{mean} of {len(timed)}, {worst.ratio:.2f} at least ({place})"


def decode_chart(records: Sequence[Record]) -> Chart | None:
    """Each type at the largest layer."""
    rows = decoded(records)
    if not rows:
        return None
    n, k = max((record.n, record.k) for record in rows)
    shown = sorted(
        (r for r in rows if (r.n, r.k) == (n, k)), key=lambda r: (maths_in(rows).index(r.dtype), r.m)
    )
    drawn = [
        Bar(
            f"{short_name(r.dtype)}, {r.m} row{'s' if r.m > 1 else ''}",
            weights_read(r),
            f"{weights_read(r):.2f} TB/s" + (f", {percent(r.ratio)} %" if r.ratio else ""),
            "production",
        )
        for r in shown
    ]
    words = f"TB/s of weights read, and % of cuBLAS, for weights of {n} x {k}, sustained"
    return charts.bars("decode", drawn, [], words)


# ---- small products ----


def small(records: Sequence[Record]) -> list[Record]:
    found = (
        at_square(in_math(records, kind), size, "sustained") for kind in maths_in(records) for size in SMALL
    )
    return [record for record in found if record]


def small_table(records: Sequence[Record]) -> str:
    rows = small(records)
    if not rows:
        return ""
    heads = ["type", "m = n = k", "time", "TFLOP/s", "cuBLAS", "% of cuBLAS", "chosen"]
    lines = [row_of(heads), rule(heads)]
    for record in rows:
        cells = [time_words(record.seconds), speed(record), speed(vendor_of(record)), percent(record.ratio)]
        lines.append(row_of([short_name(record.dtype), str(record.m), *cells, record.config or ""]))
    return "\n".join(lines) + "\n"


def of_small(records: Sequence[Record]) -> str:
    rows = small(records)
    sizes = " and ".join(f"{size}^3" for size in SMALL)
    return f"{sizes}, sustained: {mean_words(rows)}" if rows else ""


def small_chart(records: Sequence[Record]) -> Chart | None:
    drawn = [
        Bar(
            f"{short_name(r.dtype)}, {r.m}^3",
            100 * (r.ratio or 0.0),
            f"{time_words(r.seconds)}, {percent(r.ratio)} %",
            "production",
        )
        for r in small(records)
    ]
    words = "Time of small squares, and % of cuBLAS, sustained"
    return charts.bars("small", drawn, [("cuBLAS", 100.0)], words) if drawn else None


# ---- calls ----


def of_launch(records: Sequence[Record]) -> str:
    times = {record.kernel: record for record in records}
    plan, call, first = (times.get(name) for name in ("plan.execute", "matmul(out)", "first call, cold"))
    if plan is None or call is None:
        return ""
    said = (
        f"The host takes {time_words(plan.seconds)} for a call of a plan,"
        f" {time_words(call.seconds)} for matmul with `out`"
    )
    beside = f", {call.ratio:.2f} times as fast as torch.mm" if call.ratio else ""
    cold = f" A first call that compiles takes {time_words(first.seconds)}." if first else ""
    lost = [f"{each.kernel} ({each.ratio:.2f})" for each in records if (each.ratio or 1.0) < 1.0]
    slower = f" Slower than what they stand beside: {', '.join(lost)}." if lost else ""
    return f"{said}{beside}.{slower}{cold}"


def launch_chart(records: Sequence[Record]) -> Chart | None:
    times = {record.kernel: record for record in records}
    drawn = [
        Bar(
            name, 1e6 * (r.seconds or 0.0), time_words(r.seconds), "peer" if "torch" in name else "production"
        )
        for name in SHOWN_CALLS
        if (r := times.get(name))
    ]
    words = "Microseconds of the host for a call, median"
    return charts.bars("launch", drawn, [], words) if drawn else None
