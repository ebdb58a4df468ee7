"""A few binaries for each class of products, which serve all its shapes nearly as well as all binaries would.

A class is what binaries are compiled for: types, layouts, whether lines start on 16 bytes, few rows or
many. `lapidist cover` chooses them by the planner's model and writes covering.json; `lapidist warm` compiles
them. With C, or a bias, the same knobs make other binaries, which serve as well.
"""

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
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.production import kernel_named
from lapidist.planning.cost_regression import Offer, Pricing, cheapest_first
from lapidist.planning.cost_table import Candidate
from lapidist.planning.fitted_times import ALIKE
from lapidist.planning.kernel_set import MOST_PEERS, PEERS, SEPARATE, Member, best_of, candidate_by
from lapidist.planning.sum_orders import adds_bias_alone
from lapidist.problems.compile_key import of_kind
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.problem import Problem, dense_problem
from lapidist.problems.scaling import AS_THEY_ARE

FILE = Path(__file__).with_name("covering.json")
CAPABILITY = (9, 0)  # of the chips that the sets were chosen for
MATHS = ("bfloat16", "float32", "tf32", "float64", "float8_e4m3fn", "int8")
LAYOUTS = ("rr", "rc", "cr")  # of A and B: plain, a layer times its weights, a gradient of weights
FEW = 128  # rows: with fewer, other binaries are the best
LEAST = 64  # smallest n and k of a class
# Prices err by a tenth. So the model weighs all binaries whose price is at most the cheapest one's times this
# factor. The first number is for binaries of its kernel, the second for others, which take longer to weigh.
# Tensor-core kernels have too many schedules for that.
NEAR = {"float32": (1.08, 1.05), "float64": (1.15, 1.03)}
# On CUDA cores it matters which operands are packed, and hardly where rows of D start. Prices of ragged
# classes have both packed. With one of them as it lies the model knows better: 660x1418x2178 took 115 us on
# an H200 by the cheapest binary, and 101 by the model's choice.
BY_OPERANDS = ("float32",)


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
        """A product of this class; `math`: another type that the class also stands for."""
        return dense_problem(m, n, k, math or self.math, self.layout, self.out)


# (aligned, few rows). Ragged products with few rows are no class: each 16 rows compile a kernel of their own.
KINDS = ((True, False), (False, False), (True, True))
# Models store products of 8-bit floats in 16 bits. D then takes less time, so other tiles are the best.
OUTS = *((math, "") for math in MATHS), ("float8_e4m3fn", "bfloat16")
CLASSES = tuple(
    ProductClass(math, layout, *kind, out) for (math, out), layout, kind in product(OUTS, LAYOUTS, KINDS)
)


class PricedMember(NamedTuple):
    """A member, the largest shape for which it is the best of its set, and its prices."""

    member: Member
    shape: tuple[int, int, int]
    prices: tuple[float, ...]


# ---- the file ----


@cache
def read() -> tuple[list[Any], dict[ProductClass, tuple[Any, ...]]]:
    """covering.json: its configs, and its sets by their class."""
    content = json.loads(FILE.read_text())
    sets = {ProductClass(*entry["class"]): as_tuples(entry["members"]) for entry in content["sets"]}
    return content["configs"], sets


def as_tuples(value: Any) -> Any:
    """Nested lists as tuples: Python's garbage collector does not walk tuples that hold only numbers."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


@cache
def config_numbered(number: int) -> tuple[str, Config]:
    kernel, knobs = read()[0][number]
    return kernel, Config(**knobs)


@cache
def members_of(product_class: ProductClass) -> tuple[PricedMember, ...]:
    """The set of one class. Most processes need few classes."""
    return tuple(
        PricedMember(Member(*config_numbered(number), variant), tuple(shape), tuple(prices))
        for number, variant, shape, prices in read()[1].get(product_class, ())
    )


def all_sets() -> dict[ProductClass, tuple[PricedMember, ...]]:
    """The sets of all classes."""
    return {product_class: members_of(product_class) for product_class in read()[1]}


def write(sets: Mapping[ProductClass, Sequence[PricedMember]], path: Path = FILE) -> None:
    """Write a line for each config, which sets share, and a line for each binary."""
    used = [priced.member[:2] for members in sets.values() for priced in members]
    numbers = {config: number for number, config in enumerate(dict.fromkeys(used))}
    configs = [json.dumps([kernel, changed_knobs(config)]) for kernel, config in numbers]
    entries = []
    for product_class, members in sets.items():
        rows = [[numbers[member[:2]], member.variant, shape, prices] for member, shape, prices in members]
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        entries.append(f'{{"class": {json.dumps(product_class)}, "members": [\n  {lines}]}}')
    parts = (lines_of("configs", configs), lines_of("sets", entries))
    path.write_text("{" + ",\n".join(parts) + "}\n")


def lines_of(name: str, entries: Sequence[str]) -> str:
    return f'"{name}": [\n' + ",\n".join(entries) + "\n]"


def changed_knobs(config: Config) -> dict[str, Any]:
    values = asdict(config)
    return {field.name: values[field.name] for field in fields(Config) if values[field.name] != field.default}


# ---- the class of a problem ----


def class_of(problem: Problem, device: Device) -> ProductClass | None:
    """The class of a problem; None if no set was chosen for such problems."""
    layout = problem.a.layout[0] + problem.b.layout[0]
    math, (computed, out) = problem.math, as_usual(without_bias(problem))
    if (
        device.capability != CAPABILITY
        or problem.batch
        or layout not in LAYOUTS
        or not problem.d.lies("row")
        or problem.n < LEAST
        or problem.k < LEAST
        or properties(computed) != common_properties(math)
    ):
        return None
    inputs = problem.a.alignment == VECTOR_BYTES, problem.b.alignment == VECTOR_BYTES
    if math in BY_OPERANDS and inputs[0] != inputs[1]:
        return None
    c = problem.c or problem.d
    stored = math in BY_OPERANDS or problem.d.alignment == c.alignment == VECTOR_BYTES
    return ProductClass(ALIKE.get(math, math), layout, all(inputs) and stored, problem.m < FEW, out)


def as_usual(problem: Problem) -> tuple[Problem, str]:
    """For 8-bit floats, the problem without what hardly changes the best binary: factors by matrix or line,
    and a D of 16 bits. The second value is the class' name of that type.
    """
    if problem.dtype not in FP8:
        return problem, ""
    scaling, out = problem.scaling, ALIKE.get(problem.out_dtype, problem.out_dtype)
    if not (scaling.promoted or scaling.a.along_k or scaling.b.along_k):
        problem = replace(problem, scaling=AS_THEY_ARE)
    if out != ALIKE["float16"]:
        return problem, ""
    return replace(problem, out_dtype=common_properties(problem.math)[OUT]), out


def without_bias(problem: Problem) -> Problem:
    """A bias behind factors stays: compilers may fuse it with them, and the sums of such plans differ."""
    return replace(problem, fused=None) if adds_bias_alone(problem) else problem


properties = attrgetter("dtype", "b_dtype", "out_dtype", "accumulator", "modes", "scaling", "fused")
OUT = 2  # index of out_dtype in them


@cache
def common_properties(math: str) -> tuple[Any, ...]:
    """The properties that all dense products of a type share."""
    values: tuple[Any, ...] = properties(dense_problem(16, 16, 16, math))
    return values


# ---- the binary for a problem ----


class PricedSet(NamedTuple):
    """The binaries of a class on one chip, with their prices."""

    members: tuple[Member, ...]
    offers: tuple[Offer, ...]

    @staticmethod
    def of(members: Sequence[PricedMember], device: Device) -> PricedSet:
        offers = tuple((pricing_of(priced.member, device), priced.prices) for priced in members)
        return PricedSet(tuple(priced.member for priced in members), offers)

    def cheapest_first(self, m: int, n: int, k: int) -> list[tuple[Member, float]]:
        """The binaries with the seconds that their prices give, the fastest first."""
        return [(self.members[at], seconds) for seconds, at in cheapest_first(self.offers, m, n, k)]


def pricing_of(member: Member, device: Device) -> Pricing:
    kernel, config, variant = kernel_named(member.kernel), member.config, member.variant
    shares, peers = variant % SEPARATE == 1, variant // PEERS % MOST_PEERS + 1
    return Pricing.of(kernel, config, shares, peers, device)


@of_kind
def set_for(problem: Problem, device: Device) -> PricedSet | None:
    """The binaries that serve the problem's class; None: no set was chosen for it."""
    product_class = class_of(problem, device)
    return None if product_class is None else set_of_class(product_class, device)


@lru_cache(maxsize=256)
def set_of_class(product_class: ProductClass, device: Device) -> PricedSet | None:
    members = members_of(product_class)
    return PricedSet.of(members, device) if members else None


def best_of_class(problem: Problem, device: Device) -> Candidate | None:
    """The candidate by the best binary of the problem's class, which `lapidist warm` compiles.

    It fixes the order in which k is summed, so it must follow from the problem and the chip alone. Where
    prices are too close, the model decides.
    """
    candidates = candidates_by_model if problem.math in NEAR else candidates_by_price
    return next(candidates(problem, device), None)


def candidates_by_model(problem: Problem, device: Device) -> Iterator[Candidate]:
    """Candidates, the cheapest binary first. The model chooses each among those that are nearly as cheap."""
    ordered = cheapest_members(problem, device)
    for first, (member, seconds) in enumerate(ordered):
        near = nearly_as_cheap(ordered[first:], problem.math)
        if len(near) > 1:
            best = best_of(near, problem, device)
        else:
            best = candidate_by(member, problem, device, seconds)
        if best is not None:
            yield best


def nearly_as_cheap(ordered: Sequence[tuple[Member, float]], math: str) -> list[Member]:
    """The members that the prices cannot tell from the first one."""
    (cheapest, least), (of_kernel, of_other_kernels) = ordered[0], NEAR.get(math, (1.0, 1.0))
    return [
        member
        for member, seconds in ordered
        if seconds <= (of_kernel if member.kernel == cheapest.kernel else of_other_kernels) * least
    ]


def cheapest_members(problem: Problem, device: Device) -> list[tuple[Member, float]]:
    """The binaries of the problem's class, the cheapest first."""
    members = set_for(problem, device) if problem.n >= LEAST and problem.k >= LEAST else None
    return members.cheapest_first(problem.m, problem.n, problem.k) if members else []


def candidates_by_price(
    problem: Problem, device: Device, among: Callable[[Kernel, Config], bool] | None = None
) -> Iterator[Candidate]:
    """A candidate by each binary of the problem's class, the cheapest first. `among`: which kernels and
    configs may be used.
    """
    for member, seconds in cheapest_members(problem, device):
        if among is None or among(kernel_named(member.kernel), member.config):
            best = candidate_by(member, problem, device, seconds)
            if best is not None:
                yield best
