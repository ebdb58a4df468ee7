"""Tiles whose last patches wait in registers and leave beside the next tile's products: as many as there is
room for.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from in_turns import surveyed, surveyed_but
from lapidist import machine
from lapidist.config import Config
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.wgmma.configs import tile
from lapidist.kernels.wgmma.family import WGMMA_FAMILY
from wgmma_products import check, lying, multiply, operands, whole

FLOATS = {"out_dtype": "float32"}
WAYS: list[tuple[str, Config, dict[str, Any], int]] = [
    ("bfloat16", tile("bfloat16", 64, 128, 2), {}, 1),  # fewer steps than patches
    ("bfloat16", tile("bfloat16", 64, 128, 2), {}, 5),
    ("float16", tile("float16", 64, 48, 2), {}, 1),
    ("float16", tile("float16", 64, 80, 2, exchanged=True), {}, 2),
    ("float16", tile("float16", 64, 80, 2, exchanged=True), {}, 6),
    ("bfloat16", tile("bfloat16", 128, 112, 2, (2, 2), exchanged=True), {}, 3),
    ("bfloat16", tile("bfloat16", 256, 32, 2, (1, 2)), {}, 3),
    ("bfloat16", tile("bfloat16", 256, 48, 2, exchanged=True), {}, 2),
    ("bfloat16", tile("bfloat16", 256, 80, 2, (2, 1), exchanged=True), {}, 3),  # columns by whole warpgroups
    ("bfloat16", tile("bfloat16", 256, 64, 2, (1, 2), exchanged=True), {}, 3),
    ("bfloat16", tile("bfloat16", 64, 64, 2, (2, 1)), FLOATS, 3),
    ("bfloat16", tile("bfloat16", 128, 32, 2, exchanged=True), FLOATS, 3),
    ("int8", tile("int8", 64, 64, 2), {}, 2),
    ("tf32", tile("tf32", 64, 48, 2), {}, 4),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("math", "config", "more", "steps"), surveyed_but(WAYS, 0, 2, 4, 6, 10, 12), ids=lambda value: str(value)
)
def test_tile_after_tile(
    math: str, config: Config, more: dict[str, Any], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cluster has them all, sanitized."""
    monkeypatch.setattr(type(WGMMA_FAMILY), "grid", lambda *_: (config.cluster, 1, 1))
    dtype = "float32" if math == "tf32" else math
    m, n = (2 * config.bm * config.cluster_m + 8, 2 * config.bn - 16)[:: -1 if config.exchanged else 1]
    k = steps * config.bk - 16
    a, b = whole((m, k), 1, dtype), lying(whole((k, n), 2, dtype), "col")
    precision, alpha = "tf32" if math == "tf32" else "ieee", 1.0 + steps % 2  # compiled for one, or for any
    gemm = lapidist.plan(
        a, b, alpha=alpha, kernel="wgmma", config=config, device="machine", precision=precision, **more
    )
    assert gemm.plan is not None
    d = np.zeros((m, n), gemm.plan.problem.out_dtype if math != "bfloat16" or more else ml_dtypes.bfloat16)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), alpha, 0.0)
    machine.run(launch, sanitize=True, seed=steps, counting=False)
    check(d, a, b, alpha=alpha)


def test_columns_of_d_by_peers_in_a_cluster() -> None:
    """Each has some warps' patches: of 16 rows, whoever else would bring 64."""
    a, b = whole((72, 392), 1, "float16"), whole((392, 200), 2, "float16")
    config = tile("float16", 128, 48, 2, exchanged=True)
    check(multiply(a, b, kernel="wgmma", config=config, split_k=3, reduction="cluster"), a, b)


def test_d_of_one_column() -> None:
    a, b = whole((200, 136), 1, "float16"), whole((136, 1), 2, "float16")
    for c in (None, whole((200, 1), 3, "float16")):
        check(
            multiply(
                a,
                b,
                c,
                kernel="wgmma",
                beta=-3.0 if c is not None else 0.0,
                config=tile("float16", 128, 48, 2),
            ),
            a,
            b,
            c,
            -3.0,
        )


@pytest.mark.parametrize("more", [{}, {"schedule": "stream_k"}], ids=str)
def test_columns_of_d_by_a_warpgroup(more: dict[str, Any]) -> None:
    """Two blocks of 256 rows, odd extents; whole tiles, and tiles that are shared. With C, columns leave warp
    by warp.
    """
    a, b = whole((72, 136), 1, "float16"), whole((136, 520), 2, "float16")
    config = tile("float16", 256, 48, 2, (2, 1), exchanged=True)
    for c in (None, whole((72, 520), 3, "float16"), lying(whole((72, 520), 3, "float16"), "col")):
        beta = 0.0 if c is None else -3.0
        check(multiply(a, b, c, kernel="wgmma", beta=beta, config=config, **more), a, b, c, beta)


def test_208_columns() -> None:
    """Most sums that a thread has: D by TMA, nothing else on its way through registers."""
    a, b = whole((200, 136), 1, "bfloat16"), whole((136, 264), 2, "bfloat16")
    for config in (tile("bfloat16", 256, 208, 2, (2, 1), exchanged=True), tile("bfloat16", 256, 208, 2)):
        check(multiply(a, b, kernel="wgmma", config=config), a, b)
    with pytest.raises(lapidist.RefusalError, match="192 registers for its sums; this tile gives it 208"):
        multiply(a[:, :135], b[:135, :263], kernel="wgmma", config=tile("bfloat16", 256, 208, 2))


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("math", "more"),
    [
        ("bfloat16", {"exchanged": True, "schedule": "stream_k", "avail_sms": 4}),
        ("tf32", {}),
        ("float8_e4m3fn", {"out_dtype": "bfloat16"}),
        *surveyed(
            [("bfloat16", {}), ("float16", {"exchanged": True}), ("float8_e4m3fn", {"out_dtype": "float32"})]
        ),
    ],
)
def test_200_columns(math: str, more: dict[str, Any]) -> None:
    """The last patch of a row begins inside of the one before it. More than one tile; D ends inside of the
    last one.
    """
    asked = dict(more)
    exchanged = asked.pop("exchanged", False)
    m, n = (432, 520) if exchanged else (520, 432)
    a, b, precision = operands(math, m, n, 272)
    config = tile(math, 256, 200, 3, (2, 1), exchanged=exchanged)
    check(
        multiply(a, b if exchanged else lying(b, "col"), kernel="wgmma", config=config, **precision, **asked),
        a,
        b,
    )


def test_columns_that_leave_twice_meet_nothing() -> None:
    a, b, c = (
        whole((520, 136), 1, "bfloat16"),
        whole((136, 432), 2, "bfloat16"),
        whole((520, 432), 3, "bfloat16"),
    )
    config = tile("bfloat16", 256, 200, 2, (2, 1))
    with pytest.raises(lapidist.RefusalError, match="eight of 200 columns are stored twice: C"):
        multiply(a, b, c, kernel="wgmma", beta=1.0, config=config)
    bytewise = a.astype(ml_dtypes.float8_e5m2), lying(b.astype(ml_dtypes.float8_e5m2), "col")
    with pytest.raises(lapidist.RefusalError, match="tiles of 200 bytes begin elsewhere"):
        multiply(
            *bytewise,
            kernel="wgmma",
            out_dtype="float8_e5m2",
            config=tile("float8_e5m2", 256, 200, 2, (2, 1)),
        )
    with pytest.raises(lapidist.RefusalError, match="need a cluster, no ping-pong, and a D that TMA stores"):
        multiply(a[:, :135], b[:135, :431], kernel="wgmma", config=tile("bfloat16", 128, 200, 2, (2, 1)))
