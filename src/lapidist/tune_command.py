"""`lapidist tune` measures which kernel is fastest and remembers it; `lapidist warm` compiles ahead of need."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from lapidist.errors import ArgumentError

LAYOUTS = ("rr", "rc", "cr", "cc")
Mnk = Annotated[list[str] | None, typer.Option(help="a product; may be given again and again", metavar="M,N,K")]
File = Annotated[Path | None, typer.Option(help="JSON: [[m, n, k], …]")]


def tune(
    mnk: Mnk = None,
    file: File = None,
    dtype: Annotated[str, typer.Option("--dtype", help="fp32, tf32, fp64, fp16, bf16, int8, uint8, e4m3 or e5m2")] = "bf16",
    layout: Annotated[str, typer.Option(help="how A and B lie: r(ows) or c(olumns)", metavar="rr|rc|cr|cc")] = "rr",
    corpus: Annotated[int, typer.Option(min=0, help="so many random products, m, n, k log-uniform in [128, 8192]")] = 0,
    seed: Annotated[int, typer.Option(help="of these")] = 2301,
    most: Annotated[int, typer.Option(min=2, help="candidates to measure for each product")] = 24,
    record: Annotated[Path | None, typer.Option("--record", help="keep the Records in this folder", metavar="DIR")] = None,
) -> None:
    """Measure the planner's candidates on products, and keep the fastest for plans to come."""
    from dataclasses import replace

    from lapidist.bench import cases as products
    from lapidist.bench.outputs import Outputs
    from lapidist.bench.tuning import regret_words, run
    from lapidist.driver import require_gpu
    from lapidist.dtypes import math_named
    from lapidist.tuned import database_path

    require_layout(layout)
    cases = [products.parse_mnk(one, dtype) for one in mnk or ()]
    cases += products.read_cases(file, dtype) if file is not None else []
    cases += products.corpus(corpus, seed, math_named(dtype))
    if not cases:
        raise ArgumentError(
            "--mnk: must name a product, or --file a list, or --corpus a number; got none. For example --mnk 4096,4096,1024"
        )
    outputs = Outputs(False, None, None, None, record, f"tune-{dtype}-{layout}")
    outputs.require_writable()
    require_gpu(0)
    conditions, records, found = run([replace(case, layout=layout) for case in cases], 0, most)
    for line in found:
        print(line)
    print(f"{regret_words(found)}; kept in {database_path()}")
    outputs.keep(conditions, records)


def warm(
    dtype: Annotated[str, typer.Option("--dtype", help="types, separated by commas")] = "fp16,bf16,fp32",
    mnk: Mnk = None,
    file: File = None,
    layout: Annotated[str, typer.Option(help="of --mnk and --file: how A and B lie", metavar="rr|rc|cr|cc")] = "rr",
    chip: Annotated[str | None, typer.Option(help="v100, a100, rtx4090, h100, h200; this GPU, or h200")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="compilers at once; one for each core unless told")] = None,
) -> None:
    """Compile what plans use into the cache: for squares, layers and ragged products of every size, or for those given."""
    from lapidist.bench.cases import parse_mnk, read_cases
    from lapidist.dtypes import math_named
    from lapidist.problem import dense_problem
    from lapidist.warm import build_all, builds_of, ordinary, plans_of

    require_layout(layout)
    problems, maths = [], [math_named(part) for part in dtype.split(",")]
    for part in dtype.split(","):
        cases = [parse_mnk(one, part) for one in mnk or ()] + (read_cases(file, part) if file is not None else [])
        problems += [dense_problem(*case.extents, case.math, layout) for case in cases]
    if not problems:
        problems = [problem for math in maths for problem in ordinary(math)]
    device, start = device_named(chip), time.perf_counter()
    plans = plans_of(problems, device)
    if not plans:
        raise ArgumentError(f"--chip: must be one that some kernel runs on; got {device.name} for {dtype}. Choose another")
    builds = builds_of(plans)
    built = build_all(builds, jobs)
    seconds = time.perf_counter() - start
    fresh = [each for each in built if each.seconds and each.error is None]
    kernels = ", ".join(f"{count} of {name}" for name, count in Counter(build.kernel for build in builds).most_common())
    print(f"{len(plans)} plans for {device.name} use {len(builds)} configurations: {kernels}")
    print(f"{len(fresh)} were compiled, {len(built) - len(fresh)} were there; {seconds:.1f} s")
    if fresh:
        slowest = max(fresh, key=lambda each: each.seconds)
        print(f"the longest took {slowest.seconds:.2f} s: {slowest.build.kernel}")
    failed = [each for each in built if each.error]
    for each in failed:
        print(f"{each.build.kernel}: {each.error}")
    raise typer.Exit(int(bool(failed)))


def require_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise ArgumentError(f"--layout: must be one of {', '.join(LAYOUTS)}; got {layout!r}. The first letter is A's")


def device_named(name: str | None):  # type: ignore[no-untyped-def]
    """A chip by name; else the GPU that is here, else an H200."""
    from lapidist.device import chip
    from lapidist.driver import gpu_count, query_device

    if name is not None:
        return chip(name)
    return query_device(0) if gpu_count() else chip("h200")
