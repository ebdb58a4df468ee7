"""`lapidist tune` measures which kernel is fastest and remembers it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lapidist.commands.options import File, Json, Layout, Products, Type, require_layout
from lapidist.commands.products import parse_mnk, read_products
from lapidist.errors import ArgumentError
from lapidist.visible import visible
from lapidist_lab.commands.options import Records, Seed
from lapidist_lab.commands.run_target import STOPPED

EXAMPLES = ("tune --mnk 4096,4096,1024 --dtype bf16", "tune --corpus 20")


def tune(
    mnk: Products = None,
    file: File = None,
    dtype: Type = "bf16",
    layout: Layout = "rr",
    random_products: Annotated[
        int,
        typer.Option("--corpus", min=0, help="so many random products, m, n, k log-uniform in [128, 8192]"),
    ] = 0,
    seed: Seed = 2301,
    most: Annotated[int, typer.Option(min=2, help="candidates to measure for each product")] = 24,
    reach: Annotated[
        float | None,
        typer.Option(min=1.0, help="only what the model takes for at most so many times the best"),
    ] = None,
    as_json: Json = False,
    record: Records = None,
) -> None:
    """Measure the planner's candidates, and keep the fastest."""
    from dataclasses import replace

    from lapidist.backends.gpu.driver import require_gpu
    from lapidist.dtypes import math_named
    from lapidist.planning.tuned import database_path, require_writable
    from lapidist_lab.bench.protocol.cases import Case, corpus
    from lapidist_lab.bench.protocol.record import write_lines
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.tuning import REACH, regret_words, run

    require_layout(layout)
    products = [parse_mnk(text, dtype) for text in mnk or ()]
    products += read_products(file, dtype) if file is not None else []
    cases = [Case(*product, layout) for product in products]
    cases += [replace(case, layout=layout) for case in corpus(random_products, seed, math_named(dtype))]
    if not cases:
        raise ArgumentError(
            "--mnk: must name a product, or --file a list, or --corpus a number; got none. For example --mnk"
            " 4096,4096,1024"
        )
    outputs = Outputs(False, None, None, None, record, f"tune-{dtype}-{layout}")
    outputs.require_writable()
    require_writable()
    require_gpu(0)
    conditions, records, answers = run(cases, 0, most, reach or REACH)
    if as_json:
        write_lines(sys.stdout, records)
    else:
        for answer in answers:
            print(answer)
        print(visible(f"{regret_words(answers)}; kept in {database_path()}"))
    outputs.save(conditions, records)
    raise typer.Exit(0 if len(answers) == len(cases) else STOPPED)
