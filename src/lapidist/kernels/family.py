"""What the host asks of a kernel, beside its row: one interface, of which each family of kernels is a class.

A row of the registry says which source, types and configs a kernel has. Its family says what the source is
passed and compiled with, what it refuses, and how its blocks share tiles. Where a method takes Knobs, these
are one config or columns of many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.device import Device
from lapidist.dtypes import size_of
from lapidist.kernels.parameters import SCHEDULE, Parameters, block_of
from lapidist.launch import ParameterBlock, TensorMap
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule
from lapidist.schedule.sharing import Sharing
from lapidist.schedule.ways import OneWay, Way, Ways

if TYPE_CHECKING:
    from lapidist.kernels.row import Kernel
    from lapidist.kernels.rows import Rows


# a second pass: seconds that its launch takes, and its share of the bandwidth
PASS_STARTS, PASS_SHARE = 2.2e-6, 0.8


class WaysInNumbers(ABC):
    """The ways of one config in plain numbers: a fifth of the time of columns."""

    @abstractmethod
    def ways_of_one(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, asked: Collection[int]
    ) -> list[Way]:
        """Those that are taken, in the order of Family.ways, of these reductions; NONE: of whole tiles."""


class InNumbers(WaysInNumbers):
    """A family's model of one config, too."""

    @abstractmethod
    def seconds_of_one(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, ways: Sequence[OneWay]
    ) -> list[float]:
        """As Family.seconds has it."""

    @abstractmethod
    def worth_of_one(self, problem: Problem, kernel: Kernel, way: OneWay) -> float:
        """As Family.worth has it."""


class Family(ABC):
    """`parameters` pairs the name of each with its kind; nothing else spells the order of arguments."""

    parameters: Parameters
    ways_in_numbers: WaysInNumbers | None = None
    in_numbers: InNumbers | None = None

    # ---- of a problem ----

    @abstractmethod
    def refuse(self, problem: Problem) -> str | None:
        """Why the parameters do not fit it, whatever the config is; or None."""

    @abstractmethod
    def macros(self, problem: Problem) -> Mapping[str, object]:
        """What the source is given of it, as macros."""

    def constants(self, problem: Problem) -> Mapping[str, int]:
        """Parameters that follow from it, beyond those that every list may name."""
        return {}

    def scratch(self, problem: Problem) -> tuple[int, int]:
        """Bytes of flags, and of room for operands that are packed first."""
        return 0, 0

    # ---- of a config ----

    def maps(
        self, problem: Problem, config: Config, at: Mapping[str, int], peers: int
    ) -> Mapping[str, TensorMap]:
        """Those of the kind "tensormap", and perhaps others. `at`: where the operands ("A" .. "D") and the
        workspace are. So many blocks of a cluster share a tile."""
        return {}

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        """Of dynamic shared memory."""
        return 0

    def beside_another(self, problem: Problem, config: Knobs) -> Any:
        """Whether a block of the next launch fits on its SM, too; of packed operands."""
        return False

    def shares_of_speed(self, math: str, config: Config) -> tuple[float, float]:
        """What is left of it where lines do not start on 16 bytes; where they do, and neither A's nor B's run
        along k.
        """
        return 1.0, 1.0

    def longer_by_lines(self, math: str, config: Config) -> tuple[float, float, float, float]:
        """How much longer a step takes for lines of A that start on 16 bytes, and on less; the same of B."""
        return 0.0, 0.0, 0.0, 0.0

    def quantises(self, problem: Problem, config: Config, peers: int) -> bool:
        """Whether the kernel makes D and its factors from whole groups of columns. So many blocks of a
        cluster share a tile."""
        return False

    def joins_values(self, problem: Problem) -> bool:
        """Whether the kernel joins 16 values of a column, or of a row, before a second pass reads them."""
        return False

    def behind(self, problem: Problem, rows: Rows, device: Device, ways: Ways) -> Any:
        """Seconds of second passes, as far as they are the kernel's choice."""
        return self.quantising(problem, rows, device, ways) + self.reducing(problem, device)

    def quantising(self, problem: Problem, rows: Rows, device: Device, ways: Ways) -> Any:
        """Of the pass that makes D and factors of what a kernel left."""
        if problem.fused is None or not problem.fused.grouped:
            return 0.0
        columns = problem.n // 2 if problem.paired else problem.n
        moved = prod(problem.batch) * problem.m * columns * (size_of(problem.fused.dtype) + 1)
        return PASS_STARTS + moved / (device.dram_gbps * 1e9 * PASS_SHARE)

    def reducing(self, problem: Problem, device: Device) -> float:
        """Of those that read values which lanes might join."""
        if problem.fused is None:
            return 0.0
        from lapidist.epilogues.passes import JOINED

        values = sum(map(bool, problem.fused.function.joined)) * problem.m * problem.n
        moved = prod(problem.batch) * values * size_of(problem.fused.dtype)
        return moved / (JOINED if self.joins_values(problem) else 1) / (device.dram_gbps * 1e9 * PASS_SHARE)

    # ---- how blocks share tiles, and how long that takes ----

    @abstractmethod
    def whole(self, kernel: Kernel, config: Config, device: Device) -> Way:
        """The first of the ways: each block takes whole tiles."""

    @abstractmethod
    def ways(self, problem: Problem, rows: Rows, device: Device, taken: Any) -> Ways:
        """What the planner may choose from, of those that are taken, where the caller leaves it open."""

    @abstractmethod
    def seconds(self, problem: Problem, rows: Rows, device: Device, ways: Ways) -> Any:
        """Of each way of each config, from the launch on."""

    def worth(self, problem: Problem, rows: Rows, ways: Ways) -> Any:
        """A way is taken where it promises less than this part of what whole tiles take: models err."""
        return np.where(ways.shares_tiles, rows.worth, 1.0)

    @abstractmethod
    def schedule_of(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, way: Way
    ) -> Schedule | None:
        """The Schedule of a way that was weighed. None: the kernel walks its tiles itself."""

    @abstractmethod
    def schedules(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, sharing: Sharing
    ) -> Sequence[Schedule | None]:
        """What the caller asks for, as far as he leaves it open; an ArgumentError, where it cannot be."""

    @abstractmethod
    def costs(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device
    ) -> tuple[int, CostModel]:
        """Blocks that an SM holds, and what sharing tiles costs them."""

    @cached_property
    def weighed_by(self) -> tuple[object, ...]:
        """Rows whose families have these from one class are weighed at once."""
        own = type(self)
        return own.ways, own.seconds, own.worth

    # ---- what follows from the parameters ----

    @cached_property
    def scheduled(self) -> bool:
        """Whether its kernels take a Schedule, and with it split-K and Stream-K."""
        return SCHEDULE[0] in self.parameters

    @cached_property
    def moded(self) -> bool:
        """Whether its kernels gather, scatter, permute and take lists of arrays."""
        return ("modes", "modes") in self.parameters

    def block(self, problem: Problem) -> ParameterBlock:
        """The byte layout for this problem's types."""
        return block_of(self.parameters, problem)
