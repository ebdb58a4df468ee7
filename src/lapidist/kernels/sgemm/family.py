"""The family sgemm (gemm/sgemm.cu), fp32 on Hopper's CUDA cores: what it takes, its macros, its
registry row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.dtypes import TYPES
from lapidist.kernels import budgets
from lapidist.kernels.blocks.group_parts import OF_TMA, part_macros, parts_of_tiles
from lapidist.kernels.clipped_maps import refuse_cut_lines, refuse_many_lines
from lapidist.kernels.kernel import Kernel, Types
from lapidist.kernels.ladder import fed_bytes
from lapidist.kernels.macros import batched, epilogue
from lapidist.kernels.parameters import OPERANDS, SCHEDULE, SIZES
from lapidist.kernels.rules import fma as rules
from lapidist.kernels.rules.fma import CONSUMERS
from lapidist.kernels.rules.layout_rules import refuse_batch, refuse_strided
from lapidist.kernels.sgemm.operands import maps, packed, packed_bytes, scratch, transposed_b
from lapidist.kernels.sgemm.sharing import EFFICIENCY, Fed
from lapidist.kernels.tma_alignment import along_k
from lapidist.kernels.vector_width import columns_together, vector_width
from lapidist.launch import TensorMap
from lapidist.problems.problem import Problem

# -O1 keeps the fmas in the source's order. At higher levels the assembler mixes those of several k. Then 30
# to 100 of 512 have two operands in one register bank, depending on code far from the loop: 5 % of the speed.
SOURCE_ORDER = ("--ptxas-options=-O1",)
MOST_PACKED = 1 << 31  # bytes: workspaces are kept, so larger ones would be missing elsewhere
PATCH_BYTES = 4 * 72 * 4  # of a consumer warp: four rows of 64 columns and 8 unused ones
QUEUE_BYTES = 320  # four tiles of groups, and their barriers
WARP_TILE = 64  # rows and columns: 16 x 8 sums for each of 4 x 8 lanes


def in_quads(problem: Problem) -> bool:
    """Whether all of D is stored in fours of a row. Code that asks for each four whether it is whole was a
    third of the machine code.
    """
    return (
        columns_together(problem.modes, 4)
        and vector_width(problem.d, problem.dtype) == 4
        and problem.n % 4 == 0
    )


class Sgemm(Fed):
    takes_groups = True
    walks_triangles = True
    parameters = (
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
    )

    def refuse(self, problem: Problem) -> str | None:
        strided_d = refuse_strided("D", problem.d, "row") if problem.modes.groups is None else None
        return (
            strided_d
            or refuse_strided("A", problem.a)
            or refuse_strided("B", problem.b)
            or refuse_batch(problem)
            or refuse_copies(problem)
            or refuse_groups(problem)
        )

    def macros(self, problem: Problem) -> Mapping[str, object]:
        pack_a, pack_b = packed(problem)
        shares = budgets.SGEMM if problem.modes.ragged is None else budgets.FINDING
        return {
            "T": TYPES[problem.dtype].c_type,
            "A_ALONG_K": int(along_k(problem.a, True)),
            "B_ALONG_K": int(transposed_b(problem)),
            "PACK_A": int(pack_a),
            "PACK_B": int(pack_b),
            "D_VECTOR": 4 if in_quads(problem) else 1,
            "REGISTERS": shares.multiplies,
            "REGISTERS_LEFT": shares.loads,
            **batched(problem),
            **epilogue(problem),
            **problem.modes.defines(),
        }

    def constants(self, problem: Problem) -> Mapping[str, int]:
        """The outer extent of a batch."""
        return {"batches": problem.batch[0] if len(problem.batch) > 1 else 1}

    def scratch(self, problem: Problem) -> tuple[int, int]:
        return scratch(problem)

    def parts_of_tiles(self, problem: Problem, config: Config) -> int:
        return parts_of_tiles(problem, config, "fma", 1, OF_TMA)

    def config_macros(self, problem: Problem, config: Config, scheduled: bool) -> Mapping[str, object]:
        return part_macros(problem, config, "fma", 1, OF_TMA)

    def maps(
        self, problem: Problem, config: Config, at: Mapping[str, int], peers: int
    ) -> Mapping[str, TensorMap]:
        return maps(problem, config, at)

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        """Beside the stages: a patch of D for each warp if its rows start anywhere, space in which slices
        exchange sums, and a queue of the tiles of groups.
        """
        patches = 0 if in_quads(problem) else config.consumers // 32 * PATCH_BYTES
        meeting = (config.slices - 1) * config.bm * config.bn * 4
        queue = 0 if problem.modes.ragged is None else QUEUE_BYTES
        return fed_bytes(problem, config) + patches + meeting + queue


def refuse_copies(problem: Problem) -> str | None:
    """Why operands cannot be packed first, or None."""
    if problem.modes.of_each:
        return "it picks the same rows and columns in each matrix of a batch; these have indices of their own"
    if problem.modes.arrays and not problem.k:
        return "TMA reads copies of listed matrices; those without elements have none"
    room = sum(packed_bytes(problem))
    if room > MOST_PACKED:
        return f"it keeps a workspace of at most {MOST_PACKED} bytes for packed operands; these take {room}"
    return None


def refuse_groups(problem: Problem) -> str | None:
    """Boxes of TMA end with a group only between lines of the map. Of B these are always rows."""
    ragged = problem.modes.ragged
    if ragged is None:
        return None
    if ragged.most and packed(problem)[0]:
        return "A is packed up to the last group; with counts, rows that belong to none lie before that"
    across = refuse_cut_lines(problem, ragged, (not along_k(problem.a, True), True))
    return refuse_many_lines(ragged) or across


def tile(bm: int, bn: int, stages: int) -> Config:
    """A tile with fewer warp tiles than the block has warps has slices of k."""
    slices = CONSUMERS // (bm // WARP_TILE * (bn // WARP_TILE) * 32)
    return Config(bm, bn, 32, WARP_TILE, WARP_TILE, 16, 8, stages=stages, producers=128, slices=slices)


# As many stages as fit beside the space in which slices exchange sums.
TILES = ((256, 128, 4), (128, 256, 4), (128, 128, 4), (128, 64, 5), (64, 128, 5), (64, 64, 6))
CONFIGS = tuple(tile(*sizes) for sizes in TILES)

SGEMM = Kernel(
    "sgemm",
    "production",
    "gemm/sgemm.cu",
    "fp32 on CUDA cores fed by TMA: every layout, alignment and batch, persistent, sharing tiles",
    Sgemm(),
    CONFIGS[0],
    EFFICIENCY[1],
    others=tuple((config, EFFICIENCY[config.slices]) for config in CONFIGS[1:]),
    capability=(9, 0),
    overlaps=True,
    persistent=1,
    options=SOURCE_ORDER,
    types=Types(("float32",)),
    reductions=("turnstile", "separate"),
    defines={"SCHEDULED": 1},  # blocks read a schedule for whole tiles too
    rules=rules.SGEMM,
    slices_stages=True,
)
