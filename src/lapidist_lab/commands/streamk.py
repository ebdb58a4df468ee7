"""`lapidist streamk`: Stream-K beside data-parallel tiles, split-K and cuBLAS."""

from __future__ import annotations

from typing import Annotated

import typer

from lapidist.commands.options import Json, Type
from lapidist.commands.products import parse_mnk
from lapidist_lab.commands.options import Records, Seed, Skip
from lapidist_lab.commands.run_target import finishing, require_right

EXAMPLES = ("streamk table --mnk 2048,2048,2048", "streamk corpus --dtype fp16 --count 100")


def streamk(
    what: Annotated[
        str,
        typer.Argument(help="table: every schedule on one product; corpus: random shapes; costs: of sharing"),
    ],
    mnk: Annotated[str, typer.Option(help="of the table", metavar="M,N,K")] = "2048,2048,2048",
    dtype: Type = "fp32",
    count: Annotated[int, typer.Option(min=1, help="so many shapes of the corpus")] = 500,
    skip: Skip = 0,
    seed: Seed = 2301,
    as_json: Json = False,
    record: Records = None,
) -> None:
    """Measure Stream-K beside data-parallel tiles, split-K and cuBLAS."""
    from lapidist.backends.gpu.driver import require_gpu
    from lapidist_lab.bench.protocol.cases import Case
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.streamk import check_name, run

    check_name(what)  # before a folder is made for it, or a GPU looked for
    outputs = Outputs(as_json, None, None, None, record, f"streamk-{what}-{dtype}-{skip}")
    outputs.require_writable()
    case = Case(*parse_mnk(mnk, dtype))
    require_gpu(0)
    with finishing(outputs):
        outputs.write(*run(what, case, count, seed, skip, outputs.keep))
    require_right(outputs)
