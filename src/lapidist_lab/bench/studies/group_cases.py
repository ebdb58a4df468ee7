"""Grouped products that are measured: experts' layers of three models, forward and backward, and how long
their groups are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lapidist.calls.bound import Bound
from lapidist.calls.operation import Factors, Groups, Operation
from lapidist.dtypes import FP8, size_of
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import Operand, contiguous_strides
from lapidist.problems.problem import Problem
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part

FORWARD, TO_DATA, TO_WEIGHTS = "forward", "to data", "to weights"
EVEN, ZIPF, ONE = "even", "zipf", "one"
WAYS = {"forward": FORWARD, "data": TO_DATA, "weights": TO_WEIGHTS}
ROWS = (64, 512, 4096, 8192, 32768)  # of all groups together
DECODE = 64  # rows, of which most groups have one or none: the time is that of reading weights
ROWS_OF_TRAINING = 512  # gradients of weights are for these and more
TYPES = ("bfloat16", FP8[0])
FIRST_GPU = 0


class Layer(NamedTuple):
    """Weights of so many experts, from `k` features to `n`."""

    name: str
    experts: int
    k: int
    n: int


LAYERS = (
    Layer("Mixtral up", 8, 4096, 14336),
    Layer("Mixtral down", 8, 14336, 4096),
    Layer("Qwen3-30B up", 128, 2048, 1536),  # the gate beside it
    Layer("Qwen3-30B down", 128, 768, 2048),
    Layer("DeepSeek-V3 up", 256, 7168, 4096),
    Layer("DeepSeek-V3 down", 256, 2048, 7168),
)
MODELS = {name.partition("-")[0].lower(): name for name in ("Mixtral", "Qwen3-30B", "DeepSeek-V3")}


# ---- lengths ----


def even(groups: int, rows: int) -> list[int]:
    """Equal lengths; the first groups have one row more where rows are left over."""
    length, more = divmod(rows, groups)
    return [length + (group < more) for group in range(groups)]


def zipf(groups: int, rows: int) -> list[int]:
    """Lengths in proportion to 1 / i, in an order that is drawn once."""
    shares = [rows / rank / sum(1 / i for i in range(1, groups + 1)) for rank in range(1, groups + 1)]
    lengths = [int(share) for share in shares]
    by_remainder = sorted(range(groups), key=lambda group: lengths[group] - shares[group])
    for group in by_remainder[: rows - sum(lengths)]:
        lengths[group] += 1
    random.Random(groups).shuffle(lengths)
    return lengths


def all_in_one(groups: int, rows: int) -> list[int]:
    return [rows * (group == groups // 2) for group in range(groups)]


SPREADS: dict[str, Callable[[int, int], list[int]]] = {EVEN: even, ZIPF: zipf, ONE: all_in_one}


# ---- cases ----


@dataclass(frozen=True, slots=True)
class GroupCase(Case):
    """A layer's product in one of three ways. `batch` counts the groups; m, n and k are those of all rows
    together.
    """

    layer: str = ""
    way: str = FORWARD
    spread: str = EVEN

    @property
    def rows(self) -> int:
        """Rows of all groups together."""
        return self.k if self.way == TO_WEIGHTS else self.m

    @property
    def name(self) -> str:
        return f"{self.layer}, {self.way}, {self.spread}"

    @property
    def shape(self) -> str:
        return f"{self.rows} rows"

    @property
    def out_dtype(self) -> str:
        return "bfloat16"

    @property
    def element_bytes(self) -> int:
        return size_of(self.dtype)

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    def lengths(self, turn: int = 0) -> list[int]:
        """Rows of each group. Each turn gives them to other groups, so that other weights are read."""
        lengths = SPREADS[self.spread](self.batch, self.rows)
        turn %= self.batch
        return lengths[-turn:] + lengths[:-turn] if turn else lengths

    @property
    def groups_hit(self) -> int:
        return sum(length > 0 for length in self.lengths())

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of groups that have rows."""
        return self.groups_hit * self.k * self.n * self.element_bytes

    @property
    def set_bytes(self) -> int:
        """Bytes that one call reads and writes."""
        size, out_size = self.element_bytes, size_of(self.out_dtype)
        if self.way == TO_WEIGHTS:
            return self.k * (self.m + self.n) * size + self.batch * self.m * self.n * out_size
        return self.m * (self.k * size + self.n * out_size) + self.weight_bytes


def case_of(layer: Layer, way: str, rows: int, spread: str, math: str) -> GroupCase:
    """Forward B has k contiguous, as torch keeps weights. To data it is the same array."""
    more = {"batch": layer.experts, "layer": layer.name, "way": way, "spread": spread}
    if way == FORWARD:
        return GroupCase(rows, layer.n, layer.k, math, "rc", **more)  # type: ignore[arg-type]
    if way == TO_DATA:
        return GroupCase(rows, layer.k, layer.n, math, "rr", **more)  # type: ignore[arg-type]
    return GroupCase(layer.k, layer.n, rows, math, "cr", **more)  # type: ignore[arg-type]


def problem_of(case: GroupCase) -> Problem:
    """The problem that is planned: of arrays of these shapes, which need not exist."""
    weights = case.way == TO_WEIGHTS
    of_b = (case.k, case.n) if weights else (case.batch, case.k, case.n)
    of_d = (case.batch, case.m, case.n) if weights else (case.m, case.n)
    a = absent("a", (case.m, case.k), case.dtype, case.layout[0], 1)
    b = absent("b", of_b, case.dtype, case.layout[1], 2)
    d = absent("out", of_d, case.out_dtype, "r", 3)
    ends = absent("offsets", (case.batch,), "int32", "r", 4)
    factors = Factors()
    if case.math in FP8:
        scale_a = absent("scale_a", (case.m,), "float32", "r", 5)
        factors = Factors(scale_a, absent("scale_b", (case.batch, case.n), "float32", "r", 6))
    return Bound(a, b, None, d, Operation(groups=Groups(ends), factors=factors)).problem()


def absent(name: str, shape: tuple[int, ...], dtype: str, by: str, place: int) -> Operand:
    """An array that nobody reads, far from the others."""
    lines = shape if by == "r" else (*shape[:-2], shape[-1], shape[-2])
    operand = Operand(name, place << 48, lines, contiguous_strides(lines), dtype, FIRST_GPU, "torch", None)
    return operand if by == "r" else operand.transposed()


# ---- which of them ----

USUAL = (
    *((FORWARD, rows, spread) for rows in ROWS for spread in (ZIPF, EVEN)),
    *((FORWARD, rows, ONE) for rows in (DECODE, 8192)),
    *((way, rows, ZIPF) for way in (TO_DATA, TO_WEIGHTS) for rows in (8192, 32768)),
)


class Selection(NamedTuple):
    """What to measure. None: all of it; but where ways, rows and lengths are all None, the usual ones."""

    models: Sequence[str] | None = None
    ways: Sequence[str] | None = None
    rows: Sequence[int] | None = None
    spreads: Sequence[str] | None = None
    math: str = TYPES[0]
    part: Part = EVERY_CASE

    def cases(self) -> list[GroupCase]:
        """Layer by layer, since forward and to data use the same weights."""
        require_among("--dtype", [self.math], TYPES)
        models = [MODELS[name] for name in chosen("--case", self.models, tuple(MODELS))]
        layers = [layer for layer in LAYERS if layer.name.startswith(tuple(models))]
        every = [
            case_of(layer, way, rows, spread, self.math)
            for layer in layers
            for way, rows, spread in self.forms()
        ]
        if not every:
            raise ArgumentError(
                "--way: 8-bit floats are measured forward, gradients of weights from"
                f" {ROWS_OF_TRAINING} rows on; got neither. Leave --way or --rows out"
            )
        cases = every[self.part.skip :][: self.part.count]
        if not cases:
            raise ArgumentError(
                f"--skip: must leave something of {len(every)} cases; got {self.part.skip}. Skip less"
            )
        return cases

    def forms(self) -> list[tuple[str, int, str]]:
        """Ways with rows and lengths: 8-bit floats forward alone, gradients of weights of many rows."""
        ways = [WAYS[name] for name in chosen("--way", self.ways, tuple(WAYS))]
        spreads = chosen("--lengths", self.spreads, tuple(SPREADS))
        every: Sequence[tuple[str, int, str]] = USUAL
        if any(names is not None for names in (self.ways, self.rows, self.spreads)):
            every = [(way, rows, spread) for way in ways for rows in self.rows or ROWS for spread in spreads]
        return [
            (way, rows, spread)
            for way, rows, spread in every
            if (self.math not in FP8 or way == FORWARD) and (way != TO_WEIGHTS or rows >= ROWS_OF_TRAINING)
        ]


USUAL_CASES = Selection()


def chosen(option: str, names: Sequence[str] | None, choices: Sequence[str]) -> Sequence[str]:
    require_among(option, names or (), choices)
    return choices if names is None else names


def require_among(option: str, names: Sequence[str], choices: Sequence[str]) -> None:
    for name in names:
        if name not in choices:
            raise ArgumentError(
                f"{option}: must be among {', '.join(choices)}; got {name!r}. Name one of these"
            )
