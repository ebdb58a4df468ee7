"""The interface between the host and a kernel's source, beside its registry row. Each family of kernels is a
class of it.

The row says which source, types and configs a kernel has. The family says what the source is passed and
compiled with, what it refuses, and how its blocks share tiles. Where a method takes Knobs, these are one
config or columns of many.
"""

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
from lapidist.kernels.parameters import MODES, SCHEDULE, Parameters, block_of
from lapidist.launch import ParameterBlock, TensorMap
from lapidist.problems.problem import Problem
from lapidist.schedule import CostModel, Schedule
from lapidist.schedule.schedule_options import ScalarOption, ScheduleOption, ScheduleOptions
from lapidist.schedule.sharing_choice import Sharing

if TYPE_CHECKING:
    from lapidist.kernels.kernel import Kernel
    from lapidist.kernels.kernel_table import Rows


# of a second pass: seconds of its launch, and the share of the DRAM's bandwidth that it reaches
PASS_STARTS, PASS_SHARE = 2.2e-6, 0.8


class ScalarSchedules(ABC):
    """The schedules of one config in plain numbers, in a fifth of the time of columns."""

    @abstractmethod
    def options_of_config(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, reductions: Collection[int]
    ) -> list[ScheduleOption]:
        """The schedules that are possible with one of these reductions, in the order of Family.ways. NONE:
        whole tiles.
        """


class ScalarModel(ScalarSchedules):
    """The same with the family's predicted time of one config."""

    @abstractmethod
    def seconds_of_config(
        self,
        problem: Problem,
        kernel: Kernel,
        config: Config,
        device: Device,
        options: Sequence[ScalarOption],
    ) -> list[float]:
        """The same times as Family.seconds."""

    @abstractmethod
    def worth_of_config(self, problem: Problem, kernel: Kernel, option: ScalarOption) -> float:
        """The same as Family.worth."""


class Family(ABC):
    """`parameters`: each parameter's name and kind, in the order of the kernel's arguments. The order stands
    nowhere else on the host.
    """

    parameters: Parameters
    takes_groups = False  # whether its blocks find groups of ragged operands (share/groups.cuh)
    guards = False  # whether its blocks do nothing where a number in memory says so (modes.cuh)
    awaits_rows = False  # whether its blocks wait for rows of A that arrive meanwhile
    walks_triangles = False  # whether of a symmetric D its blocks compute only tiles that meet one triangle
    has_owners = False  # whether its blocks store rows of D at their owners
    scalar_schedules: ScalarSchedules | None = None
    scalar_model: ScalarModel | None = None

    # ---- what follows from a problem ----

    @abstractmethod
    def refuse(self, problem: Problem) -> str | None:
        """Why no config of the family takes the problem, or None."""

    @abstractmethod
    def macros(self, problem: Problem) -> Mapping[str, object]:
        """The macros that the source gets for this problem."""

    def constants(self, problem: Problem) -> Mapping[str, Any]:
        """Parameters that follow from the problem, beyond those of parameters.constants."""
        return {}

    def scratch(self, problem: Problem) -> tuple[int, int]:
        """Workspace bytes of flags, and of operands that are packed first."""
        return 0, 0

    def grid(self, problem: Problem) -> tuple[int, int, int] | None:
        """The grid, if blocks have no tiles of one matrix each."""
        return None

    # ---- what follows from a config ----

    def short_tile_first(self, config: Knobs) -> Any:
        """Whether the tile of k that is not full comes first, or last; for configs with slices of k."""
        return False

    def maps(
        self, problem: Problem, config: Config, at: Mapping[str, int], peers: int
    ) -> Mapping[str, TensorMap]:
        """Tensor maps by the names of parameters; there may be more than the kernel takes. `at`: addresses of
        the operands ("A" to "D") and of the workspace. `peers`: blocks of a cluster that share a tile.
        """
        return {}

    def config_macros(self, problem: Problem, config: Config, scheduled: bool) -> Mapping[str, object]:
        """Macros that follow from a config, beside the config itself: budgets of registers."""
        return {}

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        """Bytes of dynamic shared memory."""
        return 0

    def leaves_room(self, problem: Problem, config: Knobs) -> Any:
        """Whether a block leaves room on its SM for one of the next launch, where operands are packed."""
        return False

    def shares_of_speed(self, math: str, config: Config) -> tuple[float, float]:
        """Factors of the speed: if lines do not start on 16 bytes; if they do, and neither A's nor B's run
        along k.
        """
        return 1.0, 1.0

    def longer_by_lines(self, math: str, config: Config) -> tuple[float, float, float, float]:
        """How much longer a step takes for lines of A that start on multiples of 16 bytes, and of less; then
        the same for B.
        """
        return 0.0, 0.0, 0.0, 0.0

    def parts_of_tiles(self, problem: Problem, config: Config) -> int:
        """The most blocks that share the k of a tile of groups, as the device decides."""
        return 1

    def blocks_of_sm(self, problem: Problem, kernel: Kernel, config: Config, device: Device) -> int:
        """Blocks that stay on an SM at once, if tiles of groups are cut."""
        return kernel.persistent

    def tiles_handed_on(self, problem: Problem, blocks: int) -> int:
        """The most tiles of sums that blocks leave for each other, where they share those of groups."""
        return blocks

    def puts_sums_aside(self, problem: Problem) -> bool:
        """Whether a block keeps the sums of a tile's parts of k in the workspace."""
        return problem.modes.fixed_cuts is not None

    def quantises(self, problem: Problem, config: Config, peers: int) -> bool:
        """Whether the kernel makes D and its factors itself, from whole groups of columns. `peers`: blocks of
        a cluster that share a tile.
        """
        return False

    def joins_values(self, problem: Problem) -> bool:
        """Whether lanes reduce 16 values of a column, or of a row, before a second pass reads them."""
        return False

    def second_pass_seconds(
        self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions
    ) -> Any:
        """Seconds of second passes, as far as they depend on the kernel."""
        return self.quantising_seconds(problem, rows, device, options) + self.reducing_seconds(
            problem, device
        )

    def quantising_seconds(
        self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions
    ) -> Any:
        """Seconds of the pass that makes D and its factors, if the kernel leaves that to it."""
        if problem.fused is None or not problem.fused.grouped:
            return 0.0
        columns = problem.n // 2 if problem.paired else problem.n
        moved = prod(problem.batch) * problem.m * columns * (size_of(problem.fused.dtype) + 1)
        return PASS_STARTS + moved / (device.dram_gbps * 1e9 * PASS_SHARE)

    def reducing_seconds(self, problem: Problem, device: Device) -> float:
        """Seconds of the passes whose values lanes might reduce first."""
        if problem.fused is None:
            return 0.0
        from lapidist.epilogues.passes import JOINED

        values = sum(map(bool, problem.fused.function.joined)) * problem.m * problem.n
        moved = prod(problem.batch) * values * size_of(problem.fused.dtype)
        return moved / (JOINED if self.joins_values(problem) else 1) / (device.dram_gbps * 1e9 * PASS_SHARE)

    # ---- how blocks share tiles, and how long that takes ----

    @abstractmethod
    def data_parallel_option(self, kernel: Kernel, config: Config, device: Device) -> ScheduleOption:
        """The first option, in which each block computes whole tiles."""

    @abstractmethod
    def options(self, problem: Problem, rows: Rows, device: Device, accepted: Any) -> ScheduleOptions:
        """The schedules that the planner may choose among, for the configs that are accepted."""

    @abstractmethod
    def seconds(self, problem: Problem, rows: Rows, device: Device, options: ScheduleOptions) -> Any:
        """The time of each option of each config, without that of the launch."""

    def worth(self, problem: Problem, rows: Rows, options: ScheduleOptions) -> Any:
        """An option is chosen only if it takes less than this part of whole tiles' time, as models err."""
        return np.where(options.shares_tiles, rows.worth, 1.0)

    @abstractmethod
    def schedule_of(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, option: ScheduleOption
    ) -> Schedule | None:
        """The Schedule of an option. None: the kernel's blocks find their tiles themselves."""

    @abstractmethod
    def schedules(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device, sharing: Sharing
    ) -> Sequence[Schedule | None]:
        """The schedules that the caller's choices allow. ArgumentError: there is none."""

    @abstractmethod
    def costs(
        self, problem: Problem, kernel: Kernel, config: Config, device: Device
    ) -> tuple[int, CostModel]:
        """Blocks that an SM holds, and the cost of sharing tiles."""

    @cached_property
    def cost_model(self) -> tuple[object, ...]:
        """Families with equal values share these methods, so their rows are weighed together."""
        model = type(self)
        return model.options, model.seconds, model.worth

    # ---- what follows from the parameters ----

    @cached_property
    def scheduled(self) -> bool:
        """Whether its kernels take a Schedule, and so split-K and Stream-K."""
        return SCHEDULE[0] in self.parameters

    @cached_property
    def moded(self) -> bool:
        """Whether its kernels gather, scatter, permute and take lists of arrays."""
        return MODES in self.parameters

    def takes_modes(self, problem: Problem) -> bool:
        """Whether its kernels take the problem's matrices where its modes say that they lie."""
        return self.moded and (self.guards or not problem.modes.guarded)

    def block(self, problem: Problem) -> ParameterBlock:
        """The layout of the parameters in bytes, for this problem's types."""
        return block_of(self.parameters, problem)
