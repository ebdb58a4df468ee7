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
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from lapidist.config import Config
from lapidist.device import Device
from lapidist.dtypes import FP8
from lapidist.kernels.production import kernel_named
from lapidist.kernels.row import Kernel
from lapidist.planning.members import MOST_PEERS, PEERS, SEPARATE, Member, best_of, by_member
from lapidist.planning.prices import Lot, Offer, cheapest_first
from lapidist.planning.sum_orders import adds_bias_alone
from lapidist.planning.weighed import Candidate
from lapidist.problems.kinds import of_kind
from lapidist.problems.problem import VECTOR_BYTES, Problem, dense_problem
from lapidist.problems.scaling import AS_THEY_ARE

FILE = Path(__file__).with_name("covering.json")
CAPABILITY = (9, 0)  # of the chips that the sets were chosen for
# types whose binaries have the same knobs, by the one that the sets are kept for
ALIKE = {"float16": "bfloat16", "float8_e5m2": "float8_e4m3fn", "uint8": "int8"}
MATHS = ("bfloat16", "float32", "tf32", "float64", "float8_e4m3fn", "int8")
LAYOUTS = ("rr", "rc", "cr")  # of A and B: as they come, a layer times its weights, a gradient of weights
ALIGNED = (VECTOR_BYTES,) * 4  # A, B, C and D
FEW = 128  # rows: with fewer, other binaries are the best
LEAST = 64  # of the other extents
# Prices err by a tenth. Binaries that take up to so many times as long by them as the cheapest are weighed by
# the model: of its kernel, all at once, and of others, for which all is found once more. Where tensor cores
# multiply there are too many ways for that.
NEAR = {"float32": (1.15, 1.03), "float64": (1.15, 1.03)}


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


class Kept(NamedTuple):
    """A member, the largest of the shapes of which it is the best of its set, and its prices."""

    member: Member
    shape: tuple[int, int, int]
    prices: tuple[float, ...]


# ---- what is kept ----


@cache
def read() -> tuple[list[Any], dict[ProductClass, tuple[Any, ...]]]:
    """covering.json: its configs, and its sets by their class."""
    content = json.loads(FILE.read_text())
    sets = {ProductClass(*each["class"]): fixed(each["members"]) for each in content["sets"]}
    return content["configs"], sets


def fixed(value: Any) -> Any:
    """Tuples in place of lists: Python's garbage collector stops walking tuples that hold only numbers."""
    return tuple(map(fixed, value)) if isinstance(value, list) else value


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
