"""beta C in wgmma: the ways in which C comes to the patches of D, by every way that these leave. In the
machine, sanitized.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, sampled
from lapidist import machine
from lapidist.config import Config
from lapidist.dtypes import TYPES
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.wgmma.family import WGMMA_FAMILY, tile
from wgmma_products import lying, operands, whole

# How C lies in memory, and what the kernel is told of that where D has rows: C_SAME, C_BY_ELEMENTS.
LYING: dict[str, tuple[Any, tuple[int, int]]] = {
    "as D": (lambda c: lying(c, "row", 16), (0, 0)),
    "one row": (lambda c: np.broadcast_to(c[:1], c.shape), (1, 0)),
    "a row apart": (lambda c: np.broadcast_to(np.repeat(c[:1], 3, axis=1)[:, ::3], c.shape), (1, 1)),
    "odd rows": (lambda c: lying(c, "row", 1), (0, 1)),
    "columns": (lambda c: lying(c, "col", 16), (0, 2)),
    "one column": (lambda c: np.broadcast_to(np.asfortranarray(c[:, :1]), c.shape), (2, 0)),
    "apart": (lambda c: np.repeat(np.repeat(c, 2, axis=0), 3, axis=1)[::2, ::3], (0, 1)),
}
ODD = ("as D", "one row", "one column", "columns")
WAYS: list[tuple[str, str, Config, dict[str, Any]]] = [
    ("bfloat16", "bfloat16", tile("bfloat16", 64, 160, 2), {}),  # five patches a row, for two places
    ("bfloat16", "float32", tile("bfloat16", 64, 64, 2, (2, 1)), {}),
    ("bfloat16", "bfloat16", tile("bfloat16", 64, 48, 2, exchanged=True), {}),
    ("bfloat16", "bfloat16", tile("bfloat16", 128, 64, 2), {"schedule": "stream_k", "avail_sms": 3}),
    ("bfloat16", "bfloat16", tile("bfloat16", 64, 64, 2), {"split_k": 2, "reduction": "cluster"}),
    ("float8_e5m2", "float8_e5m2", tile("float8_e5m2", 64, 128, 2), {}),
    ("float8_e4m3fn", "float32", tile("float8_e4m3fn", 128, 64, 3, ping_pong=True), {}),
    ("int8", "int32", tile("int8", 64, 48, 2, exchanged=True), {}),
]


@pytest.mark.parametrize(
    ("way", "odd", "math", "out", "config", "more"),
    sampled([*((way, 0) for way in LYING), *((way, 1) for way in ODD)], WAYS, share=4),
)
def test_c_that_lies_so(
    way: str,
    math: str,
    out: str,
    config: Config,
    more: dict[str, Any],
    odd: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Odd extents leave by hand, which columns do not. One cluster has all tiles."""
    if odd and config.exchanged:
        config = tile(math, config.bm, config.bn, config.stages)
    if not more:
        monkeypatch.setattr(type(WGMMA_FAMILY), "grid", lambda *_: (config.cluster, 1, 1))
    m, n, k = config.bm * config.cluster_m + 24 + odd, config.bn + 32 + odd, 2 * config.bk - 16
    lie, told = LYING[way]
    (a, b, _), c, d = operands(math, m, n, k), lie(whole((m, n), 3, out)), whole((m, n), 4, out)
    b = lying(b, "col")
    gemm = lapidist.plan(
        a, b, c, alpha=2.0, beta=-3.0, kernel="wgmma", config=config, device="machine", out_dtype=out, **more
    )
    assert gemm.plan is not None
    macros = dict(gemm.plan.problem_macros)
    exchanged = {1: (2, 0), 2: (1, 0)}.get(told[0], told) if config.exchanged else told
    assert odd or (macros.get("C_SAME", 0), macros.get("C_BY_ELEMENTS", 0)) == exchanged
    for beta in (-3.0, 0.0)[: 2 if way in ODD else 1]:
        given = c if beta else lie(np.full_like(c, np.nan if TYPES[out].roundoff else 77))  # not read
        launch = gemm.plan.launch(
            operand_of(a, "a"), operand_of(b, "b"), operand_of(given, "c"), operand_of(d, "out"), 2.0, beta
        )
        machine.run(launch, sanitize=True, seed=m, counting=False)
        exact = 2.0 * (a.astype("f8") @ b.astype("f8")) + (beta * c.astype("f8") if beta else 0.0)
        low, high = TYPES[out].bounds or (-np.inf, np.inf)
        np.testing.assert_allclose(
            d.astype("f8"), exact.clip(low, high), rtol=TYPES[out].roundoff, atol=2 * TYPES[out].spacing
        )


ALIKE: list[tuple[Config, dict[str, Any]]] = [
    (tile("bfloat16", 128, 64, 2), {}),
    (tile("bfloat16", 128, 96, 2, exchanged=True), {}),
    (tile("bfloat16", 128, 64, 3, ping_pong=True), {}),
    (tile("bfloat16", 64, 64, 2), {"split_k": 2, "reduction": "cluster"}),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("along", "number"), in_turns(["row", "column"], range(len(ALIKE)), share=1))
def test_one_line_of_c_gives_the_bits_of_a_whole_one(along: str, number: int) -> None:
    """They are of one order of sums."""
    config, more = ALIKE[number]
    rng = np.random.default_rng(7)
    (a, b, _), line = operands("bfloat16", 136, 72, 112), rng.standard_normal(136).astype("f4")
    a *= np.float32(0.37)
    line = line[:72][None] if along == "row" else line[:, None]
    c = np.broadcast_to(line.astype(a.dtype), (136, 72))
    found = []
    for each in (c, np.ascontiguousarray(c)):
        gemm = lapidist.plan(
            a, b, each, alpha=0.7, beta=-1.3, kernel="wgmma", config=config, device="machine", **more
        )
        assert gemm.plan is not None
        assert (each is c) == ("C_SAME" in dict(gemm.plan.problem_macros))
        found.append((gemm.sum_order, np.asarray(gemm.execute(a, b, each)).view("u2")))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])
