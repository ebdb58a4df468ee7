"""What a second pass makes of values that a kernel left: reductions, and 8 bits with a factor for 128
neighbours of a row. By any namespace of interpreter.py here; reduce.cu and quantise.cu do the same."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from lapidist.dtypes import TYPES

ROW, COLUMN, ALL = "row", "column", "all"  # what has one value: each row, each column, D
OPERATIONS = SUM, MAX, AMAX = "sum", "max", "amax"
GROUP = 128  # neighbours of a row that share a factor
QUANTISED, FACTORS = "quantised", "factors of "
TO_8_BITS = ("float8_e4m3fn", "float8_e5m2", "int8")
# of a reduction on a GPU: threads of a block, and values that each takes one after another
THREADS, IN_TURN, ABREAST = 256, 32, 32  # so many columns are reduced side by side
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
# what kernels find on the way, whatever the order: a second pass only looks through SLOTS words
LARGEST, SLOTS = (AMAX, f"{ALL}_{MAX}"), 4096


def largest_of(dtype: str) -> float:
    """The number that the largest of a group becomes."""
    bounds = TYPES[dtype].bounds
    assert bounds is not None
    return float(bounds[1])


def kernel_of(then: str) -> str:
    """The second pass that makes it."""
    return "largest" if then in LARGEST else "reduce" if then in REDUCTIONS else "quantise"


def groups_of(columns: int) -> int:
    return -(-columns // GROUP)


def finished(values: Any, then: str, dtype: str, xp: Any) -> Any:
    """What a result of that type is, once its values are there. Without a name: the values."""
    if not then:
        return values
    if then in REDUCTIONS:
        return reduced(values, *REDUCTIONS[then], xp)
    return (
        quantised(values, dtype, xp) if then == QUANTISED else factors(values, then.removeprefix(FACTORS), xp)
    )


def reduced(values: Any, over: str, operation: str, xp: Any) -> Any:
    """Of a matrix, or of each of a batch; over ALL of all of them. Nothing has the sum 0, the largest
    absolute value 0 and the maximum minus infinity; NaN stays."""
    axis = None if over == ALL else -2 if over == COLUMN else -1
    if operation == SUM:
        return xp.sum(values, axis)
    return xp.max(abs(values), axis, 0) if operation == AMAX else xp.max(values, axis, -math.inf)


def factors(values: Any, dtype: str, xp: Any) -> Any:
    """One for each row and group of columns, in float32: a group's largest, times it, is the type's largest
    number. 1 where all are 0. They have no gradient."""
    *rows, columns = values.shape
    groups = groups_of(columns)
    padded = xp.pad(abs(xp.without_gradient(values)), groups * GROUP - columns)
    largest = xp.max(padded.reshape(*rows, groups, GROUP), -1, 0)
    found = xp.astype(largest / largest_of(dtype), "float32")
    return xp.where(found == 0, 1, found)


def quantised(values: Any, dtype: str, xp: Any) -> Any:
    """Over their factors, not yet rounded to 8 bits."""
    spread = spread_out(factors(values, dtype, xp), values.shape[-1], xp)
    return values / xp.astype(spread, values.dtype)


def spread_out(factors: Any, columns: int, xp: Any) -> Any:
    """One for each value."""
    *rows, groups = factors.shape
    spread = xp.broadcast_to(factors[..., None], (*rows, groups, GROUP))
    return spread.reshape(*rows, groups * GROUP)[..., :columns]


# ---- how far off ----


def roundings(count: int) -> int:
    """Of a sum of so many on a GPU, at the most: each thread adds in turn, then threads in twos; then a pass
    adds what blocks have. A kernel that joins JOINED rows first has 4 more. The passes have fewer by more
    than that: of a column 8 threads add in twos, and of all else a 16th is left. So it is with JOINED columns
    of a row, which every kernel's are summed by."""
    passes = max(1, math.ceil(math.log(max(count, 2), THREADS // ABREAST * IN_TURN)))
    return passes * (IN_TURN + int(math.log2(THREADS)))
