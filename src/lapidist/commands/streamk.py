"""`lapidist streamk`: Stream-K beside data-parallel tiles, split-K and cuBLAS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def streamk(
    what: Annotated[
        str,
        typer.Argument(help="table: every schedule on one product; corpus: random shapes; costs: of sharing"),
    ],
    mnk: Annotated[str, typer.Option(help="of the table", metavar="M,N,K")] = "2048,2048,2048",
    dtype: Annotated[str, typer.Option("--dtype", help="fp32, fp64, fp16, bf16, ...")] = "fp32",
    count: Annotated[int, typer.Option(min=1, help="shapes of the corpus")] = 500,
    seed: Annotated[int, typer.Option(help="of the corpus")] = 2301,
    skip: Annotated[int, typer.Option(min=0, help="shapes of it to leave out")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON lines on stdout, one a row, in place of the table")
    ] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="keep the Records in this folder", metavar="DIR")
    ] = None,
) -> None:
    """Measure Stream-K beside data-parallel tiles, split-K and cuBLAS."""
    from lapidist.backends.gpu.driver import require_gpu
    from lapidist.bench.cases import parse_mnk
    from lapidist.bench.outputs import Outputs
    from lapidist.bench.streamk import check_name, run

    check_name(what)  # before a folder is made for it, or a GPU looked for
    outputs = Outputs(as_json, None, None, None, record, f"streamk-{what}-{dtype}-{skip}")
    outputs.require_writable()
    case = parse_mnk(mnk, dtype)
    require_gpu(0)
    outputs.write(*run(what, case, count, seed, skip, outputs.keep))
