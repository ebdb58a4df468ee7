"""Registers of wgmma: products read A in them until they are waited for, and keep their sums there."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import lapidist
from lapidist import machine
from lapidist.build.compiler import compile_kernel
from lapidist.device import chip
from lapidist.dtypes import FP8
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.wgmma.configs import tile
from lapidist.launch import Launch
from lapidist.machine.faults import Race
from lapidist.planning.plans import make_plan
from lapidist_lab.bench.studies.group_cases import FORWARD, LAYERS, TO_WEIGHTS, ZIPF, case_of, problem_of
from wgmma_products import check, lying, operands

Array = np.ndarray
OF_A = re.compile(r"wgmma\.mma_async[^;]*?\}, \{([^}]*)\}")
MATHS = ("tf32", "int8", *FP8)


def launched(math: str) -> tuple[Launch, Array, Array, Array]:
    """Five steps along k, with A by columns: threads transpose it on its way through registers."""
    deep = 32 if math == "tf32" else 128
    a, b, more = operands(math, 128, 32, 5 * deep)
    a, b = lying(a, "col"), lying(b, "col")
    gemm = lapidist.plan(a, b, kernel="wgmma", config=tile(math, 128, 32, 3), device="machine", **more)
    assert gemm.plan is not None
    d = np.zeros((128, 32), gemm.plan.problem.out_dtype)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    return launch, a, b, d


def fragments(ptx: str) -> list[tuple[str, ...]]:
    return [tuple(re.findall(r"%r\d+", found)) for found in OF_A.findall(ptx)]


@pytest.mark.often(2)
@pytest.mark.parametrize("math", MATHS)
def test_two_steps_have_registers_of_their_own(math: str) -> None:
    """NVRTC 13.5 had made one step of two, whose registers were loaded while products read them."""
    launch, a, b, d = launched(math)
    names = [name for each in fragments(launch.binary.ptx) for name in each]
    assert len(names) == 2 * 4 * 4
    assert len(set(names)) == len(names)
    machine.run(launch, sanitize=True, counting=False)
    check(d, a, b, alpha=1.0)


def test_registers_that_are_written_too_early_are_found() -> None:
    launch, _, _, _ = launched("tf32")
    turns = fragments(launch.binary.ptx)
    ptx = launch.binary.ptx
    for one, other in zip(turns[:4], turns[4:], strict=True):
        for name, instead in zip(other, one, strict=True):
            ptx = re.sub(rf"{name}\b", instead, ptx)
    with pytest.raises(Race, match=r"%r\d+ is written while the wgmma of .* may still read A from it"):
        machine.run(replace(launch, binary=replace(launch.binary, ptx=ptx)), sanitize=True, counting=False)


@pytest.mark.parametrize("way", [TO_WEIGHTS, pytest.param(FORWARD, marks=pytest.mark.survey)])
def test_products_of_groups_are_not_serialised(way: str) -> None:
    """Where sums are read between two products, the assembler lets each wait for the one before."""
    plan = make_plan(problem_of(case_of(LAYERS[0], way, 8192, ZIPF, "bfloat16")), chip("h200"))
    binary = compile_kernel(
        plan.kernel.source, plan.kernel.name, dict(plan.problem_macros), plan.device.architecture
    )
    assert "ptxas" in binary.log
    assert "serialized" not in binary.log
