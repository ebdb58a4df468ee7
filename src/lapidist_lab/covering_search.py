"""Choose the few binaries of covering.json, by the planner's model."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lapidist.device import Device
from lapidist.kernels.registry import KERNELS
from lapidist.planning.cost_regression import fitted, refined, terms
from lapidist.planning.cost_table import CostTable
from lapidist.planning.covering_sets import (
    FEW,
    PricedMember,
    PricedSet,
    ProductClass,
    nearly_as_cheap,
    pricing_of,
)
from lapidist.planning.kernel_set import Member, variants
from lapidist.planning.planner import grouped, weigh
from lapidist.problems.problem import Problem

MOST = 16  # binaries of a class
SEED, OTHER_SEED = 29, 7
LOW, HIGH = FEW, 8192  # extents, log-uniform; with few rows n and k up to twice that, like weights
# The set minimises the mean of (time over best time) ** POWER. With a lower power the worst shapes get
# slower, with a higher one the mean does.
POWER = 6
UNSERVED = 10.0  # time over best time of a shape that no binary of the set takes
EXCHANGES = 3  # rounds in which each binary may be replaced
PRODUCTION = tuple(kernel for kernel in KERNELS if kernel.kind == "production")


class Time(NamedTuple):
    """The model's time of a binary's best schedule. It is chosen by `counted`, in which shared tiles count as
    slower, since they must promise more."""

    counted: float
    seconds: float


Table = Mapping[Member, Time]  # the time of each binary for one problem
NEVER = Time(math.inf, math.inf)
Shape = tuple[int, int, int]


def shapes_of(product_class: ProductClass, count: int, seed: int = SEED) -> list[Shape]:
    """Random shapes, log-uniform in each extent: multiples of 16, or odd numbers; few rows may be any
    number."""
    draw = random.Random(seed)

    def extent(low: int, high: int) -> int:
        return round(math.exp(draw.uniform(math.log(low), math.log(high))))

    def shape() -> Shape:
        m, high = (extent(1, FEW - 1), 2 * HIGH) if product_class.few else (extent(LOW, HIGH), HIGH)
        n, k = extent(LOW, high), extent(LOW, high)
        if not product_class.aligned:
            return m if product_class.few else m | 1, n | 1, k | 1
        return (
            m if product_class.few and product_class.layout[0] == "r" else -(-m // 16) * 16,
            n // 16 * 16,
            k // 16 * 16,
        )

    return [shape() for _ in range(count)]


def problem_of(product_class: ProductClass, *shape: int) -> Problem:
    m, n, k = shape
    return product_class.problem(m, n, k)


def table_of(problem: Problem, device: Device) -> dict[Member, Time]:
    """The time of each binary that takes the problem."""
    times: dict[Member, Time] = {}
    for group in weigh(problem, device, grouped(PRODUCTION, problem.math)):
        for member, time in times_of(group) if group.any else ():
            if member not in times or time < times[member]:
                times[member] = time
    return times


def times_of(group: CostTable) -> list[tuple[Member, Time]]:
    numbers, counted = np.broadcast_to(variants(group), group.schedule_seconds.shape), group.counted()
    at = np.argwhere(np.isfinite(group.schedule_seconds) & group.accepted).tolist()
    rows = group.rows
    return [
        (
            Member(rows.kernels[column].name, rows.configs[column], int(numbers[way, column])),
            Time(float(counted[way, column]), float(group.schedule_seconds[way, column])),
        )
        for way, column in at
    ]


# ---- choosing ----


def times_over_best(tables: Sequence[Table]) -> tuple[list[Member], Any]:
    """Each binary's time over the best one's: a row for each shape, a column for each binary."""
    members = list(dict.fromkeys(member for table in tables for member in table))
    times = np.full((len(tables), len(members)), UNSERVED)
    column = {member: number for number, member in enumerate(members)}
    for row, table in enumerate(tables):
        best = min(time.counted for time in table.values())
        for member, time in table.items():
            times[row, column[member]] = min(time.counted / best, UNSERVED)
    return members, times


def chosen_columns(times: Any, most: int) -> list[int]:
    """The columns of the set: the most helpful ones one by one, then each replaced while that helps."""
    logs, chosen = np.log(times), list[int]()
    while len(chosen) < min(most, times.shape[1]):
        chosen.append(best_addition(logs, chosen))
    for _ in range(EXCHANGES):
        before = list(chosen)
        for place in range(len(chosen)):
            chosen[place] = best_addition(logs, chosen[:place] + chosen[place + 1 :])
        if chosen == before:
            break
    return sorted(set(chosen))


def best_addition(logs: Any, chosen: Sequence[int]) -> int:
    """The binary with which the remaining loss is smallest."""
    reached = logs[:, list(chosen)].min(axis=1, initial=math.log(UNSERVED))
    return int(np.exp(POWER * np.minimum(reached[:, None], logs)).mean(axis=0).argmin())


def find(tables: Sequence[Table], most: int = MOST) -> list[Member]:
    """The binaries that together come closest to the best one of each shape."""
    members, times = times_over_best(tables)
    return [members[column] for column in chosen_columns(times, most)]


def served(
    members: Sequence[Member], shapes: Sequence[Shape], tables: Sequence[Table], device: Device
) -> list[PricedMember]:
    """Each member with its prices and the largest shape that it serves best. Others are left out."""
    shape_by_member: dict[Member, Shape] = {}
    for shape, table in sorted(zip(shapes, tables, strict=True), key=lambda pair: math.prod(pair[0])):
        takers = [member for member in members if member in table]
        if takers:
            shape_by_member[min(takers, key=table.__getitem__)] = shape
    prices = prices_of(list(shape_by_member), shapes, tables, device)
    return [
        PricedMember(*member_and_shape, tuple(member_prices))
        for member_and_shape, member_prices in zip(shape_by_member.items(), prices, strict=True)
    ]


def prices_of(
    members: Sequence[Member], shapes: Sequence[Shape], tables: Sequence[Table], device: Device
) -> list[list[float]]:
    """Prices fitted to each binary's times, refined until choosing by them is hardly worse than by the
    model."""
    extents = np.array(shapes, float).T
    paid = np.array([terms(pricing_of(member, device), *extents).T for member in members])
    times = np.array([[table.get(member, NEVER) for member in members] for table in tables])[..., 0]
    timed = np.isfinite(times)
    prices = [fitted(paid[at, timed[:, at]], times[timed[:, at], at]) for at in range(len(members))]
    best = np.array([min(table.values()).seconds for table in tables])
    losses = (times / best[:, None]) ** POWER
    return [[float(f"{price:.4g}") for price in row] for row in refined(np.array(prices).T, paid, losses).T]


# ---- judging ----


class Loss(NamedTuple):
    """Times over those of the free choice."""

    geomean: float
    p99: float
    worst: float

    def __str__(self) -> str:
        return f"geomean {self.geomean:.3f}, p99 {self.p99:.2f}, worst {self.worst:.2f}"


def loss_of(
    product_class: ProductClass,
    members: Sequence[PricedMember],
    shapes: Sequence[Shape],
    tables: Sequence[Table],
    device: Device,
) -> Loss:
    """What a class' set loses on shapes, when each runs by the cheapest binary, or the best of the
    cheapest."""
    times, priced = [], PricedSet.of(members, device)
    for shape, table in zip(shapes, tables, strict=True):
        takes = [member_price for member_price in priced.cheapest_first(*shape) if member_price[0] in table]
        near = (
            table[member_price]
            for member_price in (nearly_as_cheap(takes, product_class.math) if takes else ())
        )
        times.append(min(UNSERVED, min(near, default=NEVER).seconds / min(table.values()).seconds))
    return Loss(float(np.exp(np.log(times).mean())), float(np.quantile(times, 0.99)), max(times))
