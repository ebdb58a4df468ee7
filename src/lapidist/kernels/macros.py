"""Macros that several families share: types, the epilogue, modes and batches."""

from __future__ import annotations

from collections.abc import Mapping

from lapidist.dtypes import TYPES
from lapidist.kernels.vector_width import columns_together, inputs_on_16_bytes, line_alignment
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.modes import PLAIN, Modes
from lapidist.problems.problem import Problem

ALONG_K = {"row": 1, "col": 2, "strided": 0}  # A_CONTIGUOUS, by layout
ALONG_N = {"row": 2, "col": 1, "strided": 0}  # B_CONTIGUOUS


def tensor_types(problem: Problem) -> dict[str, object]:
    """Macros of tensor.cuh for the types, without those that are its defaults."""
    macros: dict[str, object] = {"T": TYPES[problem.dtype].c_type, "Out": TYPES[problem.out_dtype].c_type}
    if problem.b_dtype != problem.dtype:
        macros["ElementB"] = TYPES[problem.b_dtype].c_type
    if problem.accumulator == "float16":
        macros["Sum"] = TYPES[problem.accumulator].c_type
    return macros


def tensor_macros(problem: Problem) -> Mapping[str, object]:
    """The promise of ALIGNED in tensor.cuh: every row starts on a multiple of 16 bytes. Extents are free."""
    outputs = all(
        line_alignment(matrix, problem.out_dtype) >= VECTOR_BYTES for matrix in problem.matrices()[2:]
    )
    return {**tensor_types(problem), "ALIGNED": int(outputs and inputs_on_16_bytes(problem))}


def epilogue(problem: Problem) -> dict[str, object]:
    """Leave out the code for C if there is none: it is up to a third of the machine code and of the time to
    compile. Where alpha is one too, its product with each sum is left out: a twelfth.
    """
    if problem.c is not None:
        return {}
    return {"ADDEND": 0, "ALPHA": 0} if problem.one_alpha else {"ADDEND": 0}


def batched(problem: Problem) -> dict[str, object]:
    """Leave out what steps through a batch if there is none: a sixth of the machine code of kernels that pack
    both operands.
    """
    return {"BATCHED": 1} if problem.batch else {}


def in_modes(modes: Modes, macros: dict[str, object]) -> dict[str, object]:
    """The macros changed for gathered rows, which are not adjacent, and for groups of columns, which vectors
    must not cross.
    """
    if modes == PLAIN:
        return macros
    for letter, gathered in (("A", modes.gather_a), ("B", modes.gather_b)):
        if gathered and macros[f"{letter}_CONTIGUOUS"] == 2:
            macros |= {f"{letter}_CONTIGUOUS": 0, f"{letter}_VECTOR": 1}
    if not columns_together(modes, int(str(macros["D_VECTOR"]))):
        macros |= {name: 1 for name in ("D_VECTOR", "C_VECTOR") if name in macros}
    return {**macros, **modes.defines()}
