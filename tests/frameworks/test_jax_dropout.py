"""Dropout in JAX: the elements that lapidist.matmul drops, in one launch, in gradients, mapped and spread."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.epilogues.numeric import NUMPY
from lapidist.epilogues.philox import philox

pytestmark = pytest.mark.frameworks
Array = np.ndarray[Any, Any]
M, N = 30, 40


@pytest.fixture
def ours_of_dropout() -> Any:
    return importlib.import_module("lapidist.jax.dropout")


@lapidist.epilogue
def dropped(acc: Any, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, p, seed)


def positive(*shape: int, dtype: str = "f4") -> Array:
    """Whole numbers, none of which is 0: sums are exact, and what is 0 was dropped."""
    return np.random.default_rng(sum(shape)).integers(1, 4, shape).astype(dtype)


def same(found: Any, expected: Any) -> None:
    """Results of one call."""
    of_one = isinstance(expected, tuple)
    assert isinstance(found, tuple) == of_one
    for mine, other in zip(*((each if of_one else (each,)) for each in (found, expected)), strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(np.asarray(mine, "f4"), np.asarray(other, "f4"), rtol=1e-6)


# ---- words ----


def test_words_are_those_of_philox(jax: Any, ours_of_dropout: Any) -> None:
    words = ours_of_dropout
    ends = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 + 12345, 2**64 - 1]
    drawn = np.random.default_rng(1).integers(0, 2**64, 50, np.uint64)
    seeds, numbers = (each.ravel() for each in np.meshgrid(np.r_[np.array(ends, np.uint64), drawn], drawn))
    low, zero, thirty_two = np.uint64(2**32 - 1), np.uint64(0), np.uint64(32)
    expected, *_ = philox(
        (numbers & low, numbers >> thirty_two, zero, zero), (seeds & low, seeds >> thirty_two)
    )
    taken = (
        words.Words(*((each & low).astype("u4"), (each >> thirty_two).astype("u4")))
        for each in (seeds, numbers)
    )
    found = words.first_word_of(*(words.Words(*map(jax.numpy.asarray, each)) for each in taken))
    assert found.dtype == "uint32"
    np.testing.assert_array_equal(found, expected)


def test_products_of_words(ours_of_dropout: Any) -> None:
    ends = np.array([0, 1, 0xFFFF, 0x10000, 0x12345678, 0xFFFF0000, 0xFFFFFFFF, 0xD2511F53], np.uint32)
    x, y = (each.ravel() for each in np.meshgrid(ends, ends))
    expected = (x.astype(np.uint64) * y.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)
    np.testing.assert_array_equal(ours_of_dropout.upper(x, y), expected)


def test_elements_beyond_32_bits(ours_of_dropout: Any) -> None:
    """A part of a D that has many more."""
    shape, counts, at = (2, 3, 5), (4, 2**21, 2**29), (3, 2**21 - 2, 2**29 - 1)
    low, high = ours_of_dropout.numbered(shape, list(zip(at, counts, strict=True)))
    whole = [extent * count for extent, count in zip(shape, counts, strict=True)]
    inside = np.indices(shape).astype(object)
    i, j, k = (each + first * extent for each, first, extent in zip(inside, at, shape, strict=True))
    expected = (i * whole[1] + j) * whole[2] + k
    assert expected.max() >= 2**55
    np.testing.assert_array_equal(
        np.asarray(low).astype(object) + np.asarray(high).astype(object) * 2**32, expected
    )


@pytest.mark.parametrize("p", [-1.0, 0.0, 1e-45, 1e-9, 0.3, 1 - 2**-24, 1.0, 1e38, np.inf, -np.inf, np.nan])
def test_shares(jax: Any, ours_of_dropout: Any, p: float) -> None:
    """Of p that is an array nobody looks at the value."""
    words = ours_of_dropout
    numbers = np.arange(10000, dtype=np.uint64)
    found = words.dropout_mask(words.words_of(3), words.numbered((10000,)), jax.numpy.float32(p))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, NUMPY.kept_by(np.uint64(3), numbers, np.float32(p)))


# ---- the library's elements ----

SEEDS: dict[str, Callable[[Any], Any]] = {
    "number": lambda jax: 3,
    "32 bits": lambda jax: 2**31 + 3,
    "64 bits": lambda jax: 2**64 - 3,
    "of NumPy": lambda jax: np.int64(2**40 + 1),
    "array of NumPy": lambda jax: np.array([2**40 + 1]),
    "negative": lambda jax: np.array(-(2**40)),
    "int32": lambda jax: jax.numpy.int32(7),
    "negative int32": lambda jax: jax.numpy.full((1, 1), -7, "int32"),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("device", [None, "machine"])
def test_it_is_the_library_s(jax: Any, ours: Any, seed: str, device: str | None) -> None:
    a, b = positive(2, M, 3), positive(3, N)
    taken = SEEDS[seed](jax)
    given = dropped(p=0.3, seed=taken)
    known = np.asarray(taken) if isinstance(taken, jax.Array) else taken
    expected = lapidist.matmul(a, b, epilogue=dropped(p=0.3, seed=known))
    assert abs((expected != 0).mean() - 0.7) < 0.05
    call = partial(ours.matmul, epilogue=given, device=device)
    same(call(a, b), expected)
    same(jax.jit(call)(a, b), expected)
    same(jax.vjp(call, a, b)[0], expected)


def test_seeds_of_64_bits(jax: Any, ours: Any) -> None:
    a, b = positive(M, 3), positive(3, N)
    with jax.enable_x64(True):
        for seed in (5, -(2**40) + 1, 2**63 - 1):
            given = jax.numpy.asarray(seed, "int64")
            expected = lapidist.matmul(a, b, epilogue=dropped(p=0.3, seed=np.int64(seed)[None]))
            call = jax.jit(lambda a, s: ours.matmul(a, b, epilogue=dropped(p=0.3, seed=s)))
            same(call(a, given), expected)
            same(jax.vjp(lambda a, call=call, given=given: call(a, given), a)[0], expected)


def test_captured_seeds_and_shares(jax: Any, ours: Any) -> None:
    a, b = positive(M, 3), positive(3, N)
    for p, seed in ((0.0, 1), (0.3, 2**64 - 3), (1 - 2**-40, 5)):
        epilogue = captured(p, seed)
        expected = lapidist.matmul(a, b, epilogue=epilogue)
        call = partial(ours.matmul, epilogue=epilogue)
        same(jax.jit(call)(a, b), expected)
        same(jax.vjp(call, a, b)[0], expected)


def captured(p: float, seed: int) -> Any:
    return lapidist.epilogue(lambda acc: lapidist.dropout(acc, p, seed))


def test_one_launch_for_every_seed(jax: Any, ours: Any) -> None:
    traced: list[Any] = []

    @jax.jit
    def call(a: Any, p: Any, seed: Any) -> Any:
        traced.append(seed)
        return ours.matmul(a, a.T, epilogue=dropped(p=p, seed=seed))

    a = positive(M, 3)
    for p, seed in ((0.3, 1), (0.6, 2), (0.6, -3)):
        expected = lapidist.matmul(a, a.T, epilogue=dropped(p=p, seed=np.array(seed)))
        same(call(a, p, seed), expected)
    assert len(traced) == 1
    text = str(jax.make_jaxpr(call)(a, 0.3, 1))
    assert text.count("lapidist_product[") == 1
    assert "first_word_of" not in text


@pytest.mark.parametrize(
    ("left", "right"), [((7,), (7, 9)), ((9, 7), (7,)), ((7,), (7,)), ((4, 1, 5, 7), (2, 7, 3))]
)
def test_shapes(jax: Any, ours: Any, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = positive(*left), positive(*right)
    call = partial(ours.matmul, epilogue=dropped(p=0.5, seed=1))
    expected = np.asarray(lapidist.matmul(a, b, epilogue=dropped(p=0.5, seed=1)))
    same(jax.jit(call)(a, b), expected)
    same(jax.vjp(call, a, b)[0], expected)


@lapidist.epilogue
def with_bias(acc: Any, bias: lapidist.Row, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(lapidist.relu(acc + bias), 0.25, seed)


def test_linear_and_gemm(jax: Any, ours: Any) -> None:
    x, w, bias = positive(2, 5, 7), positive(6, 7), positive(6)
    given = with_bias(bias=bias, seed=11)
    expected = lapidist.matmul(x, w.T, epilogue=given)
    same(jax.jit(lambda x: ours.linear(x, w, epilogue=given))(x), expected)
    one = lapidist.matmul(x[0, 0], w.T, epilogue=given)
    same(ours.linear(x[0, 0], w, epilogue=given), one)
    scaled = {"alpha": 2.0, "beta": 3.0, "trans_b": True, "epilogue": given}
    same(jax.jit(lambda x: ours.gemm(x, w, bias, **scaled))(x), lapidist.gemm(x, w, bias, **scaled))


@lapidist.epilogue
def several(acc: Any, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    x = lapidist.dropout(acc, p, seed)
    return x, lapidist.column_sum(x), lapidist.row_max(x), lapidist.all_sum(x), lapidist.Output(x > 0, "bool")


@lapidist.epilogue
def in_pairs(acc: lapidist.Pair, p: lapidist.Scalar, seed: lapidist.Scalar, other: lapidist.Scalar) -> Any:
    first, second = lapidist.dropout(acc.first, p, seed), lapidist.dropout(acc.second, 0.5, other)
    return first, lapidist.Quantised(first, "int8"), lapidist.row_sum(lapidist.Pair(first, second))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_several_results(jax: Any, ours: Any, batch: tuple[int, ...]) -> None:
    a, b = positive(*batch, M, 3), positive(3, N)
    for given in (several(p=0.4, seed=2**63 + 7), in_pairs(p=0.4, seed=5, other=2**40)):
        call, expected = partial(ours.matmul, epilogue=given), lapidist.matmul(a, b, epilogue=given)
        same(jax.jit(call)(a, b), expected)
        same(jax.vjp(call, a, b)[0], expected)


# ---- gradients ----


def test_gradients_drop_the_same_elements(jax: Any, ours: Any) -> None:
    a, b, g = positive(M, 3), positive(3, N), positive(M, N)
    given = dropped(p=0.5, seed=2**40)
    mask = lapidist.matmul(a, b, epilogue=given) != 0
    _, back = jax.vjp(partial(ours.matmul, epilogue=given), a, b)
    of_a, of_b = back(jax.numpy.asarray(g))
    kept = np.where(mask, 2 * g, 0)
    np.testing.assert_array_equal(of_a, kept @ b.T)
    np.testing.assert_array_equal(of_b, a.T @ kept)


def test_gradients_of_all_operands(jax: Any, ours: Any) -> None:
    """Of p, too, as of 1 / (1 - p); a traced seed has none."""
    check = importlib.import_module("jax.test_util").check_grads

    def call(a: Any, b: Any, p: Any) -> Any:
        return jax.jit(lambda seed: ours.matmul(a, b, epilogue=several(p=p, seed=seed))[:4])(5)

    with jax.enable_x64(True):
        check(call, (positive(5, 7, dtype="f8"), positive(7, 3, dtype="f8"), np.array(0.3)), order=2)
    a = positive(5, 5)
    loss = lambda a, seed: ours.matmul(a, a, epilogue=dropped(p=0.5, seed=seed)).sum()  # noqa: E731
    of_a, of_seed = jax.jit(jax.grad(loss, argnums=(0, 1), allow_int=True))(a, 3)
    assert of_a.shape == a.shape
    assert of_seed.dtype == jax.dtypes.float0


# ---- vmap ----

MAPPED = ["a", "b", "p", "seed"]


@pytest.mark.parametrize("mapped", [*([name] for name in MAPPED), ["a", "seed"], MAPPED], ids="-".join)
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("epilogue", [dropped, several])
def test_each_example_drops_what_it_would_alone(
    jax: Any, ours: Any, mapped: list[str], batch: tuple[int, ...], epilogue: Any
) -> None:
    own = {"a": positive(*batch, M, 3), "b": positive(3, N), "p": np.float32(0.3), "seed": np.int32(5)}
    given = {
        name: jax.numpy.stack([value, value + value, value + value // 2 if name != "p" else value / 2])
        if name in mapped
        else value
        for name, value in own.items()
    }

    def call(a: Any, b: Any, p: Any, seed: Any) -> Any:
        return ours.matmul(a, b, epilogue=epilogue(p=p, seed=seed))

    over = tuple(0 if name in mapped else None for name in own)
    for found in (jax.vmap(call, over)(*given.values()), jax.jit(jax.vmap(call, over))(*given.values())):
        for at in range(3):
            one = [value[at] if name in mapped else value for name, value in given.items()]
            alone = call(*one)
            mine = tuple(each[at] for each in found) if isinstance(found, tuple) else found[at]
            same(mine, alone)


def test_gradients_for_each_example(jax: Any, ours: Any) -> None:
    x, w, seeds = positive(4, 7), positive(9, 7), np.arange(4, dtype="i4")

    def loss(w: Any, x: Any, seed: Any) -> Any:
        return ours.linear(x, w, epilogue=dropped(p=0.5, seed=seed)).sum()

    found = jax.vmap(jax.grad(loss), (None, 0, 0))(w, x, seeds)
    for at in range(4):
        mask = lapidist.matmul(x[at], w.T, epilogue=dropped(p=0.5, seed=at)) != 0
        np.testing.assert_array_equal(found[at], 2 * mask[:, None] * x[at])


# ---- several devices ----


@pytest.fixture
def put(jax: Any) -> Callable[..., Any]:
    """An array, spread over a mesh of 2 x 2."""
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    sharding, spec = jax.sharding.NamedSharding, jax.sharding.PartitionSpec
    return lambda array, *axes: jax.device_put(array, sharding(mesh, spec(*axes)))


OF_A = [(), ("x",), (None, "x"), ("x", "y"), (None, ("y", "x")), (None, None, "y"), (None, "y", "x")]


@pytest.mark.parametrize("of_a", OF_A)
@pytest.mark.parametrize("of_b", [(), (None, "y"), ("y",), (None, ("x", "y"))])
@pytest.mark.parametrize("epilogue", [dropped, several])
def test_parts_of_d_are_numbered_as_in_the_whole(
    jax: Any, ours: Any, put: Any, of_a: Any, of_b: Any, epilogue: Any
) -> None:
    a, b = positive(2, 8, 4), positive(4, 12)
    call = jax.jit(lambda a, b, seed: ours.matmul(a, b, epilogue=epilogue(p=0.5, seed=seed)))
    expected = lapidist.matmul(a, b, epilogue=epilogue(p=0.5, seed=9))
    same(call(put(a, *of_a), put(b, *of_b), 9), expected)


def test_nothing_is_exchanged_for_it(jax: Any, ours: Any, put: Any) -> None:
    a, b = positive(8, 4), positive(4, 12)
    call = jax.jit(lambda a, b, seed: ours.matmul(a, b, epilogue=dropped(p=0.5, seed=seed)))
    text = call.lower(put(a, "x"), put(b, None, "y"), 9).compile().as_text()
    assert "partition-id" in text
    assert not [
        word for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute") if word in text
    ]


def test_pairs_stay_together(jax: Any, ours: Any, put: Any) -> None:
    a, b, given = positive(2, 8, 4), positive(4, 12), in_pairs(p=0.5, seed=9, other=2)
    call = jax.jit(partial(ours.matmul, epilogue=given))
    expected = lapidist.matmul(a, b, epilogue=given)
    for of_a, of_b in ((("x", "y"), ()), ((None, "x"), (None, "y")), ((None, None, "x"), ("x",))):
        same(call(put(a, *of_a), put(b, *of_b)), expected)


@pytest.mark.parametrize("of_a", [("x",), (None, "x", "y")])
def test_gradients_of_what_is_spread(jax: Any, ours: Any, put: Any, of_a: Any) -> None:
    a, b = positive(2, 8, 4), positive(4, 12)
    loss = lambda a, b, s: (ours.matmul(a, b, epilogue=dropped(p=0.5, seed=s)) ** 2).sum()  # noqa: E731
    both = jax.jit(jax.grad(loss, argnums=(0, 1)))
    for mine, other in zip(both(put(a, *of_a), put(b, None, "y"), 3), both(a, b, 3), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_devices_of_shard_map_count_by_themselves(jax: Any, ours: Any) -> None:
    """Unless they are given seeds of their own, all drop the same."""
    spec = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    a, b = positive(8, 4), positive(4, 12)

    def layer(a: Any, b: Any, seed: Any, of_each: int) -> Any:
        seed = seed + of_each * jax.lax.axis_index("x")
        return ours.matmul(a, b, epilogue=dropped(p=0.5, seed=seed))

    for of_each in (0, 1):
        part = jax.jit(
            jax.shard_map(
                partial(layer, of_each=of_each),
                mesh=mesh,
                in_specs=(spec("x"), spec(), spec()),
                out_specs=spec("x"),
            )
        )
        parts = [
            lapidist.matmul(a[2 * at : 2 * at + 2], b, epilogue=dropped(p=0.5, seed=3 + of_each * at))
            for at in range(4)
        ]
        same(part(a, b, 3), np.concatenate(parts))
        same(jax.vjp(lambda a, part=part: part(a, b, 3), a)[0], np.concatenate(parts))


def test_within_a_manual_axis(jax: Any, ours: Any, put: Any) -> None:
    """What shard_map splits counts by itself, what XLA splits within it as the whole."""
    x, w = positive(8, 16), positive(12, 16)
    spec = jax.sharding.PartitionSpec
    layer = partial(ours.linear, epilogue=dropped(p=0.5, seed=3))
    mesh = put(x).sharding.mesh
    part = jax.shard_map(
        layer, mesh=mesh, in_specs=(spec("x"), spec()), out_specs=spec("x"), axis_names={"x"}
    )
    given = dropped(p=0.5, seed=3)
    expected = np.concatenate([lapidist.matmul(half, w.T, epilogue=given) for half in (x[:4], x[4:])])
    same(jax.jit(part)(put(x, "x"), put(w, "y")), expected)


def test_an_explicit_mesh(jax: Any, ours: Any) -> None:
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    a, b = positive(8, 4), positive(4, 12)
    spread = jax.device_put(a, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x", "y")))
    call = partial(ours.matmul, epilogue=dropped(p=0.5, seed=3))
    with jax.set_mesh(mesh):
        same(jax.jit(call)(spread, b), lapidist.matmul(a, b, epilogue=dropped(p=0.5, seed=3)))
        same(jax.jit(lambda a: jax.vjp(call, a, b)[0])(spread), np.asarray(call(a, b)))


# ---- what travels ----


def test_it_is_read_as_it_was_written() -> None:
    products = importlib.import_module("lapidist.jax.product")
    function = in_pairs.function
    names = tuple(products.Product.name_of(each) for each in function.parameters)
    product = products.Product(("a", "b", *names), epilogue=function)
    assert products.read(products.written(product, ()).encode()) == (product, ())


def test_programs_are_exported(jax: Any, ours: Any) -> None:
    export = importlib.import_module("jax.export")
    call = lambda a, s: ours.matmul(a, a.T, epilogue=dropped(p=0.5, seed=s))  # noqa: E731
    a, seed = positive(4, 4), np.int32(7)
    checks = [export.DisabledSafetyCheck.custom_call("lapidist_product")]
    both = jax.jit(lambda a, s: (call(a, s), jax.grad(lambda a: call(a, s).sum())(a)))
    made = export.export(both, platforms=("cpu", "cuda"), disabled_checks=checks)(a, seed)
    found = made.call(a, seed)
    for mine, other in zip(found, both(a, seed), strict=True):
        np.testing.assert_array_equal(mine, other)


# ---- refusals ----

A = np.ones((2, 2), "f4")
REFUSED: dict[str, Any] = {
    "seed: must be an integer, 0 or more": {"p": 0.5, "seed": -1},
    "seed: must be an integer, 0 or more and below 2": {"p": 0.5, "seed": 2**64},
    "seed: must be an integer, .*got 1.5": {"p": 0.5, "seed": 1.5},
    "seed: must be of int64, int32; got float32": {"p": 0.5, "seed": np.ones((), "f4")},
    "seed: must be of int64, int32; got uint32": {"p": 0.5, "seed": np.ones((), "u4")},
    "seed: must be a number or an array of one element": {"p": 0.5, "seed": np.ones(2, "i4")},
    "seed: must be a number or an array of JAX or NumPy; got list": {"p": 0.5, "seed": [1]},
    "p: must be 0 or more and below 1": {"p": 1.0, "seed": 1},
}


@pytest.mark.parametrize("words", REFUSED)
def test_refusals(jax: Any, ours: Any, words: str) -> None:
    given = dropped(**REFUSED[words])
    with pytest.raises(lapidist.LapidistError, match=words):
        jax.jit(lambda a: ours.matmul(a, a, epilogue=given))(A)
