"""`lapidist tune` measures which kernel is fastest and remembers it; `lapidist warm` compiles ahead of
need.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from lapidist.commands.options import File, Json, Keep, Layout, Products, Seed, ThisChip, Type, Types
from lapidist.commands.run_target import STOPPED, device_named, require_layout
from lapidist.errors import ArgumentError
from lapidist.visible import visible


def tune(
    mnk: Products = None,
    file: File = None,
    dtype: Type = "bf16",
    layout: Layout = "rr",
    corpus: Annotated[
        int, typer.Option(min=0, help="so many random products, m, n, k log-uniform in [128, 8192]")
    ] = 0,
    seed: Seed = 2301,
    most: Annotated[int, typer.Option(min=2, help="candidates to measure for each product")] = 24,
    reach: Annotated[
        float | None,
        typer.Option(min=1.0, help="only what the model takes for at most so many times the best"),
    ] = None,
    as_json: Json = False,
    record: Keep = None,
) -> None:
    """Measure the planner's candidates, and keep the fastest."""
    from dataclasses import replace

    from lapidist.backends.gpu.driver import require_gpu
    from lapidist.dtypes import math_named
    from lapidist.planning.tuned import database_path, require_writable
    from lapidist_lab.bench.protocol import cases as products
    from lapidist_lab.bench.protocol.record import write_lines
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.tuning import REACH, regret_words, run

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
    conditions, records, found = run(
        [replace(case, layout=layout) for case in cases], 0, most, reach or REACH
    )
    if as_json:
        write_lines(sys.stdout, records)
    else:
        for line in found:
            print(line)
        print(visible(f"{regret_words(found)}; kept in {database_path()}"))
    outputs.save(conditions, records)
    raise typer.Exit(0 if len(found) == len(cases) else STOPPED)


def warm(
    dtype: Types = "fp16,bf16,fp32",
    mnk: Products = None,
    file: File = None,
    layout: Layout = "rr",
    chip: ThisChip = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="compilers at once; one for each core by default")
    ] = None,
    ordinary: Annotated[
        bool, typer.Option("--ordinary", help="besides, what is best for squares, layers, ragged products")
    ] = False,
    products: Annotated[
        int, typer.Option("--random", min=0, help="so many products of random extents besides")
    ] = 0,
    with_c: Annotated[
        bool, typer.Option("--with-c", help="beta C in every product: kernels of their own")
    ] = False,
    as_json: Json = False,
    record: Keep = None,
) -> None:
    """Compile ahead of need, into the cache.

    Of each type the few binaries that serve every shape within some percent of the best one; or what is best
    for the products given.
    """
    from lapidist.dtypes import math_named
    from lapidist.planning import warm as ahead
    from lapidist.problems.problem import dense_problem
    from lapidist_lab.bench.protocol.cases import parse_mnk, read_cases
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.warming import alone_rows, conditions_of, row_of, warm_type

    require_layout(layout)
    outputs = Outputs(False, None, None, None, record, "warm-" + dtype.replace(",", "-"))
    outputs.require_writable()
    device, rows, failures = device_named(chip), [], 0
    for part in dtype.split(","):
        cases = [parse_mnk(one, part) for one in mnk or ()] + (
            read_cases(file, part) if file is not None else []
        )
        own = math_named(part)
        problems = [dense_problem(*case.extents, case.math, layout) for case in cases]
        problems += (ahead.ordinary(own) if ordinary else []) + ahead.anything(own, products)
        problems = [ahead.with_c_like_d(problem) if with_c else problem for problem in problems]
        plans = [] if cases else ahead.covering_plans(own, device, with_c)
        warmed = warm_type(part, plans + ahead.plans_of(problems, device), device, with_c, jobs)
        print(json.dumps(warmed.as_data) if as_json else warmed)
        failures += len(warmed.failed)
        if record is not None:
            alone = alone_rows(warmed)
            rows += [row_of(warmed), *alone]
            for row in alone if not as_json else ():
                print(f"  alone the longest takes {row.seconds:.2f} s: {row.note}")
    outputs.save(conditions_of(device), rows)
    raise typer.Exit(int(bool(failures)))
