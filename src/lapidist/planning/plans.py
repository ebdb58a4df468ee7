"""A Plan: kernel, config and everything derived from them for one Problem on one Device, and how it is
chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import LapidistError
from lapidist.frameworks.arrays import Operand
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.parameters import OPERANDS, constants
from lapidist.kernels.production import every_kernel, kernel_named
from lapidist.kernels.tma_alignment import nothing_at
from lapidist.kernels.wgmma.tiles import read_once
from lapidist.launch import Binary, Dim3, Launch, ParameterBlock, Patch, TensorMap
from lapidist.planning.binaries import EACH_STEP_ROUNDED, Build, Macros, compiled, compiled_anew
from lapidist.planning.cost_table import Candidate, as_computed
from lapidist.planning.invariant_choice import invariant_choice, is_invariant
from lapidist.planning.invariant_orders import with_fixed_cuts
from lapidist.planning.modelled_choice import modelled_choice
from lapidist.planning.plan_text import plan_text
from lapidist.planning.planner import candidates, choose, exactly, weigh_one
from lapidist.planning.sum_orders import SumOrder, rounds_each_step, sum_order
from lapidist.planning.tuned import ignored_record, look_up
from lapidist.planning.workspace import Scratch, memory_of, scratch_of_groups
from lapidist.problems.compile_key import of_kind
from lapidist.problems.modes import NO_POINTERS, ExtraPointers, members
from lapidist.problems.problem import Offsets, Problem
from lapidist.schedule import Schedule
from lapidist.schedule.divisors import device_words
from lapidist.schedule.sharing_choice import PLANNED, Sharing

# Longer launches do not start before the last one ends. Their blocks would fill free SMs in any order, and
# neighbouring tiles would no longer load the same lines of A and B at the same time. Two cases are exempt. If
# all of the chip reads an operand once, there is nothing to share, and the next launch's loads keep the
# memory busy. Blocks that pack operands start on tiles only after all blocks have met.
OVERLAPPED_SECONDS = 25e-6
OVERLAPPED_SHARE = 0.75  # of the SMs: fewer blocks, beside those of the next launch, crowd part of the chip
CACHED_PLANS = 256  # of parts of lists
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and how it is compiled and launched. print() gives the reasons."""

    problem: Problem
    device: Device
    kernel: Kernel
    config: Config
    schedule: Schedule | None  # None: the kernel's grid says which block computes what
    predicted_seconds: float
    tuned: str = ""  # the measurement that decided, or why one was ignored
    unshared: str = ""  # why tiles are whole although the caller asked for Stream-K
    kernel_named: Kernel | None = None  # by the caller: the plan may use no other one
    config_named: bool = False  # by the caller
    sharing: Sharing = PLANNED  # the caller's choice of schedule

    @property
    def considered(self) -> list[Candidate]:
        """All candidates, computed anew: a plan does not keep them."""
        problem = self.callers_problem
        if self.config_named:
            return [weigh_one(problem, self.device, self.kernel, self.config, self.sharing)]
        kernels = (self.kernel_named,) if self.kernel_named else every_kernel()
        return candidates(problem, self.device, kernels, self.sharing)

    @property
    def callers_problem(self) -> Problem:
        """The caller's problem, before the config exchanged A and B."""
        return as_computed(replace(self.problem, skewed=False), replace(self.config, skewed=False))

    @property
    def scheduled(self) -> bool:
        """Whether blocks read a schedule. With one block for each tile the grid says it all."""
        return self.schedule is not None and (
            self.schedule.kind != "data-parallel" or self.schedule.launched > 0
        )

    @cached_property
    def grid(self) -> Dim3:
        if self.schedule is not None and self.scheduled:
            return (max(self.schedule.launch_blocks * self.config.cluster, self._packers), 1, 1)
        return self.kernel.grid(self.problem, self.config, self.device)

    @property
    def _packers(self) -> int:
        """The number of blocks that can help to pack operands: those without a tile help, too."""
        if not self.kernel.packs(self.problem):
            return 0
        blocks, peers = self.kernel.grid(self.problem, self.config, self.device)[0], self._peers
        return min(-(-blocks // peers), self.device.clusters_resident(peers)) * peers if peers > 1 else blocks

    @property
    def sum_order(self) -> SumOrder:
        """The order in which k is summed. Plans of one order give equal bits."""
        return sum_order(self.problem, self.device, self.kernel, self.config, self.schedule)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster, which share operands or the k of a tile."""
        return self.config.cluster * self._peers

    @property
    def block(self) -> Dim3:
        return (self.config.threads, 1, 1)

    @property
    def _peers(self) -> int:
        """Blocks of a cluster that share the k of a tile."""
        return 1 if self.schedule is None else self.schedule.cluster

    @property
    def cooperative(self) -> bool:
        """Whether all blocks must be on the chip at once."""
        waits = (
            self.schedule is not None and self.schedule.launched > 0 and self.schedule.reduction_blocks > 0
        )
        return waits or self.kernel.packs(self.problem)

    @property
    def overlaps(self) -> bool:
        """Whether blocks may start before those of the last launch end. Blocks that wait for each other may,
        too: their launch is cooperative, so all of them get SMs before another launch does.
        """
        short = self.predicted_seconds < OVERLAPPED_SECONDS
        return self.kernel.overlaps and (short or self.kernel.packs(self.problem) or self._streams)

    @property
    def _streams(self) -> bool:
        """Whether all of the chip reads an operand once."""
        return (
            any(read_once(self.problem, self.config)) and self.grid[0] >= OVERLAPPED_SHARE * self.device.sms
        )

    @property
    def shared_bytes(self) -> int:
        return self.kernel.shared_bytes(self.config, self.problem)

    @property
    def workspace_bytes(self) -> int:
        """Device memory that the plan needs: flags, packed operands, partial sums."""
        return sum(self.kernel.family.scratch(self.problem)) + self._sharing_bytes

    @property
    def partials_offset(self) -> int:
        """Bytes of all flags: those of packing, then the schedule's. Bytes behind them need not be zero."""
        flags = 0 if self.schedule is None else self.schedule.partials_offset * self.config.cluster
        return self.kernel.family.scratch(self.problem)[0] + flags + self._parts_of_groups[0]

    @property
    def _sharing_bytes(self) -> int:
        """Flags and partial sums of blocks that share tiles. A schedule counts a cluster as one block."""
        if self.schedule is None or self.problem.modes.ragged is not None:
            return sum(self._parts_of_groups)
        tile_bytes = self.kernel.tile_bytes(self.problem, self.config)
        return self.config.cluster * self.schedule.workspace_bytes(tile_bytes)

    @cached_property
    def _parts_of_groups(self) -> tuple[int, int]:
        return scratch_of_groups(self.kernel, self.problem, self.config, self.grid[0])

    @property
    def stores_both_halves(self) -> bool:
        return "BOTH_HALVES" in dict(self.problem_macros)

    @cached_property
    def build(self) -> Build:
        """What its kernel is compiled from."""
        return self.kernel, self.problem_macros, self.device.architecture

    @property
    def binary(self) -> Binary:
        """The kernel from memory or the disk cache, compiled if neither has it."""
        return compiled(*self.build)

    def recompiled(self) -> Binary:
        """The kernel compiled again, because the driver refused the cached one."""
        return compiled_anew(*self.build)

    @property
    def unassembled(self) -> Binary:
        """The binary with PTX, which the machine reads. It has machine code only if the cache does."""
        return compiled(*self.build, assembled=False)

    @property
    def problem_macros(self) -> Macros:
        schedule, reduction = self.schedule, ""
        if schedule is not None and schedule.reduction_blocks:
            reduction = "SEPARATE"
        elif schedule is not None and schedule.reduction == "atomic":
            reduction = "ATOMIC"
        room = bool(self.kernel.family.leaves_room(self.problem, self.config))
        return macros_of(self.problem, self.kernel, self.config, self.scheduled, self._peers, reduction, room)

    def _constants(self) -> dict[str, Any]:
        """The parameters that are the same in each run, by name."""
        words = {} if self.schedule is None else {"schedule": device_words(self.schedule)}
        modes = self.problem.modes
        routed = {"modes": members(modes), "scales": self.problem.scaling.members}
        if modes.ragged is not None:
            routed["ragged"] = modes.ragged.members(self.problem.scaling)
        if self.problem.arrivals is not None:
            routed["arrivals"] = self.problem.arrivals.members
        return {**constants(self.problem), **words, **routed, **self.kernel.family.constants(self.problem)}

    def _patches(self, block: ParameterBlock) -> Mapping[str, Patch]:
        """With k = 0 the kernel is passed alpha = 0: infinity or NaN times the empty sum would be NaN."""
        patches = block.patches()
        if not self.problem.k:
            return {name: patch for name, patch in patches.items() if name != "alpha"}
        if ("ALPHA", 0) in self.build[1]:
            return block.patches_of_one
        return patches

    def call_parameters(
        self, extra_pointers: ExtraPointers, skipped: Sequence[int]
    ) -> dict[str, tuple[int, ...]]:
        """The further parameters of one call, for the patch table. `skipped`: elements to skip in each matrix
        of an epilogue.
        """
        fused = self.problem.fused
        words = (
            {"epilogue": fused.words(extra_pointers.fused, skipped)} if fused and extra_pointers.fused else {}
        )
        return {**extra_pointers.values(self.problem.transposed), **words}

    @cached_property
    def scratch_bytes(self) -> tuple[int, int]:
        """Workspace bytes of flags, and of what follows them."""
        return self.partials_offset, self.workspace_bytes - self.partials_offset

    def common_launch(self, binary: Binary, more: Mapping[str, Any] = NOTHING) -> Launch:
        """The launch that all runs of this plan share; its patch table says what differs. `more`: further
        parameters, from which the kernel takes those that it has.
        """
        block = self.kernel.family.block(self.problem)
        return Launch(
            binary,
            self.grid,
            self.block,
            bytes(block.pack({**self._constants(), **more})),
            self.shared_bytes,
            (self.cluster, 1, 1),
            cooperative=self.cooperative,
            overlaps=self.overlaps,
            parameters=block,
            patches=self._patches(block),
            maps=self.placed_maps if block.has_maps else None,
            scratch=self.scratch_bytes,
        )

    def placed_maps(self, at: Mapping[str, int]) -> tuple[tuple[int, TensorMap], ...]:
        """The tensor maps, each with its offset in the parameters."""
        offsets = self.kernel.family.block(self.problem).map_offsets
        return tuple((offsets[name], tensor_map) for name, tensor_map in self.tensor_maps(at).items())

    def tensor_maps(self, at: Mapping[str, int]) -> dict[str, TensorMap]:
        """The tensor maps that the kernel takes, for operands and a workspace at these addresses. With k = 0
        (or alpha = 0) A and B are not read. They may lie anywhere, so their maps are of other memory.
        """
        family, problem = self.kernel.family, self.problem
        maps = family.maps(problem, self.config, at, self._peers)
        names = family.block(problem).map_offsets
        if problem.k > 0:
            return {name: maps[name] for name in names}
        return {name: maps[name] if name == "d_map" else nothing_at(at["D"], maps[name]) for name in names}

    @property
    def is_empty(self) -> bool:
        """Whether D has no elements: then nothing is launched."""
        return 0 in (self.problem.m, self.problem.n, *self.problem.batch)

    def launch(
        self,
        a: Operand,
        b: Operand,
        c: Operand | None,
        d: Operand,
        alpha: float,
        beta: float,
        skipped: Offsets = (0, 0, 0, 0),
        workspace: Scratch | None = None,
        extra_pointers: ExtraPointers = NO_POINTERS,
        extras: tuple[Operand, ...] = (),
    ) -> Launch:
        """The launch in the machine of one product of these arrays. `skipped`: elements to skip in each.

        A workspace is allocated if the plan needs one and none is passed; `Launch.memory` owns it.
        `extra_pointers` are the addresses of the arrays in `extras`.
        """
        starts = (*self.caller_order(a.pointer, b.pointer), d.pointer if c is None else c.pointer, d.pointer)
        parts = zip(OPERANDS, starts, self.problem.element_bytes, skipped[:4], strict=True)
        at = {name: start + size * skip for name, start, size, skip in parts}
        scratch = (workspace or Scratch(self)) if self.workspace_bytes else None
        operands = [operand for operand in (a, b, c, d, *extras) if operand is not None]
        memory = (
            *(memory_of(x, x is self.caller_order(a, b)[0] and self.problem.skewed) for x in operands),
            *(scratch.memory if scratch else ()),
        )
        values = {"alpha": alpha, "beta": beta, **self.call_parameters(extra_pointers, skipped[4:])}
        common = self.common_launch(self.unassembled).patched(values)
        return common.placed(at, scratch.addresses if scratch else (0, 0), memory)

    def caller_order(self, a: Any, b: Any) -> tuple[Any, Any]:
        """The caller's A and B in the problem's order, which is exchanged if it computes the transposed
        product.
        """
        return (b, a) if self.problem.transposed else (a, b)

    def __str__(self) -> str:
        return plan_text(self)


@of_kind
def macros_of(
    problem: Problem,
    kernel: Kernel,
    config: Config,
    scheduled: bool,
    peers: int,
    reduction: str,  # the macro that names it, if any
    leaves_room: bool,  # decided by the problem's extents, so a part of the key of @of_kind
) -> Macros:
    """The macros of the kernel, with those of the blocks that share tiles."""
    macros = kernel.macros(problem, config, scheduled)
    shared: dict[str, object] = {reduction: 1} if reduction else {}
    if peers > 1:
        shared["PEERS_IN_CLUSTER"] = peers if kernel.reductions else 1
    if rounds_each_step(problem, kernel):
        shared[EACH_STEP_ROUNDED] = 1
    return tuple(sorted({**macros, **shared}.items()))


def make_plan(
    problem: Problem,
    device: Device,
    kernel: Kernel | None = None,
    config: Config | None = None,
    sharing: Sharing = PLANNED,
) -> Plan:
    """The plan for a problem. `kernel` narrows the choice to one kernel, `config` to one config of it."""
    tuned = ""
    if problem.invariant:
        problem = with_fixed_cuts(problem, device)
        best, sharing = invariant_choice(problem, device, kernel, config, sharing)
        if kernel is None and sharing.open:
            measured, words = measured_choice(problem, device, best)
            best, tuned = (measured, words) if is_invariant(measured, problem, device) else (best, "")
    elif config is not None:
        best = exactly(problem, device, kernel, config, sharing)
    elif kernel is None and sharing == PLANNED and problem.modes.ragged is None:
        best, tuned = measured_choice(problem, device, modelled_choice(problem, device))
    else:
        best = choose(problem, device, kernel, sharing)
    named: dict[str, Any] = {"kernel_named": kernel, "config_named": config is not None}
    return plan_of(best, problem, device, tuned=tuned, sharing=sharing, **named)


@lru_cache(maxsize=CACHED_PLANS)
def plan_once(
    problem: Problem, device: Device, kernel: Kernel | None, config: Config | None, sharing: Sharing
) -> Plan:
    """The plan of make_plan, cached: parts of lists often have the same problem."""
    return make_plan(problem, device, kernel, config, sharing)


def plan_of(best: Candidate, problem: Problem, device: Device, **more: Any) -> Plan:
    """The plan of a candidate. `problem`: the caller's; `more`: further fields of the Plan."""
    computed = as_computed(problem, best.config)
    chosen = best.kernel, best.config, best.schedule, best.seconds
    return Plan(computed, device, *chosen, unshared=best.unshared, **more)


def measured_choice(problem: Problem, device: Device, modelled: Candidate) -> tuple[Candidate, str]:
    """The choice that was measured fastest on this chip, or the model's if there is no record; and what the
    plan says about it.
    """
    winner, warning = look_up(problem, device)
    if winner is None:
        return modelled, warning
    try:
        best = exactly(problem, device, kernel_named(winner.kernel), winner.config, winner.sharing)
    except LapidistError as error:  # the record is of another version, or edited by hand
        why = str(error).splitlines()[-1].strip()
        return modelled, ignored_record(problem, device, f"what measured fastest is refused now: {why}")
    return best, str(winner)
