"""Options that several commands share: one name, one meaning, one help text; and how examples are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

TYPES = ("fp32", "tf32", "fp64", "fp16", "bf16", "int8", "uint8", "e4m3", "e5m2")
CHIPS = ("v100", "a100", "rtx3090", "rtx4090", "rtx5090", "h100", "h200")
LAYOUTS = ("rr", "rc", "cr", "cc")
DEVICES = ("auto", "gpu", "machine", "0")
KERNEL_WORDS = "names or rung numbers, separated by commas (`lapidist kernels` lists them)"


def one_of(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What a shell completes to, whatever part of it was typed."""
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def kernels_like(incomplete: str) -> list[str]:
    """Completes the last of several names."""
    from lapidist.kernels.registry import KERNELS

    before, comma, last = incomplete.rpartition(",")
    names = ["lapidist", *(kernel.name for kernel in KERNELS)]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def examples(*lines: str) -> str:
    """For the end of a help page; the first character keeps click from joining the lines."""
    return "\n".join(["\b", "Examples:", *(f"  lapidist {line}" for line in lines)])


Size = Annotated[str | None, typer.Option(help="m = n = k; 4096 by default, 256 in the machine", metavar="N")]
MachineSize = Annotated[str | None, typer.Option(help="m = n = k; 256 by default", metavar="N")]
Mnk = Annotated[str | None, typer.Option(help="in place of --size", metavar="M,N,K")]
Products = Annotated[list[str] | None, typer.Option(help="a product; may be repeated", metavar="M,N,K")]
File = Annotated[Path | None, typer.Option(help="a JSON list of products: [[m, n, k], …]")]
Type = Annotated[
    str, typer.Option("--dtype", help=", ".join(TYPES), metavar="TYPE", autocompletion=one_of(TYPES))
]
Types = Annotated[
    str,
    typer.Option(
        "--dtype",
        help=f"one or more of {', '.join(TYPES)}, separated by commas",
        metavar="TYPES",
        autocompletion=one_of(TYPES),
    ),
]
# An option with completion is named: one typer loses such a name that it would take from the parameter.
Chip = Annotated[
    str, typer.Option("--chip", help=", ".join(CHIPS), metavar="CHIP", autocompletion=one_of(CHIPS))
]
ThisChip = Annotated[
    str | None,
    typer.Option(
        "--chip",
        help=f"{', '.join(CHIPS)}; by default the GPU that is here, else h200",
        metavar="CHIP",
        autocompletion=one_of(CHIPS),
    ),
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
    str | None, typer.Option("--kernel", help=KERNEL_WORDS, metavar="NAMES", autocompletion=kernels_like)
]
Layout = Annotated[
    str,
    typer.Option(
        "--layout",
        help="how A and B lie, by r(ows) or c(olumns): rr, rc, cr, cc",
        metavar="LAYOUT",
        autocompletion=one_of(LAYOUTS),
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
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout, one a row, in place of the table")]
JsonObject = Annotated[bool, typer.Option("--json", help="one JSON object on stdout, in place of the text")]
Csv = Annotated[Path | None, typer.Option(help="write the rows to this CSV file")]
Plot = Annotated[Path | None, typer.Option(help="draw the charts to this SVG file")]
Html = Annotated[Path | None, typer.Option(help="write one self-contained HTML report")]
Keep = Annotated[
    Path | None, typer.Option("--record", help="write a file of Records into this folder", metavar="DIR")
]
Sustained = Annotated[
    bool, typer.Option("--sustained/--burst", help="turns of over half a second, or short ones after a rest")
]
Rounds = Annotated[
    int | None, typer.Option(help="turns for each kernel; 2 sustained, 7 in bursts, 1 in the machine")
]
Skip = Annotated[int, typer.Option(min=0, help="leave out so many of the first products")]
Seed = Annotated[int, typer.Option(help="of the random products")]
