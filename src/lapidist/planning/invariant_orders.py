"""The order in which k is summed where a row of D must have the same bits in every product.

It follows from n, k, the types, the layout of B and the chip's architecture alone, so all numbers of rows
have it. Kernels and configs of that order are then free. The rule:

  whole tiles   where they are predicted to take hardly longer than the free choice
  k in parts    for few columns and a long k: there whole tiles leave most of the chip idle at few rows. The
                number of parts is the one whose largest loss over all numbers of rows is the least

Batches, lists and groups of rows have the order of their product alone. Where groups cut columns or k, tiles
are whole, as the host does not know n or k.

Losses are the model's, of a dense product on the architecture's first chip in CHIPS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lapidist.device import CHIPS, Device
from lapidist.errors import RefusalError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.kernel_table import Rows
from lapidist.kernels.production import every_kernel
from lapidist.planning.cost_table import WHOLE_TILES, Candidate, CostTable
from lapidist.planning.planner import best_of, grouped, weigh
from lapidist.planning.same_sum_order import may_sum_alike, sum_order_of
from lapidist.planning.sum_orders import Cuts, SumOrder, ends_in_zeros
from lapidist.problems.matrix import dense_matrix
from lapidist.problems.modes import OF_ALL
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import COLS, DEPTH, FixedCuts
from lapidist.problems.scaling import LINES, NO, ONE, SQUARES, STRIPS, Scale, Scaling
from lapidist.schedule.sharing_choice import PLANNED, Reduction, Sharing

# Numbers of rows that are weighed, and how much longer than the free choice one order may take at each.
WORTH = {16: 0.10, 64: 0.10, 256: 0.05, 2048: 0.05, 8192: 0.05}
PARTS = 2, 4, 8  # of k
# A's kinds of factors, with those that a single row cannot tell apart as one.
OF_ROWS = {NO: NO, ONE: LINES, LINES: LINES, STRIPS: STRIPS, SQUARES: STRIPS}
REDUCTIONS: tuple[Reduction, ...] = ("cluster", "turnstile")


class Way(NamedTuple):
    """One way to the bits of an order: how blocks share tiles, its SumOrder, and a candidate that has it."""

    sharing: Sharing
    order: SumOrder
    like: Candidate


class Weighed(NamedTuple):
    """A way, and its largest loss, relative to what WORTH allows."""

    way: Way
    loss: float


def ways_of(problem: Problem, device: Device) -> tuple[Way, ...]:
    """The ways to the bits that a row has in all products like this one, however many rows these have."""
    asked = problem.exchanged() if problem.transposed else problem
    reference = reference_of(asked)
    if asked.modes.cuts(COLS) or asked.modes.cuts(DEPTH):  # the device alone knows n, or k
        return (whole_tiles(reference, chip_like(device)).way,)
    return ways_of_reference(reference, chip_like(device))


def with_fixed_cuts(problem: Problem, device: Device) -> Problem:
    """Groups of rows with the cuts of k that the dense product of each has. Other problems stay."""
    ragged = problem.modes.ragged
    if ragged is None:
        return problem
    way = ways_of(problem, device)[0]
    cuts = way.order.cuts
    if not isinstance(cuts, Cuts):
        return problem
    from_zero = cuts.reduction == "cluster" and way.order.unit != "wgmma"
    fixed = FixedCuts(len(cuts.cuts) + 1, way.like.config.bk, cuts.reduction, from_zero)
    return replace(problem, modes=replace(problem.modes, ragged=ragged._replace(cuts=fixed)))


def chip_like(device: Device) -> Device:
    """The chip that stands for all of an architecture: their numbers of SMs differ, and their memory."""
    return next((chip for chip in CHIPS.values() if chip.architecture == device.architecture), device)


# ---- the product that stands for all numbers of rows ----


def reference_of(problem: Problem) -> Problem:
    """A dense product with these columns and k, of one row, with what may decide about an order. `problem`:
    as the caller has it. Where rows come from and go to decides nothing, though fewer kernels can do that.
    Indices of rows do where there are no groups: no kernel on wgmma takes them.
    """
    n, k, scaling, modes = problem.n, problem.k, problem.scaling, problem.modes
    picked = dict(zip(("gather_a", "gather_b", "scatter_rows", "scatter_cols"), modes.picked, strict=True))
    d = dense_matrix(1, n, problem.out_dtype)
    return replace(
        problem,
        m=1,
        batch=(),
        a=dense_matrix(1, k, problem.dtype),
        b=dense_matrix(k, n, problem.b_dtype, problem.b.layout),
        c=None if problem.c is None else d,
        d=d,
        in_place=False,
        transposed=False,
        one_alpha=problem.c is None,
        fused=None,
        arrivals=None,
        owners=None,
        modes=replace(
            modes,
            **{name: OF_ALL if kind and modes.ragged is None else 0 for name, kind in picked.items()},
            index="int32",
            groups=None,
            arrays=0,
            scalars=False,
            guarded=False,
            ragged=None,
        ),
        scaling=Scaling(Scale(OF_ROWS[scaling.a.kind]), Scale(scaling.b.kind), scaling.promoted),
    )


def with_rows(reference: Problem, rows: int) -> Problem:
    a, d = reference.a.with_rows(rows), reference.d.with_rows(rows)
    return replace(reference, m=rows, a=a, d=d, c=None if reference.c is None else d)


# ---- orders, weighed ----


@lru_cache(maxsize=1024)
def ways_of_reference(reference: Problem, chip: Device) -> tuple[Way, ...]:
    whole = whole_tiles(reference, chip)
    if whole.loss <= 1 or whole.way.order.unit == "exact":
        return (whole.way,)
    sharings = [Sharing(split_k=parts, reduction=by) for parts in PARTS for by in REDUCTIONS]
    weighed = [whole, *(cut for sharing in sharings for cut in in_parts(whole.way, sharing, reference, chip))]
    return alike(min(weighed, key=lambda entry: entry.loss).way)


def alike(way: Way) -> tuple[Way, ...]:
    """This way, and others to the same bits. wgmma adds the parts of k to the first one, in their order: in
    a cluster as by turnstile.
    """
    cuts = way.order.cuts
    if not isinstance(cuts, Cuts) or way.order.unit != "wgmma":
        return (way,)
    orders = {by: replace(way.order, cuts=replace(cuts, reduction=by)) for by in REDUCTIONS}
    return tuple(Way(replace(way.sharing, reduction=by), order, way.like) for by, order in orders.items())


@lru_cache(maxsize=1024)
def whole_tiles(reference: Problem, chip: Device) -> Weighed:
    """The order of whole tiles whose largest loss is the least."""
    weighed = weighed_orders(reference, chip, PLANNED)
    if not weighed:
        raise RefusalError(
            f"invariant: no kernel computes whole tiles of {reference} on {chip.name}. Leave it out"
        )
    return min(weighed, key=lambda entry: entry.loss)


def in_parts(whole: Way, sharing: Sharing, reference: Problem, chip: Device) -> list[Weighed]:
    """The orders of the same unit that cut k so."""
    return weighed_orders(reference, chip, sharing, whole.order)


def weighed_orders(
    reference: Problem, chip: Device, sharing: Sharing, of_unit: SumOrder | None = None
) -> list[Weighed]:
    """The orders that every number of rows can have. `sharing`: PLANNED for whole tiles. `of_unit`: only
    kernels whose unit is that of this order.
    """
    losses: dict[SumOrder, list[float]] = {}
    like: dict[SumOrder, Candidate] = {}
    for rows, worth in WORTH.items():
        problem = with_rows(reference, rows)
        free = free_seconds(problem, chip)
        groups = groups_of(problem)
        if of_unit is not None:
            groups = tuple(group for group in groups if may_sum_alike(group, of_unit))
        best: dict[SumOrder, Candidate] = {}
        for candidate in firsts_of_orders(weigh(problem, chip, groups, sharing), sharing == PLANNED):
            order = sum_order_of(candidate, problem, chip)
            if order not in best or candidate.seconds < best[order].seconds:
                best[order] = candidate
        for order, candidate in best.items():
            losses.setdefault(order, []).append((candidate.seconds / free - 1) / worth)
            like.setdefault(order, candidate)
    return [
        Weighed(Way(sharing, order, like[order]), max(of_rows))
        for order, of_rows in losses.items()
        if len(of_rows) == len(WORTH) and (of_unit is None or order.unit == of_unit.unit)
    ]


@lru_cache(maxsize=1024)
def free_seconds(problem: Problem, chip: Device) -> float:
    """What the fastest order takes."""
    best = best_of(weigh(problem, chip, groups_of(problem)))
    return np.inf if best is None else best.seconds


def groups_of(problem: Problem) -> tuple[Rows, ...]:
    return grouped(tuple(kernel for kernel in every_kernel() if kernel.kind == "production"), problem.math)


def firsts_of_orders(tables: Sequence[CostTable], whole: bool) -> Iterator[Candidate]:
    """Of the configs that sum alike within a tile, the fastest. `whole`: with tiles that are not shared;
    else with the caller's schedule.
    """
    for table in tables:
        if not table.any:
            continue
        if whole:
            table.narrow((np.arange(len(table.allowed)) == WHOLE_TILES)[:, None])
        firsts: dict[Any, tuple[float, int]] = {}
        for kernel, span, _ in table.rows.spans:
            for at in range(*span.indices(len(table.rows.configs))):
                if table.accepted[at] and np.isfinite(table.seconds[at]):
                    key, entry = summing(kernel, table, at), (float(table.seconds[at]), at)
                    firsts[key] = min(firsts.get(key, entry), entry)
        for _, at in firsts.values():
            yield table.candidate(table.rows.positions[at])


def summing(kernel: Kernel, table: CostTable, at: int) -> tuple[Any, ...]:
    """What decides about the order of one config's sums."""
    config = table.rows.configs[at]
    return kernel, config.slices, config.bk, bool(ends_in_zeros(table.problem, kernel, config))
