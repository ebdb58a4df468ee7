"""The constants of each production kernel and of the passes behind it, beside those of shared parts."""

from __future__ import annotations

from lapidist.knobs.knob import MACRO, TYPE, Knob, Knobs, Values, redefined
from lapidist.knobs.shared_knobs import (
    ADDEND,
    BOTH_HALVES,
    BYTES,
    COMMON,
    CONTIGUOUS,
    EPILOGUE,
    FACTORS,
    LOADED,
    MODES,
    RASTER,
    REDUCTION,
    SCALAR,
    SLOTS,
    TENSOR,
    TILE,
    VECTORS,
    WGMMA,
    same_as,
)
from lapidist.launch import MOST_PAIRS

STORED_AS_READ = Knob("Out", "the type of C and D", same_as("T"), TYPE)
BATCHED = Knob("BATCHED", "0: a single matrix", 0)

PARTS_OF_GROUPS: Knobs = (
    Knob("MOST_PARTS", "the most blocks that share the k of a tile of groups; 1: tiles are whole", 1),
    Knob("LEAST_STEPS", "the fewest steps of k of such a block", 1),
    Knob("TOGETHER", "blocks that share an SM's unit", 1),
)
SMALL: Knobs = (*COMMON, STORED_AS_READ, *CONTIGUOUS, *ADDEND, *TILE)
SLICES = Knob("SLICES", "slices of each stage's k, computed by different warps", 1, MACRO)
REGISTERS: Knobs = (
    Knob("REGISTERS", "of a thread that multiplies"),
    Knob("REGISTERS_LEFT", "of a thread of the warpgroup that loads"),
)
SIMT: Knobs = (
    *COMMON,
    SCALAR,
    STORED_AS_READ,
    *redefined(TILE, STAGES=2),
    BOTH_HALVES,
    SLICES,
    Knob(
        "COPIED",
        "1: tiles are copied to shared memory without registers",
        lambda v: int(v["STAGES"] > 2),
        MACRO,
    ),
    *LOADED,
    Knob("REGISTERS_COPIED", "the most of a thread that copies tiles to shared memory"),
    Knob("REGISTERS_MOVED", "of one that brings them through registers"),
    *MODES,
    *EPILOGUE,
    *REDUCTION,
    *PARTS_OF_GROUPS,
)
BLOCKS = Knob("BLOCKS", "blocks on an SM at once, for which the assembler saves registers")
MMA: Knobs = (
    *TENSOR,
    *TILE,
    RASTER,
    *LOADED,
    Knob("C_VECTOR", "D_VECTOR, or 1: C may lie otherwise than D", 1),
    *FACTORS,
    BLOCKS,
    *REDUCTION,
    *PARTS_OF_GROUPS,
)

# ---- sgemm ----

SGEMM: Knobs = (
    *COMMON,
    *TILE,
    RASTER,
    BOTH_HALVES,
    *REGISTERS,
    SLICES,
    Knob("A_ALONG_K", "1: elements along k are adjacent in A; 0: along m"),
    Knob("B_ALONG_K", "1: elements along k are adjacent in B, which is transposed when it is packed"),
    Knob("PACK_A", "1: TMA cannot load A as it is, so blocks pack it first"),
    Knob("PACK_B", "the same of B"),
    Knob(
        "D_VECTOR",
        "4: quads of D start on multiples of 16 bytes, and rows are whole quads; else 1",
        None,
        MACRO,
    ),
    BATCHED,
    *MODES,
    *EPILOGUE,
    # With the turnstile, such statements made the assembler put sums in one bank, and slowed the main loop.
    *redefined(REDUCTION, SHARERS=256, SUMS_BY_EIGHTS=same_as("SEPARATE")),
    *PARTS_OF_GROUPS,
)

# ---- wgmma ----


def cluster_of(values: Values) -> int:
    blocks: int = values["CLUSTER_M"] * values["CLUSTER_N"]
    return blocks


def clustered(values: Values) -> str:
    return f"__cluster_dims__({values['CLUSTER']}, 1, 1)" if values["CLUSTER"] > 1 else ""


def grouped_columns(values: Values) -> int:
    return 256 if values["EPILOGUE_PAIRS"] else 128


def unstored(values: Values) -> int:
    """Whole groups of a tile whose block has all sums are quantised in the kernel."""
    whole = values["BN"] % values["GROUPED_COLUMNS"] == 0 and not values["PEERS_IN_CLUSTER"]
    return values["EPILOGUE_GROUPED"] - 1 if whole else -1


CLUSTERS: Knobs = (
    Knob("CLUSTER_M", "blocks whose tiles lie below each other, which share B", 1),
    Knob("CLUSTER_N", "blocks whose tiles lie side by side, which share A", 1),
)
CLUSTERED = Knob("CLUSTERED", "of the kernel, if blocks form clusters", clustered, MACRO)
STORE_OF_D: Knobs = (
    Knob("D_COPY_ENGINE", "1: TMA stores D: its rows start and end on multiples of 16 bytes", 1),
    Knob("D_M_MAJOR", "1: D is stored by columns, as A and B are exchanged", 0),
)
PACKED = "1: lines do not start on multiples of 16 bytes, so blocks pack it first"
EPILOGUE_OF_WGMMA: Knobs = (
    *(knob for knob in EPILOGUE if knob.name != "EPILOGUE_UNSTORED"),
    Knob("EPILOGUE_GROUPED", "not 0: one more than the number of the result that is quantised", 0),
    Knob("EPILOGUE_GROUPS", "the kind of its array", None, MACRO),
    Knob("EPILOGUE_LARGEST", "the largest value of its type", None, MACRO),
    Knob("GROUPED_COLUMNS", "columns of the product that share a factor", grouped_columns),
    EPILOGUE[-1]._replace(default=unstored),
)
FAMILY: Knobs = (
    *(knob for knob in TENSOR if knob not in EPILOGUE),
    *VECTORS,
    *WGMMA,
    *TILE,
    *CLUSTERS,
    *redefined(REDUCTION, CLUSTER=cluster_of, SUMS_BY_EIGHTS=1)[:-1],
    CLUSTERED,
    Knob("PING_PONG", "1: two warpgroups have a tile each; one stores while the other multiplies", 0),
    Knob("GROUPS", "warpgroups that multiply"),
    *REGISTERS,
    Knob("BESIDE_SUMS", "registers beside sums and held elements of D, for each 64 rows of A"),
    Knob("LOADERS", "warps that load in turn: narrow tiles need a step sooner than one thread loads it"),
    Knob("PACKS_BESIDE", "1: idle warps pack, during products, what later tiles need"),
    Knob("LEAST_IN_PANELS", "packed elements for each block from which on k is packed in panels"),
    Knob("EIGHTHS", "eighths of k that are then packed before the products"),
    Knob("MOST_PAIRS", "pairs of blocks with a place in an order", MOST_PAIRS),
    Knob("SUMS_AT_ONCE", "sums of a thread up to which a short epilogue is written out"),
    Knob("SUMS_IN_PIECES", "the same, if it stores more than D"),
    Knob("PART_COLS", "columns of a tile of promoted sums that are multiplied at once"),
    REDUCTION[-1]._replace(default=lambda values: values["GROUPS"] * 128),
    Knob("RESIDENT", "2: an SM has room for a block of the next launch beside one of this launch", 1),
    RASTER,
    Knob("ALONG_M", "1: bands are columns of tiles", 0),
    Knob(
        "ARRIVALS",
        "1: rows of A arrive meanwhile, and flags tell which are there; 2: those of B, by columns",
        0,
        MACRO,
    ),
    Knob("OWNERS", "ranks that own rows of D, each with a map of its own; 0: D is one matrix", 0, MACRO),
    BATCHED,
    *PARTS_OF_GROUPS,
    Knob("A_ROWS", "rows of A, rounded up to 16, if they are few; else BM", same_as("BM")),
    Knob("PACK_A", PACKED, 0),
    Knob("PACK_B", f"{PACKED}; 2: it is also transposed, as wgmma reads its type K-major only", 0),
    *STORE_OF_D,
    Knob("D_STREAMS", "1: TMA stores D, which is larger than the L2, so that it leaves that first", 0),
    Knob("C_SAME", "1: C has one row for all rows of D, like a bias; 2: one column", 0),
    Knob("C_BY_ELEMENTS", "1: lines of C start anywhere; 2: C is contiguous across the lines of D", 0),
    *FACTORS,
    *EPILOGUE_OF_WGMMA,
)

# ---- what follows a product ----

VALUE = Knob("Value", "the type of the values that the product left", "float", TYPE)


RESULT = Knob("Result", "what is stored", "fused::Float32", TYPE)
THREADS = Knob("THREADS", "threads of a block")
OPERATION = Knob("OPERATION", "0: sum; 1: max; 2: amax")
LARGEST: Knobs = (VALUE, RESULT, THREADS, SLOTS, Knob("ABSOLUTE", "1: of absolute values"))
MIRROR: Knobs = (
    THREADS,
    Knob("MirroredElement", "a word as wide as an element", "unsigned", TYPE),
    Knob("TOGETHER", "neighbours of a row that move at once: rows of A and D start and end on as many"),
    Knob("FROM_UPPER", "1: the upper triangle is read; 0: the lower one"),
    Knob("HERMITIAN", "1: the elements are complex, and the matrices equal their conjugated transposes"),
    Knob("MIRRORED", "1: D gets both halves; 0: that of the triangle"),
)
OVERLAPS = Knob("OVERLAPS", "1: blocks start before the last launch has ended, from sm_90 on")
PART = Knob("Part", "the type of real and imaginary parts", "float", TYPE)
WHERE_THEY_LIE: Knobs = (
    PART,
    OVERLAPS,
    Knob("PARTS", "blocks of a cluster that share k", 1),
    *(Knob(f"{letter}_ALONG_K", f"1: neighbours along k touch in {letter}") for letter in "AB"),
    *(Knob(f"{letter}_CONJUGATED", f"1: {letter}'s conjugates are meant") for letter in "ABC"),
    *(Knob(f"{name}_REAL", f"1: {name.lower()} is real") for name in ("ALPHA", "BETA")),
    Knob("READS_C", "1: beta is not zero"),
)
COMPLEX_TILE: Knobs = (
    *WHERE_THEY_LIE,
    Knob("SIDE", "rows and columns of a block's results"),
    Knob("THREAD_ROWS", "of results that a thread has"),
    Knob("THREAD_COLUMNS", "of results that a thread has"),
    Knob("STEPS", "of k that are in shared memory at a time"),
)
COMPLEX_MMA: Knobs = (
    *redefined(COMMON, T="double"),
    *redefined(WHERE_THEY_LIE, Part="double"),
    *(knob for knob in TILE if knob.name not in ("TM", "TN")),
    RASTER,
    BLOCKS,
)
WIDEN: Knobs = (
    THREADS,
    PART,
    Knob("OF_REAL", "1: A's numbers are real"),
    Knob("READ_DOWN", "1: neighbours of a column of A touch, and are read together"),
    Knob("CONJUGATED", "1: A's conjugates are meant"),
    Knob("SCALED", "1: numbers are multiplied by re + i im"),
    Knob("WIDENED", "1: each number becomes two rows of two real ones; 0: it stays a complex number"),
    OVERLAPS,
    Knob("LEFT_CONJUGATED", "1: the left operand's conjugates are meant, so the second row has their sign"),
    Knob("GATHERS", "1: rows of A are gathered, 2: columns; 0: neither", 0, MACRO),
    Knob("Index", "of these rows or columns", "int", TYPE),
    Knob("LISTED", "1: A is an array of addresses, and C takes those of the results", 0, MACRO),
)
QUANTISE: Knobs = (
    VALUE,
    RESULT,
    Knob("WARPS", "warps of a block, a group each"),
    Knob("GROUP", "neighbours of a row that share a factor"),
    Knob("LARGEST", "the largest number of the results' type, which that of a group becomes", None, MACRO),
    Knob("AMONG_GROUPS", "1: rows of no group, whose ends lie in device memory, are left", 0, MACRO),
    Knob("Index", "of these ends", "int", TYPE),
    Knob("TOGETHER", "1: rows of values and of results begin on four of them, so that four move at once"),
)
REDUCE: Knobs = (
    VALUE,
    RESULT,
    THREADS,
    Knob("IN_TURN", "values that a thread takes in turn"),
    OPERATION,
    Knob("WIDTH", "columns side by side: 1, where values lie one behind another"),
)
ADD_TERMS: Knobs = (
    THREADS,
    Knob("Term", "the type of terms and of the sum", None, TYPE),
    Knob("Sum", "in which they are added", None, TYPE),
    Knob("RANKS", "that have a term each"),
    Knob("BY_TREE", "1: neighbours are added first; 0: in the order of ranks"),
    Knob("TOGETHER", "elements that move at once: 16 bytes, where all terms begin on them"),
)
SEND_TERMS: Knobs = (
    *ADD_TERMS,
    Knob("GATHERED", "1: rows of all ranks, one after the other; 0: their sum"),
    OVERLAPS,
)
REDUCE_ROWS: Knobs = (
    VALUE,
    RESULT,
    THREADS,
    OPERATION,
    Knob("NEIGHBOURS", "16 columns of the product: 16 values, or 8 of pairs; or 1"),
)


def x_of_8_bits(name: str) -> Knob:
    """By the knob that has the type of x."""
    said = "1: x is e4m3 or int8, and its rows have factors"
    return Knob("X_OF_8_BITS", said, lambda values: int(BYTES[values[name]] == 1), MACRO)


def x_factors(name: str) -> Knob:
    """By the knob that has the type of x: rows that were converted from 8 bits keep their factors."""
    return Knob("X_FACTORS", "1: rows of x have factors", x_of_8_bits(name).default, MACRO)


GROUP = Knob("GROUP", "steps of k with a factor; 0: a column has one")
FEW_BITS: Knobs = (
    *COMMON,
    Knob("FORMAT", "of weights: 0 int4, 1 mxfp4, 2 int8, 3 e4m3, 4 nvfp4 (quantised/decode.cuh)"),
    Knob("Scale", "the type of factors", None, TYPE),
    Knob("GROUPS", "groups with a factor each, in 64 steps of k"),
    Knob("ZEROS", "1: groups have zero points"),
    Knob("WARPS", "warps of a block"),
)
CONVERTED: Knobs = (THREADS, Knob("X", "the type of x", None, TYPE), Knob("T", "of its results", None, TYPE))
DECODED: Knobs = (*FEW_BITS, GROUP, Knob("CODES_ALONE", "1: codes in e4m3, without factors", 0))
RESIDENT = Knob("RESIDENT", "blocks on an SM at once, for which the assembler saves registers")
SKINNY: Knobs = (
    *FEW_BITS,
    Knob("X", "the type of x, which is multiplied as T", same_as("T"), TYPE),
    x_of_8_bits("X"),
    x_factors("X"),
    Knob("NORM", "1: sums are divided by the root of the mean square of their row of x", 0, MACRO),
    STORED_AS_READ,
    Knob("BIAS", "1: a number for each column is added"),
    GROUP,
    Knob("ROWS_OF_8", "eights of rows of x"),
    Knob("SIXTEENS", "sixteens of columns of a tile"),
    Knob("TILES_AHEAD", "tiles of a warp that are on their way"),
    RESIDENT,
    *MODES,
    *REDUCTION,
    *EPILOGUE,
)
STREAMED: Knobs = (
    *TENSOR,
    x_of_8_bits("T"),
    x_factors("T"),
    *VECTORS,
    *WGMMA,
    *TILE,
    *(knob for knob in FEW_BITS if knob not in COMMON and knob.name != "WARPS"),
    Knob("BIAS", "1: a number for each column is added"),
    GROUP,
    Knob("STEPS_BEHIND", "steps of the codes that gathered rows of x do not have", 0),
    *REDUCTION,
    Knob("BEFORE_ENDS", "1: codes are prefetched before blocks know where groups end", 0, MACRO),
    Knob("COLUMN_GROUPS", "64 columns that four warps multiply, of a block"),
    Knob("ROWS_OF_BOX", "rows of x that a copy of TMA brings"),
    Knob("FACTORS_FIRST", "1: codes are multiplied by factors in the type of x, and sums by none", 0),
    Knob("PARTS", "blocks of a cluster, which share k"),
    Knob("BLOCKS", "64 steps of k, of a stage: 2, or 4 where k is a multiple of 256"),
    RESIDENT,
    Knob(
        "INEXACT",
        "1: columns alone whose codes quantised/decoded.cu rounded; blocks have further rows",
        0,
        MACRO,
    ),
    *REGISTERS,
)
