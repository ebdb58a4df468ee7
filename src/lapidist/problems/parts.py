"""A problem in parts that one launch can take."""

from __future__ import annotations

from math import prod

from lapidist.launch import INT_LIMIT
from lapidist.problems.problem import GRID_BATCH_LIMIT, Offsets, Problem

DIVISORS = 256  # so many numbers of rows are tried, to divide a long batch without a remainder


def parts_of(problem: Problem) -> list[tuple[Problem, Offsets]]:
    """The problem in parts that one launch can take, each with the elements to skip in A, B, C and D.

    A grid has two dimensions for a batch, of 65535 each, and products are counted with 32 bits. The host
    loops over the rest.
    """
    if len(problem.batch) > 2:
        inner = problem.with_batch(
            problem.batch[1:], [matrix.batch_strides[1:] for matrix in problem.all_matrices()]
        )
        return [
            (part, skipped(problem, 0, i, more))
            for i in range(problem.batch[0])
            for part, more in parts_of(inner)
        ]
    one_batch = len(problem.batch) == 1 and problem.fused is None
    if one_batch and GRID_BATCH_LIMIT < problem.batch[0] <= INT_LIMIT:
        return in_rows(problem, problem.batch[0])
    for dim, extent in enumerate(problem.batch):
        inner_products = max(1, prod(problem.batch[dim + 1 :]))
        most = INT_LIMIT if one_batch else min(GRID_BATCH_LIMIT, INT_LIMIT // inner_products)
        if extent > most:
            return in_chunks(problem, dim, max(1, most))
    return [(problem, nothing_skipped(problem))]


def nothing_skipped(problem: Problem) -> Offsets:
    return (0,) * (4 + (len(problem.fused.matrices()) if problem.fused else 0))


def in_rows(problem: Problem, extent: int) -> list[tuple[Problem, Offsets]]:
    """A long batch as one of two dimensions, and the products that those lack."""
    least = -(-extent // GRID_BATCH_LIMIT)
    rows = next((rows for rows in range(least, least + DIVISORS) if extent % rows == 0), least)
    in_row = extent // rows
    remainder = extent - rows * in_row
    matrices = problem.all_matrices()
    steps = [matrix.batch_strides[0] for matrix in matrices]
    strides: list[tuple[int, ...]] = [(in_row * step, step) for step in steps]
    parts = [(problem.with_batch((rows, in_row), strides), nothing_skipped(problem))]
    if remainder:
        last = problem.with_batch((remainder,), [matrix.batch_strides for matrix in matrices])
        parts.append((last, skipped(problem, 0, extent - remainder, nothing_skipped(problem))))
    return parts


def in_chunks(problem: Problem, dim: int, most: int) -> list[tuple[Problem, Offsets]]:
    """The batch cut along a dimension, into chunks of `most`."""
    parts = []
    for start in range(0, problem.batch[dim], most):
        batch = list(problem.batch)
        batch[dim] = min(most, problem.batch[dim] - start)
        chunk = problem.with_batch(tuple(batch), [matrix.batch_strides for matrix in problem.all_matrices()])
        parts += [(part, skipped(problem, dim, start, more)) for part, more in parts_of(chunk)]
    return parts


def skipped(problem: Problem, dim: int, steps: int, more: Offsets) -> Offsets:
    """`more`, plus so many steps along a batch dimension."""
    of_epilogue = problem.fused.matrices() if problem.fused else ()
    operands = problem.a, problem.b, problem.c or problem.d, problem.d, *of_epilogue
    return tuple(
        offset + steps * matrix.batch_strides[dim] for offset, matrix in zip(more, operands, strict=True)
    )
