"""`lapidist explain`: what bounds a kernel on a chip."""

from __future__ import annotations

from typing import Annotated

import typer

from lapidist.commands.options import JsonObject, Type, kernels_like
from lapidist_lab.commands.options import Chip, ExplainedSize, Mnk, Records
from lapidist_lab.commands.run_target import one_case

EXAMPLES = ("explain 4 --chip a100 --size 4096", "explain ladder --size 4096", "explain 12 --json")
CLIMBED_SIZE = 4096  # smaller ones mostly wait, and rungs do not differ


def explain(
    kernel: Annotated[
        str,
        typer.Argument(
            help="a kernel's name, a rung's number, or ladder: a line for each rung",
            autocompletion=kernels_like,
        ),
    ],
    size: ExplainedSize = None,
    mnk: Mnk = None,
    chip: Chip = "h200",
    dtype: Type = "fp32",
    as_json: JsonObject = False,
    record: Records = None,
) -> None:
    """What bounds a kernel on a chip, from the machine's counts.

    How far it is from that, and what the next rung removes.
    """
    from lapidist.device import chip as chip_named
    from lapidist_lab.bench.studies.machine_runs import explain_command

    explain_command(kernel, chip_named(chip), one_case(size, mnk, dtype, CLIMBED_SIZE), as_json, record)
