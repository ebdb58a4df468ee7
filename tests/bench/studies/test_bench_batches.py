"""The bench of batches: which, how their inputs lie, and that what is compiled ahead is what runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lapidist.calls import planned_call
from lapidist.device import chip
from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError
from lapidist.planning.plans import make_plan
from lapidist_lab.bench.protocol.array_library import Torch
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.contenders import problem_of
from lapidist_lab.bench.protocol.measure import Entry, Inputs, Stage, record_of
from lapidist_lab.bench.protocol.timing import BURST
from lapidist_lab.bench.studies.batched_products import LISTS, cases_of, pair_of


class Arrays:
    """NumPy in place of a framework: every element says where it lies in memory."""

    capturable = True

    def random(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any:
        lines = (cols, rows) if transposed else (rows, cols)
        array = np.arange(rows * cols, dtype=np.float64).reshape(lines)
        return array.T if transposed else array

    def poisoned(self, rows: int, cols: int, dtype: str) -> Any:
        return np.full((rows, cols), np.nan)


def stage() -> Any:
    made = Stage.__new__(Stage)
    made.framework, made.device, made.protocol = Arrays(), chip("h200"), BURST
    return made


def test_a_part_of_the_batches() -> None:
    everything = cases_of(EVERY_CASE)
    assert len(everything) == sum(map(len, LISTS.values()))
    assert cases_of(Part(count=3)) + cases_of(Part(skip=3)) == everything
    assert Case(100, 100, 100, "float64", batch=256) in everything
    assert Case(1024, 1024, 64, "bfloat16", batch=96) in everything
    with pytest.raises(ArgumentError, match="--skip: must leave something of 17 batches; got 17"):
        cases_of(Part(skip=17))


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
def test_products_of_a_batch_lie_one_behind_the_other(layout: str) -> None:
    case = Case(4, 6, 8, "float32", layout, batch=5)
    inputs = stage().inputs(case)
    a, b, c = inputs.a[0], inputs.b[0], inputs.c[0]
    assert (a.shape, b.shape, c.shape) == ((5, 4, 8), (5, 8, 6), (5, 4, 6))
    for array, by in ((a, layout[0]), (b, layout[1])):
        stored = array if by == "r" else array.swapaxes(-1, -2)
        assert (stored.ravel() == np.arange(array.size)).all()
    plain = stage().inputs(Case(4, 6, 8, "float32", layout))
    assert (plain.a[0].shape, plain.b[0].shape, plain.c[0].shape) == ((4, 8), (8, 6), (4, 6))


def test_cublas_multiplies_a_batch_by_bmm() -> None:
    called = []
    switches = SimpleNamespace(fp32_precision="ieee")
    for half in ("fp16", "bf16"):
        setattr(switches, f"allow_{half}_reduced_precision_reduction", True)
    torch = SimpleNamespace(
        mm=lambda *_, out: called.append("mm"),
        bmm=lambda *_, out: called.append("bmm"),
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=switches)),
    )
    framework = Torch.__new__(Torch)
    framework.torch = torch
    for dims in (2, 3):
        operands = [np.zeros((2,) * dims)]
        framework.multiply("float32", operands, operands, operands)(0)
    assert called == ["mm", "bmm"]


def test_a_row_says_how_many_products_it_timed() -> None:
    case, here = Case(4, 6, 8, "float32", batch=5), stage()
    entry = Entry(pair_of("float32", here)[1], seconds=[1e-6])
    row = record_of(here, case, entry, Inputs([1], [1], [1], True, list), 2e-6)
    assert (row.batch, row.ratio, row.tflops) == (5, 2.0, pytest.approx(case.flops / 1e6))
    alone = record_of(here, Case(4, 6, 8), entry, Inputs([1], [1], [1], True, list), 2e-6)
    assert alone.batch is None
    assert alone.key != row.key


@pytest.mark.parametrize("case", [Case(16, 16, 16, batch=60), Case(64, 128, 64, "bfloat16", batch=6)])
def test_what_is_compiled_ahead_is_what_runs(case: Case) -> None:
    a = np.zeros((case.batch, case.m, case.k), numpy_dtype(case.dtype))
    b = np.zeros((case.batch, case.k, case.n), numpy_dtype(case.dtype))
    out = np.zeros((case.batch, case.m, case.n), numpy_dtype(case.out_dtype))
    runs = planned_call.plan(a, b, out=out, device="machine").plan
    assert runs is not None
    assert make_plan(problem_of(case, False), chip("h200")).problem_macros == runs.problem_macros
