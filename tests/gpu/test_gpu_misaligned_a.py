"""On a GPU: rows of A that start anywhere, shifted on their way through registers: every place inside of 16
bytes, exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import lapidist
from lapidist.config import Config
from lapidist.kernels.wgmma.configs import CLUSTERS, tile
from lapidist.kernels.wgmma.family import WGMMA_FAMILY
from lapidist.verify.sum_bound import judge
from on_gpu import check_on_streams_and_in_graphs, whole

pytestmark = pytest.mark.gpu
OWN = [config for config, _ in WGMMA_FAMILY.configs_for("bfloat16") if config.skewed]
MORE = [
    tile("bfloat16", bm, bn, 3, cluster, skewed=True)
    for bm, bn in ((64, 48), (128, 80))
    for cluster in CLUSTERS
    if cluster[1] <= 2  # no more share such rows
]
PITCHES = (1003, 1002, 1004, 1008)  # eight places of a row inside of 16 bytes, four, two, one
NAN = float("nan")


def rows_from(values: Any, first: int, pitch: int) -> Any:
    """The same matrix, its first element so many behind 16 bytes, with no numbers between its rows."""
    rows, cols = values.shape
    raw = values.new_full((rows * pitch + 16,), NAN)
    full = raw[first : first + rows * pitch].view(rows, pitch)
    full[:, :cols] = values
    return full[:, :cols]


def operands(
    torch: Any, m: int, n: int, k: int, first: int, pitch: int, dtype: str = "bfloat16"
) -> tuple[Any, Any]:
    """Numbers so small that no sum is beyond what 8 bits hold."""
    return rows_from(whole(torch, dtype, m, k).clamp(-1, 1), first, pitch), whole(torch, dtype, k, n).clamp(
        0, 1
    )


def between(torch: Any, m: int, n: int, dtype: str) -> Any:
    """An output whose rows end, and start, inside of 16 bytes; what lies between them is to stay."""
    return torch.full((m, n + 3), -77.0, device="cuda").to(getattr(torch, dtype))[:, :n]


def check(torch: Any, a: Any, b: Any, config: Config | None, output: str, **more: Any) -> None:
    m, n = a.shape[0], b.shape[1]
    out = between(torch, m, n, output)
    lapidist.gemm(a, b, out=out, kernel="wgmma", config=config, **more)
    assert judge(out, a, b, exact=True).ok, config
    assert (out.as_strided((m, 3), out.stride(), n) == -77).all(), config


@pytest.mark.parametrize("pitch", PITCHES)
@pytest.mark.parametrize("config", [*OWN, *MORE], ids=str)
def test_every_place_in_16_bytes(torch: Any, config: Config, pitch: int) -> None:
    """By every tile that plans choose and others; ragged in all extents, more tiles than the chip has
    multiprocessors.
    """
    for first in (0, 3) if pitch == PITCHES[0] else (pitch % 8 or 2,):
        check(torch, *operands(torch, 9003, 389, 997, first, pitch), config, "bfloat16")


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_first_row_starts_anywhere_too(torch: Any, dtype: str, first: int) -> None:
    """Few rows behind a tile's last, and a column or two."""
    config = replace(OWN[0], skewed=True)
    for m, n, k in ((129, 9, 77), (133, 193, 65), (263, 27, 9)):
        check(torch, *operands(torch, m, n, k, first, 101, dtype), config, "float32" if first % 2 else dtype)


@pytest.mark.parametrize(
    "sharing", [{"split_k": 2, "reduction": "cluster"}, {"split_k": 3}, {"schedule": "stream_k"}], ids=str
)
def test_blocks_that_share_a_tile(torch: Any, sharing: dict[str, Any]) -> None:
    for m, n in ((1003, 61), (2001, 389)):
        check(
            torch,
            *operands(torch, m, n, 2999, 1, 3001),
            replace(OWN[0], cluster_m=1, cluster_n=1),
            "float32",
            **sharing,
        )


def test_the_planners_choice_and_what_it_takes_with_c(torch: Any) -> None:
    """Nothing is added where rows are shifted: with C the same rows are packed."""
    a, b = operands(torch, 8191, 191, 1001, 5, 1003)
    out = between(torch, 8191, 191, "bfloat16")
    plain = lapidist.plan(a, b, out=out)
    assert plain.config is not None
    assert plain.config.skewed
    check(torch, a, b, None, "bfloat16")
    c = whole(torch, "bfloat16", 8191, 191)
    added = lapidist.plan(a, b, c, out=out, alpha=-2.0, beta=3.0)
    assert added.config is not None
    assert not added.config.skewed
    added.execute(a, b, c, out)
    assert judge(out, a, b, c, -2.0, 3.0).ok
    lapidist.gemm(a, b, out=out, alpha=-2.0)
    assert judge(out, a, b, None, -2.0).ok


def test_launch_after_launch_on_streams_and_in_graphs(torch: Any) -> None:
    inputs = [operands(torch, 8191, 191, 1001, 5, 1003) for _ in range(3)]
    outs = [between(torch, 8191, 191, "bfloat16") for _ in inputs]
    plan = lapidist.plan(*inputs[0], out=outs[0])
    assert plan.config is not None
    assert plan.config.skewed
    check_on_streams_and_in_graphs(torch, plan, inputs, outs, 20)
