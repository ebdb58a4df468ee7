"""fp32 on Hopper's CUDA cores (gemm/sgemm.cu): how operands come to the copy engine, what is packed first, the registry's row."""

from __future__ import annotations

from collections.abc import Mapping

from lapidist.config import Config
from lapidist.dtypes import TYPES, size_of
from lapidist.hopper_operands import FLAG_BYTES, Lines, along_k, line, packed_step, starts_on_16
from lapidist.kernel import Kernel, Types
from lapidist.launch import TensorMap
from lapidist.problem import Matrix, Problem
from lapidist.schedule import CostModel
from lapidist.signatures import OPERANDS, SCHEDULE, SIZES, TMA_ALIGNMENT, Signature, vector_width

# Of a 256 x 128 tile, in steps of 32 k: a step takes 4.5 us, a partial sum of 128 KB travels through the L2 in one or two.
SHARING_COSTS = CostModel(start=0.3, fixup=0.6, iteration=1.0, peer=0.6)
# The assembler keeps the fmas as the source orders them. Left free it mixes those of several k, and how many then find two
# operands in one register bank, 30 to 100 of 512, depends on code far from the loop: 5 % of the speed.
SOURCE_ORDER = ("--ptxas-options=-O1",)
MOST_PACKED = 1 << 31  # the driver keeps workspaces: more would be missed elsewhere
SWIZZLE = 128  # of tiles whose rows lie along k


def tma_shared(config: Config, problem: Problem) -> int:
    """Stages of A and B tiles, a full and an empty barrier for each, and room to start on 1024 bytes (the swizzle's period)."""
    stage = (config.bm + config.bn) * config.bk * size_of(problem.dtype)
    return config.stages * (stage + 16) + 1024


def turned(problem: Problem) -> bool:
    """Whether B touches along k only: it is turned while it is packed."""
    return problem.k > 0 and not problem.b.lies("row")


def lines_as_they_lie(problem: Problem) -> tuple[Lines, Lines]:
    return line(problem.a, along_k(problem.a, True)), line(problem.b, not turned(problem))


def packed(problem: Problem) -> tuple[bool, bool]:
    """Whether A, and B, are copied first: what the copy engine cannot bring as it lies."""
    a, b = lines_as_they_lie(problem)
    size = size_of(problem.dtype)
    return not starts_on_16(problem.a, a, size), turned(problem) or not starts_on_16(problem.b, b, size)


def engine_lines(problem: Problem) -> tuple[Lines, Lines]:
    """The lines of A and of B as the copy engine finds them."""
    found = []
    turns = False, turned(problem)
    for (count, length, step), packs, turn in zip(lines_as_they_lie(problem), packed(problem), turns, strict=True):
        lines, elements = (length, count) if turn else (count, length)
        found.append((lines, elements, packed_step(elements, size_of(problem.dtype)) if packs else step))
    return found[0], found[1]


def packed_bytes(problem: Problem) -> tuple[int, int]:
    amounts = [
        count * step * size_of(problem.dtype) if packs else 0
        for (count, _, step), packs in zip(engine_lines(problem), packed(problem), strict=True)
    ]
    return amounts[0], amounts[1]


def scratch(problem: Problem) -> tuple[int, int]:
    """Bytes of flags and of packed operands in the workspace."""
    total = sum(packed_bytes(problem))
    return (FLAG_BYTES, -(-total // FLAG_BYTES) * FLAG_BYTES) if total else (0, 0)


def maps(problem: Problem, config: Config, at: Mapping[str, int]) -> dict[str, TensorMap]:
    """Packed operands lie in the workspace, A before B."""
    (pack_a, pack_b), (a_bytes, _) = packed(problem), packed_bytes(problem)
    a_lines, b_lines = engine_lines(problem)
    rows = along_k(problem.a, True)
    a_box = (config.bk, config.bm) if rows else (config.bm, config.bk)
    a, b = at["workspace"] if pack_a else at["A"], at["workspace"] + a_bytes if pack_b else at["B"]
    return {
        "a_map": lines_map(problem, a, a_lines, a_box, SWIZZLE if rows else 0),
        "b_map": lines_map(problem, b, b_lines, (config.bn, config.bk), 0),
    }


def lines_map(problem: Problem, address: int, lines: Lines, box: tuple[int, int], swizzle: int) -> TensorMap:
    """Empty extents and strides are not legal, so they are rounded up."""
    count, length, step = lines
    stride = step * size_of(problem.dtype) if count > 1 and length > 0 else TMA_ALIGNMENT
    return TensorMap(address, problem.dtype, (max(1, length), max(1, count)), (stride,), box, swizzle)


def refuse(problem: Problem) -> str | None:
    if problem.d.layout != "row":
        return "D must have neighbours that touch along rows or columns; it is strided"
    for name, matrix in (("A", problem.a), ("B", problem.b)):
        if strided(matrix):
            return f"{name} must have neighbours that touch along rows or columns; it is strided"
    if problem.batch:
        return f"it multiplies one pair of matrices; this is a batch of {problem.batch}"
    room = sum(packed_bytes(problem))
    if room > MOST_PACKED:
        return f"it keeps a workspace of at most {MOST_PACKED} bytes for packed operands; these take {room}"
    return None


def strided(matrix: Matrix) -> bool:
    return not (matrix.lies("row") or matrix.lies("col"))


def defines(problem: Problem) -> Mapping[str, object]:
    pack_a, pack_b = packed(problem)
    return {
        "ELEMENT": TYPES[problem.dtype].c_type,
        "A_ALONG_K": int(along_k(problem.a, True)),
        "B_ALONG_K": int(turned(problem)),
        "PACK_A": int(pack_a),
        "PACK_B": int(pack_b),
        "D_VECTOR": 4 if vector_width(problem.d, problem.dtype) == 4 else 1,
    }


SIGNATURE = Signature(
    "sgemm",
    (
        *SIZES,
        ("alpha", "scalar"),
        ("beta", "scalar"),
        ("a_map", "tensormap"),
        ("b_map", "tensormap"),
        *((letter, "pointer") for letter in OPERANDS),
        *((f"{letter}_{step}", "i64") for letter in "abc" for step in ("row", "col")),
        ("d_row", "i64"),
        *SCHEDULE,
    ),
    defines,
    refuse,
    maps,
)

SGEMM = Kernel(
    "sgemm",
    "production",
    "gemm/sgemm.cu",
    "fp32 on CUDA cores fed by the copy engine: every layout and alignment, persistent, sharing tiles",
    SIGNATURE,
    Config(256, 128, 32, 64, 64, 16, 8, stages=4, producers=128),
    0.84,
    capability=(9, 0),
    persistent=1,
    sharing=SHARING_COSTS,
    options=SOURCE_ORDER,
    dynamic_shared=tma_shared,
    types=Types(("float32",)),
    scratch=scratch,
)
