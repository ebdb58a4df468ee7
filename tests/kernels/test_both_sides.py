"""Both sides of each limit: what the device code asserts of a config, a rule refuses before.

Each static_assert of the sources stands in one of two tables. LIMITS has those that a config can break: on
one side the source compiles, on the other a rule says why not, and so does the compiler. OWN has those that
no config reaches, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from front_end import objections
from lapidist.build.compiler import CUDA_SOURCES
from lapidist.config import Config
from lapidist.device import chip
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.kernels.rules.problem_facts import facts_of
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing
from lapidist_lab.sass.analysis import sample_problem
from source_limits import LIMITS, Limit, Samples

H200 = chip("h200")

# ---- the sources ----


def asserts(path: Path) -> Iterator[str]:
    """The words of each static_assert."""
    yield from re.findall(r'static_assert\((?:[^"]*?),\s*"((?:[^"\\]|\\.)*)"\s*\)', path.read_text())


@cache
def asserted() -> dict[str, set[str]]:
    """The words of all, with the files that have them."""
    found: dict[str, set[str]] = {}
    for path in sorted(CUDA_SOURCES.rglob("*.cu*")):
        for words in asserts(path):
            found.setdefault(words, set()).add(str(path.relative_to(CUDA_SOURCES)))
    return found


def test_no_static_assert_is_overlooked() -> None:
    counted = sum(
        len(re.findall(r"\bstatic_assert\(", each.read_text())) for each in CUDA_SOURCES.rglob("*.cu*")
    )
    assert counted == sum(len(list(asserts(each))) for each in CUDA_SOURCES.rglob("*.cu*")) > 150


# ---- those that no config reaches ----

OWN = {
    "TMA swizzles lines of 32, 64 and 128 bytes": "patch_columns gives no others",
    "one store": "the type of a cluster's piece",
    "one load": "the type of a cluster's piece",
    "cp.async knows 4, 8 and 16 bytes": "sources pass the size of a Four, or of a chunk",
    "used for doubles": "Movers of double pass one element, or a chunk",
    "copies fill a block of rows": "streamed_config has 16 and more of groups, and others are not gathered",
    "registers hold two sets of sums": "streamed_config has factors first in blocks of more than NARROW",
    "factors are not rounded themselves": "takes_wide_blocks has them by factors of x's type alone",
    "vectors fill a chunk": "vector_width gives powers of two up to a chunk",
    "rows that are gathered lie along k": "in_modes has them by elements where they lie otherwise",
    "the lines of A's map are what is ragged": "refuse_groups of wgmma says so",
    "the lines of B's map are": "the same",
    "the lines of D's map are": "the same",
    "groups cut operands between their lines": "refuse_groups of sgemm says so",
    "all groups have one k": "parts_of_tiles says so, and ways_of for fixed parts",
    "the device decides where k is cut, or the host": "part_macros says so",
    "tiles fill squares": "tiles_of_triangle says so",
    "tiles come in this order": "tiles_of_triangle and config_macros of wgmma say so",
    "rows arrive of one plain matrix": "refuse_arrivals of wgmma says so",
    "owners have rows of one plain matrix": "refuse_owners of wgmma says so",
    "sums travel as they are": "the same",
    "what is stored twice is computed once": "stores_both_halves says so",
    "lines are made of 2 or 4 bytes an element, and leave by TMA": "the same",
    "the mirror image is cut as patches are": "the same",
    "threads share the square evenly": "tile_for gives no others",
    "what a kernel has without asking": "the same",
    "threads share a stage evenly": "the same",
    "warps have whole products": "the same",
    "lines have 16 numbers, which swizzles permute": "the same",
    "sums are joined in the place of the stages": "the same",
    "each block has whole rows, which start on 16 bytes": "the same",
    "codes are exact in the type of x, and groups have whole instructions": "require_exact says so",
    "sums lie where stages were": "streamed_config has room for them",
    "rows are found by the groups' ends": "takes_modes of wgmma says so",
    "a row is copied as it lies": "refuse_groups of wgmma says so",
    "all warps of the producer copy rows": "loaders has one where rows are gathered",
    "a warp is left that finds tiles": "loaders has three where groups have no indices",
    "C would lie where D does": "scatters says so",
    "a bit for each": "a thread of sgemm has sixteen rows",
    "a row is eight sums": "reductions have columns of eight where sgemm's rule leaves TN alone",
    "16 columns of both rows": "hopper.py refuses the only tile of eight columns more",
    "a row is made of whole pieces": "threads have whole Fours, warps whole Eights",
    "a word is a sum": "asked where the output has the type of sums",
    "a case for each part": "the registers of a thread hold fewer sums",
    "a warp that loads would find the phase before the last one complete": "loaders never exceed stages",
    "C is read as D is written, or one by one": "Mma.macros says so",
    "factors that change along k multiply promoted sums": "calls refuse promote=False beside such factors",
    "wgmma transposes 16-bit types only: of others, k must touch; A goes by registers": "mn_major says so",
}

# ---- those that a config can break ----


def cases() -> Iterator[tuple[Limit, Kernel]]:
    """Each limit with each kernel that has it."""
    for limit in LIMITS:
        named = [kernel_named(name) for name in limit.kernels.split()]
        for kernel in named or [kernel for kernel in KERNELS if says(kernel, asserted()[limit.words])]:
            yield limit, kernel


def says(kernel: Kernel, files: set[str]) -> bool:
    """In its source, or in the parts of that: they lie in a folder of its name."""
    parts = kernel.source.removesuffix(".cu") + "/"
    return any(each == kernel.source or each.startswith(parts) for each in files)


def test_each_static_assert_has_its_rule() -> None:
    assert {*OWN, *(limit.words for limit in LIMITS)} == set(asserted())


def test_each_limit_is_that_of_a_kernel() -> None:
    assert {limit.words for limit, _ in cases()} == {limit.words for limit in LIMITS}


# ---- both sides ----


def refusals(kernel: Kernel, problem: Problem, config: Config, sharing: Sharing) -> list[str]:
    """All that is said of it."""
    facts = facts_of(problem, kernel.family)
    broken = [rule.words(config, facts) for rule in kernel.all_rules if not holds(rule, config, facts)]
    whole = kernel.refuse(problem, config, H200)
    if whole is None and sharing is not PLANNED:
        try:
            make_plan(problem, H200, kernel, config, sharing)
        except (ArgumentError, RefusalError) as error:
            return [str(error)]
    return [] if whole is None else [whole, *broken]


def holds(rule: Any, config: Config, facts: Any) -> bool:
    """What divides by nothing has a rule before it that is broken."""
    try:
        return bool(rule.holds(config, facts))
    except ZeroDivisionError:
        return True


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("limit", "kernel"), [*cases()], ids=[f"{kernel.name}: {limit.words[:40]}" for limit, kernel in cases()]
)
def test_the_rule_and_the_source_say_the_same(limit: Limit, kernel: Kernel) -> None:
    math = limit.math or kernel.types.maths[0]
    start = limit.start or kernel.config_for(math)
    samples = Samples(sample_problem(kernel, math), sample_problem(kernel, math, aligned=False))
    problem, wrong = (
        limit.problem(samples),
        limit.outside(start) if callable(limit.outside) else limit.outside,
    )
    outside = replace(start, **wrong)
    assert any(re.search(limit.said, each) for each in refusals(kernel, problem, outside, limit.sharing))
    assert limit.words in objections(kernel, problem, outside, limit.macros)
    problem, inside = (limit.within or limit.problem)(samples), replace(start, **(limit.inside or {}))
    sharing, macros = (limit.sharing, limit.macros) if wrong else (PLANNED, {})
    assert refusals(kernel, problem, inside, sharing) == []
    assert objections(kernel, problem, inside, macros) == ""
