"""The corpus of ragged shapes and the layers without a GPU: which products, and the sections that their
Records become.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lapidist.dtypes import FP8
from lapidist_lab.bench.protocol.cases import CORPUS_COUNT, LISTS, Case, Part, corpus, named
from lapidist_lab.bench.protocol.contenders import LIBRARY, problem_of
from lapidist_lab.bench.protocol.measure import Inputs
from lapidist_lab.bench.protocol.peers import Compiled
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.protocol.timing import MANY_BURST, MANY_SUSTAINED, PROTOCOLS, SHORT, SUSTAINED
from lapidist_lab.bench.publish.call_costs import layer_tables, layers
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.corpora import corpora, corpus_sections, gain_cells
from lapidist_lab.bench.studies.ladder_runs import Work, ways_to_pad
from published import corpora_of, points_in

CONDITIONS = Conditions(
    "2026-11-21T12:00:00+00:00",
    "lapidist bench corpus",
    "NVIDIA H200",
    mode="short",
    protocol="seed 7; short",
)


def row(kernel: str, case: Case, seconds: float, ratio: float | None = None, mode: str = "short") -> Record:
    kind, tflops = ("production" if kernel == LIBRARY else "peer"), case.flops / seconds / 1e12
    head = (kernel, kind, "NVIDIA H200", case.math, case.layouts(False), *case.extents)
    return Record(
        *head,
        seconds,
        tflops,
        ratio,
        0.5,
        0.1,
        True,
        mode,
        clock_mhz=1700.0,
        power_w=650.0,
        config="wgmma: tiles",
    )


def test_a_part_of_a_list() -> None:
    whole = named(["corpus"], "bf16", Part(count=8, seed=5))
    assert whole == corpus(8, 5, "bfloat16")
    assert named(["corpus"], "bf16", Part(count=3, skip=5, seed=5)) == whole[5:]
    assert len(named(["corpus"], "bf16")) == CORPUS_COUNT == 300
    assert "shapes 6 to 8" in Part(count=3, skip=5, seed=5).words
    assert "seed 5" in Part(count=3, skip=5, seed=5).words
    assert named(["squares"], "bf16", Part(count=1, skip=1)) == [Case(1024, 1024, 1024, "bfloat16")]


def test_layers_have_weights_as_linear_keeps_them() -> None:
    cases = named(["layers"], "bf16")
    assert len(cases) == 18
    assert {case.layouts(False) for case in cases} == {"rcr"}
    assert problem_of(cases[3], False).layouts == "rcr"
    assert problem_of(replace(cases[3], layout="cr"), True).layouts == "ccr"


def test_columns_are_made_once() -> None:
    class Columns:
        columns = True

    turned = Inputs([1], [2], [3], True, lambda: [9], by_columns=True)
    assert turned.b_for(Columns()) == [2]  # type: ignore[arg-type]
    assert Inputs([1], [2], [3], True, lambda: [9]).b_for(Columns()) == [9]  # type: ignore[arg-type]


def test_a_set_is_multiplied_in_float64_once_for_neighbours() -> None:
    class Rows:
        columns = False

    case, rng = Case(5, 4, 3), np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((5, 3), (3, 4)))
    inputs = Inputs([a], [b], [a @ b], True, lambda: [b + 1])
    first = inputs.expected(Rows(), 0, case, "fma")  # type: ignore[arg-type]
    assert first.judge(a @ b).ok
    assert not first.judge(a @ b + 1).ok
    assert inputs.expected(Rows(), 0, case, "fma") is first  # type: ignore[arg-type]
    assert inputs.expected(Rows(), 0, case, "mma") is not first  # type: ignore[arg-type]


def test_short_turns() -> None:
    assert SHORT.replays(0.002) == (1, 1)
    assert SUSTAINED.replays(0.01)[1] > 20
    assert "graphs of about 2 ms" in str(SHORT)


SHAPES = ((3000, 3001, 3003), (200, 300, 401))


@pytest.fixture
def run() -> Run:
    rows = []
    for shape, (ours, vendor, padded) in zip(SHAPES, ((1.0, 4.0, 2.0), (1.0, 0.9, 3.0)), strict=True):
        case = Case(*shape, "bfloat16")
        rows += [
            row("cublas", case, vendor),
            row("padded", case, padded, vendor / padded),
            row(LIBRARY, case, ours, vendor / ours),
        ]
    tuned = row("wgmma 64x64", Case(9, 9, 9, "bfloat16"), 1.0)  # what `tune` measures is no part of a corpus
    return Run("h200-corpus.jsonl", CONDITIONS, (*rows, tuned))


def test_the_corpus_in_numbers(run: Run) -> None:
    (section,) = corpora_of([run])
    assert "A corpus of 2 ragged products, bf16, A and B by rows, H200, seed 7" in section
    assert (
        "| short | all | lapidist against cuBLAS | 1.90 | 0.90 | 4.00 | 4.00 | 50.0 % | 50.0 % | 2 | 1700 |"
        " 650 |" in section
    )
    assert (
        "| every side over 2048 | lapidist against cuBLAS | 4.00 | 4.00 | 4.00 | 4.00 | 100.0 % | 100.0 % | 1"
        " | 1700 |" in section
    )
    assert "| every side over 2048 | lapidist against padding by hand | 2.00 |" in section
    assert "| all | padding by hand against cuBLAS | 0.77 | 0.30 |" in section
    assert section.index("200x300x401") < section.index("3000x3001x3003")  # the worst first
    assert "From `results/h200-corpus.jsonl`: seed 7; short." in section
    assert "9^3" not in section


def test_what_torch_compiles_is_beside_large_products(run: Run) -> None:
    """It is asked only where every side is over 1024, and of types that torch pads."""
    large, small = (Case(*shape, "bfloat16") for shape in SHAPES)
    assert Compiled.takes(large)
    assert not Compiled.takes(small)
    assert not Compiled.takes(replace(large, m=1024))
    assert not any(Compiled.takes(replace(large, math=math)) for math in (*FP8, "int8", "tf32"))
    compiled = row("compiled", large, 1.25, 3.2)
    (section,) = corpora_of([replace(run, records=(*run.records, compiled))])
    words = "| lapidist against torch.compile, where every side is over 1024 | 1.25 | 1.25 |"
    assert f"| all {words}" in section
    assert "torch.compile" not in corpora_of([run])[0]


class Named:
    """As much of a framework as says which peers there are."""

    def __init__(self, name: str) -> None:
        self.name, self.capturable = name, True


def test_who_pads_beside_a_product() -> None:
    large, small = (Case(*shape, "bfloat16") for shape in SHAPES)

    def names(case: Case, padded: bool, framework: str) -> list[str]:
        return [each.name for each in ways_to_pad(Work(case, (), padded), Named(framework))]  # type: ignore[arg-type]

    assert names(large, True, "torch") == ["padded", "compiled"]
    assert names(small, True, "torch") == ["padded"]
    assert names(large, True, "cupy") == ["padded"]
    assert names(large, False, "torch") == []


def test_a_corpus_sustained_and_in_bursts(run: Run) -> None:
    """Both in one table, and short turns nowhere; the sustained rows come first, wherever one of them is
    shown alone.
    """

    def another(mode: str, slower: float) -> Run:
        rows = [
            replace(record, mode=mode, seconds=(record.seconds or 0.0) * slower)
            for record in run.records
            if record.m != 9
        ]
        rows = [replace(record, power_w=300.0) if mode == "corpus burst" else record for record in rows]
        return replace(run, name=f"{mode}.jsonl", records=tuple(rows))

    runs = [run, another(MANY_BURST.mode, 2.0), another(MANY_SUSTAINED.mode, 3.0)]
    (section,) = corpora_of(runs)
    assert "| sustained | all | lapidist against cuBLAS | 1.90 | 0.90 |" in section
    assert (
        "| burst | all | lapidist against cuBLAS | 1.90 | 0.90 | 4.00 | 4.00 | 50.0 % | 50.0 % | 2 | 1700 |"
        " 300 |" in section
    )
    assert "| short |" not in section
    assert "| 200x300x401 | 3 s |" in section
    assert section.count("From `results/") == 2


def test_turns_of_a_corpus() -> None:
    assert MANY_SUSTAINED.pause_seconds == 0 < MANY_BURST.pause_seconds
    assert MANY_SUSTAINED.replays(0.004) == (10, 10)
    assert "the second half timed" in str(MANY_SUSTAINED)
    assert "one replay to warm up, one timed, after 0.05 s of rest" in str(MANY_BURST)
    assert all(PROTOCOLS[each.mode] is each for each in (MANY_SUSTAINED, MANY_BURST, SHORT, SUSTAINED))


def test_the_aligned_neighbour(run: Run) -> None:
    """A ragged product beside the one with its sides rounded up: each one's speed, and no row of the
    neighbour in the corpus.
    """
    case = Case(3000, 3001, 3003, "bfloat16")
    assert case.neighbour == Case(3000, 3008, 3008, "bfloat16")
    assert Case(5, 8, 9, "float32").neighbour.extents == (8, 8, 12)
    assert case.neighbour.neighbour == case.neighbour
    rows = [row("cublas", case.neighbour, 0.5), row(LIBRARY, case.neighbour, 0.5, 1.0)]
    (section,) = corpora_of([replace(run, records=(*run.records, *rows))])
    share = 0.5 * case.flops / case.neighbour.flops
    assert (
        f"| every side over 2048 | lapidist | {share:.2f} | {share:.2f} | {share:.2f} | {share:.2f} | 0.0 %"
        " | 1 |" in section
    )
    assert f"| all | cuBLAS | {share / 4:.2f} |" in section
    assert "A corpus of 2 ragged products" in section
    assert "neighbour" not in corpora_of([run])[0]


def test_wrong_results_are_counted(run: Run) -> None:
    wrong = replace(
        run,
        records=(
            *run.records[:2],
            replace(run.records[2], ok=False, seconds=None, ratio=None),
            *run.records[3:],
        ),
    )
    assert "1 of 6 results were wrong or refused" in corpora_of([wrong])[0]


def test_the_corpus_as_a_plot(run: Run) -> None:
    (chart,) = (each for each in corpus_sections([run]) if isinstance(each, Chart))
    files = chart.files(Path("docs"))
    assert list(files) == [Path(f"docs/corpus-bf16-{theme}.svg") for theme in ("light", "dark")]
    for text in files.values():
        assert points_in(text) == 2 + 2  # a gain and a loss, and each in the legend
    assert corpora([replace(run, records=())]) == {}
    assert gain_cells([0.95, 1.0, 2.0])[4:] == ["100.0 %", "66.7 %", "3"]


def test_layers_as_a_table() -> None:
    case = Case(16, 8192, 8192, "bfloat16", "rc")
    rows = [
        row(LIBRARY, case, 32e-6, 1.1, "sustained"),
        row(LIBRARY, case, 30e-6, 1.2, "burst"),
        row("cublas", case, 35e-6),
    ]
    (section,) = layer_tables(layers(rows))
    wanted = (
        "| 8192 x 8192 | 16 | 32 us | 67.1 | 4.19 | 110.0 | 1700 | 650 | 30 us | 71.6 | 4.47 | 120.0 | 1700 |"
        " 650 |"
    )
    assert wanted in section
    other = [
        row(LIBRARY, replace(case, layout="rr"), 32e-6, 1.1, "sustained"),
        row("wgmma", case, 32e-6, 1.1, "sustained"),
    ]
    assert layers(other) == []
    square = row(LIBRARY, Case(8192, 8192, 8192, "float8_e4m3fn", "rc"), 1e-3, 1.1, "sustained")
    assert layers([square]) == []  # a square of the 8-bit types, whose B lies so anyway
    assert len(LISTS["layers"]) == 18
