"""The parameter lists of the kernel families: what a kernel is passed, and what it demands of a problem for
that.

Three lists exist. LADDER: BLAS style, row-major, C in place. TMA: the same with tensor maps in place of the A
and B pointers. SIMT: every stride of every operand. TENSOR and MMA are LADDER and SIMT as the tensor-core
kernels take them: more types, 16 bytes at once. Nothing else in the package spells an argument order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lapidist.config import Config
from lapidist.dtypes import TYPES, size_of
from lapidist.launch import ParameterBlock, TensorMap
from lapidist.problems.facts import fact
from lapidist.problems.modes import IN_LAUNCH, IN_MEMORY, PLAIN, Modes
from lapidist.problems.problem import GRID_BATCH_LIMIT, VECTOR_BYTES, Matrix, Problem

# alpha and beta, by the accumulator
SCALARS = {"float16": "f32", "float32": "f32", "float64": "f64", "int32": "i32"}
OPERANDS = "ABCD"  # a parameter of kind "pointer" or "tensormap" carries the operand's letter as its name
TMA_ALIGNMENT = 16
# where factors are; kernels that others call too are passed it with factors alone
SCALES = ("scales", "scales")
ARRAYS = {IN_LAUNCH: "lists", IN_MEMORY: "addresses"}  # the kind of the parameter "lists"


Maps = Callable[[Problem, Config, Mapping[str, int], int], Mapping[str, TensorMap]]


@dataclass(frozen=True, eq=False)
class Signature:
    """`parameters` pairs each name with its kind ("scalar" is the accumulator's type, float for sums in
    half).
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    defines: Callable[[Problem], Mapping[str, object]]
    refuse: Callable[[Problem], str | None]  # why a problem does not fit, or None
    maps: Maps | None = None  # of the parameters of kind "tensormap"
    more: Callable[[Problem], Mapping[str, int]] | None = (
        None  # constants beyond those that every list may name
    )

    @cached_property
    def scheduled(self) -> bool:
        """Whether its kernels take a Schedule, and with it split-K and Stream-K."""
        return SCHEDULE[0] in self.parameters

    @cached_property
    def moded(self) -> bool:
        """Whether its kernels gather, scatter, permute and take lists of arrays."""
        return ("modes", "modes") in self.parameters

    def block(self, problem: Problem) -> ParameterBlock:
        """The byte layout for this problem's types."""
        scalar = SCALARS[problem.accumulator]
        lists = (("lists", ARRAYS[problem.modes.arrays]),) if problem.modes.arrays else ()
        scales = (SCALES,) if problem.scaling.scaled and SCALES not in self.parameters else ()
        operands = len(problem.fused.operands) if problem.fused else 0
        fused = (("epilogue", f"epilogue{operands}"),) if operands else ()
        named = (*self.parameters, *lists, *scales, *fused)
        return ParameterBlock([(name, scalar if kind == "scalar" else kind) for name, kind in named])

    def tensor_maps(
        self, problem: Problem, config: Config, at: Mapping[str, int], peers: int = 1
    ) -> dict[str, TensorMap]:
        """The maps that this signature passes, for the operands ("A" .. "D") and the workspace at these
        addresses; so many blocks of a cluster share a tile."""
        maps = self.maps(problem, config, at, peers) if self.maps else {}
        return {name: maps[name] for name, kind in self.parameters if kind == "tensormap"}


def constants(problem: Problem) -> dict[str, Any]:
    """Every parameter that follows from the problem, by name.

    The stride of a single row or column means nothing and may break the alignment, so it is passed as zero;
    not where that row may be any of many."""
    routed = problem.modes != PLAIN
    values: dict[str, Any] = {"M": problem.m, "N": problem.n, "K": problem.k}
    values["batch"] = problem.batch[-1] if problem.batch else 1
    c = problem.c or problem.d
    for letter, matrix in (("a", problem.a), ("b", problem.b), ("c", c), ("d", problem.d)):
        inner, outer = (*matrix.batch_strides[::-1], 0, 0)[:2]
        row = matrix.row_stride if matrix.rows > 1 or routed else 0
        col = matrix.col_stride if matrix.cols > 1 or routed else 0
        values |= {f"ld{letter}": row, f"{letter}_row": row, f"{letter}_col": col}
        values |= {f"{letter}_inner": inner, f"{letter}_outer": outer}
    return values


def tensor_map(pointer: int, dtype: str, matrix: Matrix, box: tuple[int, int], swizzle: int) -> TensorMap:
    """A row-major matrix, innermost dimension first. Empty extents and strides are not legal, so they are
    rounded up.
    """
    extents = (max(1, matrix.cols), max(1, matrix.rows))
    stride = matrix.row_stride * size_of(dtype) if matrix.rows > 1 else TMA_ALIGNMENT
    return TensorMap(pointer, dtype, extents, (stride,), box, swizzle)


def row_maps(problem: Problem, config: Config, at: Mapping[str, int], _: int) -> dict[str, TensorMap]:
    """Row-major A in the swizzle, row-major B as it is."""
    return {
        "A": tensor_map(at["A"], problem.dtype, problem.a, (config.bk, config.bm), swizzle=128),
        "B": tensor_map(at["B"], problem.dtype, problem.b, (config.bn, config.bk), swizzle=0),
    }


# ---- what the layouts are called in refusals ----

LAYOUT_WORDS = {
    "row": "row-major",
    "col": "column-major",
    "strided": "strided (neighbours touch neither along rows nor along columns)",
}


def refuse_layouts(problem: Problem, b_layout: str = "row") -> str | None:
    """The ladder's form: row-major A, C and D, C in place, no batch."""
    for name, matrix, wanted in (
        ("A", problem.a, "row"),
        ("B", problem.b, b_layout),
        ("D", problem.d, "row"),
    ):
        if not matrix.lies(wanted):
            return f"{name} must be {LAYOUT_WORDS[wanted]}; it is {LAYOUT_WORDS[matrix.layout]}"
    if problem.batch:
        return f"it multiplies one pair of matrices; this is a batch of {problem.batch}"
    if problem.c is not None and not problem.in_place:
        return "it updates C in place; here C and D are different arrays"
    return None


def refuse_b_rows(problem: Problem) -> str | None:
    return refuse_layouts(problem, b_layout="col")


def refuse_tma(problem: Problem) -> str | None:
    refusal = refuse_layouts(problem)
    if refusal:
        return refusal
    for name, matrix in (("A", problem.a), ("B", problem.b)):
        step = matrix.row_stride * size_of(problem.dtype) if matrix.rows > 1 else TMA_ALIGNMENT
        if matrix.alignment < TMA_ALIGNMENT or step % TMA_ALIGNMENT:
            return (
                f"the copy engine needs {name}'s pointer and row stride in multiples of {TMA_ALIGNMENT}"
                f" bytes; they are multiples of {min(matrix.alignment, step & -step or TMA_ALIGNMENT)}"
            )
        if step <= 0:
            return (
                f"the copy engine steps forward from row to row; {name}'s row stride is {matrix.row_stride}"
            )
    return None


def refuse_simt(problem: Problem) -> str | None:
    if problem.d.layout != "row" and problem.modes.groups is None:
        return "D must have neighbours that touch along rows or columns; it is strided"
    if len(problem.batch) > 2:
        return (
            f"it steps through two batch dimensions; these strides leave {len(problem.batch)}:"
            f" {problem.batch}"
        )
    if any(extent > GRID_BATCH_LIMIT for extent in problem.batch):
        return f"a grid has at most {GRID_BATCH_LIMIT} blocks along y and z; the batch is {problem.batch}"
    return None


# ---- what the sources are compiled with ----


def vectors_of_four(problem: Problem) -> bool:
    """The ALIGNED promise of common.cuh: every row starts on four elements, N and K are whole fours."""
    four = min(16, 4 * size_of(problem.dtype))
    whole = problem.n % 4 == 0 and problem.k % 4 == 0
    return whole and all(matrix.alignment >= four for matrix in problem.matrices())


def ladder_defines(problem: Problem) -> Mapping[str, object]:
    return {"ELEMENT": TYPES[problem.dtype].c_type, "ALIGNED": int(vectors_of_four(problem))}


def tma_defines(problem: Problem) -> Mapping[str, object]:
    """Only C moves by plain stores, so only C decides how many elements at once."""
    four = min(16, 4 * size_of(problem.dtype))
    aligned = problem.n % 4 == 0 and problem.d.alignment >= four
    return {"ELEMENT": TYPES[problem.dtype].c_type, "ALIGNED": int(aligned)}


def vector_width(matrix: Matrix, dtype: str, most: int = 4) -> int:
    """Elements that one load may take: as many as the alignment allows, `most` at the most."""
    return (
        max(1, min(most, line_alignment(matrix, dtype) // size_of(dtype)))
        if matrix.layout != "strided"
        else 1
    )


def line_alignment(matrix: Matrix, dtype: str) -> int:
    """What every row (of a row-major matrix; else column) starts on. A single column steps as its elements
    do: no wide steps.
    """
    lines, step = (
        (matrix.rows, matrix.row_stride) if matrix.layout == "row" else (matrix.cols, matrix.col_stride)
    )
    bits = matrix.alignment | (step * size_of(dtype) if lines > 1 else 0)
    return bits & -bits


def simt_defines(problem: Problem) -> Mapping[str, object]:
    along_k = {"row": 1, "col": 2, "strided": 0}
    along_n = {"row": 2, "col": 1, "strided": 0}
    defines = {
        "ELEMENT": TYPES[problem.dtype].c_type,
        "A_CONTIGUOUS": along_k[problem.a.layout],
        "B_CONTIGUOUS": along_n[problem.b.layout],
        "A_VECTOR": vector_width(problem.a, problem.dtype),
        "B_VECTOR": vector_width(problem.b, problem.dtype),
        "D_VECTOR": vector_width(problem.d, problem.out_dtype),
    }
    if problem.out_dtype != problem.dtype:
        defines["OUTPUT"] = TYPES[problem.out_dtype].c_type
    return in_modes(problem.modes, defines)


def in_modes(modes: Modes, defines: dict[str, object]) -> dict[str, object]:
    """Gathered rows do not touch each other, and vectors stay within a group of columns."""
    if modes == PLAIN:
        return defines
    for letter, gathered in (("A", modes.gather_a), ("B", modes.gather_b)):
        if gathered and defines[f"{letter}_CONTIGUOUS"] == 2:
            defines |= {f"{letter}_CONTIGUOUS": 0, f"{letter}_VECTOR": 1}
    if not columns_together(modes, int(str(defines["D_VECTOR"]))):
        defines |= {name: 1 for name in ("D_VECTOR", "C_VECTOR") if name in defines}
    return {**defines, **modes.defines()}


def columns_together(modes: Modes, width: int) -> bool:
    """Whether so many neighbours in a row of the product are neighbours in D too."""
    columns = modes.groups[1] if modes.groups else None
    return not modes.scatter_cols and (
        columns is None or (columns.stride == 1 and columns.extent % width == 0)
    )


def tensor_types(problem: Problem) -> dict[str, object]:
    """What tensor.cuh is told of the types; what is as usual is left to its defaults."""
    defines: dict[str, object] = {
        "ELEMENT": TYPES[problem.dtype].c_type,
        "OUTPUT": TYPES[problem.out_dtype].c_type,
    }
    if problem.b_dtype != problem.dtype:
        defines["B_ELEMENT"] = TYPES[problem.b_dtype].c_type
    if problem.accumulator == "float16":
        defines["ACCUMULATE"] = TYPES[problem.accumulator].c_type
    return defines


def epilogue(problem: Problem) -> dict[str, object]:
    """Without C a kernel is compiled without the code for it: up to a third of all, and of the time that
    takes. Where alpha is one besides, nor with a product for each of a thread's sums: a twelfth."""
    if problem.c is not None:
        return {}
    return {"ADDEND": 0, "ALPHA": 0} if problem.one_alpha else {"ADDEND": 0}


def batched(problem: Problem) -> dict[str, object]:
    """Likewise, what steps from matrix to matrix of a batch: a sixth of the machine code of kernels that pack
    both operands.
    """
    return {"BATCHED": 1} if problem.batch else {}


@fact
def least_alignment(problem: Problem) -> int:
    """What every line of A and B starts on, in bytes."""
    return min(line_alignment(problem.a, problem.dtype), line_alignment(problem.b, problem.b_dtype))


def inputs_on_16_bytes(problem: Problem) -> bool:
    return least_alignment(problem) >= VECTOR_BYTES


def tensor_defines(problem: Problem) -> Mapping[str, object]:
    """The ALIGNED promise of tensor.cuh: every row starts on 16 bytes; the extents are free."""
    outputs = all(
        line_alignment(matrix, problem.out_dtype) >= VECTOR_BYTES for matrix in problem.matrices()[2:]
    )
    return {**tensor_types(problem), "ALIGNED": int(outputs and inputs_on_16_bytes(problem))}


def mma_defines(problem: Problem) -> Mapping[str, object]:
    """C is read as D is written where it lies so, else one by one."""
    along_k = {"row": 1, "col": 2, "strided": 0}
    along_n = {"row": 2, "col": 1, "strided": 0}
    inputs, outputs = VECTOR_BYTES // size_of(problem.dtype), VECTOR_BYTES // size_of(problem.out_dtype)
    d_vector, c = vector_width(problem.d, problem.out_dtype, outputs), problem.c or problem.d
    as_d = c.lies("row") and line_alignment(c, problem.out_dtype) >= d_vector * size_of(problem.out_dtype)
    defines = {
        **tensor_types(problem),
        "A_CONTIGUOUS": along_k[problem.a.layout],
        "B_CONTIGUOUS": along_n[problem.b.layout],
        "A_VECTOR": vector_width(problem.a, problem.dtype, inputs),
        "B_VECTOR": vector_width(problem.b, problem.b_dtype, inputs),
        "C_VECTOR": d_vector if as_d else 1,
        "D_VECTOR": d_vector,
    }
    return {**in_modes(problem.modes, defines), **problem.scaling.defines(), **epilogue(problem)}


# ---- the lists ----

SIZES = (("M", "i32"), ("N", "i32"), ("K", "i32"))
SCHEDULE = (
    ("schedule", "schedule"),
    ("workspace", "workspace"),
)  # for kernels that include share/sharing.cuh

LADDER_PARAMETERS = (
    *SIZES,
    ("alpha", "scalar"),
    ("A", "pointer"),
    ("lda", "i64"),
    ("B", "pointer"),
    ("ldb", "i64"),
    ("beta", "scalar"),
    ("D", "pointer"),
    ("ldd", "i64"),
)
LADDER = Signature("ladder", LADDER_PARAMETERS, ladder_defines, refuse_layouts)
LADDER_B_ROWS = Signature(
    "ladder, B as N x K",
    tuple(("b_col" if name == "ldb" else name, kind) for name, kind in LADDER_PARAMETERS),
    ladder_defines,
    refuse_b_rows,
)

TENSOR = Signature("tensor", LADDER_PARAMETERS, tensor_defines, refuse_layouts)

TMA = Signature(
    "tma",
    (
        *SIZES,
        ("alpha", "scalar"),
        ("A", "tensormap"),
        ("B", "tensormap"),
        ("beta", "scalar"),
        ("D", "pointer"),
        ("ldd", "i64"),
    ),
    tma_defines,
    refuse_tma,
    row_maps,
)
TMA_SCHEDULED = replace(TMA, name="tma, scheduled", parameters=(*TMA.parameters, *SCHEDULE))

SIMT_PARAMETERS = (
    *SIZES,
    ("alpha", "scalar"),
    ("beta", "scalar"),
    *((letter, "pointer") for letter in OPERANDS),
    *((f"{letter}_{step}", "i64") for letter in "abc" for step in ("row", "col", "inner", "outer")),
    *((f"d_{step}", "i64") for step in ("row", "inner", "outer")),
    ("batch", "i32"),  # the inner extent
    ("modes", "modes"),
    *SCHEDULE,
)
SIMT = Signature("simt", SIMT_PARAMETERS, simt_defines, refuse_simt)
MMA = Signature("mma", SIMT_PARAMETERS, mma_defines, refuse_simt)
