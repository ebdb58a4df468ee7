"""What the planner chose for 1,700 drawn problems, a line each.

A change of the model, of configs or of rules changes lines: they show which choices it changed, and
`python tests/planning/recorded_choices.py` writes them again. What only moves code, or makes planning
quicker, changes none.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lapidist.config import Config
from lapidist.device import CHIPS, Device
from lapidist.dtypes import FP8, outputs_of, size_of
from lapidist.errors import LapidistError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import kernel_named
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.modes import PLAIN, Modes
from lapidist.problems.problem import Problem
from lapidist.problems.scaling import AS_THEY_ARE, ONE, SQUARES, STRIPS, Scale, Scaling
from lapidist.schedule.sharing_choice import PLANNED, Sharing

RECORD = Path(__file__).with_name("choices.txt")
COUNT, ASKED = 1500, 200  # free choices; those in which a caller names the kernel or how blocks share tiles
NAMED = ("wgmma", "mma", "simt", "sgemm", "tma_streamk", "wgmma_streamk", "mma_multistage", "async_pipeline")
TYPES = {
    "bfloat16": 6,
    "float16": 3,
    "float32": 10,
    "float64": 2,
    "int8": 2,
    "uint8": 1,
    "float8_e4m3fn": 3,
    "float8_e5m2": 2,
}  # and how often of each
WISHES = (
    PLANNED,
    Sharing(split_k=1),
    Sharing(split_k=3),
    Sharing(split_k=2, reduction="cluster"),
    Sharing(split_k=4, reduction="turnstile"),
    Sharing("stream_k"),
    Sharing("stream_k", avail_sms=100),
    Sharing("data_parallel"),
    Sharing(avail_sms=64),
    Sharing(split_k=2, reduction="separate"),
)


class Asked(NamedTuple):
    problem: Problem
    device: Device
    kernel: Kernel | None = None
    sharing: Sharing = PLANNED


def asked() -> Iterator[Asked]:
    """The same on every computer."""
    draw = random.Random(20261125)
    for number in range(COUNT + ASKED):
        problem, device = drawn_problem(draw), draw.choice((CHIPS["h100"], CHIPS["h200"]))
        if number < COUNT:
            yield Asked(problem, device)
        else:
            kernel = draw.choice((None, *map(kernel_named, NAMED)))
            yield Asked(problem, device, kernel, draw.choice(WISHES))


def extent(draw: random.Random) -> int:
    """Log-uniform up to 16384: whole 64s, odd ones, a few rows, rarely none."""
    size = round(2 ** draw.uniform(4, 14))
    kind = draw.random()
    if kind < 0.5:
        return max(64, size // 64 * 64)
    if kind < 0.85:
        return size
    return (
        draw.choice((0, 1, 2, 8, 15, 16, 17, 32, 33, 100, 128, 256)) if kind > 0.99 else draw.randint(1, 130)
    )


def drawn_problem(draw: random.Random) -> Problem:
    dtype = draw.choices(list(TYPES), list(TYPES.values()))[0]
    b_dtype = draw.choice(FP8) if dtype in FP8 else dtype
    out = draw.choice(outputs_of(dtype, b_dtype))
    large = dtype == "float32" and draw.random() < 0.5
    m, n, k = ((draw.randint(500, 6000) if large else extent(draw)) for _ in "mnk")
    batch = draw.choice(((), (), (), (), (2,), (3,), (16,), (2, 5)))
    rows = draw.random() < 0.06 and not batch
    d = matrix(draw, batch, m, n, out, draw.random() < 0.15)
    c = matrix(draw, batch, m, n, out, draw.random() < 0.2) if draw.random() < 0.25 else None
    return Problem.of(
        matrix(draw, batch, m, k, dtype, draw.random() < 0.35),
        matrix(draw, () if draw.random() < 0.2 else batch, k, n, b_dtype, draw.random() < 0.5),
        d if c is not None and draw.random() < 0.4 else c,
        d,
        accumulator="float16" if dtype == "float16" and draw.random() < 0.1 else None,
        precision="tf32" if dtype == "float32" and draw.random() < 0.4 else "ieee",
        modes=Modes(gather_a=1) if rows else PLAIN,
        scaling=scaling(draw) if dtype in FP8 and not rows else AS_THEY_ARE,
        one_alpha=draw.random() < 0.7,
    )


def matrix(
    draw: random.Random, batch: tuple[int, ...], rows: int, cols: int, dtype: str, by_columns: bool
) -> Operand:
    """Dense, on 16 bytes or on lines of the L2, or anywhere; sometimes every other column alone."""
    kind, lines = draw.random(), (cols, rows) if by_columns else (rows, cols)
    per_vector = 16 // size_of(dtype)
    gap = 0 if kind < 0.6 else draw.randint(1, 9) if kind < 0.75 else -lines[1] % per_vector
    apart = 2 if kind > 0.985 else 1
    step = lines[1] * apart + gap
    strides = (apart, step) if by_columns else (step, apart)
    around: list[int] = []
    behind = step * lines[0]
    for size in reversed(batch):
        around.insert(0, behind)
        behind *= size
    start = 4096 + (draw.randint(1, 5) * size_of(dtype) if 0.7 < kind < 0.78 else 0)
    return Operand("x", start, (*batch, rows, cols), (*around, *strides), dtype, HOST, "numpy", None)


def scaling(draw: random.Random) -> Scaling:
    if draw.random() < 0.4:
        return AS_THEY_ARE
    a, b = draw.choice(((ONE, ONE), (STRIPS, STRIPS), (STRIPS, SQUARES), (SQUARES, STRIPS)))
    return Scaling(Scale(a, 1, 1), Scale(b, 1, 1), promoted=a != ONE or draw.random() < 0.5)


def line_of(each: Asked) -> str:
    """In a few letters: the kernel, the config, a checksum of config and schedule, seconds."""
    try:
        plan = make_plan(each.problem, each.device, each.kernel, None, each.sharing)
    except LapidistError as error:
        return f"refused {type(error).__name__} {checksum(str(error))}"
    return told(plan)


def told(plan: Plan) -> str:
    problem = plan.problem
    order = f"{problem.m} {problem.n} {problem.k} {problem.skewed} {problem.transposed}"
    whole = f"{plan.config} {plan.schedule} {order} {plan.unshared}"
    return f"{plan.kernel.name} {short(plan.config)} {checksum(whole)} {plan.predicted_seconds:.5e}"


def short(config: Config) -> str:
    words = f"{config.bm}x{config.bn}x{config.bk}/{config.stages}"
    words += f"c{config.cluster_m}{config.cluster_n}" if config.cluster > 1 else ""
    flags = ("x", config.exchanged), ("p", config.ping_pong), ("s", config.skewed), ("m", config.along_m)
    return words + "".join(letter for letter, on in flags if on)


def checksum(words: str) -> str:
    return f"{zlib.crc32(words.encode()):08x}"


def recorded() -> Sequence[str]:
    return RECORD.read_text().splitlines()


if __name__ == "__main__":
    RECORD.write_text("".join(f"{line_of(each)}\n" for each in asked()))
