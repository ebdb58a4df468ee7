"""A kernel on many schedules: what each finds, together."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from lapidist.dtypes import array_of_tensor
from lapidist.errors import ArgumentError
from lapidist.launch import Dim3, Launch
from lapidist.machine.authors.coverage import coverage_of
from lapidist.machine.authors.cuda_sources import of_cuda, of_file
from lapidist.machine.authors.findings import Findings, Judge, require_ignorable
from lapidist.machine.authors.framework_kernels import framework_of, of_framework
from lapidist.machine.authors.kernel_text import KernelText, demangled, entry_of, require_ptx
from lapidist.machine.contents import Contents
from lapidist.machine.faults import RESIDENCY, BudgetExceeded, MachineFault
from lapidist.machine.foreign import Argument, make_launch
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.rules import require_levels
from lapidist.machine.run import DEFAULT_BUDGET, Report, require_integer, run
from lapidist.machine.sanitize.sanitized_launch import Earlier
from lapidist.machine.schedule_budget import is_counted, schedule_budget
from lapidist.machine.tensor_map_bytes import MAP_BYTES

ARCHITECTURE = "sm_90a"
SEEDS = 8
BUDGET = BudgetExceeded.usual_name


def check(
    kernel: Any,
    grid: Dim3,
    block: Dim3 | None = None,
    *args: Any,
    seeds: int = SEEDS,
    entry: str = "",
    shared_bytes: int = 0,
    cluster: Dim3 = (1, 1, 1),
    memory: Sequence[np.ndarray] = (),
    include: Sequence[str] = (),
    define: Mapping[str, object] | None = None,
    arch: str = ARCHITECTURE,
    ignore: Collection[str] = (),
    levels: Mapping[str, str] | None = None,
    budget: int | None = None,
    **constants: Any,
) -> Findings:
    """Run a kernel on `seeds` random schedules and then plainly, and return what was found.

    `kernel` is the path of a .cu, .cuh or .ptx file, the text of CUDA C++ or of a PTX module, a function of
    Triton's or numba.cuda's, or a CuPy RawKernel. `args` are its arguments in order: arrays for pointers (or
    torch's tensors in host memory), numbers, and the rest that `run_ptx` takes. The plain run works on the
    arrays themselves; what the others wrote is undone, and what they print is dropped. For Triton leave
    `block` at None, and give constexprs and num_warps by name.

    `entry` names the kernel, or a part of its name, or a template with its arguments. `include`, `define`
    and `arch` are for CUDA C++. `ignore` lists rules, FILE:LINE and kernels; `levels` gives rules another
    level: "error", "warning" or "off". `budget` is the most blocks of code that a run executes; no schedule
    follows one that it ended."""
    require_integer("seeds", seeds, least=0)
    require_levels(levels or {})
    values = tuple(host_array(f"args[{number}]", value) for number, value in enumerate(args))
    text = text_of(kernel, values, entry, include, define or {}, arch, constants)
    launch = launch_of(text, grid, block, values, shared_bytes, cluster, memory)
    return check_launch(launch, text, seeds, ignore, levels or {}, budget)


def text_of(
    kernel: Any,
    args: tuple[Any, ...],
    entry: str,
    include: Sequence[str],
    define: Mapping[str, object],
    arch: str,
    constants: Mapping[str, Any],
) -> KernelText:
    if isinstance(kernel, str) and "__global__" in kernel:
        return of_cuda(kernel, "kernel.cu", entry, include, define, arch)
    if isinstance(kernel, str) and "\n" in kernel:
        require_ptx(kernel, "kernel")
        return KernelText(kernel, entry_of(kernel, entry, "the module"))
    if isinstance(kernel, str | PathLike):
        return of_file(Path(kernel), entry, include, define, arch)
    return of_framework(kernel, args, constants, arch)


def launch_of(
    text: KernelText,
    grid: Dim3,
    block: Dim3 | None,
    args: Sequence[Argument],
    shared_bytes: int,
    cluster: Dim3,
    memory: Sequence[np.ndarray],
) -> Launch:
    threads = text.block or block
    if threads is None:
        raise ArgumentError(
            "block: must be the threads of a block along x, y and z; got None. Give (128, 1, 1), say"
        )
    values = list(args if text.arguments is None else text.arguments)
    memory = [*memory, *text.memory]
    if text.scratch is not None:
        values[text.scratch.parameter] = scratch_memory(text.scratch.nbytes * math.prod(grid))
    shared, clusters = shared_bytes or text.shared_bytes, cluster if cluster != (1, 1, 1) else text.cluster
    names = text.parameters or range(len(values))
    named = {f"{text.entry}_param_{n}": f"parameter {name}" for n, name in enumerate(names)}
    arguments: dict[str | int, Argument] = dict(enumerate(values))
    try:
        launch = make_launch(text.ptx, text.entry, grid, threads, arguments, shared, clusters, memory)
    except ArgumentError as error:
        raise ArgumentError(of_source(str(error), named)) from None
    return replace(launch, memory=tuple(replace(m, name=named.get(m.name, m.name)) for m in launch.memory))


def host_array(name: str, value: Any) -> Any:
    """An argument, where a tensor of torch's is an array of the same memory."""
    if framework_of(value) != "torch" or not hasattr(value, "data_ptr"):
        return value
    if value.device.type != "cpu":
        rule = "must lie in host memory, where the machine runs"
        raise ArgumentError(f"{name}: {rule}; got a tensor on {value.device}. Pass its .cpu()")
    return array_of_tensor(value)


def of_source(message: str, named: Mapping[str, str]) -> str:
    """A message with the parameters' names in the source, in place of those that the compiler gave them."""
    return re.sub(r"\w+_param_\d+", lambda match: named.get(match[0], match[0]), message)


def scratch_memory(nbytes: int) -> np.ndarray:
    """Bytes from a place on at which a tensor map may lie."""
    memory = np.zeros(nbytes + MAP_BYTES, "u1")
    start = -memory.ctypes.data % MAP_BYTES
    return memory[start : start + nbytes]


def check_launch(
    launch: Launch,
    text: KernelText,
    seeds: int,
    ignore: Collection[str],
    levels: Mapping[str, str],
    budget: int | None = None,
) -> Findings:
    return check_launches([(launch, text)], seeds, ignore, levels, budget)


def kernel_launch(
    kernel: Any,
    grid: Dim3,
    block: Dim3 | None = None,
    *args: Any,
    overlaps: bool = False,
    entry: str = "",
    shared_bytes: int = 0,
    cluster: Dim3 = (1, 1, 1),
    memory: Sequence[np.ndarray] = (),
    include: Sequence[str] = (),
    define: Mapping[str, object] | None = None,
    arch: str = ARCHITECTURE,
    **constants: Any,
) -> tuple[Launch, KernelText]:
    """A kernel with its arguments, as `check` takes them, for `check_sequence`. One that `overlaps` may start
    while the launch before still runs (programmatic stream serialisation): it says itself, by
    griddepcontrol.wait, when it needs that one's results."""
    values = tuple(host_array(f"args[{number}]", value) for number, value in enumerate(args))
    text = text_of(kernel, values, entry, include, define or {}, arch, constants)
    launch = launch_of(text, grid, block, values, shared_bytes, cluster, memory)
    return replace(launch, overlaps=overlaps), text


def check_sequence(
    launches: Sequence[tuple[Launch, KernelText]],
    *,
    seeds: int = SEEDS,
    ignore: Collection[str] = (),
    levels: Mapping[str, str] | None = None,
    budget: int | None = None,
) -> Findings:
    """Run launches of a stream one after the other, on `seeds` random schedules and then plainly. Beside what
    `check` finds: a launch that overlaps with those before, and touches before griddepcontrol.wait what they
    write, or writes what they read."""
    require_integer("seeds", seeds, least=0)
    require_levels(levels or {})
    pairs = launches if isinstance(launches, Sequence) else ()
    if not pairs or not all(isinstance(item, tuple) and len(item) == 2 for item in pairs):
        rule = "must be a list of what kernel_launch returns"
        raise ArgumentError(f"launches: {rule}; got {launches!r}. Give one a launch, in order")
    return check_launches(launches, seeds, ignore, levels or {}, budget)


def check_launches(
    launches: Sequence[tuple[Launch, KernelText]],
    seeds: int,
    ignore: Collection[str],
    levels: Mapping[str, str],
    budget: int | None = None,
) -> Findings:
    most = DEFAULT_BUDGET if budget is None else budget
    require_integer("budget", most, least=1)
    judges = [Judge(demangled(text.entry), ignore, levels, text.sources) for _, text in launches]
    require_ignorable(ignore, [judge.kernel for judge in judges])
    contents = Contents(launch for launch, _ in launches)
    reports: list[list[Report]] = [[] for _ in launches]
    in_order, alone = False, [launch for launch, _ in launches]
    budgets, plainly = [most] * len(launches), [most] * len(launches)
    if seeds and any(map(is_counted, alone)):
        counted: list[list[Report]] = [[] for _ in launches]
        with redirect_stdout(StringIO()):
            run_all(alone, judges, counted, None, False, plainly)
        contents.put_back()
        budgets = [schedule_budget(most, next(iter(one), None)) for one in counted]
    runs, ended_by = 0, ""
    for seed in [*range(seeds), None]:
        if seed is not None and ended_by == BUDGET:
            continue  # it would take as long, and find the same loop
        runs, ended_by = runs + 1, RESIDENCY
        while ended_by == RESIDENCY:
            with nullcontext() if seed is None else redirect_stdout(StringIO()):
                limits = plainly if seed is None else budgets
                ended_by = run_all(alone, judges, reports, seed, in_order, limits)
            in_order |= ended_by == RESIDENCY
            if seed is not None:
                contents.put_back()
    found = [finding for judge in judges for finding in judge.findings(runs)]
    coverage = [
        coverage_of(judge.kernel, parse_kernel(text.ptx, text.entry), runs, text.sources)
        for (_, text), judge, runs in zip(launches, judges, reports, strict=True)
    ]
    return Findings(", ".join(judge.kernel for judge in judges), runs, found, coverage)


def run_all(
    launches: Sequence[Launch],
    judges: Sequence[Judge],
    reports: list[list[Report]],
    seed: int | None,
    in_order: bool,
    budgets: Sequence[int],
) -> str:
    """One schedule: launch by launch, until one fails. The rule by which it did. `residency` asks for it
    again, with blocks in order: some wait for others that had not started."""
    earlier = Earlier(known=True)
    for number, (launch, judge) in enumerate(zip(launches, judges, strict=True)):
        judge.begin(seed)
        alone = len(launches) == 1 or seed is None
        try:
            report = run(
                replace(launch, overlaps=launch.overlaps and (number > 0 or alone)),
                sanitize=seed is not None,
                seed=seed,
                in_order=in_order,
                counting=False,
                budget=budgets[number],
                judge=judge.take,
                earlier=None if alone else earlier,
            )
        except MachineFault as fault:
            judge.take(fault)
            return fault.name
        reports[number].append(report)
        earlier = report.touched
    return ""
