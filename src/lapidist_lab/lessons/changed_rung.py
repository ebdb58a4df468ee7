"""A rung as a reader changed it: another product, or other PTX. It needs NumPy alone, so that it runs in a
browser, where no compiler is: the site brings each rung's PTX.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lapidist.errors import ArgumentError, LapidistError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Binary
from lapidist.machine.authors.findings import Findings, Judge
from lapidist.planning.binaries import remember
from lapidist_lab.lessons.lesson import lesson_of, rung_before
from lapidist_lab.lessons.moments import Observed, lesson_product, math_of, shape_of
from lapidist_lab.lessons.page import page_of
from lapidist_lab.machine_studies.registered import Shape
from lapidist_lab.puzzles.puzzle_verdicts import run_once

MOST = 1024  # rows, columns and steps of k: a browser's machine takes seconds for them
SEEDS = 2  # schedules on which faults are looked for
SHOWN = 6  # findings

Texts = Mapping[str, Mapping[str, Any]]  # of rungs, by name: entry, architecture, ptx, math and shape


def texts_of(kernels: Iterable[Kernel]) -> dict[str, dict[str, Any]]:
    """What a site brings: each rung's PTX, and the product of its lesson."""
    rows = {}
    for kernel in kernels:
        math = math_of(kernel)
        shape = shape_of(kernel, math)
        binary = lesson_product(kernel, math, shape).plan.unassembled
        rows[kernel.name] = {
            "entry": binary.entry,
            "architecture": binary.architecture,
            "ptx": binary.ptx,
            "math": math,
            "shape": shape,
        }
    return rows


def changed_rung(texts: Texts, name: str, shape: Shape, ptx: str, races: bool) -> dict[str, Any]:
    """What the machine says of a rung's PTX on a product, and the lesson of the run if it came to its end."""
    kernel = kernel_named(name)
    math = math_of(kernel)
    before = rung_before(kernel, math)
    try:
        require_shape(shape)
        if before is not None:
            place(texts, before, math, shape_of(before, math))
            place(texts, before, math, shape)
        place(texts, kernel, math, shape, ptx)
        findings, wrong = judged(kernel, math, shape, races)
        verdict = words_of(findings, wrong)
        if findings.errors:
            return {"right": False, "verdict": verdict, "page": ""}
        content = lesson_of(kernel, Observed(kernel, math, shape))
        return {"right": not wrong, "verdict": verdict, "page": page_of(content | {"measured": None})}
    except (LapidistError, StopIteration) as error:
        return {"right": False, "verdict": [str(error) or "No warp does what the lesson shows"], "page": ""}


def require_shape(shape: Shape) -> None:
    for name, extent in zip("mnk", shape, strict=True):
        if not 1 <= extent <= MOST:
            raise ArgumentError(f"{name}: must be from 1 to {MOST}; got {extent}. Take a number between")


def place(texts: Texts, kernel: Kernel, math: str, shape: Shape, ptx: str = "") -> None:
    """Take the site's PTX, or a reader's, for the binary of a product."""
    row = texts[kernel.name]
    build = lesson_product(kernel, math, shape).plan.build
    if build != lesson_product(kernel, math, shape_of(kernel, math)).plan.build:
        config = kernel.config_for(math)
        tile = config.bm * config.cluster_m, config.bn * config.cluster_n, config.bk
        raise ArgumentError(
            f"m, n, k: {kernel.name} has another binary for {' x '.join(map(str, shape))}, which this page"
            " lacks. Take multiples of {}, {} and {}".format(*tile)
        )
    remember(Binary(row["entry"], row["architecture"], ptx or row["ptx"], b"", ""), *build, assembled=False)


def judged(kernel: Kernel, math: str, shape: Shape, races: bool) -> tuple[Findings, str]:
    """Findings of a plain run, and of some schedules if races are looked for; and what is wrong in D."""
    judge = Judge(kernel.entry, (), {}, {})
    product = lesson_product(kernel, math, shape)
    seeds = [*range(SEEDS if races else 0), None]
    wrong = ""
    for seed in seeds:
        judge.begin(seed)
        wrong = run_once(product, product.launch(), judge, seed) or wrong
    return judge.findings(len(seeds)), wrong


def words_of(findings: Findings, wrong: str) -> list[str]:
    lines = [str(finding) for finding in findings.errors[:SHOWN]]
    more = len(findings.errors) - SHOWN
    lines += [f"Further findings: {more}"] if more > 0 else []
    lines += [wrong] if wrong else []
    runs = "a run" if findings.runs == 1 else f"{findings.runs} runs"
    return lines or [f"Every element of D is right, and nothing was found in {runs}."]
