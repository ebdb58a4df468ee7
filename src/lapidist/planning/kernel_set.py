"""The candidate by one binary of a class' set, or by the best of a few. Other binaries are not weighed."""

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
from lapidist.planning.cost_table import LAUNCH_SECONDS, Candidate, CostTable, as_computed
from lapidist.planning.fitted_times import corrected, effects
from lapidist.problems.compile_key import of_kind
from lapidist.problems.problem import Problem
from lapidist.schedule.schedule_options import CLUSTER, NONE, TURNSTILE, ScalarOption, ScheduleOption
from lapidist.schedule.schedule_options import SEPARATE as SEPARATELY
from lapidist.schedule.sharing_choice import PLANNED

# A variant's number. Bit 0: blocks read a schedule. Bit 1: separate blocks reduce. Bit 2: two blocks fit on
# an SM. From bit 3 on: peers in a cluster minus one. From bit 7 on: rows of A in 16s.
SEPARATE, TWO_BLOCKS, PEERS, MOST_PEERS, ROWS = 2, 4, 8, 16, 128


class Member(NamedTuple):
    """A binary of a class: its kernel, its knobs, and its variant, which says what else it is
    compiled with.
    """

    kernel: str
    config: Config
    variant: int = 0


class FastestSchedule(NamedTuple):
    """The time of a config with its best schedule, and a function that makes the candidate."""

    seconds: float
    candidate: Callable[[], Candidate]


# ---- the best of a few ----


def best_of(members: Sequence[Member], problem: Problem, device: Device) -> Candidate | None:
    """The fastest by the model; of equal ones the first in the kernel's list. None if the first member does
    not take the problem. All members' families must have models in plain numbers.
    """
    of_configs: dict[tuple[str, Config], list[int]] = {}
    for name, config, variant in members:
        of_configs.setdefault((name, config), []).append(variant)
    ranking: list[tuple[float, int, int, FastestSchedule]] = []
    kernels = list(dict.fromkeys(member.kernel for member in members))
    for (name, config), variants in of_configs.items():
        kernel, computed = kernel_named(name), as_computed(problem, config)
        options = options_of(kernel, config, variants, computed, device)
        if not ranking and all(variant_of(option) != variants[0] for option in options):
            return None
        if options:
            fastest = fastest_schedule(kernel, config, options, computed, device)
            index = index_in_list(kernel, problem.math)[config]
            ranking.append((fastest.seconds, kernels.index(name), index, fastest))
    return min(ranking, key=itemgetter(0, 1, 2))[-1].candidate()


@lru_cache(maxsize=64)
def index_in_list(kernel: Kernel, math: str) -> dict[Config, int]:
    """The index of each config in the kernel's list."""
    return {config: index for index, (config, _) in enumerate(kernel.configs_for(math))}


def options_of(
    kernel: Kernel, config: Config, variants: Collection[int], problem: Problem, device: Device
) -> list[ScalarOption]:
    """The schedules that binaries of these variants can run; none if they do not take the problem. `problem`:
    as the kernel computes it.
    """
    grid, family = grids_of(problem, config, kernel.family.walks_triangles), kernel.family
    schedules = family.scalar_schedules
    if schedules is None or grid.tiles > INT_LIMIT or not accepts(problem, kernel, config, device):
        return []
    reductions = {reduction for variant in variants for reduction in reductions_of(variant)}
    numbers = schedules.options_of_config(problem, kernel, config, device, reductions)
    variant_part = variant_of_config(problem, family, config)
    return [
        option
        for option in (ScalarOption(grid, option) for option in numbers)
        if variant_part + variant_of(option) in variants and option.region_iterations <= INT_LIMIT
    ]


def fastest_schedule(
    kernel: Kernel, config: Config, options: Sequence[ScalarOption], problem: Problem, device: Device
) -> FastestSchedule:
    model, row = kernel.family.scalar_model, config_alone(kernel, config, problem.math).scalar_row
    assert model is not None
    fitted = effects(problem, row, device)
    predicted = model.seconds_of_config(problem, kernel, config, device, options)
    ranking = []
    for index, (option, of_kernel) in enumerate(zip(options, predicted, strict=True)):
        seconds = LAUNCH_SECONDS + kernel.longer * of_kernel
        seconds = corrected(seconds, fitted, problem, device, option)
        ranking.append((seconds / model.worth_of_config(problem, kernel, option), index, seconds))
    _, index, seconds = min(ranking)
    best = options[index].option
    return FastestSchedule(seconds, lambda: candidate_of(kernel, config, best, problem, device, seconds))


def candidate_of(
    kernel: Kernel, config: Config, option: ScheduleOption, problem: Problem, device: Device, seconds: float
) -> Candidate:
    schedule = kernel.family.schedule_of(problem, kernel, config, device, option)
    return Candidate(kernel, config, schedule, seconds, None)


# ---- one ----


def candidate_by(
    member: Member, problem: Problem, device: Device, seconds: float | None = None
) -> Candidate | None:
    """The candidate by this binary with its best schedule; None if it does not take the problem. `seconds`:
    its time, if known: a binary with a single schedule then need not be weighed.
    """
    if seconds is not None and member.variant % SEPARATE == 0:
        return data_parallel_candidate(member, problem, device, seconds)
    kernel, config = kernel_named(member.kernel), member.config
    computed = as_computed(problem, config)
    options = options_of(kernel, config, (member.variant,), computed, device)
    if seconds is not None and len(options) == 1:
        return candidate_of(kernel, config, options[0].option, computed, device, seconds)
    if not options or kernel.family.scalar_model:
        if not options:
            return None
        return fastest_schedule(kernel, config, options, computed, device).candidate()
    with np.errstate(all="ignore"):
        row = config_alone(kernel, config, problem.math)
        table = CostTable(problem, row, device, PLANNED, np.ones(1, bool))
        table.narrow(variants(table) == member.variant)
        return table.candidate(0) if table.any else None


def data_parallel_candidate(
    member: Member, problem: Problem, device: Device, seconds: float
) -> Candidate | None:
    """The candidate by a binary whose blocks read no schedule and so compute whole tiles; None if it does not
    take the problem.
    """
    kernel, config = kernel_named(member.kernel), member.config
    computed, option = (
        as_computed(problem, config),
        kernel.family.data_parallel_option(kernel, config, device),
    )
    if (option.scheduled and option.launched) or not accepts(computed, kernel, config, device):
        return None
    if variant_of_config(computed, kernel.family, config) != member.variant:
        return None
    if kernel.clusters(computed, config) > INT_LIMIT:
        return None
    return candidate_of(kernel, config, option, computed, device, seconds)


# ---- what a binary is compiled with ----


def variant_of_config(problem: Problem, family: Family, config: Config) -> int:
    """The part of a variant's number that depends on the config alone."""
    two_blocks = bool(family.leaves_room(problem, config))
    return TWO_BLOCKS * two_blocks + ROWS * (a_rows(problem, family) // 16)


def variant_of(option: ScalarOption) -> int:
    """The part of a variant's number that depends on the schedule."""
    scheduled = option.sk_blocks > 0 or bool(option.scheduled and option.launched > 0)
    separate = option.reduction == SEPARATELY and option.reduction_blocks > 0
    return scheduled + SEPARATE * separate + PEERS * (option.cluster - 1)


@cache
def reductions_of(variant: int) -> frozenset[int]:
    """The reductions that a binary of this variant can run."""
    if variant // PEERS % MOST_PEERS:
        return frozenset((CLUSTER,))
    if variant & SEPARATE:
        return frozenset((SEPARATELY,))
    return frozenset((NONE, TURNSTILE) if variant & 1 else (NONE,))


def variants(table: CostTable) -> Any:
    """The variant of each schedule of each config."""
    options, rows = table.options, table.rows
    scheduled = (options.sk_blocks > 0) | ((options.scheduled != 0) & (options.launched > 0))
    two_blocks, few_rows = np.zeros((2, len(rows.configs)), int)
    for kernel, span, configs in rows.spans:
        two_blocks[span] = kernel.family.leaves_room(table.problem, configs)
        few_rows[span] = a_rows(table.problem, kernel.family)
    separate = SEPARATE * (options.reduction_blocks > 0)
    of_config = TWO_BLOCKS * two_blocks + ROWS * (few_rows // 16)
    return scheduled + separate + of_config + PEERS * (options.cluster - 1)


@of_kind
def accepts(problem: Problem, kernel: Kernel, config: Config, device: Device) -> bool:
    rows = config_alone(kernel, config, problem.math)
    with np.errstate(all="ignore"):
        return bool(rows.accepted(problem, device)[0])


@of_kind
def a_rows(problem: Problem, family: Family) -> int:
    """The rows of A that a kernel is compiled for; 0: for any number."""
    return facts_of(problem, family).macro("A_ROWS")
