"""The family simt (gemm/simt.cu): any layout on CUDA cores, with every stride of every operand, batches and
modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.dtypes import TYPES
from lapidist.kernels.blocks.family import Blocks
from lapidist.kernels.blocks.group_parts import MEASURED, OF_THREADS, Waves, part_macros, parts_of_tiles
from lapidist.kernels.blocks.splits import by_fours, resident_blocks
from lapidist.kernels.budgets import simt_registers
from lapidist.kernels.kernel import FMA_TYPES, Kernel
from lapidist.kernels.macros import ALONG_K, ALONG_N, in_modes
from lapidist.kernels.parameters import OPERANDS, SCHEDULE, SIZES, Parameters
from lapidist.kernels.rules import fma as rules
from lapidist.kernels.rules.layout_rules import refuse_batch, refuse_grid, refuse_strided
from lapidist.kernels.vector_width import vector_width
from lapidist.problems.problem import Problem

SIMT_PARAMETERS: Parameters = (
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


class Simt(Blocks):
    unit = "fma"
    parameters = SIMT_PARAMETERS
    takes_groups = True
    guards = True
    walks_triangles = True

    def refuse(self, problem: Problem) -> str | None:
        strided = refuse_strided("D", problem.d, "row") if problem.modes.groups is None else None
        return strided or refuse_batch(problem) or refuse_grid(problem)

    def macros(self, problem: Problem) -> Mapping[str, object]:
        macros = {
            "T": TYPES[problem.dtype].c_type,
            "A_CONTIGUOUS": ALONG_K[problem.a.layout],
            "B_CONTIGUOUS": ALONG_N[problem.b.layout],
            "A_VECTOR": vector_width(problem.a, problem.dtype),
            "B_VECTOR": vector_width(problem.b, problem.dtype),
            "D_VECTOR": vector_width(problem.d, problem.out_dtype),
        }
        if problem.out_dtype != problem.dtype:
            macros["Out"] = TYPES[problem.out_dtype].c_type
        return in_modes(problem.modes, macros)

    def parts_of_tiles(self, problem: Problem, config: Config) -> int:
        if problem.modes.ragged is None:
            return 1
        return parts_of_tiles(
            problem, config, self.unit, self.blocks_together(problem, config), self.waves(problem)
        )

    def waves(self, problem: Problem) -> Waves:
        """The most waves of groups' tiles of which the last ones are cut."""
        return OF_THREADS

    def blocks_together(self, problem: Problem, config: Config) -> int:
        """Blocks on an SM, of the chip whose times are known."""
        return resident_blocks(self, self.unit, config, problem, MEASURED)

    def part_macros(self, problem: Problem, config: Config) -> Mapping[str, object]:
        if problem.modes.ragged is None:
            return {}
        return part_macros(
            problem, config, self.unit, self.blocks_together(problem, config), self.waves(problem)
        )

    def config_macros(self, problem: Problem, config: Config, scheduled: bool) -> Mapping[str, object]:
        of_thread, fours = config.tm * config.tn, by_fours(self, problem)
        return {
            "REGISTERS_COPIED": simt_registers(of_thread, True, config.threads),
            "REGISTERS_MOVED": simt_registers(of_thread, fours, config.threads),
            **self.part_macros(problem, config),
        }

    def short_tile_first(self, config: Knobs) -> Any:
        return config.stages > rules.MOVED

    def shares_of_speed(self, math: str, config: Config) -> tuple[float, float]:
        """Small tiles have more single-element loads. Copies along k always are of single elements."""
        return (0.87 if config.bm == config.bn == 32 else 0.95), 1.04 if config.stages else 1.0


SMALL = Config(16, 32, 16, 16, 32, 4, 4)  # for batches of small matrices
# Single precision: tiles are copied to shared memory without passing registers. Fitted to 84 products, H200.
# Slices are twice the warps, each with half of a step's k: for few tiles, whose warps hide little latency.
COPIED = (
    (Config(64, 128, 16, 32, 64, 8, 8, stages=3), 0.79),
    (Config(64, 64, 16, 32, 32, 8, 4, stages=4), 0.72),
    (Config(64, 64, 16, 32, 32, 8, 4, stages=4, slices=2), 0.70),
    (Config(32, 128, 16, 32, 64, 8, 8, stages=3), 0.73),
    (Config(32, 128, 16, 32, 64, 8, 8, stages=3, slices=2), 0.70),
    (Config(128, 32, 16, 32, 32, 8, 4, stages=3), 0.68),
    (Config(64, 32, 32, 16, 32, 4, 4, stages=3, slices=2), 0.62),
    (Config(32, 64, 32, 16, 32, 4, 4, stages=3, slices=2), 0.62),
    (Config(32, 64, 16, 16, 32, 4, 4, stages=4), 0.60),
    (Config(32, 32, 32, 16, 32, 4, 4, stages=3), 0.56),
    (Config(32, 32, 32, 16, 32, 4, 4, stages=3, slices=2), 0.61),
    (SMALL, 0.33),
)
# In double larger tiles do not fit in 48 KB.
DOUBLES = ((Config(64, 64, 8, 32, 64, 8, 8), 0.675), (SMALL, 0.45))
SIMT = Kernel(
    "simt",
    "production",
    "gemm/simt.cu",
    "every layout, stride, batch and size",
    Simt(),
    Config(64, 128, 16, 32, 64, 8, 8),
    0.675,
    others=(
        (Config(64, 64, 32, 32, 32, 8, 4), 0.62),
        (Config(32, 64, 32, 16, 32, 4, 4), 0.54),
        (Config(32, 32, 32, 16, 32, 4, 4), 0.51),
        (SMALL, 0.33),
    ),
    tuned={"float32": COPIED, "float64": DOUBLES},
    rules=rules.SIMT,
    slices_stages=True,
    types=replace(FMA_TYPES, outputs=True),
)
