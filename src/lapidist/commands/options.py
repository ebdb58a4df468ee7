"""Options that several commands share: one name, one meaning, one help text; what their values must be; and
how examples are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.device import Device

TYPES = ("fp32", "tf32", "fp64", "fp16", "bf16", "int8", "uint8", "e4m3", "e5m2")
CHIPS = ("v100", "a100", "rtx3090", "rtx4090", "rtx5090", "h100", "h200")
LAYOUTS = ("rr", "rc", "cr", "cc")
RUNGS = (
    "uncoalesced",
    "coalesced",
    "hoisted_indices",
    "shared_tile",
    "padded_tile",
    "thread_column",
    "vector_loads",
    "thread_tile",
    "large_tile",
    "transposed_a",
    "warp_tile",
    "double_buffer",
    "fragment_prefetch",
    "async_pipeline",
    "wide_copies",
    "tma_tiles",
    "tall_tile",
    "bank_order",
    "producer_warp",
    "tma_streamk",
    "wmma_simple",
    "wmma_shared",
    "mma_swizzled",
    "mma_multistage",
    "mma_tma",
    "wgmma_tma",
    "wgmma_specialised",
    "wgmma_rounds",
    "wgmma_patches",
    "wgmma_clusters",
    "wgmma_streamk",
)
RUNGS_A_LINE = 2


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


def examples_and_rungs(*lines: str) -> str:
    """Examples, and the rungs by number and name, as arguments take both."""
    rungs = [f"{number:2d} {name:21s}" for number, name in enumerate(RUNGS, 1)]
    rows = (rungs[start : start + RUNGS_A_LINE] for start in range(0, len(rungs), RUNGS_A_LINE))
    listed = "\n".join(["\b", "Rungs, by number or name:", *(f"  {''.join(row).rstrip()}" for row in rows)])
    return f"{examples(*lines)}\n\n{listed}"


Products = Annotated[list[str] | None, typer.Option(help="a product; may be repeated", metavar="M,N,K")]
File = Annotated[Path | None, typer.Option(help="a JSON list of products: [[m, n, k], …]")]
# An option with completion is named: one typer loses such a name that it would take from the parameter.
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
ThisChip = Annotated[
    str | None,
    typer.Option(
        "--chip",
        help=f"{', '.join(CHIPS)}; by default the GPU that is here, else h200",
        metavar="CHIP",
        autocompletion=one_of(CHIPS),
    ),
]
Layout = Annotated[
    str,
    typer.Option(
        "--layout",
        help="how A and B lie: rr, both by rows; rc, A by rows and B by columns; cr; cc",
        metavar="LAYOUT",
        autocompletion=one_of(LAYOUTS),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout, one a row, in place of the table")]
LaunchBudget = Annotated[
    int | None,
    typer.Option("--budget", min=1, help="blocks of code that a launch may execute; 2 million by default"),
]
JsonObject = Annotated[bool, typer.Option("--json", help="one JSON object on stdout, in place of the text")]


def require_one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{option}: must be one of {', '.join(choices)}; got {value!r}. Name one of them")


def require_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise ArgumentError(
            f"--layout: must be one of {', '.join(LAYOUTS)}; got {layout!r}. The first letter is A's: r by"
            " rows, c by columns, as a transpose of rows lies. BLAS' nt is rc"
        )


def device_named(name: str | None) -> Device:
    """A chip by name; else the GPU that is here, else an H200."""
    from lapidist.backends.gpu.driver import gpu_count, query_device
    from lapidist.device import chip

    if name is not None:
        return chip(name)
    return query_device(0) if gpu_count() else chip("h200")
