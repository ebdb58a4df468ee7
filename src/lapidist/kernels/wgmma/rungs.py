"""Registry rows of the rungs that TMA feeds to tensor cores: first by mma.sync, then by wgmma (sm_90a). Each
has one config for each type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.kernels.blocks.family import Blocks
from lapidist.kernels.family import Family
from lapidist.kernels.kernel import Kernel, Tuned, Types
from lapidist.kernels.macros import tensor_macros
from lapidist.kernels.mma.configs import staged
from lapidist.kernels.parameters import SCHEDULE, SIZES, Parameters
from lapidist.kernels.rules import hopper as rules
from lapidist.kernels.rules.layout_rules import LAYOUT_WORDS, refuse_layouts
from lapidist.kernels.tma_alignment import TMA_ALIGNMENT
from lapidist.kernels.wgmma.configs import tile
from lapidist.kernels.wgmma.family import MAPS, MATHS, rung_macros
from lapidist.kernels.wgmma.maps import rung_maps
from lapidist.kernels.wgmma.operands import mn_major, start_anywhere, transposed
from lapidist.kernels.wgmma.shared import patched_shared, plain_shared
from lapidist.kernels.wgmma.warpgroups import Warpgroups
from lapidist.launch import TensorMap
from lapidist.problems.problem import Problem


class CopiedLines(Family):
    """One pair of matrices, which TMA loads as they are. TMA also stores D, if the kernel takes a
    map of D.
    """

    def __init__(self, *parameters: tuple[str, str]) -> None:
        self.parameters = parameters

    def refuse(self, problem: Problem) -> str | None:
        b_layout = "col" if problem.b.lies("col") else "row"
        refusal = refuse_layouts(problem, b_layout)
        if refusal is None and any(transposed(problem)):
            return (
                f"tiles of {problem.math} have neighbours along k: B must be {LAYOUT_WORDS['col']}; it is"
                f" {LAYOUT_WORDS['row']}"
            )
        return refusal or refuse_lines(problem)

    def macros(self, problem: Problem) -> Mapping[str, object]:
        return rung_macros(problem)

    def maps(
        self, problem: Problem, config: Config, at: Mapping[str, int], peers: int
    ) -> Mapping[str, TensorMap]:
        return rung_maps(problem, config, at)

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        return (patched_shared if D_MAP in self.parameters else plain_shared)(problem, config)


class Rung(Warpgroups, CopiedLines):
    """Rungs with wgmma."""


class MmaTma(Blocks, CopiedLines):
    """mma.sync on such tiles, one block for each."""

    def macros(self, problem: Problem) -> Mapping[str, object]:
        """ALIGNED is the promise of tensor.cuh: D is stored in whole vectors."""
        return {**tensor_macros(problem), "B_N_MAJOR": int(mn_major(problem)[1])}


def refuse_lines(problem: Problem) -> str | None:
    """TMA needs lines that start on multiples of 16 bytes."""
    for name, wrong in zip("AB", start_anywhere(problem), strict=True):
        if wrong:
            return (
                f"TMA needs {name}'s pointer and the steps between its lines in multiples of"
                f" {TMA_ALIGNMENT} bytes"
            )
    return None


D_MAP = ("d_map", "tensormap")
BEFORE_D: Parameters = (*SIZES, ("alpha", "scalar"), *MAPS, ("beta", "scalar"))
D: Parameters = (("D", "pointer"), ("ldd", "i64"))
STORING = Rung(*BEFORE_D, *D)
COPYING = Rung(*BEFORE_D, D_MAP, *D)
STREAMING = Rung(*BEFORE_D, D_MAP, *D, *SCHEDULE)


def by_math(*arguments: object, **more: object) -> dict[str, Tuned]:
    return {math: ((tile(math, *arguments, **more), 0.8),) for math in MATHS}  # type: ignore[arg-type]


TYPES = Types(MATHS, outputs=True)
MMA_TMA_SHARES = {"float16": 0.72, "bfloat16": 0.72, "tf32": 0.64}  # of mma.sync's limit; 8-bit types: 0.68
MMA_TMA = {
    math: ((staged(math, 128, 256, 128, (64, 64), 4), MMA_TMA_SHARES.get(math, 0.68)),) for math in MATHS
}
MMA_TMA_RUNG = Kernel(
    "mma_tma",
    "rung",
    "ladder/25_mma_tma.cu",
    "mma.sync from swizzled tiles that TMA brings",
    MmaTma(*BEFORE_D, *D),
    MMA_TMA["float16"][0][0],
    MMA_TMA["float16"][0][1],
    (9, 0),
    tuned=MMA_TMA,
    types=TYPES,
    unit="mma",
    rules=rules.rung({math: config for math, ((config, _),) in MMA_TMA.items()}),
)
WGMMA_RUNGS = tuple(
    Kernel(
        source.partition("_")[2],
        "rung",
        f"ladder/{source}.cu",
        idea,
        family,
        tuned["float16"][0][0],
        efficiency,
        (9, 0),
        tuned={math: ((config, efficiency),) for math, ((config, _),) in tuned.items()},
        persistent=persistent,
        types=TYPES,
        unit="wgmma",
        longer=1.1,  # they take at least so much longer than gemm/wgmma.cu
        rules=rules.rung(
            {math: config for math, ((config, _),) in tuned.items()}, patched=D_MAP in family.parameters
        ),
        reductions=("turnstile",) if family.scheduled else (),
        defines={"SCHEDULED": 1} if family.scheduled else {},  # blocks read a schedule for whole tiles too
    )
    for source, idea, family, tuned, efficiency, persistent in (
        (
            "26_wgmma_tma",
            "wgmma multiplies what lies in shared memory: no fragments",
            STORING,
            by_math(128, 256, 4, producers=0),
            0.62,
            0,
        ),
        (
            "27_wgmma_specialised",
            "a producer and two consumers, tied together by mbarriers",
            STORING,
            by_math(128, 256, 4),
            0.67,
            0,
        ),
        (
            "28_wgmma_rounds",
            "one block an SM walks many tiles, in bands",
            STORING,
            by_math(128, 256, 4),
            0.7,
            1,
        ),
        ("29_wgmma_patches", "TMA stores D during the next tile", COPYING, by_math(128, 256, 4), 0.78, 1),
        ("30_wgmma_clusters", "pairs of blocks share B", COPYING, by_math(128, 256, 4, (2, 1)), 0.8, 1),
        (
            "31_wgmma_streamk",
            "what is left over full rounds of tiles is split along k",
            STREAMING,
            by_math(128, 256, 4, (2, 1)),
            0.8,
            1,
        ),
    )
)
