"""Corpora of several kinds: aligned beside ragged, two chips, two seeds, two layouts, and their aims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lapidist_lab.bench.protocol.cases import Case, Part, drawn_from, named
from lapidist_lab.bench.protocol.contenders import LIBRARY
from lapidist_lab.bench.protocol.record import Conditions, Record, Run
from lapidist_lab.bench.publish.aims import aims_section
from lapidist_lab.bench.publish.corpora import Corpus, corpora, of_ragged, summary_section
from lapidist_lab.bench.publish.section import Data
from published import corpora_of, parts_of
from words import long_ones, split

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
SUSTAINED, BURST, SHORT = "corpus sustained", "corpus burst", "short"


def a_run(
    gain: float,
    mode: str = SUSTAINED,
    chip: str = H200,
    seed: int = 7,
    multiple: int = 16,
    layout: str = "rc",
    count: int = 3,
    date: str = "2026-11-21",
) -> Run:
    """The seed's products; on the first of them the gain over cuBLAS is a tenth less."""
    part = Part(count, 0, seed, multiple, layout)
    records = []
    for number, case in enumerate(named(["corpus"], "bf16", part)):
        own = gain * (0.9 if number == 0 else 1.0)
        rivals = [("cublas", own, 1600.0), (LIBRARY, 1.0, 1700.0)]
        rivals += [("padded", 2.0, 1650.0)] if multiple == 1 else []
        records += [row(name, case, seconds, mode, chip, clock) for name, seconds, clock in rivals]
    conditions = Conditions(
        f"{date}T12:00:00+00:00", "lapidist bench corpus", chip, mode=mode, protocol=f"{part.words}turns"
    )
    return Run(f"{chip}-{mode}-{seed}-{multiple}-{layout}.jsonl", conditions, tuple(records))


def row(kernel: str, case: Case, seconds: float, mode: str, chip: str, clock: float) -> Record:
    kind, speed = ("production" if kernel == LIBRARY else "peer"), case.flops / seconds / 1e12
    head = (kernel, kind, chip, case.math, case.layouts(False), *case.extents, seconds, speed)
    return Record(*head, None, 0.5, 0.1, True, mode, clock_mhz=clock)


def test_a_protocol_tells_what_was_drawn() -> None:
    for multiple in (1, 16):
        assert drawn_from(Part(3, 0, 41, multiple).words) == (multiple, "41")
    assert drawn_from("short") == (1, "")


def test_an_aligned_corpus_needs_nothing_padded_and_has_a_section() -> None:
    runs = [a_run(1.0), a_run(0.99, BURST)]
    (section,) = corpora_of(runs)
    assert section.startswith("## 3 products of multiples of 16, bf16, B by columns, H200, seed 7\n")
    sustained = "Sustained, the speed over that of cuBLAS is 0.965 in the geometric mean of 3, 0.900 at least"
    assert f"{sustained} and 1.000 at most. In the median ours ran at 1700 MHz, cuBLAS at 1600." in section
    assert "In bursts, the speed over that of cuBLAS is 0.956 in the geometric mean of 3" in section
    assert "picture" not in section
    (said,) = of_ragged(corpora(runs))
    assert said.startswith("bf16, multiples of 16, B by columns, H200: 0.96 to 0.97 times cuBLAS in the")
    assert said.endswith(" geometric means of 2 runs. The least is 0.89.")
    (said,) = of_ragged(corpora([a_run(1.0)]))
    assert said.endswith("H200: 0.97 times cuBLAS in the geometric mean of 3. The least is 0.90.")
    assert "ragged" not in said


def test_chips_layouts_and_seeds_stand_apart() -> None:
    runs = [
        a_run(1.0),
        a_run(1.2, chip=H100, count=2),
        a_run(1.1, layout="rr"),
        a_run(2.0, multiple=1, layout="rr"),
        a_run(3.0, multiple=1, layout="rr", seed=8, date="2026-11-22"),
    ]
    assert list(corpora(runs)) == [
        Corpus("bfloat16", 1, H200, "rr", "8"),
        Corpus("bfloat16", 1, H200, "rr", "7"),
        Corpus("bfloat16", 16, H200, "rr", "7"),
        Corpus("bfloat16", 16, H200, "rc", "7"),
        Corpus("bfloat16", 16, H100, "rc", "7"),
    ]
    assert [section.count("<picture>") for section in corpora_of(runs)] == [1, 0, 0, 0, 0]
    assert (
        "bf16 on an H200, sustained: 2.90 times cuBLAS in the geometric mean of 3 ragged"
        in of_ragged(corpora(runs))[0]
    )
    summary = summary_section(runs)
    assert "| bf16 | multiples of 16 | B by columns | H100 | 7 | sustained | 2 | 1.138 | 1.080 |" in summary
    assert (
        "- H200 and H100 differ on 2 products of multiples of 16, bf16, B by columns, sustained. The"
        " geometric means are 0.949 and 1.138, the least 0.900 and 1.080." in summary
    )
    assert summary.count("\n- ") == 1
    assert parts_of("ragged", []) == []
    assert [long_ones(split(section.partition("|")[0])) for section in corpora_of(runs)] == [[]] * 5


@pytest.mark.parametrize(("longer", "kept"), [(3, [SUSTAINED]), (2, [SUSTAINED, SHORT])])
def test_short_turns_are_shown_where_they_have_more_shapes(longer: int, kept: list[str]) -> None:
    (modes,) = corpora([a_run(1.0, SHORT), a_run(1.0, count=longer)]).values()
    assert list(modes) == kept


def test_an_aligned_neighbour_of_a_ragged_product_is_in_no_corpus() -> None:
    ragged = a_run(2.0, multiple=1, layout="rr")
    case = Case(*(getattr(ragged.records[0], name) for name in "mnk"), "bfloat16")
    beside = [row(name, case.neighbour, 1.0, SUSTAINED, H200, 1700.0) for name in ("cublas", LIBRARY)]
    ragged = replace(ragged, records=(*ragged.records, *beside))
    ((corpus, modes),) = corpora([ragged]).items()
    assert corpus.multiple == 1
    assert len(modes[SUSTAINED]) == 9


def test_no_aligned_product_may_be_slower() -> None:
    text = aims_section(Data([], [a_run(1.1), a_run(1.0, SHORT, count=5)]))[0]
    of = "products of multiples of 16, bf16, B by columns, H200, seed 7"
    sustained, short = (line for line in text.splitlines() if of in line)
    assert f"the slowest of 3 {of}, sustained | 0.97x | 0.990x |  | met |" in sustained
    assert f"the slowest of 5 {of}, in short turns | 0.97x | 0.900x |  | missed |" in short
