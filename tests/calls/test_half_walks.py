"""Symmetric products by kernels that walk one triangle of tiles: sgemm, simt and mma, in the machine."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import product as product_of
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed
from lapidist import Config
from lapidist.backends.machine_backend import sanitized
from lapidist.calls import symmetric
from lapidist.calls.call import Call
from lapidist.calls.full_path import multiplied
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation, Types
from lapidist.device import chip as chip_named
from lapidist.kernels.production import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import BOTH, COPIED, batched, dense_problem
from lapidist.schedule.sharing_choice import PLANNED, Sharing

Numbers = np.ndarray[Any, Any]
UNWRITTEN = 99
WHOLE, SPLIT = Sharing("data_parallel"), Sharing(split_k=2)


def config_of(kernel: str, dtype: str, bm: int, bn: int, slices: int = 1) -> Config:
    listed = [config for config, _ in kernel_named(kernel).configs_for(dtype)]
    return next(config for config in listed if (config.bm, config.bn, config.slices) == (bm, bn, slices))


# tiles that are squares, twice as high, and twice as wide; whole, and with k cut
WALKS = [
    ("simt", "float32", config_of("simt", "float32", 32, 32)),
    ("simt", "float32", config_of("simt", "float32", 64, 32, 2)),
    ("simt", "float64", config_of("simt", "float64", 16, 32)),
    ("mma", "float64", config_of("mma", "float64", 32, 32)),
    ("mma", "float64", config_of("mma", "float64", 64, 32)),
    ("mma", "float16", config_of("mma", "float16", 64, 64)),
    ("sgemm", "float32", config_of("sgemm", "float32", 64, 64, 8)),
]
FED = [("sgemm", "float32", config_of("sgemm", "float32", *tile)) for tile in ((128, 64, 4), (64, 128, 4))]


def half_product(
    a: Numbers, walk: tuple[str, str, Config], half: str, sharing: Sharing, out: Numbers, trans: bool = False
) -> None:
    """Fuzzed, but for blocks that wait for others and are not persistent: the chip holds all of these."""
    kernel, _, config = walk
    operation = Operation(trans_a=trans, trans_b=not trans, types=Types(triangle=half))
    with sanitized(config.bm) if sharing is WHOLE or kernel == "sgemm" else nullcontext():
        multiplied(Call(a, a, None, out, operation, Choices("machine", kernel, config, sharing)))


def whole_numbers(*shape: int, dtype: str = "float32") -> Numbers:
    return np.random.default_rng(len(shape)).integers(-2, 3, shape).astype(dtype)


def product(a: Numbers) -> Numbers:
    wide = a.astype(np.float64)
    return np.asarray(wide @ wide.swapaxes(-1, -2))


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("walk", "sharing"), [*in_turns(WALKS, [SPLIT, WHOLE]), *surveyed(product_of(FED, [SPLIT]))]
)
def test_both_halves_and_nothing_beside_them(walk: Any, sharing: Sharing) -> None:
    """Exactly, with rows of D that start anywhere, and in a batch."""
    _, dtype, config = walk
    n, batch = max(config.bm, config.bn) + 3, 2 if config.bm * config.bn <= 4096 else 1
    a = whole_numbers(batch, n, config.bk + 5, dtype=dtype)
    room = np.full((batch, n, n + 2), UNWRITTEN, dtype)
    half_product(a, walk, BOTH, sharing, room[:, :, :n])
    assert (room[:, :, :n] == product(a)).all()
    assert (room[:, :, n:] == UNWRITTEN).all()


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("walk", "half"), [*in_turns(WALKS, ["lower", "upper"]), *surveyed(product_of(FED, ["upper"]))]
)
def test_tiles_of_the_other_triangle_are_left_out(walk: Any, half: str) -> None:
    _, dtype, config = walk
    n = 3 * max(config.bm, config.bn) - 5
    a = whole_numbers(n, 4, dtype=dtype)
    out = np.full((n, n), UNWRITTEN, dtype)
    half_product(a, walk, half, PLANNED, out)
    row, column = np.indices((n, n))
    here = row >= column if half == "lower" else row <= column
    tile = row // config.bm * n + column // config.bn
    computed = np.isin(tile, np.unique(tile[here]))
    assert (out[computed] == product(a)[computed]).all()
    assert (out[~computed] == UNWRITTEN).all()


@pytest.mark.parametrize(
    ("walk", "half"), [*in_turns([WALKS[4], WALKS[1]], [BOTH, COPIED]), *surveyed([(FED[0], BOTH)])]
)
def test_symmetric_bit_by_bit_where_tiles_are_cut_otherwise(walk: Any, half: str) -> None:
    """Stream-K cuts the k of two tiles of one square at different places."""
    _, dtype, config = walk
    n = 2 * max(config.bm, config.bn)
    a = np.random.default_rng(5).standard_normal((n, 7 * config.bk)).astype(dtype)
    out = np.full((n, n), np.nan, dtype)
    half_product(a, walk, half, Sharing("stream_k", avail_sms=5), out)
    assert (out == out.T).all()
    assert np.allclose(out, product(a), rtol=1e-4, atol=1e-3)


def test_columns_that_touch_and_a_transposed_operand() -> None:
    """Of D' = B' A', the triangle is the other one."""
    a = whole_numbers(20, 150)
    for half in (BOTH, "lower", "upper"):
        out = np.full((150, 150), UNWRITTEN, np.float32, order="F")
        half_product(a, WALKS[1], half, WHOLE, out, trans=True)
        here = {BOTH: np.ones(out.shape, bool), "lower": np.tri(150, dtype=bool)}
        here["upper"] = here["lower"].T
        assert (out[here[half]] == product(a.T)[here[half]]).all()


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("walk", "half"), in_turns([walk for walk in WALKS if walk[1] != "float16"], ["lower", "upper"])
)
def test_complex_numbers_have_two_columns_for_each_row(walk: Any, half: str) -> None:
    kernel, dtype, config = walk
    n = 3 * max(config.bm, config.bn) - 5
    a, b = whole_numbers(n, 4, dtype=dtype), whole_numbers(4, 2 * n, dtype=dtype)
    out = np.full((n, 2 * n), UNWRITTEN, dtype)
    operation = Operation(types=Types(triangle=half))
    multiplied(Call(a, b, None, out, operation, Choices("machine", kernel, config, WHOLE)))
    row, column = np.indices(out.shape)
    here = row >= column // 2 if half == "lower" else row <= column // 2
    tile = row // config.bm * n + column // config.bn
    computed = np.isin(tile, np.unique(tile[here]))
    assert (out[computed] == (a @ b)[computed]).all()
    assert (out[~computed] == UNWRITTEN).all()


@pytest.mark.parametrize("exchanged", [False, True])
def test_the_half_that_is_mirrored_is_the_computed_one(
    exchanged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wgmma stores once where C lies in D's place, and computes D' = B' A' where columns of D touch."""
    from lapidist.kernels.wgmma.configs import tile

    config = tile("tf32", 64, 64, 4, exchanged=exchanged)
    monkeypatch.setattr(symmetric, "checked", lambda _: Choices("machine", "wgmma", config, WHOLE))
    monkeypatch.setattr(symmetric, "is_symmetric_anyway", lambda *given: False)
    a = whole_numbers(200, 32)
    for order in ("C", "F"):
        out = np.full((200, 200), UNWRITTEN, np.float32, order=order)  # type: ignore[call-overload]
        lapidist.gram(a, out, beta=1, out=out, precision="tf32")
        assert (out == product(a) + UNWRITTEN).all()


def test_one_launch_of_whatever_is_symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    """With C, after a function, and where only the caller knows it. A C in D's place would be overwritten."""
    mirrored: list[Any] = []
    mirror_of = symmetric.mirror_of
    monkeypatch.setattr(symmetric, "mirror_of", lambda *given: (mirrored.append(given), mirror_of(*given)))
    monkeypatch.setattr(symmetric, "is_symmetric_anyway", lambda *given: False)
    a, c = whole_numbers(70, 33), whole_numbers(70, 70)
    c = c + c.T
    with sanitized(3):
        assert (lapidist.gram(a, device="machine") == product(a)).all()
        assert (lapidist.gram(a, c, alpha=2, beta=3, device="machine") == 2 * product(a) + 3 * c).all()
        d = lapidist.gram(a, epilogue=lapidist.epilogues.relu, device="machine")
        assert (d == np.maximum(product(a), 0)).all()
        known = lapidist.matmul((a @ (a.T @ c @ a)).astype(np.float32), a.T, symmetric=True, device="machine")
        assert (known == known.T).all()
        assert not mirrored
        out = c.copy()
        lapidist.gram(a, out, alpha=2, beta=3, out=out, device="machine")
    assert (out == 2 * product(a) + 3 * c).all()
    assert len(mirrored) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1024, 4096])
def test_the_plan_takes_half_of_the_time(dtype: str, n: int) -> None:
    chip = chip_named("h200")
    problem = replace(dense_problem(n, n, n, dtype, "rc"), triangle=BOTH)
    plan, whole = make_plan(problem, chip), make_plan(replace(problem, triangle=""), chip)
    assert plan.stores_both_halves
    assert plan.predicted_seconds < (0.76 if n == 1024 else 0.56) * whole.predicted_seconds


@pytest.mark.parametrize("batch", [1, 96])
def test_tiles_of_a_batch_are_left_out_too(batch: int) -> None:
    chip = chip_named("h200")
    problem = batched(dense_problem(2048, 2048, 2048, "bfloat16", "rc"), batch)
    plan, whole = make_plan(replace(problem, triangle=BOTH), chip), make_plan(problem, chip)
    assert plan.stores_both_halves
    assert plan.predicted_seconds < 0.65 * whole.predicted_seconds


@pytest.mark.survey
def test_batches_by_tensor_cores_of_hopper() -> None:
    wgmma = "wgmma", "bfloat16", tile("bfloat16", 128, 128, 6, ping_pong=True, raster=4)
    a = whole_numbers(2, 136, 40, dtype="float32").astype(ml_dtypes.bfloat16)
    for half in (BOTH, "lower"):
        out = np.full((2, 136, 136), UNWRITTEN, ml_dtypes.bfloat16)
        half_product(a, wgmma, half, WHOLE, out)
        here = np.tri(136) if half == "lower" else np.ones((136, 136))
        assert (out.astype(np.float64) * here == product(a).astype(ml_dtypes.bfloat16) * here).all()
