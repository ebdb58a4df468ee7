"""Measured times of the planner's candidates for random products: what a chip's factors are fitted to."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from lapidist.backends.gpu.driver import query_device, require_gpu
from lapidist.commands.progress import progress
from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.errors import LapidistError
from lapidist.kernels.registry import kernel_named
from lapidist.planning.cost_table import Candidate
from lapidist.planning.covering_sets import changed_knobs
from lapidist.planning.fitted_times import chip_of
from lapidist.planning.planner import weigh_one
from lapidist.planning.warm import build_all, builds_of
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import Sharing
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import KernelContender, problem_of
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import find_peers
from lapidist_lab.bench.protocol.timing import TUNE, steps
from lapidist_lab.bench.studies.tuning import UNSHARED, worth_measuring

# Products of each type. 16 bits have the most configs.
PRODUCTS = {"bfloat16": 90, "float32": 70, "float64": 60, "float8_e4m3fn": 45, "tf32": 40, "int8": 20}
LEAST_ROWS, LEAST, MOST = 16, 64, 8192  # extents, log-uniform
LONGEST = 2e-3  # seconds of a product by the chip's limit
ALIGNED = 16  # extents of aligned products are multiples of it
LAYOUTS = ("rr", "rc", "rr", "cr", "rr", "rc")
RAGGED = (False, False, True, False, True)  # products whose lines start anywhere, in turn
CANDIDATES, REACH = 24, 1.35  # measured of a product: so many, within this factor of the choice


class Sample(NamedTuple):
    """One candidate's measured time."""

    case: Case
    kernel: str
    config: Config
    sharing: Sharing
    seconds: float
    chosen: bool  # by the planner, when it was measured

    def candidate(self, problem: Problem, device: Device) -> Candidate:
        """Planned without factors, so that a fit does not depend on the one before it."""
        kernel = kernel_named(self.kernel)
        return weigh_one(problem, device, kernel, self.config, self.sharing, fitted=False)

    def line(self) -> str:
        """One line of JSON."""
        case, sharing = self.case, self.sharing
        shared = [sharing.schedule, sharing.split_k, sharing.reduction]
        shape = [case.m, case.n, case.k, case.math, case.layout]
        return json.dumps(
            [shape, self.kernel, changed_knobs(self.config), shared, self.seconds, int(self.chosen)]
        )

    @staticmethod
    def of(line: str) -> Sample:
        shape, kernel, knobs, shared, seconds, chosen = json.loads(line)
        return Sample(Case(*shape), kernel, Config(**knobs), Sharing(*shared), seconds, bool(chosen))


class Measurements(NamedTuple):
    """The samples of one chip."""

    device: Device
    samples: list[Sample]


def by_chip(files: Sequence[Measurements]) -> list[Measurements]:
    """The samples of each chip, together: later files have further products, or one type alone."""
    chips: dict[str, Measurements] = {}
    for device, samples in files:
        before = chips.get(chip_of(device), Measurements(device, []))
        chips[chip_of(device)] = Measurements(before.device, before.samples + samples)
    return list(chips.values())


def read(path: Path) -> Measurements:
    """A file that `measure_into` wrote: its first line names the chip."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        first, *lines = file.read().splitlines()
    return Measurements(chip(json.loads(first)["chip"].lower()), [Sample.of(line) for line in lines])


def measure_into(path: Path | None, maths: Sequence[str], share: float, seed: int) -> Measurements:
    """The samples of this machine's chip, also written to a file as they come."""
    require_gpu(0)
    device = query_device(0)
    samples = []
    with nullcontext() if path is None else path.open("w") as file:
        if file is not None:
            print(json.dumps({"chip": chip_of(device), "seed": seed, "share": share}), file=file)
        for name in maths:
            for sample in measure(random_cases([name], share, seed, device), 0):
                samples.append(sample)
                if file is not None:
                    print(sample.line(), file=file, flush=True)
    return Measurements(device, samples)


def random_cases(maths: Sequence[str], share: float, seed: int, device: Device) -> list[Case]:
    """Random products of each type, of which some are ragged."""
    cases = []
    for name in maths:
        draw, layouts, ragged = random.Random(f"{seed} {name}"), cycle(LAYOUTS), cycle(RAGGED)
        most = LONGEST * device.limit_tflops(name) * 1e12
        for _ in range(max(1, round(share * PRODUCTS[name]))):
            cases.append(random_case(draw, name, next(layouts), next(ragged), most))
    return cases


def random_case(draw: random.Random, math_name: str, layout: str, ragged: bool, most_flops: float) -> Case:
    while True:
        m, n, k = (
            round(math.exp(draw.uniform(math.log(least), math.log(MOST))))
            for least in (LEAST_ROWS, LEAST, LEAST)
        )
        m, n, k = (extent | 1 if ragged else -(-extent // ALIGNED) * ALIGNED for extent in (m, n, k))
        if 2.0 * m * n * k <= most_flops:
            return Case(m, n, k, math_name, layout)


def measure(cases: Sequence[Case], ordinal: int) -> Iterator[Sample]:
    """The times of each product's best candidates by the model. Ctrl-C ends it after a product."""
    with Stage(ordinal, TUNE) as stage:
        work = [
            (case, ways, [as_fitted(way, case, stage.device) for way in ways])
            for case in cases
            for ways in [production_ways(case, stage.device)]
        ]
        build_all(builds_of(way.planned(case, stage.device) for case, _, timed in work for way in timed))
        peers = {case.math: find_peers(stage.framework, stage.device, case.math)[0][:1] for case in cases}
        total = sum(steps([*peers[case.math], *timed], TUNE) for case, _, timed in work)
        with progress(total, "measuring") as step, suppress(KeyboardInterrupt):
            for case, ways, timed in work:
                rows = stage.measure(case, [*peers[case.math], *timed], step)[1:]
                for place, (row, way) in enumerate(zip(rows, ways, strict=True)):
                    if row.ok and row.seconds:
                        yield sample_of(case, way, row.seconds, place == 0)


def production_ways(case: Case, device: Device) -> list[KernelContender]:
    ways = worth_measuring(case, device, CANDIDATES, REACH)
    return [way for way in ways if way.kind == "production"]


def as_fitted(way: KernelContender, case: Case, device: Device) -> KernelContender:
    """The way with the very schedule that a fit plans for its sample. The planner's own choice may be another
    one, by the factors in force.
    """
    schedule = sample_of(case, way, 0.0, False).candidate(problem_of_case(case), device).schedule
    sharing = UNSHARED if schedule is None else Sharing(schedule)
    return KernelContender(way.kernel, case.math, way.config, sharing, way.name, disassembled=False)


def sample_of(case: Case, way: KernelContender, seconds: float, chosen: bool) -> Sample:
    if way.kernel is None or way.config is None:
        raise LapidistError(f"fit: {way.name} is no kernel with a config")
    return Sample(case, way.kernel.name, way.config, way.sharing, seconds, chosen)


def problem_of_case(case: Case) -> Problem:
    return problem_of(case, KernelContender(None, case.math).columns)


def by_product(samples: Sequence[Sample]) -> dict[Case, list[Sample]]:
    """The samples of each product."""
    groups: dict[Case, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.case, []).append(sample)
    return groups
