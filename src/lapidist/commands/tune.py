"""`lapidist tune` measures which kernel is fastest and remembers it; `lapidist warm` compiles ahead of
need.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lapidist.errors import ArgumentError

LAYOUTS = ("rr", "rc", "cr", "cc")
Mnk = Annotated[
    list[str] | None, typer.Option(help="a product; may be given again and again", metavar="M,N,K")
]
File = Annotated[Path | None, typer.Option(help="JSON: [[m, n, k], …]")]


def tune(
    mnk: Mnk = None,
    file: File = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="fp32, tf32, fp64, fp16, bf16, int8, uint8, e4m3 or e5m2")
    ] = "bf16",
    layout: Annotated[
        str, typer.Option(help="how A and B lie: r(ows) or c(olumns)", metavar="rr|rc|cr|cc")
    ] = "rr",
    corpus: Annotated[
        int, typer.Option(min=0, help="so many random products, m, n, k log-uniform in [128, 8192]")
    ] = 0,
    seed: Annotated[int, typer.Option(help="of these")] = 2301,
    most: Annotated[int, typer.Option(min=2, help="candidates to measure for each product")] = 24,
    record: Annotated[
        Path | None, typer.Option("--record", help="keep the Records in this folder", metavar="DIR")
    ] = None,
) -> None:
    """Measure the planner's candidates, and keep the fastest."""
    from dataclasses import replace

    from lapidist.backends.gpu.driver import require_gpu
    from lapidist.bench import cases as products
    from lapidist.bench.outputs import Outputs
    from lapidist.bench.tuning import regret_words, run
    from lapidist.dtypes import math_named
    from lapidist.planning.tuned import database_path, require_writable

    require_layout(layout)
    cases = [products.parse_mnk(one, dtype) for one in mnk or ()]
    cases += products.read_cases(file, dtype) if file is not None else []
    cases += products.corpus(corpus, seed, math_named(dtype))
    if not cases:
        raise ArgumentError(
            "--mnk: must name a product, or --file a list, or --corpus a number; got none. For example --mnk"
            " 4096,4096,1024"
        )
    outputs = Outputs(False, None, None, None, record, f"tune-{dtype}-{layout}")
    outputs.require_writable()
    require_writable()
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
    layout: Annotated[
        str, typer.Option(help="of --mnk and --file: how A and B lie", metavar="rr|rc|cr|cc")
    ] = "rr",
    chip: Annotated[
        str | None, typer.Option(help="v100, a100, rtx4090, h100, h200; this GPU, or h200")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="compilers at once; one for each core unless told")
    ] = None,
    products: Annotated[
        int, typer.Option("--random", min=0, help="so many products of random extents besides")
    ] = 0,
    with_c: Annotated[
        bool, typer.Option("--with-c", help="beta C in every product: kernels of their own")
    ] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="keep the Records in this folder", metavar="DIR")
    ] = None,
) -> None:
    """Compile what plans use ahead of need, into the cache.

    For squares, layers and ragged products of every size, or for those given.
    """
    from lapidist.bench.cases import parse_mnk, read_cases
    from lapidist.bench.outputs import Outputs
    from lapidist.bench.warming import alone_rows, conditions_of, row_of, warm_type
    from lapidist.dtypes import math_named
    from lapidist.planning.warm import anything, ordinary
    from lapidist.problems.problem import dense_problem

    require_layout(layout)
    outputs = Outputs(False, None, None, None, record, "warm-" + dtype.replace(",", "-"))
    outputs.require_writable()
    device, rows, failures = device_named(chip), [], 0
    for part in dtype.split(","):
        cases = [parse_mnk(one, part) for one in mnk or ()] + (
            read_cases(file, part) if file is not None else []
        )
        problems = [dense_problem(*case.extents, case.math, layout) for case in cases] or ordinary(
            math_named(part)
        )
        problems += anything(math_named(part), products)
        if with_c:
            problems = [replace(problem, c=problem.d) for problem in problems]
        warmed = warm_type(part, problems, device, jobs)
        print(warmed)
        failures += len(warmed.failed)
        if record is not None:
            alone = alone_rows(warmed)
            rows += [row_of(warmed), *alone]
            for row in alone:
                print(f"  alone the longest takes {row.seconds:.2f} s: {row.note}")
    outputs.keep(conditions_of(device), rows)
    raise typer.Exit(int(bool(failures)))


def require_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise ArgumentError(
            f"--layout: must be one of {', '.join(LAYOUTS)}; got {layout!r}. The first letter is A's"
        )


def device_named(name: str | None):  # type: ignore[no-untyped-def]
    """A chip by name; else the GPU that is here, else an H200."""
    from lapidist.backends.gpu.driver import gpu_count, query_device
    from lapidist.device import chip

    if name is not None:
        return chip(name)
    return query_device(0) if gpu_count() else chip("h200")
