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

ROWS, COLUMNS, TAIL = 72, 136, 8
UNROLLED = 4
SHARERS = 3  # of four tiles: the first block has one for itself and begins the next one, which others finish
CLUSTERS = 2  # that are resident, and work on four tiles: each reads what the other packed
LAYOUTS = ("rr", "rc", "cr")


@dataclass(frozen=True)
class Specimen:
    """One way to compile and launch a kernel. `ragged`: lines off 16 bytes; `smallest`: the last of its configs in place of the
    first; `sharers`: blocks that share tiles, 0: none does."""

    kernel: str
    math: str
    layouts: str = "rr"
    ragged: bool = False
    smallest: bool = False
    sharers: int = 0

    def __str__(self) -> str:
        how = [self.layouts] if self.layouts != "rr" else []
        how += [
            word
            for word, given in (("ragged", self.ragged), ("smallest tile", self.smallest), ("Stream-K", self.sharers))
            if given
        ]
        return ", ".join([self.kernel, *how])


def specimens(names: Iterable[str] | None, maths: Iterable[str]) -> Iterator[Specimen]:
    """Each registered kernel in the first of these maths that it multiplies in, and every way to run it; production kernels on
    tensor cores also in every other math. What differs in more than its tile is tried with the smallest."""
    chosen, wanted = None if names is None else set(names), tuple(maths)
    for kernel in KERNELS:
        taken = [math for math in wanted if math in kernel.types.maths]
        if taken and (chosen is None or kernel.name in chosen):
            yield from ways_of(kernel, taken[0])
            if on_tensor_cores(kernel):
                yield from (Specimen(kernel.name, math, smallest=True) for math in taken[1:])


def on_tensor_cores(kernel: Kernel) -> bool:
    return kernel.kind == "production" and kernel.unit != "fma"


def ways_of(kernel: Kernel, math: str) -> Iterator[Specimen]:
    small = len(kernel.configs_for(math)) > 1
    yield Specimen(kernel.name, math)
    if small:
        yield from (
            Specimen(kernel.name, math, each, smallest=True) for each in (LAYOUTS if on_tensor_cores(kernel) else LAYOUTS[:1])
        )
    if kernel.scratch is not None:
        yield Specimen(kernel.name, math, "rc", ragged=True, smallest=small)
    if kernel.signature.scheduled:
        yield Specimen(kernel.name, math, smallest=small, sharers=SHARERS)


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
    config = kernel.configs_for(specimen.math)[-1 if specimen.smallest else 0][0]
    depth, variants = depth_for(config, bool(kernel.persistent or specimen.sharers)), []
    for less in range(UNROLLED):
        if depth > less * config.bk:
            variants.append(variant_of(specimen, kernel, config, depth - less * config.bk, float(less % 2)))
    same = [variant for variant in variants if variant.launch.binary.ptx == variants[0].launch.binary.ptx]
    return Case(str(specimen), specimen.math, tuple(same))


def variant_of(specimen: Specimen, kernel: Kernel, config: Config, depth: int, beta: float) -> Variant:
    rows, columns = ROWS, COLUMNS
    if kernel.persistent or specimen.sharers:
        rows, columns = config.bm * config.cluster_m + TAIL, config.bn * config.cluster_n + TAIL
        rows = ROWS if kernel.unit == "fma" else rows  # two tiles: 256 x 128 sums take long
    shape = (rows, columns + specimen.ragged, depth + specimen.ragged)
    device = replace(chip(MACHINE_CHIP), sms=CLUSTERS * config.cluster)
    product = product_of(kernel, specimen.math, shape, specimen.layouts, device, config, specimen.sharers or PLANNED)
    launch = product.launch(beta)
    right = partial(np.array_equal, product.d, product.wanted(beta))
    waits = bool(product.plan.workspace_bytes)
    return Variant(launch, partial(product.reset, launch, beta), right, launch.grid[0] if waits else None)


def depth_for(config: Config, several: bool) -> int:
    """Enough steps of k to go twice around the pipeline and through an unrolled loop, and a tail. Blocks that work on several
    tiles go around with two of them."""
    steps = 2 * max(config.stages, 1) + UNROLLED
    steps = -(-steps // 2) if several else steps
    return max(72, steps * config.bk + TAIL)
