"""One interface for all kernels: what a row of the registry leaves to the class of its family."""

from __future__ import annotations

from dataclasses import fields
from inspect import isabstract

import pytest

from lapidist.device import chip
from lapidist.kernels.family import Family
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.planning.planner import grouped
from lapidist_lab.sass.analysis import sample_problem


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_row_holds_no_functions(kernel: Kernel) -> None:
    """What differs in code differs by class."""
    assert [each.name for each in fields(Kernel) if callable(getattr(kernel, each.name))] == []


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_each_family_answers_for_its_kernels(kernel: Kernel) -> None:
    family = kernel.family
    math = kernel.types.maths[0]
    problem, config, device = sample_problem(kernel, math), kernel.config_for(math), chip("h200")
    assert isinstance(family, Family)
    assert not isabstract(type(family))
    assert family.refuse(problem) is None
    assert family.macros(problem)["T"]
    passed = {name for name, kind in family.parameters if kind == "tensormap"}
    at = dict.fromkeys((*"ABCD", "workspace"), 1 << 20)
    assert passed <= family.maps(problem, config, at, 1).keys()
    assert family.shared_bytes(problem, config) <= device.shared_per_block
    per_sm, costs = family.costs(problem, kernel, config, device)
    assert per_sm >= 1 or not family.scheduled
    assert costs.unit == "seconds"


def test_production_kernels_and_the_ladder_are_five_families() -> None:
    names = ("simt", "large_tile", "mma", "sgemm", "wgmma")
    assert len({type(kernel_named(name).family) for name in names}) == len(names)


def test_what_is_weighed_at_once_is_weighed_by_one_formula() -> None:
    for math in ("float32", "bfloat16"):
        for rows in grouped(KERNELS, math):
            assert len({kernel.family.cost_model for kernel in rows.kernels}) == 1
