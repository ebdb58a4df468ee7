"""Configs of many kernels as columns, together with what the kernels' rows say: what the planner weighs at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.kernels.config_table import KNOBS, Columns
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.rules.rule import obey
from lapidist.problems.problem import Problem


class Rows(Columns):
    """Configs of kernels of one family as columns, together with what the kernels' rows say."""

    def __init__(self, math: str, listed: Sequence[tuple[int, Kernel, Config, float]]) -> None:
        """`listed`: position, kernel, config, efficiency. Among equal times the first position is chosen."""
        self.positions, self.kernels, self.configs, _ = zip(*listed, strict=True)
        self.__dict__.update(Columns.of(self.configs).__dict__)
        self.efficiency = np.array([efficiency for *_, efficiency in listed])
        self.worth = np.array([kernel.worth for kernel in self.kernels])
        self.longer = np.array([kernel.longer for kernel in self.kernels])
        self.scheduled = np.array([kernel.family.scheduled for kernel in self.kernels])
        self.walks = np.array([kernel.family.walks_triangles for kernel in self.kernels])
        self.lesson = np.array([kernel.kind != "production" for kernel in self.kernels])
        shares = [kernel.family.shares_of_speed(math, config) for _, kernel, config, _ in listed]
        self.unaligned, self.across_k = np.array(shares).T
        by_lines = [kernel.family.longer_by_lines(math, config) for _, kernel, config, _ in listed]
        self.longer_by_lines = np.array(by_lines).T
        self.cached: dict[Any, Any] = {}  # a family's intermediate results, for each chip
        self.spans: list[tuple[Kernel, slice, Knobs]] = []
        for kernel, span in spans_of(self.kernels):
            configs = self.configs[span]
            self.spans.append((kernel, span, Columns.of(configs) if len(configs) > 1 else configs[0]))
        # which configs break no rule about knobs alone
        self.in_order = np.zeros(len(self.configs), bool)
        for kernel, span, columns in self.spans:
            self.in_order[span] = obey(kernel.rules_of_knobs, columns, None)

    def accepted(self, problem: Problem, device: Device) -> Any:
        """Which configs take the problem."""
        accepted = np.zeros(len(self.configs), bool)
        for kernel, span, configs in self.spans:
            accepted[span] = kernel.takes(problem, configs, device)
        return accepted & self.in_order

    @cached_property
    def scalar_row(self) -> ScalarRow:
        """The first config in plain numbers."""
        return ScalarRow(self)

    @staticmethod
    def column(values: Sequence[Any]) -> Any:
        return np.array(values)

    def supports(self, *reductions: str) -> Any:
        """For each reduction a row: which kernels support it."""
        return np.array([[name in kernel.reductions for kernel in self.kernels] for name in reductions])


class ScalarRow(Knobs):
    """One config in plain numbers, with what follows from its knobs."""

    by_warps: Any = None
    threads: Any = None
    efficiency: Any
    worth: Any
    longer: Any
    scheduled: Any
    walks: Any
    unaligned: Any
    across_k: Any

    def __init__(self, rows: Rows) -> None:
        self.kernels, self.configs, self.spans = rows.kernels[:1], rows.configs[:1], rows.spans[:1]
        (config,) = self.configs
        for name in (*KNOBS, "by_warps", "threads"):
            setattr(self, name, getattr(config, name))
        for name in ("efficiency", "worth", "longer", "scheduled", "walks", "unaligned", "across_k"):
            setattr(self, name, getattr(rows, name)[0].item())
        self.longer_by_lines = rows.longer_by_lines[:, 0].tolist()
        self.cached: dict[Any, Any] = {}  # as in Rows

    @staticmethod
    def column(values: Sequence[Any]) -> Any:
        (value,) = values
        return value


def spans_of(kernels: Sequence[Kernel]) -> list[tuple[Kernel, slice]]:
    """Runs of equal kernels in the list."""
    starts = [at for at, kernel in enumerate(kernels) if at == 0 or kernels[at - 1] is not kernel]
    ends = [*starts[1:], len(kernels)]
    return [(kernels[start], slice(start, end)) for start, end in zip(starts, ends, strict=True)]


@lru_cache(maxsize=2048)
def config_alone(kernel: Kernel, config: Config, math_name: str) -> Rows:
    """One config as Rows. A caller's own config gets the efficiency of the default one."""
    return Rows(math_name, [(0, kernel, config, kernel.efficiency_of(config, math_name))])
