"""What a second pass makes of values that a kernel left: reductions, and 8 bits with a factor for 128
neighbours of a row. By NumPy here; reduce.cu and quantise.cu do the same."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from lapidist.dtypes import TYPES

Array = np.ndarray[Any, Any]
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


def finished(values: Array, then: str, dtype: str) -> Array:
    """What a result of that type is, once its values are there. Without a name: the values."""
    if not then:
        return values
    if then in REDUCTIONS:
        return reduced(values, *REDUCTIONS[then])
    return quantised(values, dtype) if then == QUANTISED else factors(values, then.removeprefix(FACTORS))


def reduced(values: Array, over: str, operation: str) -> Array:
    """Of a matrix, or of each of a batch; over ALL of all of them. Nothing has the sum 0, the largest
    absolute value 0 and the maximum minus infinity; NaN stays. Sums are those of doubles."""
    last = values.reshape(-1) if over == ALL else values.swapaxes(-1, -2) if over == COLUMN else values
    with np.errstate(all="ignore"):
        if operation == SUM:
            return np.asarray(np.ascontiguousarray(last).sum(-1, np.float64)).astype(values.dtype)
        sizes = np.abs(last) if operation == AMAX else last
        return np.asarray(np.max(sizes, -1, initial=0 if operation == AMAX else -np.inf))


def factors(values: Array, dtype: str) -> Array:
    """One for each row and group of columns, in float32: a group's largest, times it, is the type's largest
    number. 1 where all are 0."""
    groups = groups_of(values.shape[-1])
    padding = [(0, 0)] * (values.ndim - 1) + [(0, groups * GROUP - values.shape[-1])]
    sizes = np.abs(np.pad(values, padding)).reshape(*values.shape[:-1], groups, GROUP)
    with np.errstate(all="ignore"):
        found = (sizes.max(-1) / values.dtype.type(largest_of(dtype))).astype(np.float32)
    return np.where(found == 0, np.float32(1), found)


def quantised(values: Array, dtype: str) -> Array:
    """Over their factors, not yet rounded to 8 bits."""
    spread = factors(values, dtype).repeat(GROUP, -1)[..., : values.shape[-1]]
    with np.errstate(all="ignore"):
        return values / spread.astype(values.dtype)


# ---- how far off ----


def roundings(count: int) -> int:
    """Of a sum of so many on a GPU, at the most: each thread adds in turn, then threads in twos; then a pass
    adds what blocks have. A kernel that joins JOINED rows first has 4 more. The passes have fewer by more
    than that: of a column 8 threads add in twos, and of all else a 16th is left. So it is with JOINED columns
    of a row, which every kernel's are summed by."""
    passes = max(1, math.ceil(math.log(max(count, 2), THREADS // ABREAST * IN_TURN)))
    return passes * (IN_TURN + int(math.log2(THREADS)))


def off_by(value: Array, off: Array, then: str, dtype: str, reckoned: str) -> tuple[Array, Array]:
    """What is made of values that are off by so much, and how far off it may be; `dtype`: of the result,
    `reckoned`: in which values are."""
    if not then:
        return value, off
    u = TYPES[reckoned].roundoff
    off = np.broadcast_to(off, value.shape)
    if then in REDUCTIONS:
        over, operation = REDUCTIONS[then]
        made = reduced(value, over, operation)
        if operation != SUM:
            return made, reduced(off, over, AMAX)
        spread, count = reduced(off, over, SUM), value.size // max(made.size, 1)
        size = reduced(abs(value), over, SUM) + spread
        return made, np.where(size < np.finfo(reckoned).max, spread + roundings(count) * u * size, np.inf)
    kind = dtype if then == QUANTISED else then.removeprefix(FACTORS)
    own = factors(value, kind)
    of_own = factors(off, kind) * (off.max(initial=0) > 0) + 2 * TYPES["float32"].roundoff * own
    if then != QUANTISED:
        return own, of_own
    wide, more = (each.repeat(GROUP, -1)[..., : value.shape[-1]] for each in (own, of_own))
    made = value / wide
    return made, (off + abs(made) * more) / np.maximum(wide - more, 0) + u * abs(made)
