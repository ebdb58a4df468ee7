"""The project's own kernels as the survey of mutants takes them: small matrices with a tail in both directions, on few
multiprocessors, so that persistent blocks come to a second tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from lapidist.config import Config
from lapidist.device import chip
from lapidist.kernel import Kernel
from lapidist.kernels import KERNELS, kernel_named
from lapidist.machine.mutants import Case, Survey, Variant, Whole, break_each, chosen_mutants, run_whole
from lapidist.machine.registered import MACHINE_CHIP, product_of
from lapidist.sharing import PLANNED

ROWS, COLUMNS = 72, 104
UNROLLED = 4
SHARERS = 3  # fewer than tiles: a block works on several, and finishes what others began
CLUSTERS = 2  # that are resident: fewer than tiles too
LAYOUTS = ("rr", "rc", "cr")


@dataclass(frozen=True)
class Specimen:
    """One way to compile and launch a kernel. `ragged`: lines off 16 bytes; `largest`: the first config in place of the one
    that the planner takes for small matrices; `sharers`: blocks that share tiles, 0: none does."""

    kernel: str
    math: str
    layouts: str = "rr"
    ragged: bool = False
    largest: bool = False
    sharers: int = 0

    def __str__(self) -> str:
        how = [self.layouts] if self.layouts != "rr" else []
        how += [
            word for word, given in (("ragged", self.ragged), ("largest tile", self.largest), ("Stream-K", self.sharers)) if given
        ]
        return ", ".join([self.kernel, *how])


def specimens(names: Iterable[str] | None, maths: Iterable[str]) -> Iterator[Specimen]:
    """Each registered kernel in the first of these maths that it multiplies in; production kernels on tensor cores in all of
    them, in every layout, with lines off 16 bytes, and as Stream-K deals out their tiles."""
    chosen, wanted = None if names is None else set(names), tuple(maths)
    for kernel in KERNELS:
        taken = [math for math in wanted if math in kernel.types.maths]
        if taken and (chosen is None or kernel.name in chosen):
            production = kernel.kind == "production" and kernel.unit != "fma"
            for math in taken if production else taken[:1]:
                yield from of_kernel(kernel, math, LAYOUTS if production and math == taken[0] else LAYOUTS[:1])


def of_kernel(kernel: Kernel, math: str, layouts: Iterable[str]) -> Iterator[Specimen]:
    for layout in layouts:
        yield Specimen(kernel.name, math, layout)
    if len(kernel.configs_for(math)) > 1:
        yield Specimen(kernel.name, math, largest=True)
    if kernel.scratch is not None:
        yield Specimen(kernel.name, math, "rc", ragged=True)
    if kernel.signature.scheduled:
        yield Specimen(kernel.name, math, sharers=SHARERS)


# ---- to cases ----


def whole_part(specimen: Specimen, seed: int) -> tuple[Whole, int]:
    """One run of the unbroken kernel, and how many mutants it has: what one of several processes does."""
    case = case_of(specimen)
    return run_whole(case, (seed,)), len(chosen_mutants(case))


def broken_part(specimen: Specimen, share: slice, whole: Whole, seeds: int) -> Survey:
    case = case_of(specimen)
    return break_each(case, chosen_mutants(case)[share], whole, seeds)


@cache
def case_of(specimen: Specimen) -> Case:
    """C = A B and C = A B + C, with up to three steps of k less: every remainder of a loop unrolled by four."""
    kernel = kernel_named(specimen.kernel)
    config = kernel.config_for(specimen.math)
    depth, variants = depth_for(config), []
    for less in range(UNROLLED):
        if depth > less * config.bk:
            variants.append(variant_of(specimen, kernel, depth - less * config.bk, float(less % 2)))
    same = [variant for variant in variants if variant.launch.binary.ptx == variants[0].launch.binary.ptx]
    return Case(str(specimen), specimen.math, tuple(same))


def variant_of(specimen: Specimen, kernel: Kernel, depth: int, beta: float) -> Variant:
    config = kernel.config_for(specimen.math)
    columns = COLUMNS
    if kernel.persistent and not specimen.sharers:
        columns += CLUSTERS * config.bn * config.cluster_n
    shape = (ROWS, columns + specimen.ragged, depth + specimen.ragged)
    device = replace(chip(MACHINE_CHIP), sms=CLUSTERS * config.cluster)
    chosen = config if specimen.largest else None
    product = product_of(kernel, specimen.math, shape, specimen.layouts, device, chosen, specimen.sharers or PLANNED)
    launch = product.launch(beta)
    right = partial(np.array_equal, product.d, product.wanted(beta))
    waits = bool(product.plan.workspace_bytes)
    return Variant(launch, partial(product.reset, launch, beta), right, launch.grid[0] if waits else None)


def depth_for(config: Config) -> int:
    """Enough steps of k to go twice around the pipeline and through an unrolled loop, and a tail."""
    steps = 2 * max(config.stages, 1) + UNROLLED
    return max(72, steps * config.bk + 8)
