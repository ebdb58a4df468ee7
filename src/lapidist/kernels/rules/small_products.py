"""Rules of the kernel for batches of small matrices."""

from __future__ import annotations

from lapidist.dtypes import size_of
from lapidist.kernels.rules.rule import Rule
from lapidist.problems.matrix import Matrix
from lapidist.problems.problem import Problem

ROOM = 27648  # bytes of shared memory that a block's products fill
MOST_BYTES = 45056  # of one product: five such blocks fit on an SM


def in_shared(matrix: Matrix) -> int:
    """Elements of a matrix in shared memory. Its lines have an odd number of them, to start in many banks."""
    lines = (matrix.cols, matrix.rows) if matrix.layout == "col" else (matrix.rows, matrix.cols)
    return lines[0] * (lines[1] | 1)


def product_bytes(problem: Problem) -> int:
    """Shared memory of a product."""
    return (in_shared(problem.a) + in_shared(problem.b)) * max(4, size_of(problem.accumulator))


SMALL = (
    Rule(
        lambda c, f: (c.bm % c.tm == 0) & (c.bn % c.tn == 0) & (c.bk == 0) & (c.wm == 0) & (c.wn == 0),
        lambda c, f: f"threads' tiles fill bm x bn, and it has no other level; the config is {c}",
        of_knobs=True,
    ),
    Rule(
        lambda c, f: (f.problem.m <= c.bm) & (f.problem.n <= c.bn),
        lambda c, f: (
            f"a matrix of D is at most bm x bn = {c.bm} x {c.bn}; it is {f.problem.m} x {f.problem.n}"
        ),
    ),
    Rule(
        lambda c, f: (c.bm > 0) & (product_bytes(f.problem) <= MOST_BYTES),
        lambda c, f: (
            f"A and B of a product take at most {MOST_BYTES} bytes of shared memory; they take"
            f" {product_bytes(f.problem)}"
        ),
    ),
)
