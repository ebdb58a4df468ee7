"""lapidist.jax on a GPU: on the stream of XLA, in its graphs. Whole numbers keep sums exact."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.dtypes import numpy_dtype

pytestmark = pytest.mark.gpu
# The last ones share tiles, in a workspace.
SHAPES = [(64, 128, 96), (129, 65, 70), (1000, 24, 130), (128, 128, 16384), (77, 256, 8192)]


def drawn(rng: Any, *shape: int, dtype: str = "bfloat16") -> Any:
    return rng.integers(0 if dtype == "uint8" else -2, 3, shape).astype(numpy_dtype(dtype))


def same(found: Any, expected: Any) -> None:
    assert {device.platform for device in found.devices()} == {"gpu"}
    np.testing.assert_array_equal(np.asarray(found).astype("f4"), np.asarray(expected).astype("f4"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_products(jax: Any, ours: Any, rng: np.random.Generator, dtype: str, shape: Any) -> None:
    m, n, k = shape
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, n, k, dtype=dtype)
    out = "int32" if dtype == "int8" else "float32"
    expected = a.astype("f4") @ b.astype("f4").T
    multiply = partial(ours.gemm, trans_b=True, out_dtype=out)
    same(jax.jit(multiply)(a, b), expected)
    same(multiply(a, b), expected)
    if dtype == "float32":
        same(multiply(a, b, precision="tf32"), expected)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_gemm(jax: Any, ours: Any, rng: np.random.Generator, trans_a: bool, batch: tuple[int, ...]) -> None:
    a = drawn(rng, *batch, *((72, 40) if trans_a else (40, 72)))
    b, c = drawn(rng, 72, 24), drawn(rng, 24, dtype="float32")
    rows = np.swapaxes(a, -1, -2) if trans_a else a
    expected = 2 * (rows.astype("f4") @ b.astype("f4")) - 3 * c
    scaled = partial(ours.gemm, alpha=2, beta=-3, trans_a=trans_a, out_dtype="float32")
    same(jax.jit(scaled)(a, b, c), expected)
    if batch:
        same(jax.jit(jax.vmap(scaled, (0, None, None)))(a, b, c), expected)


@pytest.mark.parametrize("shapes", [((), ()), ((40,), (24,)), ((40, 2), (2, 24)), ((1, 2), (2, 1))])
def test_factors_are_read_when_the_program_runs(
    jax: Any, ours: Any, rng: np.random.Generator, shapes: Any
) -> None:
    a, b = drawn(rng, 40, 256, dtype="float8_e4m3fn"), drawn(rng, 256, 24, dtype="float8_e4m3fn")
    multiply = jax.jit(lambda a, b, s, t: ours.matmul(a, b, scale_a=s, scale_b=t))
    for _ in range(2):
        s, t = (np.exp2(rng.integers(-2, 3, shape)).astype("f4") for shape in shapes)
        same(multiply(a, b, s, t), lapidist.matmul(a, b, scale_a=s, scale_b=t))


@lapidist.epilogue
def followed(
    acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, number: lapidist.Scalar
) -> Any:
    return lapidist.relu(acc + row) * column + tile * number


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_epilogues_read_their_operands_when_the_program_runs(
    jax: Any, ours: Any, rng: np.random.Generator, shape: Any, batch: tuple[int, ...]
) -> None:
    m, n, k = shape
    a, b = drawn(rng, *batch, m, k), drawn(rng, k, n)
    more = {"row": (n,), "column": (m,), "tile": (*batch, m, n), "number": ()}
    call = jax.jit(lambda a, b, more: ours.matmul(a, b, out_dtype="float32", epilogue=followed(**more)))
    for _ in range(2):
        row, column, tile, number = given = [drawn(rng, *each, dtype="float32") for each in more.values()]
        sums = a.astype("f4") @ b.astype("f4")
        expected = np.maximum(sums + row, 0) * column[:, None] + tile * number
        same(call(a, b, dict(zip(more, given, strict=True))), expected)


@lapidist.epilogue
def dropped(acc: Any, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc * 0 + 1, p, seed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_dropout_keeps_what_the_host_keeps(
    jax: Any, ours: Any, rng: np.random.Generator, shape: Any, batch: tuple[int, ...]
) -> None:
    """In the launch, with gradients, and mapped, where each example counts by itself."""
    m, n, k = shape
    a, b = drawn(rng, *batch, m, k), drawn(rng, k, n)

    def call(a: Any, b: Any, p: Any, seed: Any) -> Any:
        return ours.matmul(a, b, out_dtype="float32", epilogue=dropped(p=p, seed=seed))

    launched, recorded = jax.jit(call), jax.jit(lambda *given: jax.vjp(call, *given)[0])
    each = jax.jit(jax.vmap(call, (None, None, None, 0)))
    for p, seeds in ((0.3, (5, -7)), (0.6, (2**31 - 1, 0))):
        expected = []
        for seed in seeds:
            given = dropped(p=p, seed=np.array(seed))
            kept = lapidist.matmul(a, b, out_dtype="float32", epilogue=given) != 0
            same(launched(a, b, p, seed) != 0, kept)
            same(recorded(a, b, p, seed) != 0, kept)
            expected.append(kept)
        same(each(a, b, p, np.array(seeds, "i4")) != 0, np.stack(expected))


def test_nothing_to_multiply(jax: Any, ours: Any) -> None:
    ones = partial(np.ones, dtype="f4")
    same(jax.jit(ours.matmul)(ones((5, 0)), ones((0, 3))), np.zeros((5, 3)))
    same(jax.jit(ours.matmul)(ones((0, 5)), ones((5, 3))), np.zeros((0, 3)))
    same(jax.jit(partial(ours.gemm, beta=2))(ones((5, 0)), ones((0, 3)), ones(3)), np.full((5, 3), 2))


def network(multiply: Any, weights: Any, x: Any) -> Any:
    for w in weights:
        x = multiply(x, w)
        x = x - x.astype("int32") // 5 * 5  # small whole numbers again
    return x


@pytest.mark.parametrize("rows", [16, 256])
def test_a_chain_in_graphs(
    jax: Any, ours: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """XLA captures it: new inputs and weights give right results again and again, and in the end no Python
    runs. When that is depends on where XLA finds room, and so on which copies to the GPU have ended.
    """
    handlers = importlib.import_module("lapidist.jax.handlers")
    asked: list[bytes] = []
    ready = handlers.ready
    monkeypatch.setattr(handlers, "ready", lambda text, *more: (asked.append(text), ready(text, *more))[1])
    chain = jax.jit(partial(network, ours.linear))
    stock = jax.jit(partial(network, lambda x, w: (x @ w.T).astype(x.dtype)))
    counts, kept = [], []
    for turn in range(60):
        if turn < 8:
            weights = tuple(jax.numpy.asarray(drawn(rng, 4096, 4096, dtype="float16")) for _ in range(2)) * 4
            x = jax.numpy.asarray(drawn(rng, rows, 4096, dtype="float16"))
        else:
            # Nothing else is made or freed from here on: XLA captures anew when an address changes.
            weights, x = kept[0]
        if turn < 4:
            kept.append((weights, x))
        before = len(asked)
        found = chain(weights, x).block_until_ready()
        counts.append(len(asked) - before)
        same(found, stock(weights, x))
        del found
        if turn > 8 and not counts[-1]:
            break
    assert counts[0] > 0
    assert counts[-1] == 0, counts


def test_gradients(jax: Any, ours: Any, rng: np.random.Generator) -> None:
    x, w = (jax.numpy.asarray(rng.standard_normal((256, 256)), "float32") for _ in "xw")

    def loss(layer: Any, x: Any, w: Any) -> Any:
        return (jax.nn.tanh(layer(x, w)) ** 2).mean()

    stock = partial(loss, lambda x, w: jax.numpy.matmul(x, w.T, precision="highest"))
    mine = jax.jit(jax.grad(partial(loss, ours.linear), argnums=(0, 1)))(x, w)
    theirs = jax.jit(jax.grad(stock, argnums=(0, 1)))(x, w)
    for found, expected in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_the_machine_is_for_arrays_on_the_host(jax: Any, ours: Any) -> None:
    with pytest.raises(lapidist.ArgumentError, match="device: 'machine' takes"):
        jax.jit(partial(ours.matmul, device="machine"))(np.ones((2, 2)), np.ones((2, 2)))


@lapidist.epilogue
def kept(acc: Any, row: lapidist.Row) -> Any:
    before = acc + row
    return lapidist.relu(before), before, lapidist.Output(before > 0, "bool")


@lapidist.epilogue
def reduced(acc: Any) -> Any:
    return acc, lapidist.row_sum(acc), lapidist.column_amax(acc), lapidist.amax(acc), lapidist.all_sum(acc)


@lapidist.epilogue
def turned(acc: lapidist.Pair) -> Any:
    return lapidist.Pair(acc.second, acc.first), acc.first - acc.second


@lapidist.epilogue
def small(acc: Any) -> Any:
    return lapidist.Output(acc * 0.125, "int8")


RESULTS = {
    "kept": lambda n: kept(row=np.arange(n, dtype="f4") % 5 - 2),
    "reduced": lambda n: reduced,
    "turned": lambda n: turned,
    "small": lambda n: small,
    "groups": lambda n: lapidist.epilogues.quantise_e4m3_groups,
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_results_of_epilogues(
    jax: Any, ours: Any, rng: np.random.Generator, name: str, shape: Any, batch: tuple[int, ...]
) -> None:
    """As the host has them, where XLA made the arrays, again and again."""
    m, n, k = shape[0], shape[1] + shape[1] % 2, shape[2]
    epilogue = RESULTS[name](n)
    call = jax.jit(partial(ours.matmul, epilogue=epilogue))
    for _ in range(3):
        a, b = drawn(rng, *batch, m, k), drawn(rng, k, n)
        found, expected = call(a, b), lapidist.matmul(a, b, epilogue=epilogue)
        pairs = zip(
            *(each if isinstance(each, tuple) else (each,) for each in (found, expected)), strict=True
        )
        for mine, other in pairs:
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
            same(mine, other)


def test_swiglu_has_gradients(jax: Any, ours: Any, rng: np.random.Generator) -> None:
    x, w = (jax.numpy.asarray(rng.standard_normal((256, 256)), "float32") for _ in "xw")

    def loss(layer: Any, x: Any, w: Any) -> Any:
        return (layer(x, w) ** 2).mean()

    def stock(x: Any, w: Any) -> Any:
        rows = jax.numpy.matmul(x, w.T, precision="highest")
        return jax.nn.silu(rows[:, ::2]) * rows[:, 1::2]

    mine = partial(ours.linear, epilogue=lapidist.epilogues.swiglu)
    # sums err by 1e-5, and are multiplied by others of up to 60
    np.testing.assert_allclose(jax.jit(mine)(x, w), stock(x, w), rtol=1e-4, atol=6e-4)
    found, expected = (jax.jit(jax.grad(partial(loss, each), argnums=(0, 1)))(x, w) for each in (mine, stock))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_reductions_in_graphs(jax: Any, ours: Any, rng: np.random.Generator) -> None:
    """What second passes read has room of XLA's own, so that a replayed graph finds it."""
    call = jax.jit(lambda x, w: [ours.matmul(x, w, epilogue=reduced) for _ in range(4)])
    for _ in range(8):
        x, w = drawn(rng, 64, 1024), drawn(rng, 1024, 96)
        expected = lapidist.matmul(x, w, epilogue=reduced)
        for found in call(x, w):
            for mine, other in zip(found, expected, strict=True):
                same(mine, other)


@pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_emulated(jax: Any, ours: Any, rng: np.random.Generator, precision: Any, batch: Any) -> None:
    """Also where slices do not reach, and in a program that XLA may capture."""
    a = rng.standard_normal((*batch, 129, 1001)).astype(np.float32)
    b = rng.standard_normal((1001, 300)).astype(np.float32)
    product = jax.jit(lambda a, b: ours.matmul(a, b, precision=precision) + 0)
    for _ in range(3):
        found = np.asarray(product(a, b))
        bound = 2.0**-20 * (np.abs(a).astype("f8") @ np.abs(b).astype("f8"))
        assert (np.abs(found - a.astype("f8") @ b.astype("f8")) <= bound).all()
    a[..., 5, 7] = 1e20
    row = np.asarray(product(a, b))[..., 5, :]
    np.testing.assert_allclose(row, (a.astype("f8") @ b.astype("f8"))[..., 5, :], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(64, 96), (3, 1000, 250), (2048, 2048)])
def test_gram(jax: Any, ours: Any, rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> None:
    a = drawn(rng, *shape, dtype=dtype)
    wide = a.astype("f4")
    expected = wide @ np.swapaxes(wide, -1, -2)
    gram = jax.jit(partial(ours.gram, out_dtype="float32"))
    for _ in range(2):
        same(gram(a), expected)


@pytest.mark.parametrize("shape", [(64, 96), (3, 1000, 250), (2048, 2048)])
def test_symmetric_products(jax: Any, ours: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    """A S A^T, of which half of the tiles are multiplied."""
    a, s = drawn(rng, *shape, dtype="bfloat16"), rng.integers(-1, 2, (*shape[:-2], shape[-1], 1))
    wide = a.astype("f4")
    scaled = (wide * np.swapaxes(s, -1, -2)).astype(a.dtype)
    product = jax.jit(partial(ours.matmul, symmetric=True, out_dtype="float32"))
    for _ in range(2):
        same(product(scaled, np.swapaxes(a, -1, -2)), scaled.astype("f4") @ np.swapaxes(wide, -1, -2))
