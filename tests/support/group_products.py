"""Grouped products for tests: drawn arrays of whole numbers, and what each group gives in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lapidist import machine
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of
from lapidist.calls.operation import USUAL_TYPES, Factors, Groups, Operation, Routing, Types
from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.dtypes import numpy_dtype
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Launch
from lapidist.planning.plans import make_plan
from lapidist.planning.workspace import Scratch
from lapidist.problems.ragged import FixedCuts

Array = np.ndarray[Any, Any]
H200 = chip("h200")
MORE = 2  # times as many rows has an output to which rows are scattered
UNTOUCHED = 77  # in outputs, where no group is


class GroupProduct(NamedTuple):
    a: Array
    b: Array
    ends: Array
    expected: Array  # zeros where no group is
    covered: slice | None  # rows or columns of the output that belong to groups
    index: Array | None = None  # of rows of a
    target: Array | None = None  # of rows of the output, which has more of them
    factors: Factors = Factors()
    out_dtype: str | None = None
    types: Types = USUAL_TYPES
    cuts: FixedCuts | None = None  # of k in every tile


def stretches(lengths: Sequence[int]) -> list[slice]:
    ends = np.cumsum(lengths)
    return [slice(int(end) - length, int(end)) for end, length in zip(ends, lengths, strict=True)]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, turned: bool) -> Array:
    """Whole numbers, summed exactly in every type; `turned`: the last two dimensions lie the other way."""
    lines = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
    found = rng.integers(-3, 4, lines).astype(numpy_dtype(dtype))
    return found.swapaxes(-1, -2) if turned else found


def group_product(
    rng: np.random.Generator,
    extent: str,
    lengths: Sequence[int],
    others: tuple[int, int],
    dtype: str = "float16",
    behind: int = 0,
    turned: tuple[bool, bool] = (False, False),
) -> GroupProduct:
    """`others`: the extents that groups do not cut, in the order m, n, k. `behind`: lines behind the last
    group, which are NaN in operands where the type has one.
    """
    total, count, parts = sum(lengths) + behind, len(lengths), stretches(lengths)
    ends = np.cumsum(lengths).astype(np.int32)
    last = sum(lengths)
    floats = np.dtype(numpy_dtype(dtype)).kind not in "iu"
    if extent == "m":
        n, k = others
        a, b = drawn(rng, (total, k), dtype, turned[0]), drawn(rng, (count, k, n), dtype, turned[1])
        expected = np.zeros((total, n))
        for number, part in enumerate(parts):
            expected[part] = a[part].astype("f8") @ b[number].astype("f8")
        tails = [a[last:]]
    elif extent == "n":
        m, k = others
        a, b = drawn(rng, (count, m, k), dtype, turned[0]), drawn(rng, (k, total), dtype, turned[1])
        expected = np.zeros((m, total))
        for number, part in enumerate(parts):
            expected[:, part] = a[number].astype("f8") @ b[:, part].astype("f8")
        tails = [b[:, last:]]
    else:
        m, n = others
        a, b = drawn(rng, (m, total), dtype, turned[0]), drawn(rng, (total, n), dtype, turned[1])
        expected = np.stack([a[:, part].astype("f8") @ b[part].astype("f8") for part in parts])
        tails = [a[:, last:], b[last:]]
    for tail in tails if floats else ():
        tail[...] = np.nan
    return GroupProduct(a, b, ends, expected, None if extent == "k" else slice(last))


def routed(
    rng: np.random.Generator, product: GroupProduct, gathers: bool = True, scatters: bool = True
) -> GroupProduct:
    """The same product of rows that lie anywhere: a's and the output's among as many others."""
    total = len(product.a)
    if gathers:
        index = rng.permutation(2 * total)[:total].astype(product.ends.dtype)
        a = drawn(rng, (2 * total, product.a.shape[1]), product.a.dtype.name, False)
        a[index] = product.a
        product = product._replace(a=a, index=index)
    if scatters:
        product = product._replace(target=rng.permutation(MORE * total)[:total].astype(product.ends.dtype))
    return product


def launched(
    product: GroupProduct, kernel: str | None, config: Config | None, device: Device
) -> tuple[Launch, Scratch | None, Array]:
    """The launch in the machine, its workspace, and its output."""
    routing = Routing(product.index, None, product.target)
    operation = Operation(
        types=product.types, groups=Groups(product.ends), routing=routing, factors=product.factors
    )
    out = (
        None
        if product.target is None
        else np.empty((MORE * len(product.target), product.b.shape[-1]), product.out_dtype or product.a.dtype)
    )
    bound = Bound(product.a, product.b, None, out, operation)
    problem = bound.problem()
    if product.cuts is not None:
        ragged = problem.modes.ragged
        assert ragged is not None
        modes = replace(problem.modes, ragged=ragged._replace(cuts=product.cuts))
        problem = replace(problem, modes=modes)
    plan = make_plan(problem, device, kernel and kernel_named(kernel), config)
    result, target = output_of(bound)
    result[...] = UNTOUCHED
    scratch = Scratch(plan) if plan.workspace_bytes else None
    more = {"extra_pointers": bound.extra_pointers, "extras": bound.extras, "workspace": scratch}
    return plan.launch(bound.a, bound.b, None, target, 1.0, 0.0, **more), scratch, result


def run_sanitized(
    product: GroupProduct, kernel: str | None, config: Config | None, seed: int | None, device: Device = H200
) -> Array:
    """The product in the machine, with races, bounds and waits watched in an order that the seed draws.
    Without a seed bounds alone are.
    """
    launch, scratch, result = launched(product, kernel, config, device)
    # blocks that share tiles wait for those of lower numbers, which a chip starts first
    waits = {"residency": launch.grid[0]} if scratch else {}
    machine.run(launch, sanitize=seed is not None, seed=seed, counting=False, **waits)
    if scratch:
        scratch.require_zero_flags()
    return result


def run_cut(product: GroupProduct, config: Config, seed: int | None, device: Device) -> tuple[Array, int]:
    """As `run_sanitized` does, by wgmma; and how many parts of tiles left their sums to another block."""
    launch, scratch, result = launched(product, "wgmma", config, device)
    assert scratch is not None
    machine.run(launch, sanitize=seed is not None, seed=seed, counting=False, residency=launch.grid[0])
    scratch.require_zero_flags()
    left = ~np.isnan(scratch.partials).reshape(-1, config.bm * config.bn // 2).any(axis=1)
    return result, int(left.sum())


def require_right(product: GroupProduct, found: Array) -> None:
    """Every group is right, and what belongs to none was left."""
    if product.target is not None:
        rest = np.delete(found, product.target[: product.ends[-1]], axis=0)
        assert (rest == UNTOUCHED).all()
        found = found[product.target]
    if product.covered is None:
        assert np.array_equal(found.astype("f8"), product.expected)
        return
    rows = product.b.ndim == 3
    part = (product.covered,) if rows else (slice(None), product.covered)
    rest = slice(product.covered.stop, None)
    behind = (rest,) if rows else (slice(None), rest)
    assert np.array_equal(found[part].astype("f8"), product.expected[part])
    assert (found[behind] == UNTOUCHED).all()
