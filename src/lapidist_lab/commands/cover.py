"""`lapidist cover` finds the few binaries that serve each class of products, by the planner's model."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands.options import Json, require_one_of

EXAMPLES = ("cover --jobs 8", "cover --shapes 100 --out sets.json")
FITTED = "h100", "h200"  # chips that the model's constants were fitted on


def cover(
    dtype: Annotated[
        str, typer.Option(help="types whose sets are found anew, separated by commas; by default all")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="the file to write; by default the one that `warm` reads")
    ] = None,
    shapes: Annotated[int, typer.Option(min=1, help="shapes a class, log-uniform")] = 1000,
    judged: Annotated[int, typer.Option(min=1, help="other shapes, to judge by")] = 300,
    most: Annotated[int, typer.Option(min=1, help="binaries a class")] = 16,
    jobs: Annotated[int, typer.Option(min=1, help="processes at once")] = 1,
    chip: Annotated[str, typer.Option(help=" or ".join(FITTED))] = "h200",
    as_json: Json = False,
) -> None:
    """Find the few binaries that serve every shape well.

    Of each class of products: the set that loses least beside the planner's free choice among all binaries.
    A line for each set says what it loses, on shapes that it was not chosen for.
    """
    from lapidist.build.processes import Pool
    from lapidist.device import chip as chip_named
    from lapidist.dtypes import math_named
    from lapidist.planning.covering_sets import CLASSES, FILE, all_sets, write
    from lapidist.writable import require_writable
    from lapidist_lab import covering_search as search

    require_one_of("--chip", chip.lower(), FITTED)
    require_writable("--out", out or FILE)
    device = chip_named(chip)
    maths = [math_named(part) for part in filter(None, dtype.split(","))]
    sets, weigh = dict(all_sets()) if maths else {}, partial(search.table_of, device=device)
    with Pool(jobs) as pool:
        for product_class in [choice for choice in CLASSES if not maths or choice.math in maths]:
            chosen_by = search.shapes_of(product_class, shapes)
            judged_by = search.shapes_of(product_class, judged, search.OTHER_SEED)
            tables, unseen = (
                list(pool.map(weigh, [search.problem_of(product_class, *shape) for shape in extents]))
                for extents in (chosen_by, judged_by)
            )
            binaries = tuple(search.served(search.find(tables, most), chosen_by, tables, device))
            sets[product_class] = binaries
            losses = [
                search.loss_of(product_class, binaries, extents, weighed, device)
                for extents, weighed in ((chosen_by, tables), (judged_by, unseen))
            ]
            answer = {"class": product_class, "binaries": len(binaries), "losses": losses}
            words = f"{product_class}: {len(binaries)} binaries, {'; of others '.join(map(str, losses))}"
            print(json.dumps(answer) if as_json else words, flush=True)
    write(sets, out or FILE)
