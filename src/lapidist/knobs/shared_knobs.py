"""The constants of headers that several kernels share, by the header that needs them."""

from __future__ import annotations

from typing import Any

from lapidist.dtypes import TYPES
from lapidist.knobs.knob import MACRO, SIZE, TYPE, Default, Knob, Knobs, Values
from lapidist.launch import ARRAYS_AT_ONCE

BYTES = {row.c_type: row.nbytes for row in TYPES.values()}
SUMS = {
    row.c_type: TYPES[row.accumulators[0]].c_type for row in TYPES.values() if row.accumulators
}  # of products
WHOLE = ("signed char", "unsigned char")
FLOATS_OF_8_BITS = ("__nv_fp8_e4m3", "__nv_fp8_e5m2")


def same_as(name: str) -> Default:
    return lambda values: values[name]


def sums_of(values: Values) -> str:
    return SUMS.get(values["T"], "float")


def output_of(values: Values) -> str:
    """Sums of 8-bit types are stored as they are."""
    element = values["T"]
    return sums_of(values) if BYTES.get(element) == 1 else element


# ---- common.cuh ----

ELEMENT = (Knob("T", "the type of A's elements, and of B's if no other is named", "float", TYPE),)
COMMON: Knobs = (
    *ELEMENT,
    Knob("ALIGNED", "1: rows start where vectors do, so several elements move in one instruction", 0),
    Knob("SCHEDULED", "1: blocks read a schedule; 0: a block a tile, by blockIdx", 0, MACRO),
    Knob("THREAD_ANEW", "1: scheduled blocks read the thread's number anew for each tile", 0),
)
TILE: Knobs = (
    Knob("BM", "rows of a tile of D"),
    Knob("BN", "its columns"),
    Knob("BK", "steps of k in a stage"),
    Knob("WM", "rows of a warp's part of the tile"),
    Knob("WN", "its columns"),
    Knob("TM", "rows of a thread's part of that"),
    Knob("TN", "its columns"),
    Knob("STAGES", "tiles of A and B that are in shared memory or being loaded"),
)
BAND = 8  # rows of tiles, or of clusters, in a band that no config sets
RASTER = Knob("RASTER", "rows of tiles, or of clusters, in a band", BAND)

# ---- modes.cuh ----

INDICES = "0: none; 1: the same in each matrix of the batch; 2: each has its own, one after another"
ADDEND: Knobs = (
    Knob("ADDEND", "0: there is no C, and no code for it", 1),
    Knob("ALPHA", "0: alpha is one (known only where there is no C)", 1),
)
MODES: Knobs = (
    Knob("GATHER_A", f"row i of A is row a_rows[i] of the memory. {INDICES}", 0, MACRO),
    Knob("GATHER_B", "column j of B is column b_cols[j], likewise", 0),
    Knob("SCATTER_ROWS", "row i of the product is row d_rows[i] of D and of C, likewise", 0, MACRO),
    Knob("SCATTER_COLS", "columns likewise", 0),
    Knob("PERMUTED", "1: rows and columns of D come in groups: four dimensions of any strides", 0),
    Knob(
        "ARRAYS", "lists of a pointer for each matrix: 1: passed with the launch; 2: on the device", 0, MACRO
    ),
    Knob("ARRAYS_AT_ONCE", "matrices of a list that is passed with the launch", ARRAYS_AT_ONCE),
    Knob("SCALARS", "1: alpha, beta, or both are read from device memory", 0),
    Knob("GUARDED", "1: nothing is done where a number in device memory is zero", 0, MACRO),
    Knob("RAGGED", "groups cut, at places in device memory: 0: nothing; 1: rows; 2: columns; 3: k", 0, MACRO),
    Knob("FIXED_PARTS", "parts of k of every tile of groups, which its block computes one by one", 1),
    Knob("FROM_ZERO", "1: the sums of the first of them are added to zero", 0),
    *ADDEND,
    Knob("Index", "of gathered and scattered rows and columns, and of the ends of groups", "int", TYPE),
)

# ---- epilogue.cuh ----

SLOTS = Knob("LARGEST_SLOTS", "words for the largest value: few threads meet at one", None, "unsigned")
EPILOGUE: Knobs = (
    Knob("FUSED", "1: a caller's function is compiled in", lambda v: int("EPILOGUE" in v), MACRO),
    Knob(
        "EPILOGUE", "its body: statements over `sum` and what was fetched, which return a value", None, MACRO
    ),
    Knob("EPILOGUE_OPERANDS", "operands of the launch: arrays, numbers, then arrays of results", 0, MACRO),
    Knob("EPILOGUE_KINDS", "what those that are read are, behind a comma each", "", MACRO),
    Knob("EPILOGUE_RESULTS", "likewise, of the arrays for results beside D", "", MACRO),
    Knob("EPILOGUE_STORED", "how many results there are beside D", 0),
    Knob("EPILOGUE_TILES", "how many of those that are read have a value for each element of D", 0),
    Knob("EPILOGUE_SHORT", "1: it is a few instructions", 0),
    Knob(
        "EPILOGUE_PAIRS",
        "1: `sum` is that of two neighbouring columns, the first even; what is fetched has a column for both",
        0,
        MACRO,
    ),
    Knob("EPILOGUE_KEEPS", "1: a result is the largest of all values, which threads keep", 0, MACRO),
    SLOTS,
    Knob("EPILOGUE_STORES", "1: D is the first of the results, and is stored as they are", 0),
    Knob("EPILOGUE_UNSTORED", "the number of a result that this kernel does not store", -1, MACRO),
)

# ---- share/ ----

REDUCTION: Knobs = (
    Knob("TRIANGLE", "1: only tiles that meet D's lower triangle are computed; 2: its upper one", 0),
    Knob("SQUARE_DOWN", "tiles of a square on the diagonal, along m", 1),
    Knob("SQUARE_ACROSS", "the same along n", 1),
    Knob("SEPARATE", "1: separate reduction blocks", 0),
    Knob("WALK_OF_REDUCTION", "1: reduction blocks may be among the blocks", same_as("SEPARATE")),
    Knob("ATOMIC", "1: peers between the first and the last add in any order", 0),
    Knob("SUMS_BY_EIGHTS", "1: asm statements of eight sums, which compile faster", 0),
    Knob("CLUSTER", "blocks with neighbouring tiles, which a schedule counts as one", 1),
    Knob("PEERS_IN_CLUSTER", "not 0: the peers of a tile form a cluster; on wgmma their number", 0),
    Knob("SHARERS", "threads that hold sums, the first of the block; 0: all", 0, MACRO),
)

# ---- tensor.cuh ----


def is_float_of_8_bits(values: Values) -> int:
    return int(values["T"] in FLOATS_OF_8_BITS)


BOTH_HALVES = Knob(
    "BOTH_HALVES",
    "1: such tiles are stored a second time, transposed; 2: wgmma, on the diagonal by elements",
    0,
)
SCALAR = Knob("Scalar", "of alpha, beta, and of sums outside the tensor core", sums_of, TYPE)
TENSOR: Knobs = (
    *COMMON,
    Knob("ElementB", "the type of B's elements, of the same size", same_as("T"), TYPE),
    SCALAR,
    Knob("Sum", "of sums in the tensor core", same_as("Scalar"), TYPE),
    Knob("Out", "the type of C and D", output_of, TYPE),
    BOTH_HALVES,
    Knob("FLOATS_OF_8_BITS", "1: A and B are floats of 8 bits", is_float_of_8_bits, MACRO),
    *MODES,
    *EPILOGUE,
)


def vectors_of_d(values: Values) -> Any:
    return 16 // BYTES.get(values["Out"], 16) if values["ALIGNED"] else 1


VECTORS: Knobs = (
    Knob("D_VECTOR", "elements of C and D moved at once", vectors_of_d, SIZE),
    Knob("C_VECTOR", "the same, or 1: C may lie otherwise than D", same_as("D_VECTOR"), SIZE),
)
CONTIGUOUS: Knobs = (
    Knob("A_CONTIGUOUS", "1: along k (A row-major); 2: along m; 0: neither"),
    Knob("B_CONTIGUOUS", "1: along k; 2: along n (B row-major); 0: neither"),
)
LOADED: Knobs = (
    *CONTIGUOUS,
    Knob("A_VECTOR", "elements of A that one move takes"),
    Knob("B_VECTOR", "elements of B"),
    Knob("D_VECTOR", "elements of D"),
)

# ---- factors.cuh ----

FACTORS_OF = (
    "0: none; 1: one for the matrix; 2: one for each row of A, column of B; 3: for each and 128 of k; 4: for"
    " 128 and 128 of k"
)
FACTORS: Knobs = (
    Knob("PROMOTED", "1: sums leave the tensor core every 128 of k, and the cores add them in float", 0),
    Knob("A_FACTORS", f"factors of A. {FACTORS_OF}", 0),
    Knob("B_FACTORS", "factors of B, likewise", 0),
    Knob("SCALED", "1: there are factors", lambda v: int(bool(v["A_FACTORS"] or v["B_FACTORS"])), MACRO),
)

# ---- wgmma_instructions.cuh ----

KINDS = {
    "half": "f16",
    "__nv_bfloat16": "bf16",
    "float": "tf32",
    "__nv_fp8_e4m3": "e4m3",
    "__nv_fp8_e5m2": "e5m2",
    "signed char": "s8",
    "unsigned char": "u8",
}


def kind_of(name: str) -> Default:
    return lambda values: f'".{KINDS.get(values[name], "f16")}"'


def shape_of(values: Values) -> str:
    size = BYTES.get(values["T"], 2)
    return f'"k{32 // size}.{"s32" if values["T"] in WHOLE else "f32"}"'


def tail_of(*majors: str) -> Default:
    """Behind the operands: signs of A and B, and for types of 16 bits which of them are transposed."""

    def tail(values: Values) -> str:
        if values["T"] in WHOLE:
            return '""'
        turns = [str(values[name]) for name in majors] if BYTES.get(values["T"], 2) == 2 else []
        return f'"{"".join(f", {word}" for word in ("1", "1", *turns))}"'

    return tail


WGMMA: Knobs = (
    Knob("A_M_MAJOR", "1: tiles of A have neighbours along m", 0),
    Knob("A_SKEWED", "1: rows of A start anywhere inside of 16 bytes", 0),
    Knob("B_N_MAJOR", "1: tiles of B have neighbours along n", 0),
    Knob("A_KIND", "A's type as the instruction calls it", kind_of("T"), MACRO),
    Knob("B_KIND", "B's", kind_of("ElementB"), MACRO),
    Knob("WGMMA_SHAPE", "steps of k of an instruction, and the type of its sums", shape_of, MACRO),
    Knob("WGMMA_TAIL", "its modifiers", tail_of("A_M_MAJOR", "B_N_MAJOR"), MACRO),
    Knob("WGMMA_TAIL_OF_REGISTERS", "the same with A in registers", tail_of("B_N_MAJOR"), MACRO),
    Knob(
        "SUM_REGISTER", "the kind of registers of sums", lambda v: '"r"' if v["T"] in WHOLE else '"f"', MACRO
    ),
)
