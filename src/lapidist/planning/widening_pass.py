"""The launch that copies or widens an operand of a complex product (cuda/packing/widen.cu)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES, size_of
from lapidist.launch import Launch, ParameterBlock

THREADS, SIDE = 256, 32  # of a square of numbers
SECTOR = 32  # bytes that the L2 reads at once; TMA wants half as many
ROWS, COLUMNS = 1, 2  # that are gathered
FIRST_TO_OVERLAP = 90  # architecture


class Widening(NamedTuple):
    """What is read, and what becomes of it. `factor`: 1 leaves numbers as they are, even NaNs."""

    part: str  # the type of real and imaginary parts
    of_real: bool = False
    conjugated: bool = False
    widened: bool = False
    left_conjugated: bool = False
    factor: complex = 1.0
    gathers: int = 0  # or ROWS, COLUMNS
    index_type: str = "int32"
    listed: bool = False  # matrices whose addresses lie in an array
    padded: bool = False  # rows start on multiples of a sector, so that no kernel packs them again

    def pitch(self, columns: int) -> int:
        """Numbers from row to row of the result."""
        numbers = SECTOR // (2 * size_of(self.part)) if self.padded else 1
        return -(-columns // numbers) * numbers


def overlaps_on(architecture: str) -> bool:
    """Whether blocks may start before the last launch has ended."""
    return int(architecture.strip("sm_af")) >= FIRST_TO_OVERLAP


def parameters_of(widening: Widening) -> ParameterBlock:
    kind = {"float16": "f16", "float32": "f32", "float64": "f64"}[widening.part]
    return ParameterBlock(
        [
            ("A", "pointer"),
            ("D", "pointer"),
            *((name, "i32") for name in ("rows", "columns", "pitch")),
            *((f"a_{step}", "i64") for step in ("row", "col", "matrix")),
            ("re", kind),
            ("im", kind),
            *([("B", "pointer"), ("b_matrix", "i64")] if widening.gathers else []),
            *([("C", "pointer")] if widening.listed else []),
        ]
    )


@lru_cache(maxsize=256)
def widen(
    shape: tuple[int, int],
    matrices: int,
    steps: tuple[int, int, int],
    widening: Widening,
    architecture: str,
    assembled: bool = True,
    index_step: int = 0,
) -> Launch:
    """`steps`: numbers from row to row, column to column and matrix to matrix. `index_step`: from the indices
    of a matrix to those of the next.
    """
    (rows, columns), factor = shape, complex(widening.factor)
    overlaps = overlaps_on(architecture)
    macros = {
        "THREADS": THREADS,
        "Part": TYPES[widening.part].c_type,
        "OF_REAL": int(widening.of_real),
        "READ_DOWN": int(steps[0] == 1 and steps[1] != 1),
        "CONJUGATED": int(widening.conjugated),
        "SCALED": int(factor != 1),
        "WIDENED": int(widening.widened),
        "LEFT_CONJUGATED": int(widening.left_conjugated),
        "OVERLAPS": int(overlaps),
        "GATHERS": widening.gathers,
        "Index": {"int32": "int", "int64": "long long"}[widening.index_type],
        "LISTED": int(widening.listed),
    }
    parameters = parameters_of(widening)
    numbers = dict(zip(("a_row", "a_col", "a_matrix"), steps, strict=True))
    sizes = {"rows": rows, "columns": columns, "pitch": widening.pitch(columns), "b_matrix": index_step}
    content = bytes(parameters.pack({**numbers, **sizes, "re": factor.real, "im": factor.imag}))
    binary = compile_kernel("packing/widen.cu", "widen", macros, architecture, assembled=assembled)
    blocks = -(-rows // SIDE) * -(-columns // SIDE) * matrices
    grid, block = (blocks, 1, 1), (THREADS, 1, 1)
    return Launch(
        binary, grid, block, content, overlaps=overlaps, parameters=parameters, patches=parameters.patches()
    )
