"""Products of a matrix with its transpose by half of their tiles, beside cuBLAS's and our whole products, and
beside quack's by half of its tiles and torch.compile's, where these are installed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lapidist
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist_lab.bench.protocol.array_library import Framework
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather, version_of
from lapidist_lab.bench.protocol.contenders import Call, Contender, Facts, KernelContender
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Compiled, Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE, NAME = "symmetric", "lapidist, symmetric"
QUACK, COMPILED = "quack, symmetric", "torch.compile, whole"
# of torch's compiler, which prints what it tried
SILENT = {"autotune_num_choices_displayed": 0, "max_autotune_report_choices_stats": False}
HALVES = "bfloat16", "float16"  # what quack multiplies on Hopper, besides 8 bits
MATHS = *HALVES, "tf32", "float32"
SIDES, PARTS_OF_K = (512, 1024, 2048, 4096, 8192), (1, 4)
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.2)  # forty cases of three to five ways
CASES = [Case(n, n, n // part, math, "rc") for math in MATHS for part in PARTS_OF_K for n in SIDES]


class WholeProduct(Vendor):
    """The library's product. It comes first, and makes each B the transpose of its A."""

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        b[:] = [matrix.T for matrix in a]  # type: ignore[index]
        return super().prepare(case, a, b, c)


class Gram:
    """Calls: what mirrors a half is a launch of its own, which no plan holds."""

    name, kind, columns, capturable = NAME, "production", False, True

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        precision: Any = "tf32" if case.math == "tf32" else "ieee"
        return lambda i: lapidist.gram(a[i], out=c[i], precision=precision, compile="wait")

    def facts(self, device: Device) -> Facts:
        return Facts(config="one triangle, and its mirror")


class Quack:
    """quack's symmetric product: tiles of one triangle, stored twice, all of one size."""

    name, kind, columns, capturable = QUACK, "peer", False, True

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        from quack.gemm_interface import gemm_symmetric

        return lambda i: gemm_symmetric(a[i], a[i].mT, out=c[i])

    def facts(self, device: Device) -> Facts:
        return Facts(config="one triangle, stored twice")


class Inductor(Compiled):
    """The whole product by torch.compile, which times kernels of its own and cuBLAS's. That takes some 15
    seconds a case, so it gets bfloat16 alone.
    """

    name = COMPILED

    @classmethod
    def takes(cls, case: Case) -> bool:
        return case.math == "bfloat16"

    def compiled(self, torch: Any) -> Any:
        # its log calls kernels errors that need more shared memory than there is
        logging.getLogger("torch._inductor.select_algorithm").setLevel(logging.CRITICAL)
        inductor = torch._inductor
        options = inductor.list_mode_options("max-autotune-no-cudagraphs")
        options.update((name, value) for name, value in SILENT.items() if hasattr(inductor.config, name))
        return torch.compile(lambda x, _: x @ x.mT, dynamic=False, options=options)

    def facts(self, device: Device) -> Facts:
        return Facts(config="the fastest that torch.compile found")


def has_quack() -> bool:
    return version_of("quack-kernels") is not None


def words_of_peers(framework: Framework) -> str:
    """What the conditions say of quack and torch's compiler."""
    quack = f"quack {version_of('quack-kernels')}" if has_quack() else "without quack, which is not installed"
    compiled = "torch.compile, max-autotune" if framework.name == "torch" else "without torch.compile"
    return f"{quack}; {compiled}"


def contenders_of(stage: Stage, case: Case) -> list[Contender]:
    framework, math = stage.framework, case.math
    in_torch = framework.name == "torch"
    return [
        WholeProduct(framework, math),
        Gram(),
        KernelContender(None, math),
        *([Quack()] if in_torch and math in HALVES and has_quack() else []),
        *([Inductor(framework, math)] if in_torch and Inductor.takes(case) else []),
    ]


def measure(ordinal: int, keep: Keep, part: Part = EVERY_CASE) -> tuple[Conditions, list[Record]]:
    records: list[Record] = []
    cases = CASES[part.skip :][: part.count]
    with Stage(ordinal, PROTOCOL) as stage:
        before, framework = stage.gauge.look(), stage.framework
        vendor = f"{framework.vendor(MATHS[0])}; {words_of_peers(framework)}"
        conditions = gather(stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor)
        count = sum(steps(contenders_of(stage, case), PROTOCOL) for case in cases)
        with progress(count, MODE) as step:
            for case in cases:
                rows = stage.measure(case, contenders_of(stage, case), step)
                records += [replace(row, mode=MODE) for row in rows]
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
