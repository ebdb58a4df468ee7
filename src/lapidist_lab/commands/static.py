"""`lapidist static`: what the compiler made of a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lapidist.commands.fold import folded_text
from lapidist.commands.options import Json, Type, kernels_like
from lapidist.errors import ArgumentError
from lapidist_lab.commands.options import Chip

if TYPE_CHECKING:
    from lapidist.device import Device

EXAMPLES = (
    "static 20",
    "static 24 --dtype fp16 --chip a100",
    "static --hashes --processes 4",
    "static --values",
)


def static(
    kernel: Annotated[
        str | None, typer.Argument(help="a kernel's name or a rung's number", autocompletion=kernels_like)
    ] = None,
    dtype: Type = "fp32",
    chip: Chip = "h200",
    hashes: Annotated[
        bool, typer.Option("--hashes", help="hashes of the PTX, of this kernel or of all")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="compilers for --hashes")] = 1,
    values: Annotated[
        bool,
        typer.Option("--values", help="what constants would cost as values of the launch, in each family"),
    ] = False,
    as_json: Json = False,
) -> None:
    """What the compiler made of a kernel: its mix, registers, spills."""
    from lapidist import device
    from lapidist.dtypes import math_named
    from lapidist.kernels.registry import kernel_named
    from lapidist_lab import sass

    if hashes:
        names = [] if kernel is None else [kernel_named(kernel).name]
        for name, value in hash_rows(device.chip(chip), processes, names):
            print(json.dumps({"case": name, "hash": value}) if as_json else f"{name} {value}", flush=True)
        return
    if values:
        print(value_table(device.chip(chip), as_json), end="")
        return
    if kernel is None:
        raise ArgumentError(
            "KERNEL: must be a kernel's name or a rung's number; got none. Name one, or ask for --hashes"
            " of all"
        )
    analysis = sass.analyse(kernel_named(kernel), None, math_named(dtype), device.chip(chip).architecture)
    data = json.dumps(asdict(analysis) | {"config": str(analysis.config)}) if as_json else ""
    print(data or folded_text(analysis.describe()))


def hash_rows(device: Device, processes: int, names: list[str]) -> Iterator[tuple[str, str]]:
    from lapidist_lab.sass.hashes import lines

    for line in lines(device, processes, names):
        name, _, value = line.partition(" ")
        yield name, value


def value_table(device: Device, as_json: bool) -> str:
    from lapidist_lab.sass.constant_values import rows, table

    if not as_json:
        return table(device.architecture)
    listed = [
        {"kernel": kernel, "value": words, **counts._asdict()}
        for kernel, words, counts in rows(device.architecture)
    ]
    return "".join(json.dumps(row) + "\n" for row in listed)
