"""What the assembler made of the first thread's own work: it must come back to its warp before the first
barrier.

A barrier that begins a loop was once taken for that: the first thread then went through the whole main loop
by itself, tensor cores multiplied for parts of a warp, and results were zeros. The machine, which runs PTX,
cannot see it."""

from __future__ import annotations

from itertools import takewhile

import pytest

from lapidist.device import chip
from lapidist.kernels.registry import kernel_named
from lapidist.planning.plans import make_plan
from lapidist.schedule.sharing_choice import Sharing
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import problem_of
from lapidist_lab.sass.listing import sass_lines

SHAPE = (203, 331, 517)


@pytest.mark.survey
@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize(
    ("kernel", "math"),
    [
        ("mma", "float16"),
        ("mma", "tf32"),
        ("mma", "float64"),
        ("mma", "int8"),
        ("simt", "float32"),
        ("simt", "float64"),
    ],
)
def test_the_first_thread_comes_back_before_the_first_barrier(kernel: str, math: str, layout: str) -> None:
    plan = make_plan(
        problem_of(Case(*SHAPE, math, layout), False),
        chip("h200"),
        kernel_named(kernel),
        sharing=Sharing(split_k=3),
    )
    assert ("SCHEDULED", 1) in plan.problem_macros
    before = [
        line.opcode.partition(".")[0]
        for line in takewhile(lambda line: line.opcode[:3] != "BAR", sass_lines(plan.binary))
    ]
    assert "BRA" in before  # the walk's begin, which only the first thread needs
    assert {"BSYNC", "WARPSYNC"} & set(before)
