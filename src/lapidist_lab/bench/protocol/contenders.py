"""Who is measured: our kernels, each a name and `prepare`, as the peers have it; and what the compiler made
of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lapidist.config import Config
from lapidist.device import Device
from lapidist.dtypes import element_of, size_of
from lapidist.errors import ArgumentError, LapidistError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.problem import Problem, dense_problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing
from lapidist_lab.bench.protocol.cases import Case

LIBRARY = "lapidist"  # whatever kernel the planner chooses
PEERS = ("cublas", "cublas_exact", "padded", "compiled", "cutlass", "cutlass_47")  # peers.py has them
Call = Callable[[int], object]


class Contender(Protocol):
    """`prepare` takes lists of arrays, one for each input set, and returns what starts the case on set i."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def columns(self) -> bool: ...  # B lies column by column
    @property
    def capturable(self) -> bool: ...  # in a CUDA graph
    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call: ...
    def facts(self, device: Device) -> Facts: ...


@dataclass(frozen=True, slots=True)
class Facts:
    """Static facts of a compiled kernel, named as in a Record."""

    config: str | None = None
    unit: str | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    blocks_per_sm: int | None = None
    warps_per_sm: int | None = None
    ffma_share: float | None = None
    bytes_per_flop: float | None = None


class KernelContender:
    """A kernel with its config and schedule, or the planner's choice."""

    def __init__(
        self,
        kernel: Kernel | None,
        math: str,
        config: Config | None = None,
        sharing: Sharing = PLANNED,
        name: str = "",
        disassembled: bool = True,
    ) -> None:
        self.kernel, self.config, self.sharing = kernel, config, sharing
        self.name = name or (kernel.name if kernel else LIBRARY)
        self.kind = kernel.kind if kernel else "production"
        self.columns = b_by_columns(kernel, math)
        self.capturable = True
        self.disassembled = disassembled
        self.plan: Plan | None = None

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        from lapidist.calls import planned_call

        gemm = planned_call.plan(
            a[0],
            b[0],
            out=c[0],
            kernel=self.kernel,
            config=self.config,
            schedule=self.sharing.schedule,
            split_k=self.sharing.split_k,
            reduction=self.sharing.reduction,
            precision=case.precision,
        )
        self.plan = gemm.plan
        return lambda i: gemm.execute(a[i], b[i], None, c[i])

    def planned(self, case: Case, device: Device) -> Plan:
        """The plan that `prepare` makes for dense, aligned arrays."""
        return make_plan(problem_of(case, self.columns), device, self.kernel, self.config, self.sharing)

    def facts(self, device: Device) -> Facts:
        chosen = self.kernel is None
        return (
            facts_of(self.plan, device, chosen=chosen, disassembled=self.disassembled)
            if self.plan
            else Facts()
        )


def b_by_columns(kernel: Kernel | None, math: str) -> bool:
    """Whether B lies by columns: where a kernel takes nothing else, and in 8-bit types where it takes that,
    as cuBLAS does."""
    bytewise = size_of(element_of(math).name) == 1
    if kernel is None or math not in kernel.types.maths:
        return bytewise
    by_rows, by_columns = (
        kernel.family.refuse(problem_of(Case(128, 128, 128, math), columns)) for columns in (False, True)
    )
    return by_rows is not None or (bytewise and by_columns is None)


def problem_of(case: Case, columns: bool) -> Problem:
    """The problem of a case without its arrays: aligned, dense."""
    return dense_problem(
        *case.extents, case.math, case.layout[0] + ("c" if columns else case.layout[1]), batch=case.batch
    )


def facts_of(plan: Plan, device: Device, chosen: bool = False, disassembled: bool = True) -> Facts:
    """Static facts of a plan's kernel. Registers and static shared memory are in ptxas' log, which a Binary
    keeps."""
    log = plan.binary.log
    registers = _number_before(log, " registers")
    shared = (_number_before(log, " bytes smem") or 0) + plan.shared_bytes
    threads = plan.config.threads
    blocks = device.blocks_resident(threads, registers or 0, shared)
    return Facts(
        config=f"{plan.kernel.name}: {plan.config}" if chosen else str(plan.config),
        unit=plan.kernel.unit,
        registers=registers,
        shared_bytes=shared,
        blocks_per_sm=blocks,
        warps_per_sm=blocks * -(-threads // 32),
        ffma_share=(
            multiply_share(plan.kernel, plan.config, plan.problem.math, device) if disassembled else None
        ),
        bytes_per_flop=bytes_per_flop(plan.config, plan.problem.dtype),
    )


def _number_before(log: str, words: str) -> int | None:
    match = re.search(rf"(\d+){words}", log)
    return int(match.group(1)) if match else None


def multiply_share(kernel: Kernel, config: Config, math: str, device: Device) -> float | None:
    """The share of the main loop's instructions that multiply and add; None if nothing can count them."""
    from lapidist_lab.sass import analyse

    try:
        return analyse(kernel, config, math, device.architecture).multiply_share
    except LapidistError:
        return None  # a disassembler older than the cubin: the kernel is measured all the same


def bytes_per_flop(config: Config, dtype: str) -> float:
    """Bytes of A and B that a block loads for each flop: its tiles, or two elements for each product."""
    size = size_of(dtype)
    if not config.bk and not config.by_warps:
        return float(size)
    # without shared memory each warp loads for itself
    rows, cols = (config.bm, config.bn) if config.bk else (config.wm, config.wn)
    return (rows + cols) * size / (2.0 * rows * cols)


def choose(
    names: str | None, detours: bool, math: str, disassembled: bool = True, production: bool = True
) -> list[Contender]:
    """The kernels of a climb that take this type: rungs, detours and production kernels, or those in
    `names`."""
    if names is not None:
        chosen = [
            contender_named(name.strip(), math, disassembled) for name in names.split(",") if name.strip()
        ]
        if not chosen:
            raise ArgumentError(
                f"--kernel: must name at least one kernel; got {names!r}. Leave it out for the whole ladder"
            )
        return chosen
    kinds = ("rung", *(("detour",) if detours else ()), *(("production",) if production else ()))
    takers = [kernel for kernel in KERNELS if math in kernel.types.maths and not kernel.only_small]
    return [
        KernelContender(kernel, math, disassembled=disassembled)
        for kind in kinds
        for kernel in takers
        if kernel.kind == kind
    ]


def contender_named(name: str, math: str, disassembled: bool = True) -> Contender:
    if name == LIBRARY:
        return KernelContender(None, math, disassembled=disassembled)
    try:
        return KernelContender(kernel_named(name), math, disassembled=disassembled)
    except ArgumentError as error:
        if name in PEERS:
            rule = (
                f"names our kernels; got {name!r}, which is no choice: cuBLAS is measured beside them in"
                " every run on a GPU"
            )
            raise ArgumentError(
                f"--kernel: {rule}, CUTLASS where CUTLASS_HOME names a checkout. Leave it out"
            ) from error
        raise ArgumentError(
            f"--kernel: {str(error).removeprefix('kernel: ')}, or {LIBRARY} for the planner's choice"
        ) from error
