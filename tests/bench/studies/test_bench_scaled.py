"""The bench of 8-bit floats with factors: forms that the library takes, and the table that the report writes
of them.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lapidist.calls import planned_call
from lapidist.calls.factor_operands import scale_of
from lapidist.device import chip
from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import operand_of
from lapidist.planning.plans import make_plan
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Part
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.publish.study_tables import SCALED
from lapidist_lab.bench.studies.scaled_products import (
    BURST_MODE,
    KINDS,
    MATH,
    MODE,
    MODEL_SHAPES,
    OF_MODELS,
    PROTOCOLS,
    SCHEMES,
    SHAPES,
    ScaledCase,
    Scheme,
    pairs_of,
)
from published import page_of


def rand(*shape: int, device: str) -> Any:
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_factors_are_of_the_form_that_their_name_says(scheme: Scheme) -> None:
    case = ScaledCase(200, 300, 400, MATH)
    a, b = scheme.factors(SimpleNamespace(rand=rand), case)
    assert scale_of(operand_of(a, "scale_a"), 200, 400).kind == KINDS[scheme.a_shape]
    assert scale_of(operand_of(b, "scale_b"), 300, 400).kind == KINDS[scheme.b_shape]
    assert case.out_dtype == "bfloat16"


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_what_is_compiled_ahead_is_what_runs(scheme: Scheme) -> None:
    case = ScaledCase(128, 256, 256, MATH)
    scale_a, scale_b = scheme.factors(SimpleNamespace(rand=rand), case)
    a, b = np.zeros((case.m, case.k), numpy_dtype(MATH)), np.zeros((case.n, case.k), numpy_dtype(MATH)).T
    out = np.zeros((case.m, case.n), numpy_dtype(case.out_dtype))
    runs = planned_call.plan(
        a, b, out=out, scale_a=scale_a, scale_b=scale_b, promote=scheme.promoted, device="machine"
    ).plan
    assert runs is not None
    assert make_plan(scheme.problem(case), chip("h200")).problem_macros == runs.problem_macros


def test_a_part_of_the_pairs_is_measured() -> None:
    everything = pairs_of(EVERY_CASE)
    assert len(everything) == len(SHAPES) * len(SCHEMES) + len(MODEL_SHAPES) * len(OF_MODELS)
    assert pairs_of(Part(count=5)) + pairs_of(Part(skip=5)) == everything
    with pytest.raises(ArgumentError, match="--skip: must leave something of 30 pairs; got 30"):
        pairs_of(Part(skip=30))


def test_both_ways_to_take_turns() -> None:
    assert PROTOCOLS[MODE].mode == "sustained"
    assert PROTOCOLS[BURST_MODE].mode == "burst"


def row(kernel: str, kind: str, seconds: float, ratio: float) -> Record:
    m, n, k = SHAPES[0]
    tflops = 2.0 * m * n * k / seconds / 1e12
    numbers = (m, n, k, seconds, tflops, ratio, 0.5, 0.1, True)
    return Record(kernel, kind, "NVIDIA H200", MATH, "rcr", *numbers, mode=MODE, config="wgmma: 128x128x128")


def test_the_table_has_each_form_beside_its_own_rival() -> None:
    scheme = SCHEMES[4].name
    rows = [
        row(f"cublas, {scheme}", "peer", 130e-6, 1.0),
        row(f"lapidist, {scheme}", "production", 100e-6, 1.3),
    ]
    text = page_of("fp8", rows)
    assert f"| 4096x4096x4096 | {scheme} | 100 us | 1374.4 | 1057.2 | 130.0 | wgmma: 128x128x128 |" in text
    assert SCHEMES[0].name not in text
    assert SCALED.written(Data([])) == []


def test_bursts_have_a_table_of_their_own() -> None:
    scheme = OF_MODELS[1].name
    sustained = row(f"lapidist, {scheme}", "production", 100e-6, 1.3)
    m, n, k = MODEL_SHAPES[0]
    burst = replace(sustained, m=m, n=n, k=k, seconds=800e-6, mode=BURST_MODE)
    _, words, *tables = SCALED.written(Data([sustained, burst]))
    assert "sustained" in words
    assert len(tables) == 2
    assert "every form and shape" in tables[0]
    assert "4096x7168x16384" not in tables[0]
    assert "in bursts" in tables[1]
    assert f"| 4096x7168x16384 | {scheme} | 800 us |" in tables[1]
    assert len(SCALED.written(Data([burst]))) == 3
