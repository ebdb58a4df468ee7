"""`lapidist fit` measures a chip and writes the factors on the model's times for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapidist.commands.options import Json
from lapidist.errors import ArgumentError
from lapidist_lab.commands.options import Seed

if TYPE_CHECKING:
    from lapidist_lab.fit.samples import Measurements

EXAMPLES = ("fit", "fit --dtype bf16,fp32 --share 0.5", "fit --samples h100.jsonl --samples h200.jsonl")


def fit(
    dtype: Annotated[
        str, typer.Option(help="types to measure, separated by commas; by default all that are fitted")
    ] = "",
    share: Annotated[float, typer.Option(min=0.01, max=10.0, help="of the usual number of products")] = 1.0,
    seed: Seed = 4801,
    samples: Annotated[
        list[Path] | None,
        typer.Option(help="a file of a chip's measured times: read, or measured here if it is not there"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="the file to write; by default the one that the planner reads")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure random products, and fit the planner's times to them.

    Each product's best candidates are timed. The factors are for all chips of an architecture. A line for
    each type and chip says how far times are off, and how much longer choices take than the fastest: first
    without factors, then with them, on products that they were not fitted to.
    """
    from lapidist.dtypes import math_named
    from lapidist.planning.fitted_times import Fit, chip_of, fit_of, path_of, write
    from lapidist.writable import require_writable
    from lapidist_lab.fit.regression import fit as fitted
    from lapidist_lab.fit.samples import PRODUCTS, by_chip, measure_into, read

    maths = [math_named(part) for part in filter(None, dtype.split(","))] or list(PRODUCTS)
    require_writable("--out", out or path_of("any"))
    files: list[Path | None] = [*samples] if samples else [None]
    measured = by_chip(
        [
            read(path) if path is not None and path.exists() else measure_into(path, maths, share, seed)
            for path in files
        ]
    )
    require_one_architecture(measured)
    architecture = measured[0].device.architecture
    before = fit_of(architecture)
    weights = dict(before.weights) if before is not None else {}  # other types keep theirs
    for name in maths:
        answer = fitted(measured, name)
        if answer is not None:
            weights[name] = answer.weights
            print("\n".join(answer.json_lines(name) if as_json else answer.lines(name)), flush=True)
    target = out or path_of(architecture)
    chips = tuple(chip_of(part.device) for part in measured)
    write(Fit(chips, {name: kernels for name, kernels in weights.items() if kernels}), target)
    print(f"kept in {target}", file=sys.stderr)


def require_one_architecture(measured: Sequence[Measurements]) -> None:
    architectures = sorted({part.device.architecture for part in measured})
    if len(architectures) > 1:
        raise ArgumentError(
            f"--samples: must be of chips of one architecture; got {', '.join(architectures)}. Fit each alone"
        )
