"""Grouped products of experts' layers, forward and backward, beside torch's grouped product, cuBLASLt's of a
library that was named, a kernel in Triton, a loop of torch's products, a padded batch, and one dense product
of as many flops.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lapidist.backends.gpu.doctor import TORCH_HINT
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.errors import DeviceError
from lapidist.planning.warm import build_all, builds_of, plans_of
from lapidist.verify.sum_bound import Expected, expect
from lapidist_lab.bench.protocol.array_library import Framework
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather, words_of_triton
from lapidist_lab.bench.protocol.measure import L2_MULTIPLE, SETS_LIMIT, Entry, Inputs, Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, Protocol, steps
from lapidist_lab.bench.studies.cublaslt_groups import Library, version_words
from lapidist_lab.bench.studies.group_cases import (
    DECODE,
    FORWARD,
    TO_WEIGHTS,
    USUAL_CASES,
    GroupCase,
    Selection,
    problem_of,
)
from lapidist_lab.bench.studies.group_contenders import DENSE, GroupContender, GroupProduct, contenders_of
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE = "grouped"
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.2)  # some hundred cases of up to seven ways each
STRIP = 64  # rows at the start, in the middle and at the end of a group's result that are judged


class GroupStage(Stage):
    """Makes rows that groups share, and keeps a layer's weights. Judges strips of some groups' results."""

    def __init__(self, ordinal: int, protocol: Protocol, framework: Framework | None = None) -> None:
        super().__init__(ordinal, protocol, framework)
        self.forget()

    def forget(self) -> None:
        self.weights: tuple[object, Any] = (None, None)  # with the layer and type that they are of
        self.right_results: dict[object, Expected] = {}

    def inputs(self, case: Case) -> Inputs:
        """Sets have the weights in common. Rows of each go to other groups."""
        assert isinstance(case, GroupCase)
        self.right_results.clear()
        needed = math.ceil(L2_MULTIPLE * self.device.l2_bytes / case.set_bytes)
        count = max(1, min(needed, SETS_LIMIT))
        seed, make = time.time_ns() % 2**31, self.framework.random
        if case.way == TO_WEIGHTS:
            self.forget()  # of a large layer there is no room for its gradients beside them
            self.framework.release()
            b = [make(case.k, case.n, case.dtype, seed + 2 * i + 1) for i in range(count)]
        else:
            b = [self.weights_of(case)] * count
        a = [
            make(case.m, case.k, case.dtype, seed + 2 * i, transposed=case.way == TO_WEIGHTS)
            for i in range(count)
        ]
        return Inputs(
            a,
            b,
            [self.output(case) for _ in range(count)],
            rotated=count >= needed,
            by_columns=case.layout[1] == "c",
            make_columns=list,
        )

    def weights_of(self, case: GroupCase) -> Any:
        """A layer's weights, as torch keeps them: features out, features in. Forward they are B turned."""
        key, forward = (case.layer, case.dtype), case.way == FORWARD
        if self.weights[0] != key:
            self.forget()
            self.framework.release()
            features = (case.n, case.k) if forward else (case.k, case.n)
            rows = case.batch * features[0]
            made = self.framework.random(rows, features[1], case.dtype, time.time_ns() % 2**31)
            self.weights = key, made.reshape(case.batch, *features)
        weights = self.weights[1]
        return weights.swapaxes(-1, -2) if forward else weights

    def output(self, case: GroupCase) -> Any:
        if case.way != TO_WEIGHTS:
            return self.framework.poisoned(case.m, case.n, case.out_dtype)
        stacked = self.framework.poisoned(case.batch * case.m, case.n, case.out_dtype)
        return stacked.reshape(case.batch, case.m, case.n)

    def judge(self, entry: Entry, case: Case, inputs: Inputs, index: int) -> None:
        assert entry.call is not None
        contender = entry.contender
        assert isinstance(contender, GroupContender)
        contender.poison(index)
        entry.call(index)
        for product in contender.judged_products(index):
            for rows in strips(product.d.shape[0]):
                key = index, product.group, rows.start, entry.facts.unit
                if key not in self.right_results:
                    self.right_results[key] = right_result(product, rows, entry.facts.unit)
                self.keep_verdict(entry, self.right_results[key].judge(product.d[rows]))


def right_result(product: GroupProduct, rows: slice, unit: str | None) -> Expected:
    """What some rows of a group's result must be."""
    factors = dict(product.factors)
    if factors:
        factors["scale_a"] = factors["scale_a"][rows]
    return expect(product.a[rows], product.b, out_dtype=product.d.dtype, unit=unit, **factors)


def strips(rows: int) -> list[slice]:
    """The first, middle and last rows; all of them where there are few."""
    if rows <= 3 * STRIP:
        return [slice(0, rows)]
    return [slice(start, start + STRIP) for start in (0, (rows - STRIP) // 2, rows - STRIP)]


# ---- records ----


def with_peer_ratios(case: GroupCase, records: Sequence[Record], device: Device) -> list[Record]:
    """Ratios to the fastest peer, which the dense product is not."""
    rivals = [r for r in records if r.kind == "peer" and r.seconds and who_of(r) != DENSE]
    best = min(rivals, key=lambda record: record.seconds or math.inf, default=None)
    rows = []
    for record in records:
        compared = best is not None and record.seconds and who_of(record) != DENSE
        rows.append(
            replace(
                record,
                mode=MODE,
                ratio=best.seconds / record.seconds if compared else None,  # type: ignore[union-attr, operator]
                peer=who_of(best) if best and compared else None,
                note=decode_words(case, record.seconds, device),
            )
        )
    return rows


def who_of(record: Record) -> str:
    return record.kernel.partition(", ")[0]


def decode_words(case: GroupCase, seconds: float | None, device: Device) -> str | None:
    """At which rate the weights of groups with rows are read; only where that is what takes the time."""
    if seconds is None or case.rows > DECODE or case.way == TO_WEIGHTS:
        return None
    rate = case.weight_bytes / seconds
    share = rate / (device.dram_gbps * 1e9)
    hit = f"{case.groups_hit} of {case.batch} groups"
    return f"{rate / 1e12:.2f} TB/s, {100 * share:.0f} % of DRAM's rate, {hit}"


def library_of(path: Path | None, framework: Framework) -> tuple[Library | None, str]:
    """A cuBLASLt, beside which torch still multiplies; and what the conditions say of it."""
    if path is None:
        return None, "without cuBLASLt's grouped layouts, whose library was not named"
    library, a = Library(path), framework.random(64, 64, "float64", 0)
    try:
        right = bool(((a @ a).cpu() - a.cpu() @ a.cpu()).abs().max() < 1e-9)
    except RuntimeError:
        right = False
    if not right:
        raise DeviceError(
            f"--cublaslt: must leave torch's own products right; beside {path} they are not. Leave it out"
        )
    return library, f"grouped layouts of cuBLASLt {version_words(library.version)}"


def measure(
    ordinal: int, keep: Keep, selection: Selection = USUAL_CASES, cublaslt: Path | None = None
) -> tuple[Conditions, list[Record]]:
    """Each case in every way, on inputs of its own. `cublaslt`: a libcublasLt.so."""
    records: list[Record] = []
    cases = selection.cases()
    with GroupStage(ordinal, PROTOCOL) as stage:
        if stage.framework.name != "torch":
            raise DeviceError(
                f"bench grouped: compares with torch; it was not found. Install it with: {TORCH_HINT}"
            )
        before, framework = stage.gauge.look(), stage.framework
        torch = framework.torch  # type: ignore[attr-defined]
        library, words = library_of(cublaslt, framework)
        vendor = (
            "torch._grouped_mm (of 8 bits torch._scaled_grouped_mm), torch.mm in a loop and torch.bmm of"
            f" padded groups (torch {torch.__version__}); {words}; {words_of_triton('group_triton')}"
        )
        conditions = gather(
            stage.device,
            stage.device.name,
            MODE,
            str(PROTOCOL),
            vendor=vendor,
            inputs="standard normal, rows fresh for each case, weights for each layer",
        )
        build_all(builds_of(plans_of(map(problem_of, cases), stage.device)))
        contended = [(case, contenders_of(case, framework, library)) for case in cases]  # type: ignore[arg-type]
        with progress(sum(steps(contenders, PROTOCOL) for _, contenders in contended), MODE) as step:
            while contended:
                case, contenders = contended.pop(0)
                rows = stage.measure(case, contenders, step)
                records += with_peer_ratios(case, rows, stage.device)
                if stage.gauge.fast:
                    conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
        return conditions, records
