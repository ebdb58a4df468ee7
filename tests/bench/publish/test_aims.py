"""What was aimed at beside what was reached: from the right rows, the least of several with its place, and
the verdict.
"""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.cases import SQUARES, Case
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.aims import aims_section
from lapidist_lab.bench.publish.record_views import squares
from lapidist_lab.bench.publish.section import Data

CONDITIONS = Conditions(
    "2026-11-21T12:00:00+00:00", "lapidist bench", "NVIDIA H200", mode="short", protocol="short"
)


def row(
    case: Case, seconds: float, ratio: float | None = None, mode: str = "sustained", kernel: str = LIBRARY
) -> Record:
    kind, tflops = ("production" if kernel == LIBRARY else "peer"), case.flops / seconds / 1e12
    head = (kernel, kind, "NVIDIA H200", case.math, case.layouts(False), *case.extents)
    return Record(*head, seconds, tflops, ratio, 0.5, 0.1, True, mode)


def line(text: str, words: str) -> list[str]:
    found = next(each for each in text.splitlines() if each.startswith(f"| {words} |"))
    return [cell.strip() for cell in found.split("|")[2:-1]]


def test_squares_count_from_2048_up() -> None:
    ratios = {1024: 0.5, 2048: 0.99, 4096: 0.96, 8192: 1.07}
    rows = [row(Case(size, size, size, "bfloat16"), 1e-3, ratio) for size, ratio in ratios.items()]
    rows.append(row(Case(8192, 8192, 8192, "bfloat16"), 1e-3, 9.0, "burst"))
    text = aims_section(Data(rows, []))[0]
    assert "On an H200, where no chip is named." in text
    assert line(text, "8192^3, bf16") == ["1.05x", "1.070x", "", "met", ""]
    assert line(text, "the slowest square from 2048^3 up, bf16") == [
        "0.97x",
        "0.960x",
        "",
        "missed",
        "4096^3",
    ]
    assert "fp16" not in text
    assert aims_section(Data([], [])) == []


def test_the_same_launch_under_its_own_name_counts_as_another_turn() -> None:
    """Of the kernel that was chosen, as it was chosen, and of the same product: no other config, no other
    layout.
    """
    case = Case(8192, 8192, 8192, "bfloat16")
    chosen = replace(row(case, 1e-3, 1.06), config="wgmma: 128x256x64")
    twin = replace(row(case, 1e-3, 1.02, kernel="wgmma"), config="128x256x64")
    others = [
        replace(twin, **other)
        for other in ({"config": "128x192x64"}, {"layout": "rcr"}, {"dtype": "float16"})
    ]
    others += [row(Case(size, size, size, "bfloat16"), 1e-3, 1.0) for size in SQUARES if size != 8192]

    def cells(*rows: Record) -> list[str]:
        return line(aims_section(Data([chosen, *others, *rows], []))[0], "8192^3, bf16")[1:4]

    assert cells() == ["1.060x", "", "met"]
    assert cells(twin) == ["1.060x", "1.020x", "met once"]
    assert cells(replace(twin, ratio=1.055)) == ["1.060x", "1.055x", "met"]


def test_decode_is_the_slowest_stream_of_weights() -> None:
    """8192 x 8192 in 16 bits are 0.134 GB: 4.3 TB/s in 31.2 us."""
    shapes = [(1, 8192, 8192, 31.2e-6), (64, 8192, 8192, 40e-6), (256, 8192, 8192, 90e-6)]
    rows = [row(Case(m, n, k, "bfloat16", "rc"), seconds, 1.0) for m, n, k, seconds in shapes]
    text = aims_section(Data(rows, []))[0]
    assert line(text, "weights read, 1 to 64 rows, the slowest layer, bf16") == [
        "4.2 TB/s",
        "3.355 TB/s",
        "",
        "missed",
        "64 rows, 8192 x 8192",
    ]
    assert (
        line(aims_section(Data(rows[:1], []))[0], "weights read, 1 to 64 rows, the slowest layer, bf16")[3]
        == "met"
    )


def test_ragged_products_in_the_geometric_mean_and_at_worst() -> None:
    times = {(3000, 3001, 3003): 8.0, (129, 131, 133): 0.5}  # cuBLAS' over ours
    records = []
    for shape, factor in times.items():
        case = Case(*shape, "bfloat16")
        records += [row(case, 1e-5, factor, "short"), row(case, 1e-5 * factor, 1.0, "short", "cublas")]
        records.append(row(case, 2e-5, None, "short", "padded"))
    text = aims_section(Data([], [Run("one.jsonl", CONDITIONS, tuple(records))]))[0]
    assert line(text, "2 ragged products, bf16, H200, short turns, geometric mean")[:4] == [
        "2.5x",
        "2.000x",
        "",
        "missed",
    ]
    assert line(text, "the slowest of these") == ["0.95x", "0.500x", "", "missed", "129x131x133"]
    assert line(text, "of these, those with every side over 2048, geometric mean")[:4] == [
        "4x",
        "8.000x",
        "",
        "met",
    ]


def test_a_square_among_the_layers_is_none_of_the_squares() -> None:
    """Where B lies by columns in one list and by rows in the other, both have 8192^3."""
    rows = [row(Case(size, size, size, "bfloat16"), 1e-3, 1.0) for size in SQUARES]
    layer = row(Case(8192, 8192, 8192, "bfloat16", "rc"), 0.5e-3, 2.0)
    for records in ([layer, *rows], [*rows, layer]):
        (series,) = squares(records)
        assert [record.layout for record in series.records] == ["rrr"] * len(SQUARES)
    assert squares([layer]) == []


def test_plain_types_and_batches_have_aims_of_their_own() -> None:
    square = [
        row(Case(512, 512, 512, "float64"), 1e-5, ratio, mode)
        for mode, ratio in (("sustained", 1.1), ("burst", 0.9))
    ]
    text, rows = aims_section(Data(square, []))[0], "512^3, A and B by rows"
    assert line(text, "the slowest square in any layout, fp64, sustained")[1:] == ["1.100x", "", "met", rows]
    assert line(text, "the slowest square in any layout, fp64, in bursts")[1:] == [
        "0.900x",
        "",
        "missed",
        rows,
    ]
    batch = replace(row(Case(16, 16, 16, "float32"), 1e-5, 0.8, "batches"), batch=7)
    text = aims_section(Data([], [Run("one.jsonl", CONDITIONS, (batch,))]))[0]
    assert line(text, "the slowest batch, fp32, H200, in bursts") == [
        "1x",
        "0.800x",
        "",
        "missed",
        "7 of 16^3",
    ]
