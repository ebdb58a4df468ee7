"""Dropout: Philox's known answers, one mask for the host and every kernel, and what is refused."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import watch
from in_turns import in_turns, surveyed, surveyed_but
from lapidist.dtypes import numpy_dtype
from lapidist.epilogues.numeric import NUMPY
from lapidist.epilogues.operations import dropout_mask, dropout_mask_by_operand
from lapidist.epilogues.philox import philox
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.kernels.wgmma.configs import HALF_PATCHED, tile
from lapidist.machine import run_ptx
from snippets import compiled

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)


@lapidist.epilogue
def dropped(acc: Any, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, 0.3, seed)


# ---- the words ----

# the vectors of Random123: counter, key, words
KNOWN = (
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
)


def test_known_answers_on_the_host() -> None:
    counters, keys, expected = (np.array(each, np.uint64) for each in zip(*KNOWN, strict=True))
    np.testing.assert_array_equal(np.stack(philox(tuple(counters.T), tuple(keys.T)), -1), expected)


def test_known_answers_of_the_device_code() -> None:
    counters, keys, expected = (np.array(each, np.uint32) for each in zip(*KNOWN, strict=True))
    found, raw = np.zeros_like(expected), compiled("philox.cu", "words")
    memory = dict(enumerate(each.reshape(-1).view("u1") for each in (counters, keys, found)))
    run_ptx(raw.ptx, "words", (1, 1, 1), (len(KNOWN), 1, 1), memory)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda *at: dropout_mask(NUMPY, *at, "0.5"),
        lambda *at: dropout_mask_by_operand(NUMPY, *at, np.float32(0.5)),
    ],
)
def test_seeds_and_numbers_of_elements_have_64_bits(function: Any) -> None:
    """Elements 2^32 apart have words of their own, and seeds that differ in their upper half."""
    at, high = np.arange(200, dtype=np.uint64), np.uint64(1 << 32)
    counters = [(at, high * 0), (at + high, high * 0), (at, high), (at + high, high)]
    masks = [function(seed, place) for place, seed in counters]
    for (place, seed), mask in zip(counters, masks, strict=True):
        low = np.uint64(0xFFFFFFFF)
        zero = np.uint64(0)
        word, *_ = philox(
            (place & low, place >> np.uint64(32), zero, zero), (seed & low, seed >> np.uint64(32))
        )
        np.testing.assert_array_equal(mask, word >= 1 << 31)
    assert len({mask.tobytes() for mask in masks}) == 4


# ---- one mask everywhere ----


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of which every sum is exact, and none is 0."""
    return rng.integers(1, 3, shape).astype(numpy_dtype(dtype))


def check(
    rng: np.random.Generator,
    kernel: str,
    dtype: str,
    extents: tuple[int, int, int],
    *,
    batch: tuple[int, ...] = (),
    turned: bool = False,
    seed: int = 2**63 + 5,
    **more: Any,
) -> None:
    """`turned`: A, B and D lie by columns."""
    m, n, k = extents
    a, b = whole(rng, (*batch, m, k), dtype), whole(rng, (*batch, k, n), dtype)
    expected = lapidist.gemm(a, b, epilogue=dropped(seed=seed))
    assert 0.5 < np.mean(expected != 0) < 0.9
    d = np.full_like(expected, np.nan)
    if turned:
        a, b, d = (np.swapaxes(np.swapaxes(x, -1, -2).copy(), -1, -2) for x in (a, b, d))
    lapidist.gemm(a, b, out=d, epilogue=dropped(seed=seed), kernel=kernel, device="machine", **more)
    np.testing.assert_array_equal(d, expected)


BF16 = partial(tile, "bfloat16")
Made = tuple[str, str, tuple[int, int, int], dict[str, Any]]
CASES: list[Made] = [
    ("simt", "float32", (70, 51, 33), {}),
    ("simt", "float32", (70, 50, 106), {"split_k": 2, "reduction": "turnstile"}),
    ("mma", "float16", (70, 51, 33), {}),
    ("mma", "bfloat16", (40, 24, 64), {"batch": (2,), "turned": True}),
    ("mma", "float16", (70, 50, 530), {"split_k": 3, "reduction": "cluster"}),
    ("sgemm", "float32", (75, 131, 37), {}),
    ("wgmma", "bfloat16", (75, 131, 37), {"config": BF16(64, 32, 3)}),
    ("wgmma", "bfloat16", (136, 72, 96), {"config": BF16(64, 48, 3, exchanged=True)}),
    ("wgmma", "bfloat16", (264, 208, 64), {"config": BF16(256, HALF_PATCHED, 3, (2, 1))}),  # leave twice
    ("wgmma", "bfloat16", (136, 264, 128), {"config": BF16(64, 256, 4, ping_pong=True)}),
    (
        "wgmma",
        "bfloat16",
        (200, 64, 640),
        {"config": BF16(64, 32, 3), "schedule": "stream_k", "avail_sms": 3},
    ),
]
MORE_CASES: list[Made] = [
    ("simt", "float64", (20, 30, 17), {"batch": (2, 3), "turned": True}),
    ("sgemm", "float32", (80, 136, 32), {"batch": (2,), "turned": True}),
    ("wgmma", "bfloat16", (136, 72, 96), {"config": BF16(64, 32, 3)}),
    ("wgmma", "bfloat16", (136, 72, 96), {"config": BF16(64, 48, 3), "turned": True}),
    ("wgmma", "bfloat16", (72, 40, 64), {"config": BF16(64, 32, 3), "batch": (2, 2)}),
    (
        "wgmma",
        "bfloat16",
        (200, 64, 640),
        {"config": BF16(64, 32, 3), "split_k": 3, "reduction": "turnstile"},
    ),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("kernel", "dtype", "extents", "more"), [*surveyed_but(CASES, 0, 2, 3, 5, 6, 7), *surveyed(MORE_CASES)]
)
def test_every_kernel_has_the_mask_of_the_host(
    rng: np.random.Generator, kernel: str, dtype: str, extents: Any, more: dict[str, Any]
) -> None:
    alone = {} if kernel != "wgmma" or "split_k" in more or "schedule" in more else {"split_k": 1}
    check(rng, kernel, dtype, extents, **alone, **more)


@pytest.mark.parametrize("turned", [False, True])
def test_scattered_rows_are_numbered_where_they_go(rng: np.random.Generator, turned: bool) -> None:
    a, b = whole(rng, (21, 8), "float32"), whole(rng, (8, 13), "float32")
    to = rng.permutation(30)[:21].astype(np.int32)
    found = np.zeros((13, 30), np.float32).T if turned else np.zeros((30, 13), np.float32)
    on_host, full = np.zeros((30, 13), np.float32), np.ones((30, 8), np.float32)
    given = dropped(seed=4)
    lapidist.gemm(a, b, out=found, scatter_d=to, epilogue=given, kernel="simt", device="machine")
    lapidist.gemm(a, b, out=on_host, scatter_d=to, epilogue=given)
    np.testing.assert_array_equal(found, on_host)
    np.testing.assert_array_equal(found[to] != 0, lapidist.gemm(full, b, epilogue=given)[to] != 0)


def test_batches_that_take_several_launches_go_on_counting(rng: np.random.Generator) -> None:
    a, b = whole(rng, (2, 3, 2, 5, 7), "float32")[:, ::2], whole(rng, (2, 3, 2, 7, 6), "float32")[:, ::2]
    planned = lapidist.plan(a, b, epilogue=dropped(seed=1), kernel="simt", device="machine")
    assert len(planned.parts) > 1  # type: ignore[union-attr]
    np.testing.assert_array_equal(planned.execute(a, b), lapidist.matmul(a, b, epilogue=dropped(seed=1)))


def test_a_batch_has_the_mask_of_its_rows_in_one_matrix() -> None:
    a, b = np.ones((3, 4, 8)), np.ones((8, 5))
    one = lapidist.matmul(a.reshape(12, 8), b, epilogue=dropped(seed=1))
    np.testing.assert_array_equal(lapidist.matmul(a, b, epilogue=dropped(seed=1)).reshape(12, 5), one)


@lapidist.epilogue
def of_pairs(acc: lapidist.Pair, seed: lapidist.Scalar) -> Any:
    kept = lapidist.dropout(acc.first * acc.second, 0.5, seed)
    return kept, lapidist.Pair(kept, acc.second), lapidist.Output(kept != 0, "bool")


def test_pairs_have_one_number(rng: np.random.Generator) -> None:
    a, b = whole(rng, (20, 8), "float16"), whole(rng, (8, 36), "float16")
    on_host = lapidist.gemm(a, b, epilogue=of_pairs(seed=3), out_dtype="float32")
    found = lapidist.gemm(
        a, b, epilogue=of_pairs(seed=3), out_dtype="float32", kernel="mma", device="machine"
    )
    for one, other in zip(found, on_host, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(on_host[2], on_host[0] != 0)


# ---- chances ----


def mask(p: float, seed: int, shape: tuple[int, int] = (1000, 1000)) -> Array:
    of_p = lapidist.epilogue(lambda acc: lapidist.dropout(acc + 1, p, seed))
    found = lapidist.matmul(np.zeros((shape[0], 1)), np.zeros((1, shape[1])), epilogue=of_p)
    assert set(np.unique(found)) <= {0.0, 1 / (1 - p)}
    return np.asarray(found != 0)


@pytest.mark.parametrize("p", [0.0, 0.05, 0.5, 0.9])
def test_a_share_of_p_is_dropped(p: float) -> None:
    kept = mask(p, 11)
    for axis, count in ((None, 10**6), (0, 1000), (1, 1000)):
        spread = 6 * math.sqrt(p * (1 - p) / count)
        assert np.all(np.abs(kept.mean(axis) - (1 - p)) <= spread)


@pytest.mark.parametrize("other", [12, 11 + 2**32, 2**64 - 1])
def test_seeds_have_masks_of_their_own(other: int) -> None:
    """As often the same as two coins."""
    assert abs(np.mean(mask(0.5, 11) == mask(0.5, other)) - 0.5) < 0.003


def test_what_is_dropped_is_0_whatever_it_was() -> None:
    found = lapidist.matmul(np.full((8, 1), np.nan), np.ones((1, 8)), epilogue=dropped(seed=2))
    assert set(np.unique(found[~np.isnan(found)])) == {0.0}


# ---- seeds ----


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_plan_takes_the_seed_that_memory_has_then(dtype: str) -> None:
    a, b, seed = np.ones((9, 5), "f4"), np.ones((5, 7), "f4"), np.array([3], dtype)
    planned = lapidist.plan(a, b, epilogue=dropped(seed=seed), kernel="simt", device="machine")
    for each in (3, 4, -1):
        seed[0] = each
        expected = lapidist.matmul(a, b, epilogue=dropped(seed=each % 2**64))
        np.testing.assert_array_equal(planned.execute(a, b), expected)


def test_a_new_seed_is_the_same_problem() -> None:
    a, b = np.ones((9, 5), "f4"), np.ones((5, 7), "f4")
    first, second = (
        lapidist.plan(a, b, epilogue=dropped(seed=each), kernel="simt", device="machine") for each in (1, 2)
    )
    assert first.problem == second.problem


# ---- a share that is an operand ----


@lapidist.epilogue
def shared_out(acc: Any, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, p, seed)


SHARES = [0.0, 0.25, 0.3, 0.999999, np.array([0.3]), np.array([0.3], np.float32)]
TYPED = ("simt", "float32"), ("simt", "float64"), ("mma", "bfloat16")


@pytest.mark.often(2)
@pytest.mark.parametrize(("typed", "p"), in_turns(TYPED, SHARES))
def test_p_may_be_a_scalar(rng: np.random.Generator, typed: tuple[str, str], p: Any) -> None:
    """In float32 it is what it is captured as, but for its last place."""
    kernel, dtype = typed
    a, b = whole(rng, (40, 8), dtype), whole(rng, (8, 56), dtype)
    expected = lapidist.gemm(a, b, epilogue=shared_out(p=p, seed=9))
    found = lapidist.gemm(a, b, epilogue=shared_out(p=p, seed=9), kernel=kernel, device="machine")
    np.testing.assert_array_equal(found != 0, expected != 0)
    np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=1e-2)
    alike = lapidist.gemm(a, b, epilogue=captured(float(np.ravel(p).astype("f4")[0]), 9))
    np.testing.assert_array_equal(expected != 0, alike != 0)


def test_a_new_p_is_the_same_problem() -> None:
    a, b = np.ones((9, 5), "f4"), np.ones((5, 7), "f4")
    first, second = (
        lapidist.plan(a, b, epilogue=shared_out(p=p, seed=1), kernel="simt", device="machine")
        for p in (0.1, 0.2)
    )
    assert first.problem == second.problem


@pytest.mark.parametrize("p", [-0.1, 1, 1.5])
def test_a_share_is_below_1(p: float) -> None:
    with pytest.raises(ArgumentError, match="p: must be 0 or more and below 1, a share that is dropped"):
        lapidist.matmul(np.ones((2, 2)), np.ones((2, 2)), epilogue=shared_out(p=p, seed=1))


def captured(p: Any, seed: Any) -> Any:
    return lapidist.epilogue(lambda acc: lapidist.dropout(acc, p, seed))


@pytest.mark.parametrize("p", [-0.1, 1, 1.5, float("nan"), None, "0.1"])
def test_shares_that_are_refused(p: Any) -> None:
    with pytest.raises(
        ArgumentError, match="p: must be a Scalar or a number that is captured, 0 or more and below 1"
    ):
        captured(p, 1)


@pytest.mark.parametrize("seed", [1.5, -1, 2**64, True, None, "1"])
def test_seeds_that_are_refused(seed: Any) -> None:
    with pytest.raises(ArgumentError, match="seed: must be a Scalar or a captured integer, 0 or more"):
        captured(0.1, seed)
    with pytest.raises(ArgumentError, match="seed"):
        lapidist.matmul(np.ones((2, 2)), np.ones((2, 2)), epilogue=dropped(seed=seed))


def test_what_else_is_refused() -> None:
    a = np.ones((2, 2))
    with pytest.raises(DTypeError, match="seed: must be of int64, int32; got float64"):
        lapidist.matmul(a, a, epilogue=dropped(seed=np.ones(1)))
    with pytest.raises(ShapeError, match="seed: must be a number or an array of one element"):
        lapidist.matmul(a, a, epilogue=dropped(seed=np.ones(2, np.int64)))
    with pytest.raises(ArgumentError, match=r"p: must be .* got Row, which is traced"):

        @lapidist.epilogue
        def of_a_row(acc: Any, p: lapidist.Row) -> Any:
            return lapidist.dropout(acc, p, 1)

    with pytest.raises(ArgumentError, match=r"seed: must be a Scalar .* got Row"):

        @lapidist.epilogue
        def of_row(acc: Any, seed: lapidist.Row) -> Any:
            return lapidist.dropout(acc, 0.1, seed)

    with pytest.raises(ArgumentError, match="a seed must be nothing else; got seed in arithmetic"):

        @lapidist.epilogue
        def twice(acc: Any, seed: lapidist.Scalar) -> Any:
            return lapidist.dropout(acc, 0.1, seed) * seed

    with pytest.raises(ArgumentError, match=r"lapidist\.dropout: belongs into a function"):
        lapidist.dropout(a, 0.1, 1)
