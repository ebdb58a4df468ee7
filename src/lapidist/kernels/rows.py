"""Configs of many kernels as columns, each with what its kernel's row says: what is weighed at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.kernels.columns import Columns
from lapidist.kernels.row import Kernel
from lapidist.kernels.rules.rule import obey
from lapidist.problems.problem import Problem


class Rows(Columns):
    """Configs of kernels of one family, each with what its kernel's row says: what is weighed at once."""

    def __init__(self, math: str, listed: Sequence[tuple[int, Kernel, Config, float]]) -> None:
        """`listed`: the place among all that are weighed, which decides between equals, and an
        efficiency."""
        self.positions, self.kernels, self.configs, _ = zip(*listed, strict=True)
        self.__dict__.update(Columns.of(self.configs).__dict__)
        self.efficiency = np.array([each for *_, each in listed])
        self.worth = np.array([kernel.worth for kernel in self.kernels])
        self.longer = np.array([kernel.longer for kernel in self.kernels])
        self.scheduled = np.array([kernel.family.scheduled for kernel in self.kernels])
        self.lesson = np.array([kernel.kind != "production" for kernel in self.kernels])
        shares = [kernel.family.shares_of_speed(math, config) for _, kernel, config, _ in listed]
        self.unaligned, self.across_k = np.array(shares).T
        by_lines = [kernel.family.longer_by_lines(math, config) for _, kernel, config, _ in listed]
        self.longer_by_lines = np.array(by_lines).T
        self.kept: dict[Any, Any] = {}  # what a family finds of them once for each chip
        self.spans: list[tuple[Kernel, slice, Knobs]] = []
        for kernel, span in spans_of(self.kernels):
            configs = self.configs[span]
            self.spans.append((kernel, span, Columns.of(configs) if len(configs) > 1 else configs[0]))
        self.in_order = np.zeros(
            len(self.configs), bool
        )  # whose knobs break no rule, whatever the problem is
        for kernel, span, columns in self.spans:
            self.in_order[span] = obey(kernel.rules_of_knobs, columns, None)

    def taken(self, problem: Problem, device: Device) -> Any:
        """Which of them are not refused."""
        found = np.zeros(len(self.configs), bool)
        for kernel, span, configs in self.spans:
            found[span] = kernel.takes(problem, configs, device)
        return found & self.in_order

    def known(self, *ways: str) -> Any:
        """For each way to bring sums together a column: which kernels do that."""
        return np.array([[way in kernel.ways for kernel in self.kernels] for way in ways])


def spans_of(kernels: Sequence[Kernel]) -> list[tuple[Kernel, slice]]:
    """Neighbours of one kernel."""
    starts = [at for at, kernel in enumerate(kernels) if at == 0 or kernels[at - 1] is not kernel]
    ends = [*starts[1:], len(kernels)]
    return [(kernels[start], slice(start, end)) for start, end in zip(starts, ends, strict=True)]


@lru_cache(maxsize=2048)
def config_alone(kernel: Kernel, config: Config, math_name: str) -> Rows:
    """This config, and no other. One of the caller's own is taken for as good as the default one."""
    return Rows(math_name, [(0, kernel, config, kernel.efficiency_of(config, math_name))])
