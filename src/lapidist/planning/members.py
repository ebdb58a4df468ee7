"""A product by one binary of those that serve its class, or by the best of a few: nothing else is weighed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.columns import grids_of
from lapidist.kernels.family import Family
from lapidist.kernels.production import kernel_named
from lapidist.kernels.row import Kernel
from lapidist.kernels.rows import config_alone
from lapidist.kernels.rules.facts import facts_of
from lapidist.planning.weighed import LAUNCH_SECONDS, Candidate, Weighed, as_computed
from lapidist.problems.kinds import of_kind
from lapidist.problems.problem import Problem
from lapidist.schedule.grid import MOST
from lapidist.schedule.sharing import PLANNED
from lapidist.schedule.ways import CLUSTER, NONE, TURNSTILE, OneWay, Way
from lapidist.schedule.ways import SEPARATE as SEPARATELY

SEPARATE, BESIDE, PEERS, MOST_PEERS, ROWS = 2, 4, 8, 16, 128  # of a variant's number


class Member(NamedTuple):
    """A binary of a class: its kernel, its knobs, and the number of its variant."""

    kernel: str
    config: Config
    variant: int = 0


class Found(NamedTuple):
    """How long a config takes in its best way, and the candidate for that."""

    seconds: float
    candidate: Callable[[], Candidate]


Own = list[tuple[OneWay, Way]]  # ways that a binary knows


# ---- the best of a few ----


def best_of(members: Sequence[Member], problem: Problem, device: Device) -> Candidate | None:
    """The fastest by the model, of equal ones the first in the kernel's list; None where the first of them
    does not take the problem. All are of families that are weighed in numbers."""
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
    """Of its configs, in the kernel's list."""
    return {config: place for place, (config, _) in enumerate(kernel.configs_for(math))}


def ways_of(
    kernel: Kernel, config: Config, variants: Collection[int], problem: Problem, device: Device
) -> Own:
    """Those that binaries of these variants know; none where they do not take the problem. `problem`: as the
    kernel has it."""
    grid, family = grids_of(problem, config), kernel.family
    if family.ways_in_numbers is None or grid.tiles > MOST or not takes_it(problem, kernel, config, device):
        return []
    asked = {reduction for variant in variants for reduction in reductions_of(variant)}
    listed = family.ways_in_numbers.ways_of_one(problem, kernel, config, device, asked)
    every = [(OneWay(grid, way), way) for way in listed]
    of_all = variant_of_config(problem, family, config)
    return [
        each
        for each in every
        if of_all + variant_of(each[0]) in variants and each[0].region_iterations <= MOST
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
    """With this binary, in the best of the ways that it knows; None where it does not take the problem.
    `seconds`: what is said of it where it knows one way alone, which then need not be weighed."""
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
    """The same by a binary whose blocks ask no schedule: the one way that it knows, without columns."""
    kernel, config = kernel_named(member.kernel), member.config
    computed, way = as_computed(problem, config), kernel.family.whole(kernel, config, device)
    if (way.scheduled and way.launched) or not takes_it(computed, kernel, config, device):
        return None
    if variant_of_config(computed, kernel.family, config) != member.variant:
        return None
    if kernel.clusters(computed, config) > MOST:
        return None
    return candidate_of(kernel, config, way, computed, device, seconds)


# ---- what a binary is compiled with ----


def variant_of_config(problem: Problem, family: Family, config: Config) -> int:
    """The part of a variant's number that all ways of a config share."""
    beside = bool(family.beside_another(problem, config))
    return BESIDE * beside + ROWS * (a_rows(problem, family) // 16)


def variant_of(way: OneWay) -> int:
    """The part that a way adds."""
    scheduled = way.sk_blocks > 0 or bool(way.scheduled and way.launched > 0)
    separate = way.reduction == SEPARATELY and way.reduction_blocks > 0
    return scheduled + SEPARATE * separate + PEERS * (way.cluster - 1)


@cache
def reductions_of(variant: int) -> frozenset[int]:
    """Of such a binary, those that its ways may have."""
    if variant // PEERS % MOST_PEERS:
        return frozenset((CLUSTER,))
    if variant & SEPARATE:
        return frozenset((SEPARATELY,))
    return frozenset((NONE, TURNSTILE) if variant & 1 else (NONE,))


def variants(weighed: Weighed) -> Any:
    """For each way of each config the number of what its binary is compiled with beside the config: that
    blocks ask a schedule, that others add the parts, that two fit on a multiprocessor; how many peers are a
    cluster; and how many rows all of A has."""
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
    """That all of A has, where a kernel of its own is compiled for so few; else 0."""
    return facts_of(problem, family).macro("A_ROWS")
