"""fp32 on Hopper's CUDA cores (gemm/sgemm.cu): what it takes, what its source is told, the registry's row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.dtypes import TYPES, size_of
from lapidist.kernels.row import Kernel, Types
from lapidist.kernels.rules import fma as rules
from lapidist.kernels.rules.fma import CONSUMERS
from lapidist.kernels.sgemm.operands import maps, packed, packed_bytes, scratch, transposed_b
from lapidist.kernels.sgemm.sharing import EFFICIENCY, FED
from lapidist.kernels.signatures import (
    OPERANDS,
    SCHEDULE,
    SIZES,
    Signature,
    batched,
    columns_together,
    epilogue,
    vector_width,
)
from lapidist.kernels.wgmma.operands import along_k
from lapidist.problems.problem import Matrix, Problem

# The assembler keeps the fmas as the source orders them. Left free it mixes those of several k, and how many
# then find two operands in one register bank, 30 to 100 of 512, depends on code far from the loop: 5 % of the
# speed.
SOURCE_ORDER = ("--ptxas-options=-O1",)
MOST_PACKED = 1 << 31  # the driver keeps workspaces: more would be missed elsewhere
PATCH_BYTES = 4 * 72 * 4  # of a consumer warp: four rows of 64 columns and a gap
WARP_TILE = 64  # rows and columns: 16 x 8 sums for each of 4 x 8 lanes


def tma_shared(config: Knobs, problem: Problem) -> Any:
    """Stages of A and B tiles, a full and an empty barrier for each, and room to start on 1024 bytes (the
    swizzle's period).
    """
    stage = (config.bm + config.bn) * config.bk * size_of(problem.dtype)
    return config.stages * (stage + 16) + 1024


def shared_bytes(config: Knobs, problem: Problem) -> Any:
    """Beside the stages, a patch of D a warp where its rows start anywhere, and room where slices meet: each
    leaves there what is the others'.
    """
    patches = 0 if whole_quads(problem) else config.consumers // 32 * PATCH_BYTES
    meeting = (config.slices - 1) * config.bm * config.bn * 4
    return tma_shared(config, problem) + patches + meeting


def whole_quads(problem: Problem) -> bool:
    """Whether four neighbours of a row leave for D in one move, all of them: to ask for each was a third of
    the code.
    """
    return (
        columns_together(problem.modes, 4)
        and vector_width(problem.d, problem.dtype) == 4
        and problem.n % 4 == 0
    )


def refuse(problem: Problem) -> str | None:
    if problem.d.layout != "row" and problem.modes.groups is None:
        return "D must have neighbours that touch along rows or columns; it is strided"
    for name, matrix in (("A", problem.a), ("B", problem.b)):
        if strided(matrix):
            return f"{name} must have neighbours that touch along rows or columns; it is strided"
    if len(problem.batch) > 2:
        return (
            f"it steps through two batch dimensions; these strides leave {len(problem.batch)}:"
            f" {problem.batch}"
        )
    if problem.modes.of_each:
        return "it picks the same rows and columns in each matrix of a batch; these have indices of their own"
    if problem.modes.arrays and not problem.k:
        return "the copy engine reads copies of listed matrices; those without elements have none"
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
        "B_ALONG_K": int(transposed_b(problem)),
        "PACK_A": int(pack_a),
        "PACK_B": int(pack_b),
        "D_VECTOR": 4 if whole_quads(problem) else 1,
        **batched(problem),
        **epilogue(problem),
        **problem.modes.defines(),
    }


def outer_batches(problem: Problem) -> Mapping[str, int]:
    return {"batches": problem.batch[0] if len(problem.batch) > 1 else 1}


SIGNATURE = Signature(
    "sgemm",
    (
        *SIZES,
        ("batch", "i32"),
        ("batches", "i32"),
        ("alpha", "scalar"),
        ("beta", "scalar"),
        ("a_map", "tensormap"),
        ("b_map", "tensormap"),
        *((letter, "pointer") for letter in OPERANDS),
        *((f"{letter}_{step}", "i64") for letter in "abc" for step in ("row", "col", "inner", "outer")),
        *((f"d_{step}", "i64") for step in ("row", "inner", "outer")),
        ("modes", "modes"),
        *SCHEDULE,
    ),
    defines,
    refuse,
    maps,
    outer_batches,
)


def tile(bm: int, bn: int, stages: int) -> Config:
    """Warps that the tile leaves over have slices of k."""
    slices = CONSUMERS // (bm // WARP_TILE * (bn // WARP_TILE) * 32)
    return Config(bm, bn, 32, WARP_TILE, WARP_TILE, 16, 8, stages=stages, producers=128, slices=slices)


# Stages are as many as fit beside the room where slices meet.
TILES = ((256, 128, 4), (128, 256, 4), (128, 128, 4), (128, 64, 5), (64, 128, 5), (64, 64, 6))
CONFIGS = tuple(tile(*each) for each in TILES)

SGEMM = Kernel(
    "sgemm",
    "production",
    "gemm/sgemm.cu",
    "fp32 on CUDA cores fed by the copy engine: every layout, alignment and batch, persistent, sharing tiles",
    SIGNATURE,
    CONFIGS[0],
    EFFICIENCY[1],
    others=tuple((config, EFFICIENCY[config.slices]) for config in CONFIGS[1:]),
    capability=(9, 0),
    overlaps=True,
    persistent=1,
    options=SOURCE_ORDER,
    dynamic_shared=shared_bytes,
    types=Types(("float32",)),
    scratch=scratch,
    family=FED,
    ways=("turnstile", "separate"),
    defines={"SCHEDULED": 1},  # blocks ask for whole tiles too
    rules=rules.SGEMM,
    slices_stages=True,
)
