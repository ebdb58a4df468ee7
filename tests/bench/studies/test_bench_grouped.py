"""The bench of grouped products: which cases, how long their groups are, who is compared, and that what is
compiled ahead is what runs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lapidist.calls.bound import Bound
from lapidist.calls.operation import Factors, Groups, Operation
from lapidist.device import chip
from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError
from lapidist.planning.plans import make_plan
from lapidist_lab.bench.protocol import conditions
from lapidist_lab.bench.protocol.cases import Part
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.studies.group_cases import (
    FORWARD,
    LAYERS,
    ONE,
    ROWS,
    SPREADS,
    TO_DATA,
    TO_WEIGHTS,
    USUAL,
    WAYS,
    ZIPF,
    GroupCase,
    Layer,
    Selection,
    case_of,
    problem_of,
)
from lapidist_lab.bench.studies.group_contenders import OneDense, PaddedBatch, contenders_of
from lapidist_lab.bench.studies.grouped_products import MODE, strips, with_peer_ratios

SMALL = Layer("Mixtral up", 4, 64, 96)
H200 = chip("h200")


def small(way: str, rows: int = 256, spread: str = ZIPF, math: str = "bfloat16") -> GroupCase:
    return case_of(SMALL, way, rows, spread, math)


# ---- lengths ----


@pytest.mark.parametrize("groups", [8, 128, 256])
@pytest.mark.parametrize("rows", [1, *ROWS])
def test_groups_have_all_rows(groups: int, rows: int) -> None:
    lengths = {name: spread(groups, rows) for name, spread in SPREADS.items()}
    for lengths_of_groups in lengths.values():
        assert len(lengths_of_groups) == groups
        assert sum(lengths_of_groups) == rows
        assert min(lengths_of_groups) >= 0
    assert max(lengths["even"]) - min(lengths["even"]) <= 1
    assert sorted(lengths["one"])[-2:] == [0, rows]
    falling = sorted(lengths["zipf"], reverse=True)
    assert all(abs(falling[i] * (i + 1) - falling[0]) <= i + 2 for i in range(groups))
    assert lengths["zipf"] == SPREADS["zipf"](groups, rows)


def test_each_set_of_inputs_reads_other_weights() -> None:
    case = small(FORWARD, spread=ONE)
    hit = [case.lengths(turn).index(case.rows) for turn in range(SMALL.experts + 1)]
    assert sorted(hit[:-1]) == list(range(SMALL.experts))
    assert hit[-1] == hit[0]


# ---- cases ----


def test_shapes_of_the_three_ways() -> None:
    shapes = {way: (c.m, c.n, c.k, c.layout, c.rows) for way in WAYS.values() for c in [small(way)]}
    assert shapes == {
        FORWARD: (256, 96, 64, "rc", 256),
        TO_DATA: (256, 64, 96, "rr", 256),
        TO_WEIGHTS: (64, 96, 256, "cr", 256),
    }
    assert len({small(way).flops for way in WAYS.values()}) == 1
    assert small(FORWARD).flops == 2.0 * 256 * 96 * 64


def test_bytes_are_those_that_a_call_touches() -> None:
    one = small(FORWARD, spread=ONE)
    assert (one.groups_hit, one.weight_bytes) == (1, 64 * 96 * 2)
    assert one.set_bytes == 2 * (256 * 64 + 256 * 96 + 64 * 96)
    assert small(TO_WEIGHTS).set_bytes == 2 * (256 * (64 + 96) + 4 * 64 * 96)
    assert small(FORWARD, spread=ONE, math="float8_e4m3fn").set_bytes == 256 * (64 + 2 * 96) + 64 * 96


def test_usual_cases_and_parts_of_them() -> None:
    usual = Selection().cases()
    assert len(usual) == len(LAYERS) * len(USUAL)
    assert Selection(part=Part(10)).cases() + Selection(part=Part(skip=10)).cases() == usual
    qwen = Selection(models=["qwen3"], ways=["data", "weights"], rows=[512], spreads=["even"]).cases()
    assert [case.name for case in qwen] == [
        f"Qwen3-30B {layer}, {way}, even" for layer in ("up", "down") for way in (TO_DATA, TO_WEIGHTS)
    ]
    assert {case.way for case in Selection(math="float8_e4m3fn").cases()} == {FORWARD}
    assert {case.way for case in Selection(rows=[64]).cases()} == {FORWARD, TO_DATA}


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(models=["llama"]), "--case: must be among mixtral, qwen3, deepseek; got 'llama'"),
        (Selection(ways=["back"]), "--way: must be among forward, data, weights; got 'back'"),
        (Selection(spreads=["odd"]), "--lengths: must be among even, zipf, one; got 'odd'"),
        (Selection(math="float32"), "--dtype: must be among bfloat16, float8_e4m3fn; got 'float32'"),
        (Selection(ways=["weights"], rows=[64]), "gradients of weights from 512 rows on"),
        (Selection(part=Part(skip=500)), "--skip: must leave something of 96 cases; got 500"),
    ],
)
def test_what_is_no_selection(selection: Selection, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        selection.cases()


@pytest.mark.parametrize(
    ("way", "math"), [*((way, "bfloat16") for way in WAYS.values()), (FORWARD, "float8_e4m3fn")]
)
def test_what_is_compiled_ahead_is_what_runs(way: str, math: str) -> None:
    case = small(way, math=math)
    kind, groups = numpy_dtype(math), case.batch
    x = np.zeros((case.m, case.k), kind)
    a, b = x, np.zeros((groups, case.k, case.n), kind)
    out = np.zeros((case.m, case.n), numpy_dtype(case.out_dtype))
    if way == FORWARD:
        b = np.zeros((groups, case.n, case.k), kind).swapaxes(1, 2)
    if way == TO_WEIGHTS:
        a, b = np.zeros((case.k, case.m), kind).T, np.zeros((case.k, case.n), kind)
        out = np.zeros((groups, case.m, case.n), out.dtype)
    ends = np.cumsum(case.lengths()).astype(np.int32)
    factors = Factors()
    if math != "bfloat16":
        factors = Factors(np.ones(case.m, np.float32), np.ones((groups, case.n), np.float32))
    runs = Bound(a, b, None, out, Operation(groups=Groups(ends), factors=factors)).problem()
    ahead, behind = (make_plan(problem, H200) for problem in (problem_of(case), runs))
    assert (ahead.config, ahead.problem_macros) == (behind.config, behind.problem_macros)


@pytest.mark.parametrize(("rows", "by_turns"), [(8192, True), (32768, False)])
def test_short_groups_are_multiplied_by_turns(rows: int, by_turns: bool) -> None:
    """Tiles of 64 rows in ping-pong are for groups of up to some hundred rows."""
    qwen3 = case_of(LAYERS[2], FORWARD, rows, ZIPF, "bfloat16")
    config = make_plan(problem_of(qwen3), H200).config
    assert (config.bm, config.ping_pong) == ((64, True) if by_turns else (128, False))


# ---- contenders and judges ----


@pytest.mark.parametrize("version", [None, "3.6.0"])
def test_padding_triton_and_the_dense_product_are_for_some_cases(
    monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    monkeypatch.setattr(conditions, "version_of", lambda package: version if package == "triton" else "1")
    assert PaddedBatch.takes(small(FORWARD, spread="even"))
    assert not PaddedBatch.takes(case_of(LAYERS[2], FORWARD, 8192, ZIPF, "bfloat16"))
    assert not PaddedBatch.takes(small(FORWARD, spread="even", math="float8_e4m3fn"))
    assert not OneDense.takes(small(FORWARD, rows=64))
    framework: Any = SimpleNamespace(torch=None)
    names = [contender.name for contender in contenders_of(small(FORWARD, 512, "even"), framework)]
    assert names == [
        f"{who}, Mixtral up, forward, even"
        for who in (
            "torch._grouped_mm",
            "lapidist",
            *(["Triton grouped"] if version else []),
            "loop of torch.mm",
            "padded torch.bmm",
            "one dense product",
        )
    ]


def test_strips_are_at_both_ends_and_between() -> None:
    assert strips(100) == [slice(0, 100)]
    assert strips(1000) == [slice(0, 64), slice(468, 532), slice(936, 1000)]


def row(who: str, kind: str, case: GroupCase, seconds: float | None) -> Record:
    head = (f"{who}, {case.name}", kind, "NVIDIA H200", case.math, case.layouts(False), *case.extents)
    return Record(*head, seconds, 1.0, 9.0, None, 0.1, True, "sustained", note="no ratio: a peer failed")


def test_ratios_are_to_the_fastest_peer() -> None:
    case = case_of(LAYERS[0], FORWARD, 64, "even", "bfloat16")
    rows = [
        row("torch._grouped_mm", "peer", case, None),
        row("lapidist", "production", case, 250e-6),
        row("loop of torch.mm", "peer", case, 300e-6),
        row("padded torch.bmm", "peer", case, 400e-6),
        row("one dense product", "peer", case, 100e-6),
    ]
    failed, ours, loop, padded, dense = with_peer_ratios(case, rows, H200)
    assert {record.mode for record in (failed, ours, loop, padded, dense)} == {MODE}
    assert (ours.ratio, ours.peer) == (pytest.approx(1.2), "loop of torch.mm")
    assert (loop.ratio, padded.ratio) == (1.0, pytest.approx(0.75))
    assert (failed.ratio, failed.note, dense.ratio, dense.peer) == (None, None, None, None)
    rate = case.weight_bytes / 250e-6
    share = 100 * rate / (H200.dram_gbps * 1e9)
    assert ours.note == f"{rate / 1e12:.2f} TB/s, {share:.0f} % of DRAM's rate, 8 of 8 groups"
    many = case_of(LAYERS[0], FORWARD, 512, "even", "bfloat16")
    assert with_peer_ratios(many, [row("lapidist", "production", many, 1e-3)], H200)[0].note is None
