"""The operands of the wgmma kernels: what is contiguous, what is packed first, and how D is stored."""

from __future__ import annotations

from math import prod

from lapidist.dtypes import size_of
from lapidist.kernels.tma_alignment import (
    Lines,
    along_k,
    batch_steps,
    line,
    made_of_16,
    packed_step,
    scratch_of,
    starts_on_16,
)
from lapidist.problems.cached_fact import fact
from lapidist.problems.compile_key import of_kind
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import Problem
from lapidist.problems.ragged import ROWS

EITHER_WAY = ("float16", "bfloat16")  # wgmma also reads these M-major or N-major
GROUPED = 128  # columns of D that share a factor
MOST_FEW_ROWS = 112  # up to so many rows, each 16 have a kernel of their own


# ---- A and B ----


@fact
def lines_of(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B in the caller's memory."""
    return line(problem.a, along_k(problem.a, True)), line(problem.b, not along_k(problem.b, False))


@fact
@of_kind
def mn_major(problem: Problem) -> tuple[bool, bool]:
    """Whether tiles of A are M-major, and tiles of B N-major, in shared memory."""
    a, b = transposed(problem)
    return not along_k(problem.a, True) and not a, not along_k(problem.b, False) and not b


@fact
def transposed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are packed K-major because wgmma reads this type no other way. A never is: registers
    transpose it.
    """
    return False, problem.math not in EITHER_WAY and not along_k(problem.b, False)


@fact
def by_registers(problem: Problem) -> bool:
    """Whether A is transposed in registers, from which wgmma then reads it."""
    return problem.math not in EITHER_WAY and mn_major(problem)[0]


@fact
def packed_lines(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B that TMA loads. Packed ones start on multiples of 16 bytes."""
    rows = []
    for lines, packs, transposes in zip(lines_of(problem), packed(problem), transposed(problem), strict=True):
        count, length, step = lines
        if transposes:
            count, length = length, count
        rows.append((count, length, packed_step(length, size_of(problem.dtype)) if packs else step))
    return rows[0], rows[1]


@fact
@of_kind
def start_anywhere(problem: Problem) -> tuple[bool, bool]:
    """Whether TMA cannot load A, and B, as they are."""
    (a, b), (turn_a, turn_b) = lines_of(problem), transposed(problem)
    size = size_of(problem.dtype)
    return turn_a or not starts_on_16(problem.a, a, size), turn_b or not starts_on_16(problem.b, b, size)


@fact
@of_kind
def packed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are first copied to lines that start on multiples of 16 bytes."""
    a, b = start_anywhere(problem)
    return a and not problem.skewed, b


@fact
def packed_bytes(problem: Problem) -> tuple[int, int]:
    """Bytes of all packed matrices. A matrix that a batch shares counts once."""
    if not any(packed(problem)):
        return 0, 0
    nbytes = []
    for matrix, (count, _, step), packs in zip(
        (problem.a, problem.b), packed_lines(problem), packed(problem), strict=True
    ):
        matrices = prod(extent for extent, stride in batch_steps(problem, matrix) if stride)
        nbytes.append(count * step * size_of(problem.dtype) * matrices if packs else 0)
    return nbytes[0], nbytes[1]


@fact
def scratch(problem: Problem) -> tuple[int, int]:
    """Workspace bytes of flags and of packed operands."""
    return scratch_of(packed_bytes(problem))


@fact
def few_rows(problem: Problem) -> int | None:
    """The rows of A, rounded up to 16, if they are few and kernels are compiled for them; else None."""
    if problem.modes.cuts(ROWS):
        return None  # a group may have as many rows as all of them together
    rows = -(-problem.m // 16) * 16
    return rows if rows != 64 and 0 < rows <= MOST_FEW_ROWS and not mn_major(problem)[0] else None


# ---- epilogues that quantise or reduce in the kernel ----


@fact
def quantises(problem: Problem) -> bool:
    """Whether kernels make an 8-bit D and its factors, if tiles have whole groups of columns. D must move in
    pieces of 16 bytes, and C must not come patch by patch. Not in a batch: it may take several launches, of
    which all would have to.
    """
    modes = problem.modes
    if problem.fused is None or problem.transposed or c_in_patches(problem) or not problem.fused.grouped:
        return False
    if (problem.batch or modes != PLAIN) and (modes.routes or not modes.cuts(ROWS)):
        return False
    return problem.fused.grouped[0].kind(True).endswith(", 1, 4>")


@fact
def joins_values(problem: Problem) -> bool:
    """Whether lanes reduce 16 values of a column, or of a row, before a second pass. Not with A and B
    exchanged, whose tiles have columns of D for rows; nor along columns of shifted tiles, whose warps have
    every eighth row. Not in a batch: it may take several launches, of which all would have to.
    """
    if problem.fused is None or problem.transposed or problem.batch or problem.modes != PLAIN:
        return False
    from lapidist.epilogues.passes import COLUMN

    dimensions = reduced_dimensions(problem)
    return len(dimensions) > 0 and not (problem.skewed and COLUMN in dimensions)


def joins_columns(problem: Problem) -> bool:
    """Whether lanes reduce columns of a row. Tiles must then have whole groups of 16 columns."""
    if not joins_values(problem):
        return False
    from lapidist.epilogues.passes import ROW

    return ROW in reduced_dimensions(problem)


def reduced_dimensions(problem: Problem) -> set[str]:
    joined = () if problem.fused is None else problem.fused.function.joined
    return {reduction.over for reduction in joined if reduction is not None}


def grouped_columns(problem: Problem) -> int:
    """Columns of the product that share a factor."""
    return 2 * GROUPED if problem.paired else GROUPED


def groups(problem: Problem) -> dict[str, object]:
    """Macros for quantising in the kernel: which source, the kind of its array, the largest value of its
    type.
    """
    if not quantises(problem):
        return {}
    fused = problem.fused
    assert fused is not None
    assert fused.function.grouped is not None
    from lapidist.epilogues.passes import largest_of

    first = len(fused.stored) - len(fused.function.sources) - len(fused.function.maxima)
    return {
        "EPILOGUE_GROUPED": 1 + first + fused.function.grouped,
        "EPILOGUE_GROUPS": fused.grouped[0].kind(True),
        "EPILOGUE_LARGEST": f"{largest_of(fused.grouped[0].dtype):g}",
    }


# ---- D and C ----


@fact
@of_kind
def transposed_d(problem: Problem) -> bool:
    """Whether D is stored by columns: they are contiguous, or D has no more than one column. A function that
    stores D itself does so by rows.
    """
    if not problem.d.lies("row"):
        return True
    if problem.stores_d:
        return False
    wide = size_of(problem.out_dtype) > 1 and problem.d.lies("col") and problem.d.cols < problem.d.rows
    return wide and made_of_16(problem.d, line(problem.d, False), size_of(problem.out_dtype))


@fact
@of_kind
def copies_out(problem: Problem) -> bool:
    """Whether TMA may store D. Some functions store it themselves, from registers."""
    if problem.stores_d:
        return False
    return made_of_16(problem.d, line(problem.d, not transposed_d(problem)), size_of(problem.out_dtype))


@fact
def rows_copied_out(problem: Problem) -> bool:
    """The same for kernels that store rows of D only."""
    return copies_out(problem) and not transposed_d(problem)


def scatters(problem: Problem) -> bool:
    """Whether lanes may store rows of D to their indices, 16 bytes each."""
    stores = problem.fused is not None and len(problem.fused.stored) > 0
    return rows_copied_out(problem) and problem.c is None and not stores


@fact
def same_c(problem: Problem) -> int:
    """1: C has one row for all rows of D, as a bias has; 2: one column. 0: neither, or no C."""
    if problem.c is None:
        return 0
    return 1 if problem.c.row_stride == 0 else 2 if problem.c.col_stride == 0 else 0


@fact
def c_in_patches(problem: Problem) -> bool:
    """Whether C is loaded to the shared memory of D's patches."""
    return problem.c is not None and not same_c(problem)


@fact
def c_lies(problem: Problem) -> dict[str, object]:
    """Macros for C: if it is one line; and if it cannot be loaded as D is stored, in pieces of 16 bytes, or
    two neighbours not at once.
    """
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
    """Whether one load takes two neighbours of a C of one row. For a C of one column the question does not
    arise.
    """
    c, size = problem.c, size_of(problem.out_dtype)
    assert c is not None
    if same_c(problem) == 2:
        return True
    even = all(stride % 2 == 0 for stride in c.batch_strides)
    return c.col_stride == 1 and c.cols % 2 == 0 and c.alignment % (2 * size) == 0 and even
