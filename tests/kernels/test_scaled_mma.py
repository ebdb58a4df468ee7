"""8-bit floats with factors and promoted sums on mma.sync, in the machine: for chips beside Hopper, and what
wgmma refuses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import FP8
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.planning.planner import choose
from lapidist.planning.plans import make_plan
from lapidist.problems.modes import ExtraPointers
from lapidist.problems.scaling import STRIPS
from lapidist.verify.sum_bound import judge
from scale_cases import FORMS, PAIRS, factors
from typed import fresh, poisoned, whole

Array = np.ndarray[Any, Any]
E4M3, E5M2 = FP8
MMA = kernel_named("mma")
SMALL = Config(64, 64, 128, 32, 32, 0, 0, stages=3)
HALF_STEPS = Config(64, 64, 64, 32, 32, 0, 0, stages=3)  # a factor of 128 of k is that of two tiles
M, N, K = 140, 72, 400


# D by columns is the product of B' and A', factors and all
@pytest.mark.often(2)
@pytest.mark.parametrize(("forms", "order"), in_turns(PAIRS, ["C", "F"]))
def test_every_form(rng: np.random.Generator, forms: tuple[str, str], order: Any) -> None:
    a_form, b_form = forms
    left, right = FP8 if order == "C" else FP8[::-1]
    a, b = whole(rng, (M, K), left), whole(rng, (K, N), right)
    scales = {
        "scale_a": factors(rng, a_form, M, K, whole=True),
        "scale_b": factors(rng, b_form, N, K, True, True),
    }
    out = np.asarray(poisoned((M, N), "float32"), order=order)
    lapidist.gemm(
        a, b, out=out, kernel=MMA, config=SMALL if order == "C" else HALF_STEPS, device="machine", **scales
    )
    assert judge(out, a, b, exact=True, **scales).ok


@pytest.mark.often(1)
@pytest.mark.parametrize("layouts", ["cr", "ss", *surveyed(["rr", "rc"])])
def test_lines_of_any_length_and_factors_with_any_strides(rng: np.random.Generator, layouts: str) -> None:
    """Elements that pass through registers, and strided ones, which wgmma refuses: the planner turns to mma
    by itself.
    """
    a, b = whole(rng, (2 * 33, 2 * 150), E4M3)[::2, ::2], whole(rng, (2 * 150, 2 * 41), E5M2)[::2, ::2]
    if layouts != "ss":
        a, b = (
            np.asarray(array, order="C" if letter == "r" else "F")
            for array, letter in zip((a, b), layouts, strict=True)
        )
    scale_a = factors(rng, "strips", 66, 150, whole=True)[::-2]
    scale_b = np.asfortranarray(factors(rng, "strips", 41, 150, True, True))
    gemm = lapidist.plan(
        a, b, scale_a=scale_a, scale_b=scale_b, kernel=None if layouts == "ss" else MMA, device="machine"
    )
    assert gemm.plan is not None
    assert gemm.plan.kernel is MMA
    assert judge(gemm.execute(a, b), a, b, scale_a=scale_a.copy(), scale_b=scale_b, exact=True).ok


def test_random_factors_with_alpha_beta_and_other_results(rng: np.random.Generator) -> None:
    a, b = fresh(rng, (70, 300), E4M3), fresh(rng, (300, 96), E5M2)
    scales = {
        "scale_a": factors(rng, "strips", 70, 300),
        "scale_b": factors(rng, "squares", 96, 300, of_b=True),
    }
    for output in ("bfloat16", E4M3):
        right = b if output == "bfloat16" else b.astype(a.dtype)
        c = fresh(rng, (70, 96), output)
        d = lapidist.gemm(
            a, right, c, alpha=-1.5, beta=0.5, out_dtype=output, kernel=MMA, device="machine", **scales
        )
        assert judge(d, a, right, c, -1.5, 0.5, promoted=True, unit="mma", **scales).ok, output


@pytest.mark.often(1)
@pytest.mark.parametrize(
    "sharing",
    [{"split_k": 3, "reduction": "separate"}, {"schedule": "stream_k"}, *surveyed([{"split_k": 2}])],
)
def test_blocks_that_share_a_tile(rng: np.random.Generator, sharing: dict[str, Any]) -> None:
    """Each promotes its part of k with that part's factors; who finishes the tile takes those of lines,
    once.
    """
    a, b = whole(rng, (80, 900), E4M3), whole(rng, (900, 70), E4M3)
    for form, of_b, config in (("strips", "squares", HALF_STEPS), ("lines", "line", SMALL)):
        scales = {
            "scale_a": factors(rng, form, 80, 900, whole=True),
            "scale_b": factors(rng, of_b, 70, 900, True, True),
        }
        d = lapidist.gemm(
            a, b, kernel=MMA, config=config, device="machine", promote=True, **sharing, **scales
        )
        assert judge(d, a, b, exact=True, **scales).ok, form


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("forms", "seed"), in_turns([("strips", "squares"), ("squares", "strips"), ("lines", "line")], range(2))
)
def test_no_race_and_nothing_read_outside(
    rng: np.random.Generator, forms: tuple[str, str], seed: int
) -> None:
    """Factors have not a row more than they need."""
    m, n, k = SMALL.bm + 9, SMALL.bn + 24, 272
    a, b = whole(rng, (m, k), E4M3), whole(rng, (n, k), E4M3).T
    scales = {
        "scale_a": factors(rng, forms[0], m, k, whole=True),
        "scale_b": factors(rng, forms[1], n, k, True, True),
    }
    gemm, d = (
        lapidist.plan(a, b, kernel=MMA, config=SMALL, device="machine", **scales),
        poisoned((m, n), "float32"),
    )
    extras = tuple(operand_of(array, name) for name, array in scales.items())
    assert gemm.plan is not None
    operands = operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out")
    extra = ExtraPointers(**{each.name: each.pointer for each in extras})
    launch = gemm.plan.launch(*operands, 1.0, 0.0, extra_pointers=extra, extras=extras)
    machine.run(launch, sanitize=True, seed=seed, counting=False)
    assert judge(d, a, b, exact=True, **scales).ok


def test_a_batch_takes_one_factor(rng: np.random.Generator) -> None:
    a, b = whole(rng, (3, 20, 48), E4M3), whole(rng, (3, 16, 48), E4M3).swapaxes(1, 2)
    d = lapidist.gemm(
        a, b, scale_a=np.float32([[0.5]]), scale_b=4, promote=True, kernel=MMA, device="machine"
    )
    assert judge(d, a, b, 2 * np.zeros_like(d), 2.0, exact=True).ok


# ---- other chips ----


@pytest.mark.often(2)
@pytest.mark.parametrize("a_form", [*FORMS[::2], *surveyed(FORMS[1::2])])
def test_ada_multiplies_with_factors(rng: np.random.Generator, a_form: str) -> None:
    """By the 8-bit instruction of its own, which wgmma's chip does not have: the planner's choice, run in the
    machine.
    """
    a, b = whole(rng, (70, 150), E4M3), whole(rng, (150, 40), E5M2)
    scales = {
        "scale_a": factors(rng, a_form, 70, 150, whole=True),
        "scale_b": factors(rng, "squares", 40, 150, True, True),
    }
    d = poisoned((70, 40), "float32")
    gemm = lapidist.plan(a, b, out=d, device="machine", **scales)
    assert choose(gemm.problem, chip("rtx4090")).kernel is MMA
    plan = make_plan(gemm.problem, chip("rtx4090"))
    assert ".e4m3.e5m2.f32" in plan.unassembled.ptx
    extras = tuple(operand_of(value, name) for name, value in scales.items() if not isinstance(value, float))
    operands = operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out")
    extra = ExtraPointers(**{each.name: each.pointer for each in extras})
    machine.run(plan.launch(*operands, *gemm.scalars, extra_pointers=extra, extras=extras), counting=False)
    assert judge(d, a, b, exact=True, **scales).ok


def test_chips_without_8_bit_floats_say_so(rng: np.random.Generator) -> None:
    a, b = whole(rng, (200, 300), E4M3), whole(rng, (300, 500), E4M3)
    problem = lapidist.plan(a, b, scale_a=np.ones((200, 3), np.float32), device="machine").problem
    assert problem.scaling.a.kind == STRIPS
    with pytest.raises(RefusalError) as caught:
        choose(problem, chip("a100"))
    lines = str(caught.value).splitlines()
    assert "A with factors by 1 x 128, sums promoted on" in lines[0]
    assert any("wgmma" in line and "of compute capability 9.0 alone" in line for line in lines)
    assert any("mma:" in line and "it needs compute capability 8.9" in line for line in lines)
    assert len(lines) <= 10  # a reason a line, whatever the number of configs


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            Config(128, 128, 128, 64, 64, 0, 0, stages=3),
            r"held twice: a warp has room for 2048; this tile gives it 4096",
        ),
        (
            Config(64, 64, 256, 32, 32, 0, 0, stages=3),
            r"leave the tensor core every 128 of k, .* of this tile has 256",
        ),
    ],
    ids=["registers", "steps"],
)
def test_tiles_that_do_not_suit_promotion_are_refused(
    rng: np.random.Generator, config: Config, words: str
) -> None:
    a, b = whole(rng, (200, 300), E4M3), whole(rng, (300, 500), E4M3)
    with pytest.raises(RefusalError, match=words):
        lapidist.gemm(a, b, promote=True, kernel=MMA, config=config, device="machine")
