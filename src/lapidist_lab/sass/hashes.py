"""A hash of the PTX of every registered kernel over a named list of problems: a change that only moves code
leaves them.

Lines that say where code came from (.loc, .file, debug sections) do not count, so comments and names of
files may change. Nor does the memory that NVRTC gives each constant: code has the values and does not read
it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from lapidist.build.compiler import compile_kernel
from lapidist.build.processes import Pool
from lapidist.device import Device
from lapidist.errors import LapidistError
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.problem import Problem, dense_problem

SHAPES = {"aligned": (512, 384, 256), "ragged": (509, 381, 253)}
LAYOUTS = ("rr", "rc", "cr", "cc")
BATCH = 3
ORIGINS = re.compile(r"^\s*\.(loc|file)\b.*$|^//.*$", re.M)
CONSTANTS = re.compile(r"^\.global \.align \d+ \.\w+ \w+( = [^{;]*)?;$", re.M)
DEBUG = re.compile(r"^\s*\.section\s+\.debug.*?^\s*}\n", re.M | re.S)
REFUSED = "refused"


class Case(NamedTuple):
    """One problem by a name: kernel, type, layout, alignment, with C or without, batched or not."""

    kernel: str
    math: str
    layout: str
    shape: str
    with_c: bool
    batched: bool

    def __str__(self) -> str:
        extras = [word for word, on in (("c", self.with_c), ("batch", self.batched)) if on]
        return "-".join([self.kernel, self.math, self.layout, self.shape, *extras])

    def problem(self) -> Problem:
        plain = dense_problem(*SHAPES[self.shape], self.math, self.layout)
        problem = replace(plain, c=plain.d) if self.with_c else plain
        return batch_of(problem) if self.batched else problem


def batch_of(problem: Problem) -> Problem:
    return problem.with_batch((BATCH,), [(matrix.rows * matrix.cols,) for matrix in problem.matrices()])


def cases(kernels: Sequence[str] = ()) -> Iterator[Case]:
    """The named list: each kernel with each type that it multiplies, and every form of those that take
    any.
    """
    for kernel in KERNELS:
        if kernels and kernel.name not in kernels:
            continue
        forms = [(False, False)] if kernel.kind == "rung" else [(False, False), (True, False), (False, True)]
        for math in kernel.types.maths:
            for layout in LAYOUTS:
                for shape in SHAPES:
                    for with_c, batched in forms:
                        yield Case(kernel.name, math, layout, shape, with_c, batched)


def hash_of(ptx: str) -> str:
    lines = CONSTANTS.sub("", DEBUG.sub("", ORIGINS.sub("", ptx))).splitlines()
    return hashlib.sha256("\n".join(line for line in lines if line.strip()).encode()).hexdigest()[:16]


def hashed(case: Case, device: Device) -> str:
    """The hash of a case; REFUSED where the kernel does not take the problem."""
    try:
        plan: Plan = make_plan(case.problem(), device, kernel_named(case.kernel))
    except LapidistError:
        return REFUSED
    kernel = plan.kernel
    binary = compile_kernel(
        kernel.source,
        kernel.entry,
        dict(plan.problem_macros),
        device.architecture,
        kernel.options,
        assembled=False,
    )
    return hash_of(binary.ptx)


def lines(device: Device, processes: int, kernels: Sequence[str] = ()) -> Iterator[str]:
    """`name hash`, in the list's order."""
    listed = list(cases(kernels))
    if processes < 2:
        yield from (f"{case} {hashed(case, device)}" for case in listed)
        return
    with Pool(processes) as pool:
        answers = pool.map(hashed, listed, [device] * len(listed))
        yield from (f"{case} {answer}" for case, answer in zip(listed, answers, strict=True))
