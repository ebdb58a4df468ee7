"""`lapidist schedule`: who computes what when, in the terminal, as JSON, or as an SVG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands.options import JsonObject, Type
from lapidist.commands.products import parse_mnk

EXAMPLES = (
    "schedule --mnk 1024,1152,4096 --stream-k",
    "schedule --mnk 4096,4096,4096 --kernel wgmma --dtype bf16 --svg blocks.svg",
)


def schedule(
    mnk: Annotated[str, typer.Option(help="the product", metavar="M,N,K")],
    streamed: Annotated[
        bool, typer.Option("--stream-k", help="full waves data-parallel, the rest shared evenly")
    ] = False,
    splits: Annotated[int | None, typer.Option("--split-k", help="so many blocks a tile")] = None,
    tile: Annotated[str, typer.Option(help="block tile and depth", metavar="BMxBNxBK")] = "128x128x32",
    kernel: Annotated[
        str | None, typer.Option(help="wgmma, mma, ...: its tile, occupancy and costs as measured")
    ] = None,
    dtype: Type = "fp32",
    sms: Annotated[int, typer.Option(help="SMs of the chip")] = 132,
    avail_sms: Annotated[
        int | None, typer.Option(help="SMs that Stream-K balances over; 1 is data-parallel")
    ] = None,
    occupancy: Annotated[int, typer.Option(help="blocks that one SM holds")] = 1,
    reduction: Annotated[str, typer.Option(help="turnstile, separate, cluster or atomic")] = "turnstile",
    costs: Annotated[
        str | None, typer.Option(help="cost model, in microseconds", metavar="START,FIXUP,ITERATION,PEER")
    ] = None,
    rows: Annotated[int, typer.Option(help="rows of the timeline; 0 shows all")] = 24,
    as_json: JsonObject = False,
    svg: Annotated[Path | None, typer.Option(help="draw to this SVG file")] = None,
) -> None:
    """Who computes what when: blocks on SMs as a timeline.

    Also the time that is predicted for it, for data-parallel tiles and for split-K. Of a --kernel whose
    blocks are clusters each cluster is drawn as one block, on as many SMs."""
    from lapidist.commands.timeline import as_data, as_text, compare, draw, of_kernel, parse_costs, parse_tile
    from lapidist.schedule import TileGrid, data_parallel, split_k, stream_k
    from lapidist.schedule.grid import ceil_div
    from lapidist.writable import require_writable

    require_options(streamed, splits, reduction, avail_sms, rows)
    if svg is not None:
        require_writable("--svg", svg)
    product, model = parse_mnk(mnk, dtype), parse_costs(costs)
    grid = TileGrid.of(*product.extents, *parse_tile(tile))
    if kernel is not None:
        tile, grid, cluster, occupancy, measured = of_kernel(kernel, product)
        model = model if costs else measured
        sms, avail_sms = ceil_div(sms, cluster), avail_sms and ceil_div(avail_sms, cluster)
    if streamed:
        chosen = stream_k(
            grid, sms=sms, avail_sms=avail_sms, occupancy=occupancy, reduction=reduction, costs=model
        )
    elif splits is not None:
        chosen = split_k(grid, splits, reduction=reduction)
    else:
        chosen = data_parallel(grid, reason="neither --stream-k nor --split-k was given")
    comparison = compare(chosen, sms, occupancy, model)
    if svg is not None:
        title = f"{product.m} x {product.n} x {product.k} in tiles of {tile}"
        svg.write_text(draw(comparison, title), encoding="utf-8")
    print(json.dumps(as_data(comparison)) if as_json else as_text(comparison, rows))


def require_options(
    streamed: bool, splits: int | None, reduction: str, avail_sms: int | None, rows: int
) -> None:
    """Refuse options that do not go together, or are out of range."""
    from lapidist.errors import ArgumentError
    from lapidist.schedule.sharing_choice import REDUCTIONS

    if streamed and splits is not None:
        raise ArgumentError(
            f"--split-k: must be left out where --stream-k is given; got {splits}. Give one of them"
        )
    if reduction not in REDUCTIONS:
        raise ArgumentError(
            f"--reduction: must be one of {', '.join(REDUCTIONS)}; got {reduction!r}. Choose one of them"
        )
    if avail_sms is not None and not streamed:
        raise ArgumentError(
            f"--avail-sms: is what --stream-k balances over; got {avail_sms} without it. Add --stream-k"
        )
    if rows < 0:
        raise ArgumentError(f"--rows: must be at least 0; got {rows}. 0 shows all")
