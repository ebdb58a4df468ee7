"""Candidates by one binary of a class' set, or by the best of a few. Nothing else is weighed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.family import Family
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import config_alone
from lapidist.kernels.production import kernel_named
from lapidist.kernels.rules.problem_facts import facts_of
from lapidist.launch import INT_LIMIT
from lapidist.planning.cost_table import LAUNCH_SECONDS, Candidate, Weighed, as_computed
from lapidist.problems.compile_key import of_kind
from lapidist.problems.problem import Problem
from lapidist.schedule.schedule_options import CLUSTER, NONE, TURNSTILE, OneWay, Way
from lapidist.schedule.schedule_options import SEPARATE as SEPARATELY
from lapidist.schedule.sharing_choice import PLANNED

# A variant's number. Bit 0: blocks read a schedule. Bit 1: separate blocks reduce. Bit 2: two blocks fit on
# an SM. From bit 3 on: peers in a cluster minus one. From bit 7 on: rows of A in 16s.
SEPARATE, BESIDE, PEERS, MOST_PEERS, ROWS = 2, 4, 8, 16, 128


class Member(NamedTuple):
    """A binary of a class: its kernel, its knobs, and its variant, which says what else it is
    compiled with.
    """

    kernel: str
    config: Config
    variant: int = 0


class Found(NamedTuple):
    """The time of a config with its best schedule, and a function that makes the candidate."""

    seconds: float
    candidate: Callable[[], Candidate]


Own = list[tuple[OneWay, Way]]  # the schedules that a binary can run


# ---- the best of a few ----


def best_of(members: Sequence[Member], problem: Problem, device: Device) -> Candidate | None:
    """The fastest by the model; of equal ones the first in the kernel's list. None if the first member does
    not take the problem. All members' families must have models in plain numbers.
    """
    of_configs: dict[tuple[str, Config], list[int]] = {}
    for name, config, variant in members:
        of_configs.setdefault((name, config), []).append(variant)
    every: list[tuple[float, int, int, Found]] = []
    kernels = list(dict.fromkeys(member.kernel for member in members))
    for (name, config), variants in of_configs.items():
        kernel, computed = kernel_named(name), as_computed(problem, config)
        ways = ways_of(kernel, config, variants, computed, device)
        if not every and all(variant_of(one) != variants[0] for one, _ in ways):
            return None
        if ways:
            found = quickest(kernel, config, ways, computed, device)
            place = listed_at(kernel, problem.math)[config]
            every.append((found.seconds, kernels.index(name), place, found))
    return min(every, key=itemgetter(0, 1, 2))[-1].candidate()


@lru_cache(maxsize=64)
def listed_at(kernel: Kernel, math: str) -> dict[Config, int]:
    """The index of each config in the kernel's list."""
    return {config: place for place, (config, _) in enumerate(kernel.configs_for(math))}


def ways_of(
    kernel: Kernel, config: Config, variants: Collection[int], problem: Problem, device: Device
) -> Own:
    """The schedules that binaries of these variants can run; none if they do not take the problem. `problem`:
    as the kernel computes it.
    """
    grid, family = grids_of(problem, config), kernel.family
    if (
        family.ways_in_numbers is None
        or grid.tiles > INT_LIMIT
        or not takes_it(problem, kernel, config, device)
    ):
        return []
    asked = {reduction for variant in variants for reduction in reductions_of(variant)}
    listed = family.ways_in_numbers.ways_of_one(problem, kernel, config, device, asked)
    every = [(OneWay(grid, way), way) for way in listed]
    of_all = variant_of_config(problem, family, config)
    return [
        each
        for each in every
        if of_all + variant_of(each[0]) in variants and each[0].region_iterations <= INT_LIMIT
    ]


def quickest(kernel: Kernel, config: Config, ways: Own, problem: Problem, device: Device) -> Found:
    model = kernel.family.in_numbers
    assert model is not None
    needed = model.seconds_of_one(problem, kernel, config, device, [one for one, _ in ways])
    asked = []
    for place, ((one, _), each) in enumerate(zip(ways, needed, strict=True)):
        seconds = LAUNCH_SECONDS + kernel.longer * each
        asked.append((seconds / model.worth_of_one(problem, kernel, one), place, seconds))
    _, best, seconds = min(asked)
    return Found(seconds, lambda: candidate_of(kernel, config, ways[best][1], problem, device, seconds))


def candidate_of(
    kernel: Kernel, config: Config, way: Way, problem: Problem, device: Device, seconds: float
) -> Candidate:
    schedule = kernel.family.schedule_of(problem, kernel, config, device, way)
    return Candidate(kernel, config, schedule, seconds, None)


# ---- one ----


def by_member(
    member: Member, problem: Problem, device: Device, seconds: float | None = None
) -> Candidate | None:
    """The candidate by this binary with its best schedule; None if it does not take the problem. `seconds`:
    its time, if known: a binary with a single schedule then need not be weighed.
    """
    if seconds is not None and member.variant % SEPARATE == 0:
        return of_whole_tiles(member, problem, device, seconds)
    kernel, config = kernel_named(member.kernel), member.config
    computed = as_computed(problem, config)
    ways = ways_of(kernel, config, (member.variant,), computed, device)
    if seconds is not None and len(ways) == 1:
        return candidate_of(kernel, config, ways[0][1], computed, device, seconds)
    if not ways or kernel.family.in_numbers:
        return quickest(kernel, config, ways, computed, device).candidate() if ways else None
    with np.errstate(all="ignore"):
        weighed = Weighed(
            problem, config_alone(kernel, config, problem.math), device, PLANNED, np.ones(1, bool)
        )
        weighed.narrow(variants(weighed) == member.variant)
        return weighed.candidate(0) if weighed.any else None


def of_whole_tiles(member: Member, problem: Problem, device: Device, seconds: float) -> Candidate | None:
    """The same for a binary whose blocks read no schedule, and which therefore can only compute
    whole tiles.
    """
    kernel, config = kernel_named(member.kernel), member.config
    computed, way = as_computed(problem, config), kernel.family.whole(kernel, config, device)
    if (way.scheduled and way.launched) or not takes_it(computed, kernel, config, device):
        return None
    if variant_of_config(computed, kernel.family, config) != member.variant:
        return None
    if kernel.clusters(computed, config) > INT_LIMIT:
        return None
    return candidate_of(kernel, config, way, computed, device, seconds)


# ---- what a binary is compiled with ----


def variant_of_config(problem: Problem, family: Family, config: Config) -> int:
    """The part of a variant's number that depends on the config alone."""
    beside = bool(family.beside_another(problem, config))
    return BESIDE * beside + ROWS * (a_rows(problem, family) // 16)


def variant_of(way: OneWay) -> int:
    """The part of a variant's number that depends on the schedule."""
    scheduled = way.sk_blocks > 0 or bool(way.scheduled and way.launched > 0)
    separate = way.reduction == SEPARATELY and way.reduction_blocks > 0
    return scheduled + SEPARATE * separate + PEERS * (way.cluster - 1)


@cache
def reductions_of(variant: int) -> frozenset[int]:
    """The reductions that a binary of this variant can run."""
    if variant // PEERS % MOST_PEERS:
        return frozenset((CLUSTER,))
    if variant & SEPARATE:
        return frozenset((SEPARATELY,))
    return frozenset((NONE, TURNSTILE) if variant & 1 else (NONE,))


def variants(weighed: Weighed) -> Any:
    """The variant of each schedule of each config."""
    ways, rows = weighed.ways, weighed.rows
    scheduled = (ways.sk_blocks > 0) | ((ways.scheduled != 0) & (ways.launched > 0))
    beside, few_rows = np.zeros((2, len(rows.configs)), int)
    for kernel, span, configs in rows.spans:
        beside[span] = kernel.family.beside_another(weighed.problem, configs)
        few_rows[span] = a_rows(weighed.problem, kernel.family)
    separate = SEPARATE * (ways.reduction_blocks > 0)
    return scheduled + separate + BESIDE * beside + PEERS * (ways.cluster - 1) + ROWS * (few_rows // 16)


@of_kind
def takes_it(problem: Problem, kernel: Kernel, config: Config, device: Device) -> bool:
    rows = config_alone(kernel, config, problem.math)
    with np.errstate(all="ignore"):
        return bool(rows.taken(problem, device)[0])


@of_kind
def a_rows(problem: Problem, family: Family) -> int:
    """The rows of A that a kernel is compiled for; 0: for any number."""
    return facts_of(problem, family).macro("A_ROWS")
