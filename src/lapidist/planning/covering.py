"""A few binaries that serve every shape of a class nearly as well as all of them would.

A class is what binaries are compiled for: types, layouts, whether all lines start on 16 bytes, few rows or
many. Of a class most binaries are the best of some shapes, and few are much better than another one.
`lapidist cover` chooses by the planner's model (cover.py) and writes covering.json; `lapidist warm` compiles
that. With C, or a bias, the same knobs make other binaries, which serve as well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cache, lru_cache
from itertools import product
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import Device
from lapidist.dtypes import FP8
from lapidist.kernels.columns import grids_of
from lapidist.kernels.family import Family, InNumbers
from lapidist.kernels.production import kernel_named
from lapidist.kernels.row import Kernel
from lapidist.kernels.rows import config_alone
from lapidist.kernels.rules.facts import facts_of
from lapidist.planning.planner import grouped
from lapidist.planning.prices import Lot, Offer, cheapest_first
from lapidist.planning.sum_orders import adds_bias_alone
from lapidist.planning.weighed import LAUNCH_SECONDS, Candidate, Weighed, as_computed
from lapidist.problems.kinds import of_kind
from lapidist.problems.problem import VECTOR_BYTES, Problem, dense_problem
from lapidist.problems.scaling import AS_THEY_ARE
from lapidist.schedule.grid import MOST
from lapidist.schedule.sharing import PLANNED
from lapidist.schedule.ways import SEPARATE as SEPARATELY
from lapidist.schedule.ways import OneWay

FILE = Path(__file__).with_name("covering.json")
CAPABILITY = (9, 0)  # of the chips that the sets were chosen for
# types whose binaries have the same knobs, by the one that the sets are kept for
ALIKE = {"float16": "bfloat16", "float8_e5m2": "float8_e4m3fn", "uint8": "int8"}
MATHS = ("bfloat16", "float32", "tf32", "float64", "float8_e4m3fn", "int8")
LAYOUTS = ("rr", "rc", "cr")  # of A and B: as they come, a layer times its weights, a gradient of weights
ALIGNED = (VECTOR_BYTES,) * 4  # A, B, C and D
FEW = 128  # rows: with fewer, other binaries are the best
LEAST = 64  # of the other extents
SEPARATE, BESIDE, PEERS, MOST_PEERS, ROWS = 2, 4, 8, 16, 128  # of a variant's number
# Prices err by a tenth. Binaries that take up to so many times as long by them as the cheapest are weighed by
# the model: of its kernel, all at once, and of others, for which all is found once more. Where tensor cores
# multiply there are too many ways for that.
NEAR = {"float32": (1.15, 1.03)}


class ProductClass(NamedTuple):
    """Products that the same binaries may serve."""

    math: str
    layout: str  # of A and B
    aligned: bool
    few: bool  # rows
    out: str = ""  # the type of D, where it is not the usual one

    def __str__(self) -> str:
        lines = "aligned" if self.aligned else "ragged"
        return f"{self.math} {self.layout} {lines}{', few rows' * self.few}{self.out and f', to {self.out}'}"

    def problem(self, m: int, n: int, k: int, math: str = "") -> Problem:
        """One of them; `math`: a type that it stands for, too."""
        return dense_problem(m, n, k, math or self.math, self.layout, self.out)


# Of ragged products with few rows, each 16 rows compile a kernel of their own.
KINDS = ((True, False), (False, False), (True, True))
# Models store products of 8-bit floats as 16 bits: tiles pay less for D, so others are the best.
OUTS = *((math, "") for math in MATHS), ("float8_e4m3fn", "bfloat16")
CLASSES = tuple(
    ProductClass(math, layout, *kind, out) for (math, out), layout, kind in product(OUTS, LAYOUTS, KINDS)
)


class Member(NamedTuple):
    """A binary of a class: its kernel, its knobs, and the number of its variant."""

    kernel: str
    config: Config
    variant: int = 0


class Kept(NamedTuple):
    """A member, the largest of the shapes of which it is the best of its set, and its prices."""

    member: Member
    shape: tuple[int, int, int]
    prices: tuple[float, ...]


# ---- what is kept ----


@cache
def read() -> tuple[list[Any], dict[ProductClass, list[Any]]]:
    """covering.json: its configs, and its sets by their class."""
    content = json.loads(FILE.read_text())
    return content["configs"], {ProductClass(*each["class"]): each["members"] for each in content["sets"]}


@cache
def config_kept(number: int) -> tuple[str, Config]:
    kernel, knobs = read()[0][number]
    return kernel, Config(**knobs)


@cache
def members_of(own: ProductClass) -> tuple[Kept, ...]:
    """The set of one class: most processes need few."""
    return tuple(
        Kept(Member(*config_kept(number), variant), tuple(shape), tuple(prices))
        for number, variant, shape, prices in read()[1].get(own, ())
    )


def kept() -> dict[ProductClass, tuple[Kept, ...]]:
    """The sets of all classes."""
    return {own: members_of(own) for own in read()[1]}


def write(sets: Mapping[ProductClass, Sequence[Kept]], path: Path = FILE) -> None:
    """A line a config, which many sets have, and a line a binary."""
    used = [each.member[:2] for members in sets.values() for each in members]
    numbers = {each: number for number, each in enumerate(dict.fromkeys(used))}
    configs = [json.dumps([kernel, own_knobs(config)]) for kernel, config in numbers]
    entries = []
    for own, members in sets.items():
        rows = [[numbers[each.member[:2]], each.member.variant, each.shape, each.prices] for each in members]
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        entries.append(f'{{"class": {json.dumps(own)}, "members": [\n  {lines}]}}')
    parts = (lines_of(name, each) for name, each in (("configs", configs), ("sets", entries)))
    path.write_text("{" + ",\n".join(parts) + "}\n")


def lines_of(name: str, entries: Sequence[str]) -> str:
    return f'"{name}": [\n' + ",\n".join(entries) + "\n]"


def own_knobs(config: Config) -> dict[str, Any]:
    knobs = asdict(config)
    return {each.name: knobs[each.name] for each in fields(Config) if knobs[each.name] != each.default}


# ---- whose a problem is ----


def class_of(problem: Problem, device: Device) -> ProductClass | None:
    """None where no set was chosen for what is asked."""
    layout = problem.a.layout[0] + problem.b.layout[0]
    math, (asked, out) = problem.math, as_usual(problem)
    if (
        device.capability != CAPABILITY
        or problem.batch
        or layout not in LAYOUTS
        or not problem.d.lies("row")
        or problem.n < LEAST
        or problem.k < LEAST
        or said(without_bias(asked)) != usual(math)
    ):
        return None
    c = problem.c or problem.d
    alignments = problem.a.alignment, problem.b.alignment, problem.d.alignment, c.alignment
    return ProductClass(ALIKE.get(math, math), layout, alignments == ALIGNED, problem.m < FEW, out)


def as_usual(problem: Problem) -> tuple[Problem, str]:
    """Of 8-bit floats without what hardly changes which binary is the best: one factor an operand or a line.
    And the class' word for 16 bits that they are stored as."""
    if problem.dtype not in FP8:
        return problem, ""
    scaling, out = problem.scaling, ALIKE.get(problem.out_dtype, problem.out_dtype)
    if not (scaling.promoted or scaling.a.along_k or scaling.b.along_k):
        problem = replace(problem, scaling=AS_THEY_ARE)
    if out != ALIKE["float16"]:
        return problem, ""
    return replace(problem, out_dtype=usual(problem.math)[OUT]), out


def without_bias(problem: Problem) -> Problem:
    return replace(problem, fused=None) if adds_bias_alone(problem) else problem


said = attrgetter("dtype", "b_dtype", "out_dtype", "accumulator", "modes", "scaling", "fused")
OUT = 2  # the place of out_dtype there


@cache
def usual(math: str) -> tuple[Any, ...]:
    """What dense products of a type have in common."""
    found: tuple[Any, ...] = said(dense_problem(16, 16, 16, math))
    return found


# ---- which binary serves it ----


class Priced(NamedTuple):
    """The binaries of a class on a chip, with their prices."""

    members: tuple[Member, ...]
    offers: tuple[Offer, ...]

    @staticmethod
    def of(members: Sequence[Kept], device: Device) -> Priced:
        offers = tuple((lot_of(each.member, device), each.prices) for each in members)
        return Priced(tuple(each.member for each in members), offers)

    def cheapest_first(self, m: int, n: int, k: int) -> list[tuple[Member, float]]:
        """With the seconds that their prices tell."""
        return [(self.members[at], seconds) for seconds, at in cheapest_first(self.offers, m, n, k)]


def lot_of(member: Member, device: Device) -> Lot:
    kernel, config, variant = kernel_named(member.kernel), member.config, member.variant
    shares, peers = variant % SEPARATE == 1, variant // PEERS % MOST_PEERS + 1
    return Lot.of(kernel, config, shares, peers, device)


@of_kind
def serving(problem: Problem, device: Device) -> Priced | None:
    own = class_of(problem, device)
    return None if own is None else priced(own, device)


@lru_cache(maxsize=256)
def priced(own: ProductClass, device: Device) -> Priced | None:
    members = members_of(own)
    return Priced.of(members, device) if members else None


def best_at_hand(problem: Problem, device: Device) -> Candidate | None:
    """By the binary that serves its class best, of what `lapidist warm` compiles: the cheapest that takes it.

    Of those that prices cannot tell apart, it is the one that the model takes for the fastest. It says in
    which order k is summed, so it follows from the problem and the chip alone."""
    near = problem.math in NEAR
    return next((among_near if near else cheapest_at_hand)(problem, device), None)


def among_near(problem: Problem, device: Device) -> Iterator[Candidate]:
    """For each binary that takes the problem, the cheapest first, the best of those nearly as cheap."""
    ordered = offered(problem, device)
    for first, (member, seconds) in enumerate(ordered):
        near = nearly_as_cheap(ordered[first:], problem.math)
        several = len(near) > 1
        found = best_of(near, problem, device) if several else by_member(member, problem, device, seconds)
        if found is not None:
            yield found


def nearly_as_cheap(ordered: Sequence[tuple[Member, float]], math: str) -> list[Member]:
    """As the first of them."""
    (cheapest, least), (own, others) = ordered[0], NEAR.get(math, (1.0, 1.0))
    return [
        member
        for member, seconds in ordered
        if seconds <= (own if member.kernel == cheapest.kernel else others) * least
    ]


def best_of(members: Sequence[Member], problem: Problem, device: Device) -> Candidate | None:
    """The fastest by the model; None where the first of them does not take the problem."""
    found: list[tuple[float, Callable[[], Candidate]]] = []
    with np.errstate(all="ignore"):
        for name in {member.kernel: None for member in members}:
            own = [each for each in members if each.kernel == name]
            weigh = one_by_one if kernel_named(name).family.in_numbers else at_once
            quickest, takes_first = weigh(own, problem, device)
            if name == members[0].kernel and not takes_first:
                return None
            found += quickest
    return min(found, key=itemgetter(0))[1]()


Quickest = tuple[list[tuple[float, Callable[[], Candidate]]], bool]  # and whether the first takes the problem


def one_by_one(members: Sequence[Member], problem: Problem, device: Device) -> Quickest:
    """Of equal ones the first in the kernel's list."""
    every = [by_member(member, problem, device) for member in members]
    configs = [config for config, _ in kernel_named(members[0].kernel).configs_for(problem.math)]
    taken = [
        (each.seconds, configs.index(member.config), member.variant, each)
        for member, each in zip(members, every, strict=True)
        if each is not None
    ]
    best = min(taken, key=itemgetter(0, 1, 2), default=None)
    return [] if best is None else [(best[0], lambda: best[3])], every[0] is not None


def at_once(members: Sequence[Member], problem: Problem, device: Device) -> Quickest:
    weighed, takes_first = weighed_by(members, problem, device)
    quickest = weighed.quickest()
    if quickest is None:
        return [], takes_first
    seconds, place = quickest
    return [(seconds, lambda: weighed.candidate(place))], takes_first


def weighed_by(members: Sequence[Member], problem: Problem, device: Device) -> tuple[Weighed, bool]:
    """By these of a kernel's binaries, and whether the first takes the problem. To weigh all its configs
    takes no longer than two, one by one."""
    kernel, math = kernel_named(members[0].kernel), problem.math
    alone = len({member.config for member in members}) == 1
    rows = config_alone(kernel, members[0].config, math) if alone else grouped((kernel,), math)[0]
    weighed = Weighed(problem, rows, device, PLANNED)
    if not weighed.any:
        return weighed, False
    known, numbers = np.zeros_like(weighed.allowed), variants(weighed)
    for member in reversed(members):
        at = rows.configs.index(member.config)
        own = weighed.allowed[:, at] & (numbers[:, at] == member.variant)
        known[:, at] |= own
    weighed.narrow(known)
    return weighed, bool(np.count_nonzero(own)) and bool(weighed.taken[at])


def offered(problem: Problem, device: Device) -> list[tuple[Member, float]]:
    """The binaries of its class, the cheapest first."""
    known = serving(problem, device) if problem.n >= LEAST and problem.k >= LEAST else None
    return known.cheapest_first(problem.m, problem.n, problem.k) if known else []


def cheapest_at_hand(
    problem: Problem, device: Device, among: Callable[[Kernel, Config], bool] | None = None
) -> Iterator[Candidate]:
    """By each binary of its class, the cheapest first; `among`: by these kernels and configs alone."""
    for member, seconds in offered(problem, device):
        if among is None or among(kernel_named(member.kernel), member.config):
            found = by_member(member, problem, device, seconds)
            if found is not None:
                yield found


def by_member(
    member: Member, problem: Problem, device: Device, seconds: float | None = None
) -> Candidate | None:
    """With this binary, in the best of the ways that it knows; None where it does not take the problem.
    `seconds`: what is said of it where it knows one way alone, which then need not be weighed."""
    if seconds is not None and member.variant % SEPARATE == 0:
        return of_whole_tiles(member, problem, device, seconds)
    kernel, config = kernel_named(member.kernel), member.config
    computed = as_computed(problem, config)
    if not takes_it(computed, kernel, config, device):
        return None
    if kernel.family.in_numbers:
        return in_numbers(kernel.family.in_numbers, member, computed, device, seconds)
    with np.errstate(all="ignore"):
        weighed = Weighed(
            problem, config_alone(kernel, config, problem.math), device, PLANNED, np.ones(1, bool)
        )
        allowed = (weighed.allowed & (variants(weighed) == member.variant))[:, 0].tolist()
        if seconds is not None and allowed.count(True) == 1:
            weighed.settle(allowed.index(True), seconds)
        else:
            weighed.narrow(np.array(allowed)[:, None])
        return weighed.candidate(0) if weighed.any else None


def of_whole_tiles(member: Member, problem: Problem, device: Device, seconds: float) -> Candidate | None:
    """The same by a binary whose blocks ask no schedule: the one way that it knows, without columns."""
    kernel, config = kernel_named(member.kernel), member.config
    computed, way = as_computed(problem, config), kernel.family.whole(kernel, config, device)
    if (way.scheduled and way.launched) or not takes_it(computed, kernel, config, device):
        return None
    beside, few_rows = kernel.family.beside_another(computed, config), a_rows(computed, kernel.family)
    if BESIDE * bool(beside) + ROWS * (few_rows // 16) != member.variant:
        return None
    if kernel.clusters(computed, config) > MOST:
        return None
    schedule = kernel.family.schedule_of(computed, kernel, config, device, way)
    return Candidate(kernel, config, schedule, seconds, None)


def in_numbers(
    model: InNumbers, member: Member, problem: Problem, device: Device, seconds: float | None
) -> Candidate | None:
    """In the best of the ways that the binary knows. `problem`: as the kernel has it."""
    kernel, config = kernel_named(member.kernel), member.config
    ways = model.ways_of_one(problem, kernel, config, device, bool(member.variant & SEPARATE))
    grid = grids_of(problem, config)
    every = [(OneWay(grid, way), way) for way in ways]
    own = [
        each for each in every if variant_of(each[0]) == member.variant and each[0].region_iterations <= MOST
    ]
    if not own or grid.tiles > MOST:
        return None
    if seconds is None or len(own) > 1:
        needed = model.seconds_of_one(problem, kernel, config, device, [one for one, _ in own])
        asked = []
        for place, ((one, _), each) in enumerate(zip(own, needed, strict=True)):
            found = LAUNCH_SECONDS + kernel.longer * each
            asked.append((found / (kernel.worth if one.shares_tiles else 1.0), place, found))
        _, best, seconds = min(asked)
        own = own[best:]
    schedule = kernel.family.schedule_of(problem, kernel, config, device, own[0][1])
    return Candidate(kernel, config, schedule, seconds, None)


def variant_of(way: OneWay) -> int:
    """As `variants` has it, of a family whose blocks are alone and have no few rows."""
    scheduled = way.sk_blocks > 0 or bool(way.scheduled and way.launched > 0)
    return scheduled + SEPARATE * (way.reduction == SEPARATELY and way.reduction_blocks > 0)


@of_kind
def takes_it(problem: Problem, kernel: Kernel, config: Config, device: Device) -> bool:
    rows = config_alone(kernel, config, problem.math)
    with np.errstate(all="ignore"):
        return bool(rows.taken(problem, device)[0])


@of_kind
def a_rows(problem: Problem, family: Family) -> int:
    """That all of A has, where a kernel of its own is compiled for so few; else 0."""
    return facts_of(problem, family).macro("A_ROWS")


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
