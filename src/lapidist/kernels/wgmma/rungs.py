"""The ladder's rungs on what the copy engine brings to the tensor cores: first by mma.sync, then by wgmma
(sm_90a). Each is one config in each type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lapidist.kernels.mma import staged
from lapidist.kernels.row import Kernel, Tuned, Types
from lapidist.kernels.rules import hopper as rules
from lapidist.kernels.signatures import (
    LAYOUT_WORDS,
    SCHEDULE,
    SIZES,
    TMA_ALIGNMENT,
    Signature,
    refuse_layouts,
    tensor_defines,
)
from lapidist.kernels.wgmma.configs import tile
from lapidist.kernels.wgmma.family import MAPS, MATHS, WGMMA, rung_defines
from lapidist.kernels.wgmma.operands import (
    patched_shared,
    plain_shared,
    rung_maps,
    start_anywhere,
    transposed,
)
from lapidist.kernels.wgmma.time import block_costs
from lapidist.problems.problem import Problem


def refuse_rung(problem: Problem) -> str | None:
    b_layout = "col" if problem.b.lies("col") else "row"
    refusal = refuse_layouts(problem, b_layout)
    if refusal is None and any(transposed(problem)):
        return (
            f"wgmma reads {problem.math} with neighbours along k: B must be {LAYOUT_WORDS['col']}; it is"
            f" {LAYOUT_WORDS['row']}"
        )
    return refusal or refuse_lines(problem)


def refuse_lines(problem: Problem) -> str | None:
    """What the copy engine brings starts on 16 bytes, line by line."""
    for name, wrong in zip("AB", start_anywhere(problem), strict=True):
        if wrong:
            return (
                f"the copy engine needs {name}'s pointer and the steps between its lines in multiples of"
                f" {TMA_ALIGNMENT} bytes"
            )
    return None


def stored_defines(problem: Problem) -> Mapping[str, object]:
    """ALIGNED is the promise of tensor.cuh: whole vectors of D leave at once."""
    return {**rung_defines(problem), "ALIGNED": tensor_defines(problem)["ALIGNED"]}


RUNG = Signature(
    "wgmma",
    (*SIZES, ("alpha", "scalar"), *MAPS, ("beta", "scalar"), ("D", "pointer"), ("ldd", "i64")),
    rung_defines,
    refuse_rung,
    rung_maps,
)
PERSISTENT = Signature(
    "wgmma, D by the copy engine",
    (
        *SIZES,
        ("alpha", "scalar"),
        *MAPS,
        ("beta", "scalar"),
        ("d_map", "tensormap"),
        ("D", "pointer"),
        ("ldd", "i64"),
    ),
    rung_defines,
    refuse_rung,
    rung_maps,
)
STREAMED = replace(PERSISTENT, name="wgmma, scheduled", parameters=(*PERSISTENT.parameters, *SCHEDULE))
COPIED = replace(RUNG, name="mma.sync, copied by TMA", defines=stored_defines)
# what these pass: lines on 16 bytes, in other than 16-bit types along k
HOPPERS = (RUNG, COPIED, PERSISTENT, STREAMED)


def by_math(*arguments: object, **more: object) -> dict[str, Tuned]:
    return {math: ((tile(math, *arguments, **more), 0.8),) for math in MATHS}  # type: ignore[arg-type]


TYPES = Types(MATHS, outputs=True)
MMA_TMA_SHARES = {"float16": 0.72, "bfloat16": 0.72, "tf32": 0.64}  # of mma.sync's limit; of 8-bit types 0.68
MMA_TMA = {
    math: ((staged(math, 128, 256, 128, (64, 64), 4), MMA_TMA_SHARES.get(math, 0.68)),) for math in MATHS
}
MMA_TMA_RUNG = Kernel(
    "mma_tma",
    "rung",
    "ladder/25_mma_tma.cu",
    "mma.sync from swizzled tiles that the copy engine brings",
    COPIED,
    MMA_TMA["float16"][0][0],
    MMA_TMA["float16"][0][1],
    (9, 0),
    tuned=MMA_TMA,
    dynamic_shared=plain_shared,
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
        signature,
        tuned["float16"][0][0],
        efficiency,
        (9, 0),
        tuned={math: ((config, efficiency),) for math, ((config, _),) in tuned.items()},
        persistent=persistent,
        dynamic_shared=shared,
        types=TYPES,
        unit="wgmma",
        family=WGMMA,
        block_costs=block_costs,
        longer=1.1,  # than gemm/wgmma.cu, at least
        rules=rules.rung({math: config for math, ((config, _),) in tuned.items()}),
        ways=("turnstile",) if signature.scheduled else (),
        defines={"SCHEDULED": 1} if signature.scheduled else {},  # blocks ask for whole tiles too
    )
    for source, idea, signature, tuned, efficiency, persistent, shared in (
        (
            "26_wgmma_tma",
            "wgmma multiplies what lies in shared memory: no fragments",
            RUNG,
            by_math(128, 256, 4, producers=0),
            0.62,
            0,
            plain_shared,
        ),
        (
            "27_wgmma_specialised",
            "a producer and two consumers, tied together by mbarriers",
            RUNG,
            by_math(128, 256, 4),
            0.67,
            0,
            plain_shared,
        ),
        (
            "28_wgmma_rounds",
            "one block an SM walks many tiles, in bands",
            RUNG,
            by_math(128, 256, 4),
            0.7,
            1,
            plain_shared,
        ),
        (
            "29_wgmma_patches",
            "D leaves by the copy engine during the next tile",
            PERSISTENT,
            by_math(128, 256, 4),
            0.78,
            1,
            patched_shared,
        ),
        (
            "30_wgmma_persistent",
            "pairs of blocks share B",
            PERSISTENT,
            by_math(128, 256, 4, (2, 1)),
            0.8,
            1,
            patched_shared,
        ),
        (
            "31_wgmma_streamk",
            "what is left over full rounds of tiles is split along k",
            STREAMED,
            by_math(128, 256, 4, (2, 1)),
            0.8,
            1,
            patched_shared,
        ),
    )
)
