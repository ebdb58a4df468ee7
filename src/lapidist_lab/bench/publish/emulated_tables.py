"""Emulated float32 products beside cuBLAS' float32 in the same turns."""

from __future__ import annotations

from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import geomean, ratios, times_faster, worst
from lapidist_lab.bench.publish.record_views import shape_of, short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import table
from lapidist_lab.bench.studies.emulated_products import MODE, NAME


def ours(data: Data) -> list[Record]:
    return [record for record in data.of(MODE) if record.kernel == NAME and record.ratio]


def of_emulated(data: Data) -> str:
    rows = ours(data)
    if not rows:
        return ""
    least = worst(rows)
    return (
        f"On an {short_chip(rows[-1].device)}, {geomean(ratios(rows)):.2f}x cuBLAS' float32 in the geometric"
        f" mean of {len(rows)} products. The least is {least.ratio:.2f}x, {shape_words(*shape_of(least))}"
    )


def gain(record: Record, data: Data) -> str:
    """The time of our own float32 product in the same turns, over that of the emulated one."""
    alike = (r for r in data.of(MODE) if r.kernel == LIBRARY and r.device == record.device)
    plain = next((r for r in alike if shape_of(r) == shape_of(record)), None)
    if plain is None or not plain.seconds or not record.seconds:
        return "-"
    return f"{plain.seconds / record.seconds:.2f}x"


def every_product(data: Data) -> str:
    columns = (
        ("m x n x k", lambda record: shape_words(*shape_of(record))),
        "chip | time | TFLOP/s",
        ("cuBLAS' float32 over it", times_faster),
        ("our float32 over it", lambda record: gain(record, data)),
        "error/bound",
    )
    return table(columns, ours(data)).markdown()


WORDS = (
    '`precision="emulated"` multiplies float32 by [slices](../numerics.md#emulated) on int8 tensor cores.'
    " Numbers are standard normal. Calls are captured in CUDA graphs, in turns with cuBLAS without rest."
    " *Over it* is the other product's time over that of the emulated one.\n\n"
)
EMULATED = Section(lambda data: ours(data) and data, [lambda data: WORDS + every_product(data)])
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    ["Emulated products have no Records yet. `lapidist bench emulated --record results` makes them."],
)
