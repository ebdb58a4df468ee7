"""The project's own kernels on matrices that are made here: what is explained, and what is broken to prove
the sanitizer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.dtypes import TF32, TYPES, element_of, numpy_dtype, outputs_of
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.kernel import Kernel
from lapidist.launch import Launch
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.problem import Problem
from lapidist.schedule import stream_k
from lapidist.schedule.sharing_choice import PLANNED, Sharing

Array = np.ndarray
Shape = tuple[int, int, int]
ALIGNED = 16  # bytes
MACHINE_CHIP = "h200"  # the chip that kernels are compiled for


@dataclass(frozen=True)
class Product:
    """D = A B + beta C with small whole numbers, so that the result is exact in every order of summation. D's
    rows may lie in wider ones, `room`, whose rest is nobody's."""

    plan: Plan
    a: Array
    b: Array
    c: Array
    d: Array
    room: Array

    def launch(self, beta: float = 0.0) -> Launch:
        """The launch of the product. D holds C when the kernel starts; a workspace comes with the launch."""
        a, b, d = operand_of(self.a, "a"), operand_of(self.b, "b"), operand_of(self.d, "out")
        c = None if self.plan.problem.c is None else operand_of(self.d, "c")
        return self.plan.launch(a, b, c, d, 1.0, beta)

    @property
    def poison(self) -> Array:
        """A value that no kernel writes."""
        number = np.nan if TYPES[self.plan.problem.out_dtype].roundoff else 99
        return np.full(1, number).astype(self.d.dtype)

    def reset(self, launch: Launch, beta: float) -> None:
        """Make D what it is before a run: C, or poison where C is not read. Lower flags that a broken
        kernel left."""
        self.room[...] = self.poison
        if beta:
            self.d[...] = self.c
        for memory in launch.memory:
            if "flags" in memory.name:
                memory.owner[...] = 0

    def expected(self, beta: float) -> Array:
        """A B + beta C, exactly."""
        exact = self.a.astype("f8") @ self.b.astype("f8") + (self.c.astype("f8") if beta else 0)
        return exact.astype(self.d.dtype)

    def right(self, expected: Array) -> bool:
        """Whether D is as expected, and nothing was written between its rows."""
        between = self.room[:, self.d.shape[1] :]
        untouched = np.full(between.shape, self.poison)
        return np.array_equal(self.d, expected) and between.tobytes() == untouched.tobytes()


def product_of(
    kernel: Kernel,
    math: str,
    shape: Shape,
    layouts: str = "rr",
    device: Device | None = None,
    config: Config | None = None,
    schedule: int | Sharing = PLANNED,
    spare: int = 0,
    addend: bool = False,
) -> Product:
    """The kernel's plan for matrices of these layouts of A and B (r: contiguous along rows, c: along
    columns), or with B the other way round where it takes only that. With a number as `schedule`, so many
    blocks share all tiles as Stream-K deals them out. `spare` elements stand between rows of D, and of B. An
    `addend` may be launched with beta."""
    m, n, k = shape
    element = element_of(math)
    random = np.random.default_rng(1)
    least = 0 if element.bounds and element.bounds[0] == 0 else -4
    a, b = (random.integers(least, 5, size).astype(numpy_dtype(element.name)) for size in ((m, k), (k, n)))
    room = aligned_zeros(m, n + spare, numpy_dtype(outputs_of(element.name, element.name)[0]))
    d = room[:, :n]
    c = random.integers(least, 5, (m, n)).astype(d.dtype)
    a = laid(a, layouts[0], 0)
    refused: RefusalError | None = None
    for layout in (layouts[1], "c" if layouts[1] == "r" else "r"):
        b = laid(b, layout, spare if layout == "r" else 0)
        operands = (
            operand_of(a, "a"),
            operand_of(b, "b"),
            operand_of(d, "c") if addend else None,
            operand_of(d, "out"),
        )
        problem = Problem.of(*operands, precision=TF32 if math == TF32 else "ieee", one_alpha=True)
        try:
            return Product(
                plan_for(problem, kernel, device or chip(MACHINE_CHIP), config, schedule), a, b, c, d, room
            )
        except RefusalError as refusal:
            refused = refused or refusal
    assert refused is not None
    raise refused


def aligned_zeros(rows: int, columns: int, dtype: np.dtype) -> Array:
    """Zeros that start at a multiple of 16 bytes, as TMA needs; NumPy's own do not in a browser."""
    nbytes = rows * columns * dtype.itemsize
    room = np.zeros(nbytes + ALIGNED, np.uint8)
    skipped = -room.ctypes.data % ALIGNED
    return room[skipped : skipped + nbytes].view(dtype).reshape(rows, columns)


def laid(matrix: Array, layout: str, spare: int) -> Array:
    lines = matrix if layout == "r" else matrix.T
    room = aligned_zeros(len(lines), lines.shape[1] + spare, matrix.dtype)
    room[:, : lines.shape[1]] = lines
    view = room[:, : lines.shape[1]]
    return view if layout == "r" else view.T


def plan_for(
    problem: Problem, kernel: Kernel, device: Device, config: Config | None, schedule: int | Sharing
) -> Plan:
    if isinstance(schedule, Sharing):
        return make_plan(problem, device, kernel, config, schedule)
    config = config or kernel.config_for(problem.math)
    tiles = kernel.tile_grid(problem, config)
    blocks = min(schedule, tiles.tiles * tiles.iterations)
    return make_plan(
        problem,
        device,
        kernel,
        config,
        Sharing(stream_k(tiles, sms=blocks, sk_tiles=tiles.tiles, sk_blocks=blocks)),
    )
