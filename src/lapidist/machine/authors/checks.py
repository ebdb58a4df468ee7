"""A kernel on many schedules: what each finds, together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.launch import Dim3, Launch
from lapidist.machine.authors.cuda_sources import of_cuda, of_file
from lapidist.machine.authors.findings import Findings, Judge
from lapidist.machine.authors.framework_kernels import of_framework
from lapidist.machine.authors.kernel_text import KernelText, demangled, entry_of, require_ptx
from lapidist.machine.faults import MachineFault
from lapidist.machine.foreign import Argument, make_launch
from lapidist.machine.rules import require_levels
from lapidist.machine.run import require_integer, run

ARCHITECTURE = "sm_90a"
SEEDS = 8


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
    **constants: Any,
) -> Findings:
    """Run a kernel on `seeds` random schedules and then plainly, and return what was found.

    `kernel` is the path of a .cu, .cuh or .ptx file, the text of CUDA C++ or of a PTX module, a function of
    Triton's or numba.cuda's, or a CuPy RawKernel. `args` are its arguments in order: arrays for pointers,
    numbers, and the rest that `run_ptx` takes. The plain run works on the arrays themselves; what the others
    wrote is undone. For Triton leave `block` at None, and give constexprs and num_warps by name.

    `entry` names the kernel, or a part of its name, or a template with its arguments. `include`, `define`
    and `arch` are for CUDA C++. `ignore` lists rules, FILE:LINE and kernels; `levels` gives rules another
    level: "error", "warning" or "off"."""
    require_integer("seeds", seeds, least=0)
    require_levels(levels or {})
    text = text_of(kernel, args, entry, include, define or {}, arch, constants)
    launch = launch_of(text, grid, block, args, shared_bytes, cluster, memory)
    return check_launch(launch, text, seeds, ignore, levels or {})


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
    values = args if text.arguments is None else text.arguments
    shared, clusters = shared_bytes or text.shared_bytes, cluster if cluster != (1, 1, 1) else text.cluster
    return make_launch(text.ptx, text.entry, grid, threads, dict(enumerate(values)), shared, clusters, memory)


def check_launch(
    launch: Launch, text: KernelText, seeds: int, ignore: Collection[str], levels: Mapping[str, str]
) -> Findings:
    judge = Judge(demangled(text.entry), ignore, levels, text.sources)
    arrays = [m.owner for m in (*launch.memory, *launch.variables) if isinstance(m.owner, np.ndarray)]
    before = [array.copy() for array in arrays]
    for seed in [*range(seeds), None]:
        judge.begin(seed)
        try:
            run(launch, sanitize=seed is not None, seed=seed, judge=judge.take)
        except MachineFault as fault:
            judge.take(fault)
        if seed is not None:
            for array, content in zip(arrays, before, strict=True):
                if array.flags.writeable:
                    np.copyto(array, content)
    return judge.findings(seeds + 1)
