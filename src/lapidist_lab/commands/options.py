"""Options that several commands of the lab share, beside those of the core's commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands.options import CHIPS, LAYOUTS, kernels_like, one_of

DEVICES = ("auto", "gpu", "machine", "0")

Size = Annotated[str | None, typer.Option(help="m = n = k; 4096 by default, 256 in the machine", metavar="N")]
ExplainedSize = Annotated[str | None, typer.Option(help="m = n = k; 4096 by default", metavar="N")]
Mnk = Annotated[str | None, typer.Option(help="in place of --size", metavar="M,N,K")]
Chip = Annotated[
    str, typer.Option("--chip", help=", ".join(CHIPS), metavar="CHIP", autocompletion=one_of(CHIPS))
]
Place = Annotated[
    str,
    typer.Option(
        "--device",
        help="auto (a GPU where there is one), gpu, machine, or a GPU's number",
        metavar="DEVICE",
        autocompletion=one_of(DEVICES),
    ),
]
Gpu = Annotated[str, typer.Option("--device", help="gpu, or a GPU's number", metavar="DEVICE")]
Kernels = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        help="names or rung numbers, separated by commas (`lapidist kernels` lists them)",
        metavar="NAMES",
        autocompletion=kernels_like,
    ),
]
OtherLayouts = Annotated[
    str | None,
    typer.Option(
        "--layout",
        help="one or more of rr, rc, cr, cc, separated by commas, in place of the list's own",
        metavar="LAYOUTS",
        autocompletion=one_of(LAYOUTS),
    ),
]
Csv = Annotated[Path | None, typer.Option(help="write the rows to this CSV file")]
Plot = Annotated[Path | None, typer.Option(help="draw the charts to this SVG file")]
Records = Annotated[
    Path | None, typer.Option("--record", help="write a file of Records into this folder", metavar="DIR")
]
Html = Annotated[Path | None, typer.Option(help="write one self-contained HTML report")]
Sustained = Annotated[
    bool, typer.Option("--sustained/--burst", help="turns of over half a second, or short ones after a rest")
]
Rounds = Annotated[
    int | None, typer.Option(help="turns for each kernel; 2 sustained, 7 in bursts, 1 in the machine")
]
Skip = Annotated[int, typer.Option(min=0, help="leave out so many of the first products")]
Seed = Annotated[int, typer.Option(help="of the random products")]
