"""Symmetric products by half of their tiles, beside whole ones in the same turns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lapidist.dtypes import short_name
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.cells import (
    geomean,
    number,
    ratios,
    time_words,
    times_and_least,
    times_faster,
)
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.mean_and_worst import mean_and_worst
from lapidist_lab.bench.publish.record_views import shape_of, short_chip
from lapidist_lab.bench.publish.section import Data, Section
from lapidist_lab.bench.publish.tables import Column, fold, table
from lapidist_lab.bench.studies import muon_steps
from lapidist_lab.bench.studies.symmetric_products import COMPILED, MATHS, MODE, NAME, QUACK

PEERS = {QUACK: "quack", COMPILED: "`torch.compile`"}  # beside cuBLAS, where they are installed


def ours(data: Data) -> list[Record]:
    rows = [record for record in data.of(MODE) if record.kernel == NAME and record.ratio]
    return sorted(rows, key=lambda r: (r.device, MATHS.index(r.dtype), r.m, -r.k))


def over_it(kernel: str, record: Record, data: Data) -> float | None:
    """The time of another product of the same case over that of our half."""
    rows = (r for r in data.of(MODE) if r.kernel == kernel and r.device == record.device)
    same = next((r for r in rows if (shape_of(r), r.dtype) == (shape_of(record), record.dtype)), None)
    return same.seconds / record.seconds if same and same.seconds and record.seconds else None


def measured_peers(data: Data) -> list[str]:
    return [name for name in PEERS if any(over_it(name, record, data) for record in ours(data))]


def of_peers(data: Data) -> str:
    """Who stands beside cuBLAS, and how long they take."""
    sentences = []
    for name in measured_peers(data):
        times = [(time, r) for r in ours(data) if (time := over_it(name, r, data))]
        slow = min(times, key=lambda pair: pair[0])[1]
        place = f"{short_name(slow.dtype)}, {shape_words(*shape_of(slow))}"
        measured = times_and_least([time for time, _ in times], "our time", place)
        sentences.append(f"{PEERS[name]} takes {measured}.")
    missing = " and ".join(words for name, words in PEERS.items() if name not in measured_peers(data))
    return " ".join([*sentences, *([f"Not among the peers: {missing}."] if missing else [])])


def of_symmetric(data: Data) -> str:
    rows = ours(data)
    if not rows:
        return ""
    parts = []
    for math in MATHS:
        times = [record.ratio or 0.0 for record in rows if record.dtype == math]
        if times:
            parts.append(f"{short_name(math)} {geomean(times):.2f} times, {min(times):.2f} at least")
    return f"On an {short_chip(rows[-1].device)}, of cuBLAS's whole product: {'; '.join(parts)}"


def by_type(data: Data) -> Chart:
    names = [math for math in MATHS if any(record.dtype == math for record in ours(data))]
    groups = {short_name(math): ratios([r for r in ours(data) if r.dtype == math]) for math in names}
    words = "Symmetric products beside cuBLAS's whole product: the mean, and the worst case; losses are red"
    return mean_and_worst("symmetric", groups, words, "cuBLAS")


def every_case(data: Data) -> str:
    def ratio_cell(kernel: str, record: Record) -> str:
        times = over_it(kernel, record, data)
        return "-" if times is None else f"{number(times, '.2f')}x"

    columns: Sequence[Column] = (
        ("type", lambda record: short_name(record.dtype)),
        ("n x n x k", lambda record: shape_words(*shape_of(record))),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
        ("cuBLAS over it", times_faster),
        ("our whole product over it", partial(ratio_cell, LIBRARY)),
        *((f"{PEERS[name]} over it", partial(ratio_cell, name)) for name in measured_peers(data)),
    )
    return fold("Every case", table(columns, ours(data)).markdown())


def steps_of_muon(data: Data) -> str:
    """A table of what Muon's steps take, beside torch's ways, or nothing without Records."""
    rows = [record for record in data.of(muon_steps.MODE) if record.kernel.startswith(muon_steps.NAME)]
    if not rows:
        return ""
    words = (
        f"## Muon's steps\n\n`{muon_steps.NAME}(gradient)` takes {muon_steps.STEPS} Newton-Schulz steps."
        " Two of the three products of a step are symmetric. The matrices are those of a language model of"
        " 1.3 billion parameters. Both ways start from the same gradients, in turns. *graph*: both are a CUDA"
        " graph. *eager*, *compiled*: torch multiplies a batch, by itself or from `torch.compile`."
        " *optimiser*: torch takes the steps of `torch.optim.Muon`, matrix by matrix. The speed counts whole"
        " products."
    )
    columns = (
        ("torch's way, and matrices", lambda record: record.kernel.removeprefix(f"{muon_steps.NAME}, ")),
        ("chip", lambda record: short_chip(record.device)),
        ("time", lambda record: time_words(record.seconds)),
        ("TFLOP/s", lambda record: number(record.tflops, ".0f")),
        ("torch's time over it", times_faster),
        ("error/bound", lambda record: number(record.worst, ".2f")),
    )
    return f"{words}\n\n{table(columns, rows).markdown()}"


WORDS = (
    "`lapidist.gram(a)` multiplies a matrix by its transpose. Kernels compute the tiles that meet one"
    " triangle. Most store those off the diagonal twice; else a second launch mirrors them. Calls are"
    " captured in CUDA graphs, in turns with cuBLAS's whole product and with ours, without rest. Where they"
    " are installed, quack's symmetric product stands beside 16-bit floats, and the whole product by"
    " `torch.compile`, max-autotune, beside bf16."
)
SYMMETRIC = Section(lambda data: ours(data) and data, [WORDS, of_peers, by_type, every_case, steps_of_muon])
NOT_YET = Section(
    lambda data: data.records and not ours(data),
    ["Symmetric products have no Records yet. `lapidist bench symmetric --record results` makes them."],
)
