"""invariant=True and lapidist.invariant(): rows of every kind of call; what breaks the promise is refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls.operation import OPEN_BLOCKS
from lapidist.calls.repeat.shape import key_of_product
from lapidist.errors import ArgumentError, LapidistError, RefusalError

Array = np.ndarray[Any, Any]
MACHINE: dict[str, Any] = {"device": "machine"}
K, N = 512, 48  # few tiles and a long k: the free choice cuts k


def spread(rng: np.random.Generator, *shape: int, dtype: Any = np.float16) -> Array:
    """Numbers of many sizes, so that sums round."""
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-5, 6, shape))).astype(dtype)


@pytest.fixture
def a(rng: np.random.Generator) -> Array:
    return spread(rng, 40, K)


@pytest.fixture
def b(rng: np.random.Generator) -> Array:
    return np.asfortranarray(spread(rng, K, N))


def bits(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def same(first: Array, second: Array) -> None:
    np.testing.assert_array_equal(bits(np.ascontiguousarray(first)), bits(np.ascontiguousarray(second)))


# ---- rows of every kind of call ----


@pytest.mark.often(2)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_alone_in_a_batch_in_a_list_and_in_a_group(rng: np.random.Generator, dtype: Any) -> None:
    a, b = spread(rng, 2, 40, 256, dtype=dtype), spread(rng, 256, 24, dtype=dtype)
    how = {**MACHINE, "invariant": True}
    expected = lapidist.matmul(a[0], b, **how)
    same(lapidist.matmul(a[0, 5], b, **how), expected[5])
    same(lapidist.matmul(a[0, 5:6], b, **how), expected[5:6])
    batch = lapidist.matmul(np.ascontiguousarray(a[:, :7]), np.stack([b, b]), **how)
    same(batch[0], expected[:7])
    listed = lapidist.gemm([a[0, :3], a[1, :3]], [b, b], **how)
    same(listed[0], expected[:3])
    same(lapidist.grouped(a[0], np.stack([b, b]), np.int32([9, 40]), **how), expected)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("dtype", "n", "k"), [(np.float16, 24, 3072), (np.float32, 40, 1000), (np.float64, 40, 1000)]
)
def test_rows_of_groups_where_the_order_cuts_k(rng: np.random.Generator, dtype: Any, n: int, k: int) -> None:
    """In every form of groups: ends, counts, and rows that are gathered."""
    a, weights = spread(rng, 40, k, dtype=dtype), spread(rng, 3, n, k, dtype=dtype)
    b, how = weights.swapaxes(1, 2), {**MACHINE, "invariant": True}
    order = lapidist.plan(a, b[0], **how).sum_order
    assert isinstance(order, lapidist.SumOrder)
    assert order.cuts is not None
    alone = [lapidist.matmul(a, matrix, **how) for matrix in b]
    ends = np.int32([1, 23, 40])
    expected = np.concatenate([alone[0][:1], alone[1][1:23], alone[2][23:]])
    of_groups = lapidist.plan(a, b, offsets=ends, **how).sum_order
    assert isinstance(of_groups, lapidist.SumOrder)
    assert str(of_groups.cuts).split(", added")[0] == str(order.cuts).split(", added")[0]
    same(lapidist.grouped(a, b, ends, **how), expected)
    index = rng.permutation(40).astype(np.int32)
    gathered = lapidist.grouped(a[np.argsort(index)], b, ends, gather_a=index, **how)
    same(gathered, expected)
    counted = lapidist.grouped(np.stack([a, a, a]), b, counts=np.int32([9, 0, 40]), **how)
    same(counted[0, :9], alone[0][:9])
    same(counted[2], alone[2])


def test_groups_of_any_length_give_rows_the_same_bits(a: Array, b: Array) -> None:
    experts = np.stack([b, b, b])
    first, second = (
        lapidist.grouped(a, experts, np.int32(ends), invariant=True, **MACHINE)
        for ends in ([1, 2, 40], [20, 20, 40])
    )
    same(first, second)


def test_gathered_and_scattered_rows(rng: np.random.Generator, a: Array, b: Array) -> None:
    how = {**MACHINE, "invariant": True}
    expected = lapidist.gemm(a, b, **how)
    same(lapidist.gemm(a, b, gather_a=np.int32([7, 3, 39]), **how), expected[[7, 3, 39]])


def test_rows_with_alpha_and_c(rng: np.random.Generator, a: Array, b: Array) -> None:
    c, how = spread(rng, 40, N), {**MACHINE, "invariant": True, "alpha": 1.3, "beta": 0.7}
    same(lapidist.gemm(a[4:9], b, c[4:9], **how), lapidist.gemm(a, b, c, **how)[4:9])


def test_rows_with_a_function_behind_them(rng: np.random.Generator, a: Array, b: Array) -> None:
    """Each of its steps is rounded, whatever kernel it is compiled into."""

    @lapidist.epilogue
    def scaled(x: Any, bias: lapidist.Row) -> Any:
        return lapidist.gelu(x * 1.7 + bias * 0.3) * x + bias

    bias = spread(rng, N, dtype=np.float32)
    how = {**MACHINE, "invariant": True, "out_dtype": np.float32, "epilogue": scaled(bias=bias)}
    expected = lapidist.matmul(a, b, **how)
    plans = [lapidist.plan(a, b, kernel="wgmma", **how, config=config) for config in wgmma_configs(a, b)]
    assert len(plans) > 1
    for plan in plans:
        same(plan.execute(a, b), expected)
    free = lapidist.plan(a, b, **{**how, "invariant": False}).sum_order
    assert plans[0].sum_order != free
    same(lapidist.matmul(a[11:13], b, **how), expected[11:13])


def test_each_step_of_a_function_is_rounded(rng: np.random.Generator, a: Array, b: Array) -> None:
    """Bit for bit as NumPy's steps; a multiplication that is fused with an addition would not be."""

    @lapidist.epilogue
    def moved(x: Any, bias: lapidist.Row) -> Any:
        return x * 1.7 + bias

    bias = spread(rng, N, dtype=np.float32)
    how = {**MACHINE, "invariant": True, "out_dtype": np.float32}
    sums = lapidist.matmul(a, b, **how)
    same(lapidist.matmul(a, b, epilogue=moved(bias=bias), **how), sums * np.float32(1.7) + bias)


def wgmma_configs(a: Array, b: Array) -> list[Any]:
    """Of a few tiles, as they are and with A and B exchanged."""
    plan = lapidist.plan(a, b, **MACHINE).plan
    assert plan is not None
    listed = [config for config, _ in lapidist.kernel_named("wgmma").configs_for("float16")]
    plain = [config for config in listed if not config.skewed and config.bm * config.bn <= 64 * 128]
    return [
        next(config for config in plain if not config.exchanged and config.cluster == 1),
        next(config for config in plain if config.exchanged),
    ]


# ---- a block ----


def asks(a: Array, b: Array, **more: Any) -> bool:
    plan = lapidist.plan(a, b, **MACHINE, **more).plan
    assert plan is not None
    return plan.problem.invariant


def test_a_block_counts_where_the_call_does_not_say(a: Array, b: Array) -> None:
    assert not asks(a, b)
    assert asks(a, b, invariant=True)
    with lapidist.invariant():
        assert asks(a, b)
        assert not asks(a, b, invariant=False)
        with lapidist.invariant(False):
            assert not asks(a, b)
            assert asks(a, b, invariant=True)
        assert asks(a, b)
    assert not asks(a, b)
    assert OPEN_BLOCKS == []


def test_a_block_ends_with_an_error_and_may_be_opened_again(a: Array, b: Array) -> None:
    block = lapidist.invariant()
    for _ in range(2):
        with block, block:
            assert asks(a, b)
        with pytest.raises(LapidistError, match="b: must have as many rows"), block:
            lapidist.matmul(a, b[1:])
        assert not asks(a, b)
    assert OPEN_BLOCKS == []


def test_a_block_is_of_its_thread(a: Array, b: Array) -> None:
    answers: list[bool] = []
    with lapidist.invariant():
        thread = threading.Thread(target=lambda: answers.append(asks(a, b)))
        thread.start()
        thread.join()
        assert asks(a, b)
    assert answers == [False]


def test_a_block_is_of_its_task(a: Array, b: Array) -> None:
    async def with_a_block(opened: asyncio.Event, ended: asyncio.Event) -> bool:
        with lapidist.invariant():
            opened.set()
            await ended.wait()
            return asks(a, b)

    async def without(opened: asyncio.Event, ended: asyncio.Event) -> bool:
        await opened.wait()
        answer = asks(a, b)
        ended.set()
        return answer

    async def both() -> list[bool]:
        events = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(with_a_block(*events), without(*events))

    assert asyncio.run(both()) == [True, False]


def test_contractions_ask_for_it_too(a: Array, b: Array) -> None:
    with lapidist.invariant(), pytest.raises(ArgumentError, match="invariant: holds for kernels"):
        lapidist.einsum("mk,kn->mn", a, b)


def test_keys_of_repeated_calls_tell_the_two_apart() -> None:
    from lapidist.calls.operation import USUAL_TYPES, types_named

    torch_like = type("Flat", (), {"shape": (2, 2), "dtype": "f2", "is_cuda": True})()
    torch_like.is_contiguous = lambda: True
    invariant = types_named(None, None, "ieee", None, True)
    assert invariant is types_named(None, None, "ieee", None, True)
    keys = {key_of_product(torch_like, torch_like, None, types) for types in (USUAL_TYPES, invariant)}
    assert len(keys) == 2


# ---- refused ----


@pytest.mark.parametrize(
    "more",
    [
        {"split_k": 2},
        {"split_k": 1},
        {"schedule": "stream_k"},
        {"schedule": "data_parallel"},
        {"reduction": "cluster"},
        {"deterministic": False},
    ],
)
def test_what_decides_where_k_is_cut_is_refused(a: Array, b: Array, more: dict[str, Any]) -> None:
    (name,) = more
    for call in (lapidist.gemm, lapidist.plan):
        with pytest.raises(ArgumentError, match=rf"{name}: would cut k otherwise .* Leave one of them out"):
            call(a, b, invariant=True, **more, **MACHINE)  # type: ignore[operator]


def test_fewer_multiprocessors_keep_the_order(a: Array, b: Array) -> None:
    plans = [lapidist.plan(a, b, invariant=True, avail_sms=sms, **MACHINE) for sms in (None, 3)]
    assert plans[0].sum_order == plans[1].sum_order


def test_kernels_and_configs_of_another_order_are_refused(a: Array, b: Array) -> None:
    how = {**MACHINE, "invariant": True}
    with pytest.raises(RefusalError, match=r"(?s)kernel: simt does not sum .* Leave it out, or pass"):
        lapidist.gemm(a, b, kernel="simt", **how)
    config = lapidist.kernel_named("mma").config
    with pytest.raises(RefusalError, match=r"(?s)config: mma .* does not sum .* Leave it out, or pass"):
        lapidist.gemm(a, b, kernel="mma", config=config, **how)
    with pytest.raises(ArgumentError, match="config: belongs to one kernel"):
        lapidist.gemm(a, b, config=config, **how)
    assert lapidist.gemm(a, b, kernel="wgmma", **how).shape == (40, N)


def test_a_workspace_changes_no_bit(rng: np.random.Generator) -> None:
    a, b = spread(rng, 9, 4096, dtype=np.float32), spread(rng, 4096, 16, dtype=np.float32)
    how = {**MACHINE, "invariant": True}
    expected, memory = lapidist.gemm(a, b, **how), np.zeros(4096, np.uint8)
    room = memory[-memory.ctypes.data % 256 :]  # as frameworks on a GPU align theirs
    for rows in (9, 2):
        assert np.array_equal(lapidist.gemm(a[:rows], b, workspace=room, **how), expected[:rows])


def test_emulated_products_are_refused(rng: np.random.Generator) -> None:
    """What they are multiplied by follows from all rows."""
    a = spread(rng, 16, 64, dtype=np.float32)
    with pytest.raises(ArgumentError, match=r"precision: 'emulated' looks at all rows .* Leave one of them"):
        lapidist.matmul(a, a.T.copy(), precision="emulated", invariant=True, **MACHINE)


def test_functions_that_the_compiler_rounds_are_refused(rng: np.random.Generator) -> None:
    a = spread(rng, 16, 64, dtype=np.float32)
    square = lapidist.epilogue(lambda x: x * x + 1.0)
    with pytest.raises(RefusalError, match=r"(?s)epilogue: no kernel rounds each step .* Apply it to the"):
        lapidist.matmul(a, a.T.copy(), epilogue=square, invariant=True, **MACHINE)


def test_host_arrays_are_refused(a: Array, b: Array) -> None:
    words = r'invariant: holds for kernels, and NumPy multiplies .* Pass device="machine"'
    for call in (lapidist.matmul, lapidist.gemm, lapidist.plan):
        with pytest.raises(ArgumentError, match=words):
            call(a, b, invariant=True)  # type: ignore[operator]
    with pytest.raises(ArgumentError, match=words):
        lapidist.gemm([a], [b], invariant=True)
    with lapidist.invariant(), pytest.raises(ArgumentError, match=words):
        lapidist.matmul(a, b)


@pytest.mark.parametrize("value", [1, "yes", 0.0])
def test_a_flag_that_is_none_is_refused(a: Array, b: Array, value: Any) -> None:
    for call in (lapidist.matmul, lapidist.gemm, lapidist.plan):
        with pytest.raises(ArgumentError, match="invariant: must be True or False"):
            call(a, b, invariant=value)
    with pytest.raises(LapidistError, match="on: must be True or False"):
        lapidist.invariant(value)
