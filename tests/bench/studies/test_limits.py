"""The micro-kernels that measure units: right in the machine, in every type, and judged by what they should
have summed.
"""

from __future__ import annotations

from typing import Any

import pytest

from in_turns import surveyed
from lapidist.device import chip
from lapidist.dtypes import MATHS, element_of
from lapidist.machine.run import run
from lapidist_lab.bench.studies.ladder_runs import poisoned_matrix, random_matrix
from lapidist_lab.bench.studies.limits import UNITS, Unit, judge_limit, launch_of
from lapidist_lab.sass.listing import ptx_lines
from lapidist_lab.sass.loops import main_loop

H200 = chip("h200")


def arrays_of(unit: Unit) -> tuple[Any, Any, Any]:
    """For one block."""
    element, groups = element_of(unit.math), unit.groups
    a = random_matrix(groups * unit.rows, unit.depth, element.name).reshape(groups, unit.rows, unit.depth)
    b = random_matrix(groups * unit.cols, unit.depth, element.name).reshape(groups, unit.cols, unit.depth)
    d = poisoned_matrix(groups * unit.rows, unit.cols, element.accumulators[0])
    return a, b, d.reshape(1, groups, unit.rows, unit.cols)


FIRST = [next(each for each in UNITS if each.unit == unit) for unit in ("fma", "mma", "wgmma")]
BYTES = [each for each in UNITS if each.math == "int8"]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "unit",
    [*FIRST, *BYTES, *surveyed(each for each in UNITS if each not in [*FIRST, *BYTES])],
    ids=lambda unit: f"{unit.unit}-{unit.math}",
)
def test_a_micro_kernel_sums_what_it_counts(unit: Unit) -> None:
    arrays = arrays_of(unit)
    launch = launch_of(unit, H200, 3, arrays)
    counts = run(launch, exact_counts=True).counts
    assert judge_limit(unit, arrays, 3).ok
    assert not judge_limit(unit, arrays, 4).ok, "a product too few must be seen"
    assert counts is not None
    case = unit.case(1, 3)
    assert counts.flops + counts.tensor_flops >= case.flops, (
        "it does all the multiply-adds that its speed is computed from"
    )


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "unit",
    [*FIRST, *BYTES, *surveyed(each for each in UNITS if each not in [*FIRST, *BYTES])],
    ids=lambda unit: f"{unit.unit}-{unit.math}",
)
def test_nothing_but_products_is_in_the_loop(unit: Unit) -> None:
    lines = ptx_lines(launch_of(unit, H200, unit.iterations, arrays_of(unit)).binary)
    loop = main_loop(lines)
    assert loop is not None
    kinds = {lines[index].kind for index in loop}
    assert kinds.isdisjoint({"lds", "ldsm", "sts", "ldg", "stg", "local"})


def test_every_unit_of_the_chip_is_measured_in_every_type_it_has() -> None:
    measured = {(unit.unit, unit.math) for unit in UNITS}
    twins = {"uint8": "int8"}  # multiplied by the same lanes
    for unit in H200.units:
        for math in MATHS:
            # 16 bits are multiplied as float there
            if H200.peak_tflops(math, unit) and not (unit == "fma" and math in ("float16", "bfloat16")):
                assert (unit, twins.get(math, math)) in measured


def test_a_case_of_a_unit_counts_its_multiply_adds() -> None:
    unit = next(unit for unit in UNITS if (unit.unit, unit.math) == ("mma", "float16"))
    per_iteration = 132 * 8 * 64 * 64 * 16  # blocks, warps, tile, depth
    assert unit.case(132, 10).flops == 2.0 * per_iteration * 10


@pytest.mark.gpu
@pytest.mark.alone
def test_units_reach_their_limits() -> None:
    from lapidist_lab.bench.studies.limits import measure

    chosen = [unit for unit in UNITS if unit.math in ("float32", "int8")]
    for record in measure(0, lambda *_: None, chosen)[1]:
        assert record.ok, record.error
        assert record.limit_share is not None
        assert record.unit_share is not None
        assert 0.8 < record.unit_share < 1.1, "run it by itself: -m alone"
