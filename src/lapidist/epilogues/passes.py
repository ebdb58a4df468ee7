"""Second passes over values that a kernel stored: reductions, and 8 bits with a factor for 128 neighbours of
a row. They run in any namespace of interpreter.py; reduce.cu and quantise.cu do the same."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from lapidist.dtypes import TYPES

ROW, COLUMN, ALL = "row", "column", "all"  # one value for each row, each column, or all of D
OPERATIONS = SUM, MAX, AMAX = "sum", "max", "amax"
GROUP = 128  # neighbours of a row that share a factor
QUANTISED, FACTORS = "quantised", "factors of "
TO_8_BITS = ("float8_e4m3fn", "float8_e5m2", "int8")
# of a reduction on a GPU: threads of a block, values that a thread takes in turn, columns side by side
THREADS, IN_TURN, ABREAST = 256, 32, 32
JOINED = 16  # rows of a column that lanes of a kernel may join first; or columns of a row


class Reduction(NamedTuple):
    over: str
    operation: str


REDUCTIONS = {
    f"{over}_{operation}": Reduction(over, operation)
    for over in (ROW, COLUMN, ALL)
    for operation in OPERATIONS
}
REDUCTIONS[AMAX] = REDUCTIONS.pop(f"{ALL}_{AMAX}")
# kernels find these themselves, as their order does not matter: a second pass only looks through SLOTS words
LARGEST, SLOTS = (AMAX, f"{ALL}_{MAX}"), 4096


def largest_of(dtype: str) -> float:
    """The type's largest number, which the largest of a group becomes."""
    bounds = TYPES[dtype].bounds
    assert bounds is not None
    return float(bounds[1])


def kernel_of(then: str) -> str:
    """The name of the kernel of a second pass."""
    return "largest" if then in LARGEST else "reduce" if then in REDUCTIONS else "quantise"


def groups_of(columns: int) -> int:
    return -(-columns // GROUP)


def finished(values: Any, then: str, dtype: str, xp: Any) -> Any:
    """A result by its second pass, of its type; without one, the values."""
    if not then:
        return values
    if then in REDUCTIONS:
        return reduced(values, *REDUCTIONS[then], xp)
    return (
        quantised(values, dtype, xp) if then == QUANTISED else factors(values, then.removeprefix(FACTORS), xp)
    )


def reduced(values: Any, over: str, operation: str, xp: Any) -> Any:
    """A reduction of a matrix, or of each matrix of a batch; over ALL, of all of them. Of no values the sum
    and the largest absolute value are 0, the maximum is minus infinity. NaN stays."""
    axis = None if over == ALL else -2 if over == COLUMN else -1
    if operation == SUM:
        return xp.sum(values, axis)
    return xp.max(abs(values), axis, 0) if operation == AMAX else xp.max(values, axis, -math.inf)


def factors(values: Any, dtype: str, xp: Any) -> Any:
    """A factor for each group of columns of each row, in float32: its largest value over the type's largest
    number; 1 where all are 0. Factors have no gradient."""
    *rows, columns = values.shape
    groups = groups_of(columns)
    padded = xp.pad(abs(xp.without_gradient(values)), groups * GROUP - columns)
    largest = xp.max(padded.reshape(*rows, groups, GROUP), -1, 0)
    scales = xp.astype(largest / largest_of(dtype), "float32")
    return xp.where(scales == 0, 1, scales)


def quantised(values: Any, dtype: str, xp: Any) -> Any:
    """The values over their factors, not yet rounded to 8 bits."""
    spread = spread_out(factors(values, dtype, xp), values.shape[-1], xp)
    return values / xp.astype(spread, values.dtype)


def spread_out(factors: Any, columns: int, xp: Any) -> Any:
    """The factor of each value."""
    *rows, groups = factors.shape
    spread = xp.broadcast_to(factors[..., None], (*rows, groups, GROUP))
    return spread.reshape(*rows, groups * GROUP)[..., :columns]


# ---- bounds of errors ----


def roundings(count: int) -> int:
    """The most roundings of a sum of `count` values on a GPU. Threads add in turn, then two by two; a further
    pass adds the sums of blocks. Kernels that join JOINED values first add 4 roundings, and save more than 4:
    8 threads of a column add two by two, or a 16th of the values remains."""
    passes = max(1, math.ceil(math.log(max(count, 2), THREADS // ABREAST * IN_TURN)))
    return passes * (IN_TURN + int(math.log2(THREADS)))
