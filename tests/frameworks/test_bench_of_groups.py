"""The bench of grouped products on torch's host tensors: every way gives right groups, and the judge sees
wrong ones.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from host_torch import HostTorch
from lapidist.device import chip
from lapidist_lab.bench.protocol.conditions import SensorReading
from lapidist_lab.bench.protocol.measure import Entry, Inputs
from lapidist_lab.bench.studies import group_cases, group_contenders, grouped_products
from lapidist_lab.bench.studies.group_cases import (
    FORWARD,
    SPREADS,
    TO_DATA,
    TO_WEIGHTS,
    GroupCase,
    Layer,
    Selection,
    case_of,
)
from lapidist_lab.bench.studies.group_contenders import (
    GroupContender,
    GroupFactors,
    Loop,
    OneDense,
    OursGrouped,
    PaddedBatch,
    TorchGrouped,
    contenders_of,
)
from lapidist_lab.bench.studies.grouped_products import PROTOCOL, GroupStage

pytestmark = pytest.mark.frameworks
SMALL = Layer("Mixtral up", 5, 32, 48)
ROWS = 640


def stage_for(case: GroupCase) -> Any:
    """A stage without a GPU, whose L2 asks for two sets of this case."""
    made = GroupStage.__new__(GroupStage)
    made.framework, made.protocol = HostTorch(), PROTOCOL
    made.device = replace(chip("h200"), l2_bytes=case.set_bytes // 2)
    made.forget()
    return made


@pytest.fixture(params=[FORWARD, TO_DATA, TO_WEIGHTS])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


def judged(stage: Any, contender: GroupContender, case: GroupCase, inputs: Inputs) -> Entry:
    entry = Entry(contender, contender.prepare(case, inputs.a, inputs.b, inputs.c))
    for index in range(len(inputs.a)):
        stage.judge(entry, case, inputs, index)
    return entry


@pytest.mark.parametrize("spread", SPREADS)
def test_every_way_gives_the_groups(way: str, spread: str) -> None:
    case = case_of(SMALL, way, ROWS, spread, "bfloat16")
    stage = stage_for(case)
    inputs = stage.inputs(case)
    assert len(inputs.a) == 2
    contenders = contenders_of(case, stage.framework)
    kinds = {TorchGrouped, OursGrouped, Loop, OneDense} | ({PaddedBatch} if spread == "even" else set())
    assert {type(contender) for contender in contenders} >= kinds
    for contender in contenders:
        entry = judged(stage, contender, case, inputs)
        assert entry.error is None, (contender.name, entry.error)
        assert entry.verdict is not None


def test_eight_bits_have_factors_of_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """By all but torch's grouped product, which the host lacks."""
    monkeypatch.setattr(group_contenders, "DEVICE", "cpu")
    case = case_of(SMALL, FORWARD, ROWS, "zipf", "float8_e4m3fn")
    stage = stage_for(case)
    inputs = stage.inputs(case)
    contenders = [x for x in contenders_of(case, stage.framework) if not isinstance(x, TorchGrouped)]
    assert [type(contender) for contender in contenders] == [OursGrouped, Loop, OneDense]
    for contender in contenders:
        entry = judged(stage, contender, case, inputs)
        assert entry.error is None, (contender.name, entry.error)
    ours = contenders[0]
    ours.factors = GroupFactors(case, stage.framework.torch)  # others than it multiplied with
    stage.right_results.clear()
    entry = Entry(ours, ours.multiply)
    stage.judge(entry, case, inputs, 0)
    assert "wrong result" in (entry.error or "")


class ShiftedByOne(OursGrouped):
    """Gives each group one row too many of the next."""

    def begin(self) -> None:
        super().begin()
        self.ends = [(ends + 1).clamp(max=int(ends[-1])) for ends in self.ends]


class OnlyOnce(OursGrouped):
    """Leaves what the first call on a set wrote."""

    def begin(self) -> None:
        super().begin()
        self.called: set[int] = set()

    def multiply(self, index: int) -> None:
        if index not in self.called:
            super().multiply(index)
        self.called.add(index)


class LeavesEmptyGroups(OursGrouped):
    def multiply(self, index: int) -> None:
        super().multiply(index)
        for group, length in enumerate(self.lengths[index]):
            if not length:
                self.c[index][group] = 1.0


@pytest.mark.parametrize("kind", [ShiftedByOne, OnlyOnce])
def test_wrong_groups_are_seen(way: str, kind: type[GroupContender]) -> None:
    case = case_of(SMALL, way, ROWS, "zipf", "bfloat16")
    stage = stage_for(case)
    factors = GroupFactors(case, stage.framework.torch)
    inputs = stage.inputs(case)
    entry = judged(stage, kind(case, stage.framework, factors), case, inputs)
    stage.judge(entry, case, inputs, 0)
    assert "wrong result" in (entry.error or "")


def test_gradients_of_an_empty_group_are_zero() -> None:
    case = case_of(SMALL, TO_WEIGHTS, ROWS, "one", "bfloat16")
    stage = stage_for(case)
    factors, inputs = GroupFactors(case, stage.framework.torch), stage.inputs(case)
    for kind, error in ((OursGrouped, ""), (LeavesEmptyGroups, "wrong result")):
        entry = judged(stage, kind(case, stage.framework, factors), case, inputs)
        assert (entry.error or "")[: len("wrong result")] == error


def test_weights_are_kept_for_a_layer_alone() -> None:
    forward, back, other = (
        case_of(layer, way, ROWS, "zipf", "bfloat16")
        for layer, way in ((SMALL, FORWARD), (SMALL, TO_DATA), (SMALL._replace(name="other"), FORWARD))
    )
    stage = stage_for(forward)
    b, b_back = stage.inputs(forward).b[0], stage.inputs(back).b[0]
    assert b.shape == (5, 32, 48)
    assert b.stride(1) == 1
    assert (b_back.shape, b_back.data_ptr()) == ((5, 48, 32), b.data_ptr())
    assert stage.inputs(other).b[0].data_ptr() != b.data_ptr()
    a = stage.inputs(case_of(SMALL, TO_WEIGHTS, ROWS, "zipf", "bfloat16")).a[0]
    assert (a.shape, a.stride()) == ((32, ROWS), (1, 32))
    assert stage.weights == (None, None)


class TimedByHand(GroupStage):
    """A stage whose turns take a millisecond each, and ours half of it."""

    def __init__(self, ordinal: int, protocol: Any) -> None:
        self.framework, self.device, self.protocol = HostTorch(), chip("h200"), protocol
        self.gauge = SimpleNamespace(fast=False, look=SensorReading)
        self.stopped = False
        self.forget()

    def __exit__(self, *_: object) -> None:
        """No stream was adopted."""

    def capture(self, entry: Entry, sets: int) -> None:
        entry.calls = sets

    def turn(self, entry: Entry) -> None:
        entry.seconds.append(5e-4 if entry.contender.kind == "production" else 1e-3)


def test_a_run_from_the_selection_to_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_cases, "LAYERS", (SMALL,))
    monkeypatch.setattr(grouped_products, "GroupStage", TimedByHand)
    monkeypatch.setattr(grouped_products, "build_all", lambda builds: None)
    monkeypatch.setattr(OursGrouped, "facts", GroupContender.facts)
    monkeypatch.setattr(grouped_products, "SETS_LIMIT", 2)
    kept: list[int] = []
    selection = Selection(rows=[64, ROWS], spreads=["even"])
    conditions, records = grouped_products.measure(0, lambda _, rows: kept.append(len(rows)), selection)
    assert conditions.mode == "grouped"
    assert kept[-1] == len(records)
    assert [record.error for record in records if record.error] == []
    ours = [record for record in records if record.kind == "production"]
    assert [record.kernel for record in ours] == [
        f"lapidist, Mixtral up, {way}, even"
        for way, many in ((FORWARD, 2), (TO_DATA, 2), (TO_WEIGHTS, 1))
        for _ in range(many)
    ]
    for record in ours:
        assert (record.ratio, record.mode, record.batch) == (2.0, "grouped", 5)
        assert record.peer is not None
        assert record.peer != "one dense product"
    few = [record for record in ours if record.m == 64]
    assert all("% of DRAM's rate, 5 of 5 groups" in (record.note or "") for record in few)
    dense = [record for record in records if record.kernel.startswith("one dense product")]
    assert len(dense) == 3
    assert {record.ratio for record in dense} == {None}


@pytest.mark.parametrize("math", ["bfloat16", "float8_e4m3fn"])
def test_inputs_are_freed_with_their_contenders(monkeypatch: pytest.MonkeyPatch, math: str) -> None:
    """At once: the next layer's weights need the memory."""
    monkeypatch.setattr(group_contenders, "DEVICE", "cpu")
    case = case_of(SMALL, FORWARD, ROWS, "even", math)
    stage = stage_for(case)
    inputs = stage.inputs(case)
    kinds = [type(x) for x in contenders_of(case, stage.framework)]
    gc.disable()
    try:
        for kind in kinds:
            factors = GroupFactors(case, stage.framework.torch)
            contender = kind(case, stage.framework, factors)
            contender.prepare(case, inputs.a, inputs.b, inputs.c)
            kept = weakref.ref(contender)
            del contender
            assert kept() is None, kind
    finally:
        gc.enable()
