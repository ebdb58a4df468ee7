"""Operands as the wgmma kernels want them: what is contiguous, what is packed first, and how D is stored."""

from __future__ import annotations

from math import prod

from lapidist.dtypes import size_of
from lapidist.kernels.lines import (
    Lines,
    along_k,
    batch_steps,
    line,
    made_of_16,
    packed_step,
    scratch_of,
    starts_on_16,
)
from lapidist.problems.facts import fact
from lapidist.problems.kinds import of_kind
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import Problem

EITHER_WAY = ("float16", "bfloat16")  # wgmma also reads these with neighbours along m or n
GROUPED = 128  # neighbours of a row of D that share a factor
MOST_FEW_ROWS = 112  # each 16 of them compile a kernel of their own


# ---- A and B ----


@fact
def lines_of(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B, as they lie."""
    return line(problem.a, along_k(problem.a, True)), line(problem.b, not along_k(problem.b, False))


@fact
@of_kind
def mn_major(problem: Problem) -> tuple[bool, bool]:
    """Whether tiles of A, and of B, have neighbours along m or n in shared memory: where wgmma reads them
    so.
    """
    a, b = transposed(problem)
    return not along_k(problem.a, True) and not a, not along_k(problem.b, False) and not b


@fact
def transposed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are packed with k touching because wgmma reads this type no other way. A never is: it
    takes its way through registers."""
    return False, problem.math not in EITHER_WAY and not along_k(problem.b, False)


@fact
def by_registers(problem: Problem) -> bool:
    """Whether A is transposed while it is loaded into registers: then wgmma takes it from there."""
    return problem.math not in EITHER_WAY and mn_major(problem)[0]


@fact
def packed_lines(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B as TMA finds them: packed ones start on 16 bytes."""
    found = []
    for lines, packs, transposes in zip(lines_of(problem), packed(problem), transposed(problem), strict=True):
        count, length, step = lines
        if transposes:
            count, length = length, count
        found.append((count, length, packed_step(length, size_of(problem.dtype)) if packs else step))
    return found[0], found[1]


@fact
@of_kind
def start_anywhere(problem: Problem) -> tuple[bool, bool]:
    """Whether TMA refuses A, and B, as they lie."""
    (a, b), (turn_a, turn_b) = lines_of(problem), transposed(problem)
    size = size_of(problem.dtype)
    return turn_a or not starts_on_16(problem.a, a, size), turn_b or not starts_on_16(problem.b, b, size)


@fact
@of_kind
def packed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are copied to lines that start on 16 bytes first."""
    a, b = start_anywhere(problem)
    return a and not problem.skewed, b


@fact
def packed_bytes(problem: Problem) -> tuple[int, int]:
    """Of all matrices of a batch, where it does not share one."""
    if not any(packed(problem)):
        return 0, 0
    found = []
    for matrix, (count, _, step), packs in zip(
        (problem.a, problem.b), packed_lines(problem), packed(problem), strict=True
    ):
        matrices = prod(extent for extent, stride in batch_steps(problem, matrix) if stride)
        found.append(count * step * size_of(problem.dtype) * matrices if packs else 0)
    return found[0], found[1]


@fact
def scratch(problem: Problem) -> tuple[int, int]:
    """Bytes of flags and of packed operands in the workspace."""
    return scratch_of(packed_bytes(problem))


@fact
def few_rows(problem: Problem) -> int | None:
    """So many rows, in 16s, hold all of A that there is: less than a tile may have."""
    rows = -(-problem.m // 16) * 16
    return rows if rows != 64 and 0 < rows <= MOST_FEW_ROWS and not mn_major(problem)[0] else None


# ---- what an epilogue makes of whole groups of columns ----


@fact
def quantises(problem: Problem) -> bool:
    """Whether kernels make an 8-bit D and its factors, with tiles whose rows have whole groups. D moves in
    pieces of 16 bytes, and no C comes patch by patch. A batch may take several launches, which would all
    have to."""
    if problem.fused is None or problem.transposed or problem.batch or c_in_patches(problem):
        return False
    if not problem.fused.grouped or problem.modes != PLAIN:
        return False
    return problem.fused.grouped[0].kind(True).endswith(", 1, 4>")


@fact
def joins_values(problem: Problem) -> bool:
    """Whether lanes join 16 values of a column, or of a row, before a second pass reads them. Exchanged tiles
    have columns of D for rows, and warps of shifted ones every eighth row. A batch may take several launches,
    which would all have to. These leave each value, as other families do: one bound holds for both."""
    if problem.fused is None or problem.transposed or problem.batch or problem.modes != PLAIN:
        return False
    from lapidist.epilogues.passes import COLUMN

    ways = ways_joined(problem)
    return len(ways) > 0 and not (problem.skewed and COLUMN in ways)


def joins_columns(problem: Problem) -> bool:
    """Whether these are of a row: tiles have whole groups of 16 columns."""
    if not joins_values(problem):
        return False
    from lapidist.epilogues.passes import ROW

    return ROW in ways_joined(problem)


def ways_joined(problem: Problem) -> set[str]:
    joined = () if problem.fused is None else problem.fused.function.joined
    return {each.over for each in joined if each is not None}


def grouped_columns(problem: Problem) -> int:
    """Of the product, that share a factor."""
    return 2 * GROUPED if problem.paired else GROUPED


def groups(problem: Problem) -> dict[str, object]:
    """How: which source is quantised, by what the largest of a group becomes, into which kind of array."""
    if not quantises(problem):
        return {}
    fused = problem.fused
    assert fused is not None
    assert fused.function.grouped is not None
    from lapidist.epilogues.passes import largest_of

    first = len(fused.stored) - len(fused.function.sources) - len(fused.function.kept)
    return {
        "EPILOGUE_GROUPED": 1 + first + fused.function.grouped,
        "EPILOGUE_GROUPS": fused.grouped[0].kind(True),
        "EPILOGUE_LARGEST": f"{largest_of(fused.grouped[0].dtype):g}",
    }


# ---- D and C ----


@fact
@of_kind
def transposed_d(problem: Problem) -> bool:
    """Whether columns of D are contiguous: where A and B are exchanged, or D has no more than one."""
    if not problem.d.lies("row"):
        return True
    wide = size_of(problem.out_dtype) > 1 and problem.d.lies("col") and problem.d.cols < problem.d.rows
    return wide and made_of_16(problem.d, line(problem.d, False), size_of(problem.out_dtype))


@fact
@of_kind
def copies_out(problem: Problem) -> bool:
    """Whether TMA may write D. Some functions store it themselves, from the registers."""
    if problem.stores_d:
        return False
    return made_of_16(problem.d, line(problem.d, not transposed_d(problem)), size_of(problem.out_dtype))


@fact
def rows_copied_out(problem: Problem) -> bool:
    """Likewise, to a kernel that knows rows of D alone."""
    return copies_out(problem) and not transposed_d(problem)


@fact
def same_c(problem: Problem) -> int:
    """1: C has one row for all rows of D, as a bias is; 2: one column. 0: neither, or there is none."""
    if problem.c is None:
        return 0
    return 1 if problem.c.row_stride == 0 else 2 if problem.c.col_stride == 0 else 0


@fact
def c_in_patches(problem: Problem) -> bool:
    """Whether C comes to where patches of D leave."""
    return problem.c is not None and not same_c(problem)


@fact
def c_lies(problem: Problem) -> dict[str, object]:
    """Where C is one line; and where it cannot come as D leaves, in pieces of 16 bytes, or neighbours of a
    row not in one load."""
    if problem.c is None:
        return {}
    if same_c(problem):
        return {"C_SAME": same_c(problem), **({"C_BY_ELEMENTS": 1} if not pairs_of_c(problem) else {})}
    along, across = ("col", "row") if transposed_d(problem) else ("row", "col")
    lines = line(problem.c, along == "row")
    if not problem.c.lies(along):
        return {"C_BY_ELEMENTS": 2 if problem.c.lies(across) else 1}
    return {} if starts_on_16(problem.c, lines, size_of(problem.out_dtype)) else {"C_BY_ELEMENTS": 1}


def pairs_of_c(problem: Problem) -> bool:
    """Whether two neighbours of C's one row come at once. Of one column each is alone."""
    c, size = problem.c, size_of(problem.out_dtype)
    assert c is not None
    if same_c(problem) == 2:
        return True
    even = all(stride % 2 == 0 for stride in c.batch_strides)
    return c.col_stride == 1 and c.cols % 2 == 0 and c.alignment % (2 * size) == 0 and even
