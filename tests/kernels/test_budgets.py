"""Budgets of registers: the sources' own copies are those of kernels/budgets.py, and an SM has so many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from front_end import objections
from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import FP8
from lapidist.kernels import budgets
from lapidist.kernels.blocks.splits import by_fours, resident
from lapidist.kernels.budgets import Shares
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.rules.problem_facts import Facts
from lapidist.kernels.wgmma.configs import tile
from lapidist.kernels.wgmma.registers import register_shares
from lapidist.kernels.wgmma.shared import QUEUE_BYTES
from lapidist.problems.modes import PLAIN, Modes
from lapidist.problems.problem import Problem, dense_problem
from lapidist.problems.ragged import ROWS, Ragged
from lapidist.problems.scaling import SQUARES, STRIPS, Scale, Scaling
from lapidist_lab.sass.analysis import sample_problem

WGMMA, SGEMM, SIMT = kernel_named("wgmma"), kernel_named("sgemm"), kernel_named("simt")
MMA = kernel_named("mma")
FACTORS = Scaling(Scale(STRIPS, 1, 1), Scale(STRIPS, 1, 1), promoted=True)
SQUARE_FACTORS = Scaling(Scale(STRIPS, 1, 1), Scale(SQUARES, 1, 1), promoted=True)


def says(values: dict[str, Any]) -> str:
    """Asserted behind a source."""
    return "".join(f'static_assert({name} == {int(value)}, "{name}");\n' for name, value in values.items())


@pytest.mark.parametrize(
    ("shares", "groups"),
    [
        (budgets.SGEMM, 2),
        *((shares, groups) for groups, shares in budgets.WGMMA.items()),
        (budgets.COPYING, 2),
        (budgets.FINDING, 2),
        *((shares, groups) for groups, shares in budgets.GATHERING.items()),
        *((shares, 2) for shares in budgets.PACKING_BESIDE.values()),
    ],
)
def test_warpgroups_share_what_a_launch_has(shares: Shares, groups: int) -> None:
    """In eights, as setmaxnreg counts them; the one that loads is another warpgroup. A launch gives all
    threads equally many.
    """
    launched = budgets.REGISTERS_OF_SM // (128 * (groups + 1)) // 8 * 8
    assert groups * shares.multiplies + shares.loads <= (groups + 1) * launched
    assert all(each % 8 == 0 and 24 <= each < budgets.MOST_REGISTERS for each in shares)


def test_two_blocks_share_it() -> None:
    assert 2 * 128 * sum(budgets.TWO_BLOCKS) == budgets.REGISTERS_OF_SM


def grouped(problem: Problem, **routing: int) -> Problem:
    return replace(problem, modes=Modes(ragged=Ragged(ROWS, 4, problem.m), **routing))


def wgmma_cases() -> dict[str, tuple[Problem, Config, Shares]]:
    one, two, three = budgets.WGMMA.values()
    half, ragged = sample_problem(WGMMA, "float16"), sample_problem(WGMMA, "float16", aligned=False)
    factors, squares = (
        replace(sample_problem(WGMMA, FP8[0]), scaling=each) for each in (FACTORS, SQUARE_FACTORS)
    )
    return {
        "one warpgroup": (half, tile("float16", 64, 256, 4), one),
        "two": (half, tile("float16", 128, 256, 4), two),
        "three": (half, tile("float16", 192, 192, 3), three),
        "D by hand": (ragged, tile("float16", 256, 192, 2), two),
        "ping-pong": (half, tile("float16", 128, 192, 3, ping_pong=True), two),
        "rows shifted": (replace(ragged, skewed=True), tile("float16", 128, 128, 3, skewed=True), two),
        "A transposed": (dense_problem(512, 512, 512, "tf32", "cr"), tile("tf32", 128, 128, 3), two),
        "factors": (factors, tile(FP8[0], 128, 128, 4), budgets.COPYING),
        "factors of three": (factors, tile(FP8[0], 192, 96, 3), three),
        "factors by parts": (factors, tile(FP8[0], 128, 160, 4), budgets.COPYING),
        "groups": (grouped(half), tile("float16", 128, 256, 4), budgets.FINDING),
        "groups of large tiles": (grouped(half), tile("float16", 256, 192, 3), two),
        "rows gathered": (grouped(half, gather_a=1), tile("float16", 64, 256, 4), budgets.GATHERING[1]),
        "rows gathered by two": (
            grouped(half, gather_a=1),
            tile("float16", 128, 256, 4),
            budgets.GATHERING[2],
        ),
        "squares at once": (squares, tile(FP8[0], 128, 192, 4), budgets.COPYING),
        "squares by parts": (squares, tile(FP8[0], 128, 256, 4), budgets.COPYING),
    }


@pytest.mark.parametrize(("problem", "config", "shares"), wgmma_cases().values(), ids=wgmma_cases())
def test_what_wgmma_is_given(problem: Problem, config: Config, shares: Shares) -> None:
    assert register_shares(problem, config, False) == shares
    given = WGMMA.macros(problem, config)
    assert (given["REGISTERS"], given["REGISTERS_LEFT"]) == shares
    if config.bm != 192 and not problem.scaling.scaled and problem.modes == PLAIN:
        assert budgets.wgmma_registers(config.bm) == shares.multiplies


@pytest.mark.parametrize("math", ["bfloat16", "tf32"])
@pytest.mark.parametrize("layouts", ["rr", "rc"])
def test_who_packs_beside_products(math: str, layouts: str) -> None:
    """In 16-bit types large tiles of two warpgroups whose threads store D, if they are not shared."""
    ragged, aligned = dense_problem(517, 519, 333, math, layouts), dense_problem(512, 512, 512, math, layouts)
    batched = replace(ragged, batch=(2,)) if math == "bfloat16" else ragged
    configs = [tile(math, 128, bn, 2) for bn in (160, 192, 224)] + [tile(math, 64, 224, 2)]
    configs += [tile(math, 128, 192, 2, ping_pong=True), tile(math, 192, 192, 2)]
    configs += [tile(math, 256, bn, 2) for bn in (96, 160, 176)]
    beside = []
    for problem in (ragged, batched, aligned, replace(ragged, c=ragged.d)):
        for config in configs:
            given = WGMMA.macros(problem, config)
            if given["PACKS_BESIDE"]:
                assert (given["REGISTERS"], given["REGISTERS_LEFT"]) == budgets.PACKING_BESIDE[config.bm]
                assert not WGMMA.macros(problem, config, scheduled=True)["PACKS_BESIDE"]
                beside.append(config)
    assert len(beside) == (4 if math == "bfloat16" else 0)


RAGGED = sample_problem(WGMMA, "float16", aligned=False)


@pytest.mark.parametrize(
    ("problem", "config", "words"),
    [
        (sample_problem(WGMMA, "float16"), tile("float16", 256, 224, 2), "has 208 registers for its sums"),
        (
            sample_problem(WGMMA, "float16"),
            tile("float16", 128, 208, 2, ping_pong=True),
            "has 192 registers for its sums",
        ),
        (sample_problem(WGMMA, "float16"), tile("float16", 192, 208, 2), "has 96 registers for its sums"),
        (RAGGED, tile("float16", 256, 208, 2), "has 192 registers for its sums"),
        (
            replace(sample_problem(WGMMA, FP8[0]), scaling=FACTORS),
            tile(FP8[0], 128, 192, 3),
            "promoted sums have the products of a part beside them",
        ),
    ],
    ids=["plain", "ping-pong", "of three warpgroups", "D by hand", "promoted"],
)
def test_sums_that_find_no_registers_are_refused(problem: Problem, config: Config, words: str) -> None:
    facts = Facts(problem, WGMMA.family)
    broken = [rule.words(config, facts) for rule in WGMMA.all_rules if not rule.holds(config, facts)]
    assert any(words in said for said in broken)
    fewer = replace(config, bn=config.bn - 32, wn=config.bn - 32)
    assert all(rule.holds(fewer, facts) for rule in WGMMA.all_rules)


def test_what_two_blocks_are_given() -> None:
    ragged = replace(sample_problem(WGMMA, "float16", aligned=False), m=1024, n=1024, k=512)
    given = WGMMA.macros(ragged, tile("float16", 64, 128, 3))
    assert (given["RESIDENT"], given["REGISTERS"], given["REGISTERS_LEFT"]) == (2, *budgets.TWO_BLOCKS)
    wider = WGMMA.macros(ragged, tile("float16", 64, 144, 3))
    assert (wider["RESIDENT"], wider["REGISTERS"], wider["REGISTERS_LEFT"]) == (1, *budgets.WGMMA[1])


def test_the_largest_tile_of_promoted_sums_fills_a_block() -> None:
    """To the byte, so what the host counts on is held against what the source has."""
    problem = wgmma_cases()["squares by parts"][0]
    config = tile(FP8[0], 128, 256, 4)
    shared = WGMMA.shared_bytes(config, problem)
    assert budgets.SHARED_OF_BLOCK - 1024 < shared <= budgets.SHARED_OF_BLOCK
    taken = (
        f'static_assert(sizeof(UnitQueue) <= {QUEUE_BYTES}, "the queue");'
        " constexpr int TAKEN = sizeof(Stage) * STAGES + sizeof(PatchesOfD) + sizeof(BarriersAndQueue)"
        " + sizeof(TileFactors<BM, BN>) * STAGES;"
    )
    assert objections(WGMMA, problem, config, {}, f'{taken} static_assert(TAKEN <= {shared}, "fits");') == ""
    assert "fits" in objections(
        WGMMA, problem, config, {}, f'{taken} static_assert(TAKEN <= 231000, "fits");'
    )


def square(aligned: bool) -> Problem:
    return sample_problem(SIMT, "float32", aligned=aligned)


@pytest.mark.parametrize("aligned", [True, False], ids=["by fours", "one by one"])
@pytest.mark.parametrize(
    "config",
    [
        Config(64, 128, 16, 32, 64, 8, 8),
        Config(64, 64, 16, 16, 32, 4, 4),
        Config(32, 32, 16, 16, 32, 4, 4),
        Config(64, 128, 16, 32, 64, 8, 8, stages=3),
        Config(32, 32, 32, 16, 32, 4, 4, stages=3),
    ],
    ids=["8 x 8", "4 x 4", "4 x 4, 64 threads", "8 x 8, copied", "4 x 4, copied"],
)
def test_the_source_of_simt_has_these(config: Config, aligned: bool) -> None:
    """And the host counts on as many blocks as the assembler is told of, where shared memory allows them."""
    problem = square(aligned)
    of_thread, fours = config.tm * config.tn, by_fours(SIMT.family, problem)
    most = budgets.simt_registers(of_thread, fours or config.stages > 0, config.threads)
    blocks = budgets.REGISTERS_OF_SM // (config.threads * most)
    assert fours == aligned
    assert objections(SIMT, problem, config, {}, says({"MOST_REGISTERS": most, "RESIDENT": blocks})) == ""
    assert resident(SIMT, config, problem, chip("h200")) <= blocks
