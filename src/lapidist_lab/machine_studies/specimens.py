"""The project's own kernels as the survey of mutants takes them. Matrices are small with a tail in both
directions, on few multiprocessors, so that persistent blocks come to a second tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice

from lapidist.config import Config
from lapidist.device import chip
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.kernels.small import SMALL
from lapidist.kernels.wgmma.maps import SKEWED_ROWS
from lapidist.problems.problem import dense_problem
from lapidist.schedule.sharing_choice import PLANNED
from lapidist_lab.machine_studies.micro_faults import drawn_faults
from lapidist_lab.machine_studies.mutants import (
    Baseline,
    Case,
    Mutant,
    Survey,
    Variant,
    break_mutants,
    mutants_of,
    run_baseline,
)
from lapidist_lab.machine_studies.registered import MACHINE_CHIP, product_of

ROWS, COLUMNS, TAIL = 72, 136, 8
# By launch: elements of a row's last vector that lie beyond the matrix, so that bounds checks have an effect.
SPARE = 0, 0, 7, 7, 3, 0, 0
# the launch in which kernels on tensor cores have a whole tile, for which some have a loop of their own
FULL_TILE = 3
UNROLLED = 4
# blocks that share four tiles: two tiles for each block; up to three blocks on a tile; one tile and a part of
# the next for each block
SHARERS = (2, 11, 3)
# resident clusters for four tiles: one works on all of them; of two, each reads what the other packed
CLUSTERS = (1, 2)
# the launch with few rows: in other launches tiles have all rows, and each lane has something to pack
FEW = 4
# the launches with tiles of one step, so many that two warpgroups of a cluster fill all stages and patches of
# D twice
MANY = (5, 6)
PATCHES = 4  # of a warp, at most
LAYOUTS = ("rr", "rc", "cr")


@dataclass(frozen=True)
class Specimen:
    """One way to compile and launch a kernel. `ragged`: lines off 16 bytes; `smallest`: the config of the
    smallest tile in place of the first; `exchanged`: the smallest tile of B'A' = D'; `shared`: compiled for
    blocks that share tiles; `ping_pong`: for warpgroups that have a tile each; `skewed`: rows of A that start
    anywhere are shifted, not packed; `drawn`: how many small faults break it, and the seed that draws
    them; without it each barrier, wait and fence does."""

    kernel: str
    math: str
    layouts: str = "rr"
    ragged: bool = False
    smallest: bool = False
    exchanged: bool = False
    shared: bool = False
    ping_pong: bool = False
    skewed: bool = False
    drawn: tuple[int, int] | None = None

    def __str__(self) -> str:
        how = [self.layouts] if self.layouts != "rr" else []
        ways = {
            "ragged": self.ragged,
            "smallest tile": self.smallest,
            "A and B exchanged": self.exchanged,
            "Stream-K": self.shared,
            "ping-pong": self.ping_pong,
            "rows of A shifted": self.skewed,
        }
        how += [word for word, holds in ways.items() if holds]
        return ", ".join([self.kernel, *how])


def specimens(names: Iterable[str] | None, maths: Iterable[str]) -> Iterator[Specimen]:
    """Each registered kernel in the first of these maths that it multiplies in, and every way to run it;
    production kernels on tensor cores also in every other math. What differs in more than its tile is tried
    with the smallest."""
    chosen, maths_in_order = None if names is None else set(names), tuple(maths)
    for kernel in KERNELS:
        multiplied = [math for math in maths_in_order if math in kernel.types.maths]
        if multiplied and (chosen is None or kernel.name in chosen):
            yield from ways_of(kernel, multiplied[0])
            if on_tensor_cores(kernel):
                yield from (Specimen(kernel.name, math, smallest=True) for math in multiplied[1:])
                for math in multiplied:
                    if any(config.exchanged for config, _ in kernel.configs_for(math)):
                        yield Specimen(kernel.name, math, exchanged=True)


def on_tensor_cores(kernel: Kernel) -> bool:
    return kernel.kind == "production" and kernel.unit != "fma"


def ways_of(kernel: Kernel, math: str) -> Iterator[Specimen]:
    """The specimens of a kernel in one math."""
    small = len(kernel.configs_for(math)) > 1
    always_shared = kernel.family.scheduled and kernel.persistent and not on_tensor_cores(kernel)
    if small or not always_shared:
        yield Specimen(kernel.name, math)
    if small and not always_shared:
        yield from (
            Specimen(kernel.name, math, layouts, smallest=True)
            for layouts in (LAYOUTS if on_tensor_cores(kernel) else LAYOUTS[:1])
        )
    if kernel.packs(dense_problem(65, 65, 65, math, "rc")):
        yield Specimen(kernel.name, math, "rc", ragged=True, smallest=small)
    if kernel.family.scheduled:
        yield Specimen(kernel.name, math, smallest=small, shared=True)
    if kernel.free_order:
        yield Specimen(kernel.name, math, smallest=small, ping_pong=True)
    if any(config.skewed for config, _ in kernel.configs_for(math)):
        yield Specimen(kernel.name, math, "rc", ragged=True, smallest=True, skewed=True)


def config_of(specimen: Specimen) -> Config:
    """The config that a specimen is compiled with."""
    configs = [config for config, _ in kernel_named(specimen.kernel).configs_for(specimen.math)]
    if specimen.smallest or specimen.exchanged:  # the last of them
        kind = specimen.exchanged, specimen.skewed
        alike = [config for config in reversed(configs) if (config.exchanged, config.skewed) == kind]
        return replace(min(alike, key=lambda config: config.bm * config.bn), ping_pong=specimen.ping_pong)
    return replace(configs[0], ping_pong=specimen.ping_pong)


# ---- to cases ----


@cache
def mutants_for(specimen: Specimen) -> list[Mutant]:
    case = case_of(specimen)
    return mutants_of(case) if specimen.drawn is None else drawn_faults(case, *specimen.drawn)


def extent_of(specimen: Specimen) -> tuple[int, int]:
    """How many launches and mutants a specimen has. By this, baseline_part and mutants_part, several
    processes share it."""
    return len(case_of(specimen).variants), len(mutants_for(specimen))


def baseline_part(specimen: Specimen, seed: int) -> Baseline:
    return run_baseline(case_of(specimen), (seed,))


def mutants_part(specimen: Specimen, share: slice, baseline: Baseline, seeds: range) -> Survey:
    return break_mutants(case_of(specimen), mutants_for(specimen)[share], baseline, seeds)


@cache
def case_of(specimen: Specimen) -> Case:
    """C = A B and C = A B + C in many launches. k is shortened by up to three steps, to try every remainder
    of a loop unrolled by four. There are launches with less than a step, with few rows and with many tiles.
    They run on one cluster or two, shared by few blocks or many.
    """
    kernel = kernel_named(specimen.kernel)
    config = config_of(specimen)
    several = bool(kernel.persistent or specimen.shared)
    longest = depth_for(config, several)
    less = [number * config.bk for number in range(UNROLLED)]
    depths = [*(longest - choice if longest > choice else longest for choice in less), TAIL]
    ways = [(number, depth, 0) for number, depth in enumerate(depths)]
    if several and kernel.unit != "fma":
        ways += [(number, TAIL, 0) for number in MANY]
    if specimen.shared:  # the same code may take whole tiles as well
        ways = [choice for way in ways for choice in ((*way[:2], SHARERS[way[0] % 3]), way)]
    first = variant_of(specimen, kernel, config, *ways[0])
    variants = [first]
    for way in ways[1:]:
        # Few rows and short vectors are tried only where the compiled code stays the same.
        small = way[0] == FEW and not (specimen.shared or specimen.skewed)
        forms = ((few, spare) for few in (small, False) for spare in (SPARE[way[0]], 0))
        candidates = (variant_of(specimen, kernel, config, *way, *sizes) for sizes in forms)
        same_code = (
            variant for variant in candidates if variant.launch.binary.ptx == first.launch.binary.ptx
        )
        variants += islice(same_code, 1)
    return Case(str(specimen), specimen.math, tuple(variants))


def variant_of(
    specimen: Specimen,
    kernel: Kernel,
    config: Config,
    number: int,
    depth: int,
    sharers: int,
    few: bool = False,
    spare: int = 0,
) -> Variant:
    rows, columns, beta = ROWS, COLUMNS, 0.0 if specimen.skewed else float(number % 2)
    if kernel.persistent or specimen.shared:
        rows, columns = config.bm * config.cluster_m + TAIL, config.bn * config.cluster_n + TAIL
        rows = ROWS if kernel.unit == "fma" else rows  # two tiles: 256 x 128 sums take long
        if number in MANY:
            more = max(config.stages, PATCHES)
            if config.exchanged:  # with few columns, which then are lines of A, other code would run
                rows += more * config.bm * config.cluster_m
            else:
                columns += more * config.bn * config.cluster_n
    elif number == FULL_TILE and kernel.unit != "fma":
        rows, columns = max(rows, config.bm + TAIL), max(columns, config.bn + TAIL)
    if specimen.skewed:  # with every remainder of eight rows
        rows = max(rows, SKEWED_ROWS) + number
    if few:
        rows = TAIL
    if kernel is SMALL:  # whose block has the whole of D
        rows, columns = min(rows, config.bm), min(columns, config.bn)
    if not specimen.ragged and any(name == "d_map" for name, _ in kernel.family.parameters):
        spare = 0  # TMA writes D in whole pieces of 16 bytes
    shape = (rows, columns - spare + specimen.ragged, depth + specimen.ragged)
    device = replace(chip(MACHINE_CHIP), sms=CLUSTERS[number % 2] * config.cluster)
    deal, addend = sharers or PLANNED, not specimen.skewed
    product = product_of(kernel, specimen.math, shape, specimen.layouts, device, config, deal, spare, addend)
    launch = product.launch(beta)
    waits = bool(product.plan.workspace_bytes)
    right = partial(product.right, product.expected(beta))
    return Variant(launch, partial(product.reset, launch, beta), right, launch.grid[0] if waits else None)


def depth_for(config: Config, several: bool) -> int:
    """Enough steps of k to go twice around the pipeline and through an unrolled loop, and a tail. Blocks that
    work on several tiles go around with two of them, the second of which has all that an unrolled loop leaves
    over."""
    steps = 2 * max(config.stages, 1) + UNROLLED
    if several:
        steps = -(-config.stages // UNROLLED) * UNROLLED + UNROLLED - 1
    return max(72, (steps - 1) * config.bk + TAIL)
