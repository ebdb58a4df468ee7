"""Compile kernels ahead of need, many at once, into the cache on disk: those that serve every product, or
those of some problems.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lapidist.build.cache import entry_path, read
from lapidist.build.compiler import Order, key_of
from lapidist.build.workers import OnDone, compile_all, compile_one, nobody
from lapidist.device import Device
from lapidist.errors import LapidistError
from lapidist.kernels.registry import kernel_named
from lapidist.planning.binaries import Macros
from lapidist.planning.binaries import order_of as order_of_kernel
from lapidist.planning.covering_sets import CAPABILITY, LAYOUTS, all_sets
from lapidist.planning.fitted_times import ALIKE
from lapidist.planning.kernel_set import candidate_by
from lapidist.planning.plans import Plan, make_plan, plan_of
from lapidist.problems.matrix import VECTOR_BYTES
from lapidist.problems.problem import Problem, dense_problem

ROWS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
LAYERS = ((8192, 8192), (28672, 8192), (8192, 28672))  # n and k in a transformer of 70 billion parameters
SQUARES = (128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
RAGGED = 60  # products of odd extents, log-uniform in the range of the squares


class Build(NamedTuple):
    """One thing to compile: a kernel's name, its macros, an architecture."""

    kernel: str
    macros: Macros
    architecture: str


class Built(NamedTuple):
    build: Build
    seconds: float  # 0 if the cache had it
    error: str | None


def ordinary(math_name: str) -> list[Problem]:
    """Products of ordinary shapes: squares, a transformer's layers, ragged ones."""
    shapes = [(m, n, k) for n, k in LAYERS for m in ROWS] + [(size, size, size) for size in SQUARES]
    aligned = [dense_problem(*shape, math_name, layout) for shape in shapes for layout in LAYOUTS]
    return aligned + [dense_problem(m, n, k, math_name) for m, n, k in random_extents(RAGGED, True)]


def anything(math_name: str, count: int) -> list[Problem]:
    """Random shapes: half of them odd, half with lines that start on 16 bytes, in each layout."""
    odd = [dense_problem(*shape, math_name) for shape in random_extents(count // 2, True, seed=1)]
    even = random_extents(count - count // 2, False, seed=2)
    return odd + [dense_problem(*shape, math_name, LAYOUTS[i % len(LAYOUTS)]) for i, shape in enumerate(even)]


def random_extents(count: int, odd: bool, seed: int = RAGGED) -> list[tuple[int, int, int]]:
    """Shapes log-uniform in the range of the squares: odd numbers, or multiples of 16."""
    draw, low, high = random.Random(seed), math.log(SQUARES[0]), math.log(SQUARES[-1])

    def extent() -> int:
        drawn = round(math.exp(draw.uniform(low, high)))
        return drawn | 1 if odd else -(-drawn // 16) * 16

    return [(extent(), extent(), extent()) for _ in range(count)]


def covering_plans(math_name: str, device: Device, with_c: bool) -> list[Plan]:
    """A plan for each binary that serves products of a type. `with_c`: with C, or a bias. For a chip or type
    without sets, plans of ordinary products.
    """
    math = ALIKE.get(math_name, math_name)
    sets = [
        (product_class, members)
        for product_class, members in all_sets().items()
        if product_class.math == math
    ]
    if device.capability != CAPABILITY or not sets:
        problems = ordinary(math_name)
        return plans_of([with_c_like_d(problem) if with_c else problem for problem in problems], device)
    plans = []
    for product_class, members in sets:
        for member, largest, _ in members:
            for shape in (largest,) if product_class.aligned else (largest, with_lines_along_k(largest)):
                product = product_class.problem(*shape, math_name)
                for problem in with_each_c(product) if with_c else (product,):
                    best = candidate_by(member, problem, device)
                    plans += [] if best is None else [plan_of(best, problem, device)]
    return plans


def with_lines_along_k(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape with k rounded up, so that lines along k start on 16 bytes, as those of weights do. Binaries
    that do not pack these operands serve it.
    """
    m, n, k = shape
    return m, n, -(-k // VECTOR_BYTES) * VECTOR_BYTES


def with_c_like_d(problem: Problem) -> Problem:
    return replace(problem, c=problem.d)


def with_each_c(problem: Problem) -> list[Problem]:
    """The problem with a C of D's shape, and with a C of one row, a bias."""
    return [with_c_like_d(problem), replace(problem, c=replace(problem.d, row_stride=0))]


def linear_problems(
    shapes: Iterable[tuple[int, int, int]], math_name: str, with_c: bool = False
) -> list[Problem]:
    """Products of linear layers, from rows, outputs and inputs. A row of weights is an output's, so B lies by
    columns. `with_c`: with a residual, and with a bias.
    """
    problems = [dense_problem(*shape, math_name, "rc") for shape in shapes]
    return [added for problem in problems for added in with_each_c(problem)] if with_c else problems


def plans_of(problems: Iterable[Problem], device: Device) -> list[Plan]:
    """A plan for each problem that some kernel takes on this chip."""
    plans = []
    for problem in problems:
        try:
            plans.append(make_plan(problem, device))
        except LapidistError:
            continue  # a chip without the unit, or a type without the layout
    return plans


def builds_of(plans: Iterable[Plan]) -> list[Build]:
    """What these plans need, without repetitions."""
    return list(
        dict.fromkeys(
            Build(plan.kernel.name, plan.problem_macros, plan.device.architecture) for plan in plans
        )
    )


def build_all(builds: Sequence[Build], processes: int | None = None, on_done: OnDone = nobody) -> list[Built]:
    """What was compiled, as the cache lacked it, and what the cache had."""
    missing = [build for build in builds if not is_cached(build)]
    cached = [Built(build, 0.0, None) for build in builds if build not in missing]
    answers = compile_all([order_of(build) for build in missing], processes or compilers(), on_done)
    return cached + [Built(build, *answer) for build, answer in zip(missing, answers, strict=True)]


def rebuild(build: Build) -> Built:
    """The kernel compiled although the cache may have it, to measure how long that takes."""
    with suppress(OSError):
        path_of(build).unlink()
    return Built(build, *compile_one(order_of(build)))


def compilers() -> int:
    """Compiler processes to run at once: one for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def order_of(build: Build) -> Order:
    return order_of_kernel(kernel_named(build.kernel), build.macros, build.architecture)


def path_of(build: Build) -> Path:
    return entry_path(key_of(*order_of(build)))


def is_cached(build: Build) -> bool:
    """Whether the cache has it complete, not only a file of its name."""
    order = order_of(build)
    return read(key_of(*order), order.entry, order.architecture) is not None
