"""The family small (gemm/small.cu): batches of small matrices, several of them in a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.dtypes import TYPES, size_of
from lapidist.kernels.blocks.family import Blocks
from lapidist.kernels.blocks.time import traffic_bytes
from lapidist.kernels.kernel import Kernel, Types
from lapidist.kernels.kernel_table import Rows
from lapidist.kernels.macros import ALONG_K, ALONG_N, epilogue
from lapidist.kernels.parameters import OPERANDS, SIZES, Parameters
from lapidist.kernels.rules import small_products as rules
from lapidist.kernels.rules.layout_rules import refuse_batch, refuse_strided
from lapidist.problems.problem import Problem
from lapidist.schedule.schedule_options import ScalarOption, ScheduleOptions

SMALL_PARAMETERS: Parameters = (
    *SIZES,
    ("alpha", "scalar"),
    ("beta", "scalar"),
    *((letter, "pointer") for letter in OPERANDS),
    *((f"{letter}_{step}", "i64") for letter in "abc" for step in ("row", "col", "inner", "outer")),
    *((f"d_{step}", "i64") for step in ("row", "inner", "outer")),
    ("batch", "i32"),  # the inner extent
    ("all", "i32"),
    ("products", "i32"),  # of a block
)
# Results of a block that has enough for its threads, and blocks of a launch that has enough for all SMs
RESULTS, BLOCKS = 4096, 512
VECTOR = 16  # bytes that a thread copies at once, if a block's matrices start on a multiple of them


class Small(Blocks):
    parameters = SMALL_PARAMETERS

    def refuse(self, problem: Problem) -> str | None:
        if problem.fused is not None:
            return f"it stores sums as they are; here they are {problem.fused.function.name}(sum) first"
        return refuse_strided("D", problem.d, "row") or refuse_batch(problem)

    def macros(self, problem: Problem) -> Mapping[str, object]:
        macros = {
            "T": TYPES[problem.dtype].c_type,
            "A_CONTIGUOUS": ALONG_K[problem.a.layout],
            "B_CONTIGUOUS": ALONG_N[problem.b.layout],
            **epilogue(problem),
        }
        if problem.out_dtype != problem.dtype:
            macros["Out"] = TYPES[problem.out_dtype].c_type
        return macros

    def constants(self, problem: Problem) -> Mapping[str, int]:
        return {"all": prod(problem.batch), "products": products_of(problem)}

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        if not problem.batch:  # the same for all of its kind (problems/compile_key.py)
            return rules.MOST_BYTES
        return products_of(problem) * rules.product_bytes(problem)

    def grid(self, problem: Problem) -> tuple[int, int, int] | None:
        return -(-prod(problem.batch) // products_of(problem)), 1, 1

    def seconds(self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions) -> Any:
        return np.broadcast_to(seconds(problem, rows, device), options.possible.shape)

    def seconds_of_config(
        self,
        problem: Problem,
        kernel: Kernel,
        config: Config,
        device: Device,
        options: Sequence[ScalarOption],
    ) -> list[float]:
        return [float(seconds(problem, config, device))] * len(options)


def products_of(problem: Problem) -> int:
    """Products of a block: enough for its threads, few enough that there are blocks for all SMs."""
    room = rules.ROOM // max(1, rules.product_bytes(problem))
    results = -(-RESULTS // max(1, problem.m * problem.n))
    most = min(room, results, -(-prod(problem.batch) // BLOCKS))
    size = size_of(problem.dtype)
    multiple = max(
        VECTOR // gcd(VECTOR, count * size) for count in (problem.m * problem.k, problem.k * problem.n)
    )
    return max(1, most // multiple * multiple or most)


# What a block does, in cycles of one of an SM's lanes, fitted to 66 batches on an H200: for a thread; for its
# part of a product; for each result of that; for each value of A and B that it multiplies by others; for each
# fma; for an element that is copied, and for one that is stored.
FOR_THREAD, FOR_PART, FOR_RESULT, FOR_VALUE, FOR_FMA, COPIED, STORED = 97, 31, 28, 1.7, 0.13, 21, 27
LANES, DRAM_SHARE = 128, 0.85  # of an SM; of the bandwidth of reading alone
# Seconds until blocks multiply. One product is left to kernels that have more threads for it.
STARTS, ALONE = 0.7e-6, 3.0e-6


def seconds(problem: Problem, config: Knobs, device: Device) -> Any:
    """All lanes' work beside memory traffic, whichever is longer, and a little of the other."""
    m, n, k, count, products = problem.m, problem.n, problem.k, prod(problem.batch), products_of(problem)
    tm, tn, words = config.tm, config.tn, max(1, size_of(problem.accumulator) // 4)
    threads = -(-count // products) * config.threads
    turns = -(-products * -(-m // tm) * -(-n // tn) // config.threads)
    of_part = FOR_PART + FOR_RESULT * tm * tn + words * k * (FOR_VALUE * (tm + tn) + FOR_FMA * tm * tn)
    work = threads * (FOR_THREAD + turns * of_part) + count * (COPIED * k * (m + n) + STORED * m * n)
    done = work / (device.sms * LANES * device.clock_mhz * 1e6)
    moved = traffic_bytes(problem) / (device.dram_gbps * 1e9 * DRAM_SHARE)
    return (STARTS if problem.batch else ALONE) + (done**3 + moved**3) ** (1 / 3)


TYPES_TAKEN = Types(("float16", "bfloat16", "float32", "float64"), outputs=True)
TILES = tuple((Config(16 * width, 16 * width, tm=width, tn=width), 1.0) for width in (1, 2, 4))
SMALL = Kernel(
    "small",
    "production",
    "gemm/small.cu",
    "batches of small matrices, several in a block",
    Small(),
    *TILES[0],
    tuned=dict.fromkeys(TYPES_TAKEN.maths, TILES),
    rules=rules.SMALL,
    types=TYPES_TAKEN,
    only_small=True,
)
