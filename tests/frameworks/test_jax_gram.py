"""Symmetric products of lapidist.jax. gram: exactly symmetric, its gradient is one product, and the mirror
follows on a GPU. matmul(symmetric=True): as gram, with matmul's gradients."""

from __future__ import annotations

import importlib
import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends.machine_backend import MachineBackend
from lapidist.errors import ShapeError

pytestmark = pytest.mark.frameworks

jax = pytest.importorskip("jax")
import lapidist.jax as lj  # noqa: E402


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("device", [None, "machine"])
def test_against_jax(rng: np.random.Generator, trans: bool, device: Any) -> None:
    a = rng.standard_normal((2, 9, 7)).astype(np.float32)
    n = 7 if trans else 9
    c = rng.standard_normal((n, n)).astype(np.float32)
    c, weights = c + c.T, rng.standard_normal((2, n, n)).astype(np.float32)

    def ours(a: Any, c: Any) -> Any:
        return jax.vmap(lambda a: lj.gram(a, c, trans=trans, alpha=0.5, beta=2.0, device=device))(a)

    def theirs(a: Any, c: Any) -> Any:
        left, right = (a.swapaxes(-2, -1), a) if trans else (a, a.swapaxes(-2, -1))
        return 0.5 * left @ right + 2.0 * c

    d = jax.jit(ours)(a, c)
    np.testing.assert_array_equal(d, np.swapaxes(d, -2, -1))
    np.testing.assert_allclose(d, theirs(a, c), rtol=1e-5, atol=1e-5)
    gradients = (jax.grad(lambda a, c, f=f: (f(a, c) * weights).sum(), (0, 1))(a, c) for f in (ours, theirs))
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_gradient_is_one_product() -> None:
    program = str(jax.make_jaxpr(jax.grad(lambda a: lj.gram(a).sum()))(np.ones((9, 7), np.float32)))
    assert program.count("lapidist_product[") == 2


@lapidist.epilogue
def squashed(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return lapidist.tanh(acc * scale) + base


@lapidist.epilogue
def scaled(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return acc * scale + base


def nearly_symmetric(x: Any) -> Any:
    """A matrix that equals its conjugated transpose but for rounding: a result that does is mirrored."""
    x = x + x.conj().T
    return x + np.float32(1e-6) * np.triu(x, 1)


@pytest.mark.parametrize(("dtype", "trans"), [("f4", False), ("c8", True)])
def test_epilogues_and_their_gradients(rng: Any, dtype: str, trans: bool) -> None:
    """Of a batch in one product, of mapped matrices with numbers of their own, and of XLA's functions."""

    def random(*shape: int) -> Any:
        numbers = rng.standard_normal(shape)
        return (numbers + 1j * rng.standard_normal(shape) if dtype == "c8" else numbers).astype(dtype)

    n, is_complex = (7, dtype == "c8") if trans else (9, dtype == "c8")
    a, base, c, weights = random(2, 9, 7), random(n, n), random(n, n), random(2, n, n)
    base, c, scale = nearly_symmetric(base), c + c.conj().T, np.float32([0.5, 0.25])
    followed = scaled if is_complex else squashed

    def ours(a: Any, c: Any, scale: Any, base: Any) -> Any:
        epilogue = followed(scale=scale, base=base)
        how: Any = {"alpha": 0.5, "beta": 2.0, "trans": trans}
        return lj.gram(a, c, epilogue=epilogue, symmetric=("base",), **how)

    def theirs(a: Any, c: Any, scale: Any, base: Any) -> Any:
        of_a = a.swapaxes(-2, -1).conj()
        sums = (0.5 * (of_a @ a if trans else a @ of_a) + 2.0 * c) * scale
        return (sums if is_complex else jax.numpy.tanh(sums)) + base

    def loss(f: Any, *operands: Any) -> Any:
        return (f(*operands) * weights).sum().real

    operands = a, c, scale[0], base
    d = np.asarray(jax.jit(ours)(*operands))
    np.testing.assert_array_equal(d, d.conj().swapaxes(-2, -1))
    np.testing.assert_allclose(d, theirs(*operands), rtol=1e-4, atol=1e-4)
    (value, found), (right, expected) = (
        jax.jit(jax.value_and_grad(partial(loss, f), (0, 1, 2, 3)))(*operands) for f in (ours, theirs)
    )
    np.testing.assert_allclose(value, right, rtol=1e-3, atol=1e-3)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    mapped_operands: Any = (
        ((0, None, 0, None), (a, c, scale, base)),
        ((0, None, None, 0), (a, c, scale[0], np.stack([base, 2 * base]))),
        ((None, 0, None, None), (a[0], np.stack([c, 2 * c]), scale[0], base)),
    )
    for dims, parts in mapped_operands:
        mapped = (np.asarray(jax.vmap(f, dims)(*parts)) for f in (ours, theirs))
        np.testing.assert_allclose(*mapped, rtol=1e-4, atol=1e-4)


def test_an_epilogue_is_in_the_same_operation() -> None:
    """Without a gradient. Emulated sums are those of XLA's function."""
    a = np.ones((9, 300), np.float32)
    for epilogue, half in ((lapidist.epilogues.relu, "both"), (squashed(scale=1.0, base=a[:, :9]), "copied")):
        program = str(
            jax.make_jaxpr(
                lambda a, e=epilogue, h=half: lj.gram(
                    a, epilogue=e, symmetric=() if h == "both" else ("base",)
                )
            )(a)
        )
        assert program.count("lapidist_product[") == 1
        assert f"triangle={half}" in program.replace("'", "").replace('"', "")
        assert "tanh" not in program.replace("Step", "").split("]")[-1]
    d = np.asarray(lj.gram(a, precision="emulated", epilogue=lapidist.epilogues.relu))
    np.testing.assert_array_equal(d, np.full((9, 9), 300))


def test_a_c_of_another_shape() -> None:
    with pytest.raises(ShapeError, match="c: "):
        lj.gram(np.ones((4, 7), np.float32), np.ones((5, 5), np.float32), beta=1.0)


def test_the_mirror_follows_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    several, products = (
        importlib.import_module(f"lapidist.jax.{x}") for x in ("several_launches", "product")
    )
    log: list[Any] = []
    monkeypatch.setattr(several, "backend_at", lambda place: MachineBackend())
    kernel = lambda launch, ordinal: SimpleNamespace(  # noqa: E731
        start_with=lambda brought, stream, scalars, at: log.append((launch.grid[0], stream, at))
    )
    monkeypatch.setattr(several, "kernel_alone", kernel)
    product = products.Product(("a", "b"), trans_b=True, triangle="lower")
    outlines = [((3, 128, 64), "bfloat16")] * 2
    bound = product.bound(products.operands_of(outlines, product.arrays, 0))
    first = SimpleNamespace(room=96, start=lambda pointers, stream: log.append("product"))
    mirrored = several.Mirrored(first, bound, 0)
    mirrored.start((0x100, 0x100, 0x200, 0x300), 5)
    assert mirrored.room == 96
    assert log == ["product", (3 * 3, 5, (0x200, 0, 0, 0x200))]


# ---- products that the caller knows to be symmetric ----


def of_both_sides(rng: np.random.Generator, dtype: str = "f4") -> tuple[Any, Any]:
    """A S and A^T, of a batch."""
    a, s = rng.standard_normal((2, 9, 7)), rng.standard_normal((7, 7))
    return (a @ (s + s.T)).astype(dtype), a.swapaxes(-2, -1).astype(dtype)


def mirror_of(d: Any) -> Any:
    """The lower triangle and its mirror image."""
    lower = np.tril(d)
    return lower + np.tril(lower, -1).swapaxes(-2, -1)


@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize("how", [{}, {"out_dtype": "bfloat16"}, {"precision": "emulated"}])
def test_half_of_a_product_is_computed(rng: np.random.Generator, device: Any, how: Any) -> None:
    """Of one that is symmetric, and of one that is not, whose upper triangle is then another."""
    a, b = of_both_sides(rng)
    ours = jax.jit(partial(lj.matmul, symmetric=True, device=device, **how))
    np.testing.assert_allclose(np.asarray(ours(a, b), "f4"), a @ b, rtol=1e-2, atol=0.1)
    a, b = rng.integers(-3, 4, a.shape).astype("f4"), rng.integers(-3, 4, b.shape).astype("f4")
    np.testing.assert_array_equal(np.asarray(ours(a, b), "f4"), mirror_of(a @ b))


def test_transforms(rng: np.random.Generator) -> None:
    """Gradients of any weights, tangents that are not symmetric, and batches of one operand or both."""
    ours, theirs = jax.jit(partial(lj.matmul, symmetric=True)), jax.numpy.matmul
    operands = of_both_sides(rng)
    moves = tuple(rng.standard_normal(operand.shape).astype("f4") for operand in operands)
    weights = rng.standard_normal((2, 9, 9)).astype("f4")
    a, b = (operand[0] for operand in operands)

    def found(f: Any) -> Any:
        gradient = jax.grad(lambda *operands: (f(*operands) * weights).sum(), (0, 1))
        return (
            *jax.jvp(f, operands, moves),
            *gradient(*operands),
            jax.jvp(gradient, operands, moves)[1],
            jax.linear_transpose(lambda a: f(a, operands[1]), operands[0])(weights),
            jax.vmap(f)(*operands),
            jax.vmap(f, (0, None))(np.stack([a, 2 * a]), b),
            jax.vmap(f, (None, 2))(a, np.stack([b, 2 * b], 2)),
        )

    results = zip(*(jax.tree.leaves(found(f)) for f in (ours, theirs)), strict=True)
    for one, other in results:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("how", [{}, {"precision": "emulated"}])
def test_epilogues_of_known_products(rng: np.random.Generator, how: Any) -> None:
    """In the same operation without gradients; symmetric bit by bit, and right in both halves, with them."""
    a, b = of_both_sides(rng)
    base, weights = rng.standard_normal((9, 9)).astype("f4"), rng.standard_normal((2, 9, 9)).astype("f4")
    base, numbers = nearly_symmetric(base), np.float32([0.1, 0.2])

    def ours(a: Any, b: Any, scale: Any, base: Any) -> Any:
        return lj.matmul(a, b, epilogue=squashed(scale=scale, base=base), symmetric=("base",), **how)

    def theirs(a: Any, b: Any, scale: Any, base: Any) -> Any:
        return jax.numpy.tanh(a @ b * scale) + base

    operands = a, b, numbers[0], base
    assert str(jax.make_jaxpr(ours)(*operands)).count("lapidist_product[") == 1
    d, (with_gradient, back) = jax.jit(ours)(*operands), jax.vjp(ours, *operands)
    for result in (d, with_gradient, jax.vmap(ours, (0, 0, 0, None))(a, b, numbers, base)):
        np.testing.assert_array_equal(result, np.swapaxes(result, -2, -1))
    expected, back_of_jax = jax.vjp(theirs, *operands)
    np.testing.assert_allclose(d, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(with_gradient, expected, rtol=1e-3, atol=1e-3)
    for one, other in zip(back(weights), back_of_jax(weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    mapped = (jax.vmap(f, (0, 0, 0, None))(a, b, numbers, base) for f in (ours, theirs))
    np.testing.assert_allclose(*mapped, rtol=1e-3, atol=1e-3)


def test_a_known_product_is_mirrored_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always, but for one half alone: A S times A^T is not symmetric bit by bit, as A A^T may be. What an
    earlier version wrote is gram.
    """
    handlers, products = (importlib.import_module(f"lapidist.jax.{name}") for name in ("handlers", "product"))

    class Ready:
        stores_both_halves = False

        def __init__(self, product: Any, *given: Any) -> None:
            self.triangle = product.triangle

    monkeypatch.setattr(handlers, "is_symmetric_anyway", lambda *given: True)
    monkeypatch.setattr(handlers, "backend_at", lambda place: MachineBackend())
    monkeypatch.setattr(handlers, "Ready", Ready)
    monkeypatch.setattr(handlers, "Mirrored", lambda product, *given: ("mirrored", product.triangle))
    a = jax.numpy.ones((128, 64), "bfloat16")
    traced = jax.make_jaxpr(partial(lj.matmul, symmetric=True))(a, a.T)
    known, outlines = traced.eqns[0].params["product"], [(a.shape, "bfloat16"), (a.T.shape, "bfloat16")]
    text = products.written(known, outlines)
    assert handlers.ready.__wrapped__(text.encode(), 0, (0, 0)) == ("mirrored", "copied")
    alone = products.written(known.halved("", "upper"), outlines)
    assert handlers.ready.__wrapped__(alone.encode(), 0, (0, 0)).triangle == "upper"
    (*fields, of_itself, half), outlines = json.loads(text)
    assert (of_itself, half) == (False, "")
    earlier = json.dumps([fields, outlines]).encode()
    assert products.read(earlier)[0] == known._replace(of_itself=True)
    assert handlers.ready.__wrapped__(earlier, 0, (0, 0)).triangle == ""


# ---- one half alone ----

HALVES = {"lower": jax.numpy.tril, "upper": jax.numpy.triu}
EMULATED = {"precision": "emulated"}
CASES = [("lower", "f4", {}), ("upper", "f4", EMULATED), ("upper", "c8", {})]


@pytest.fixture
def nan_beside_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory that a handler is given, as it may be on a GPU."""
    handlers = importlib.import_module("lapidist.jax.handlers")
    gram, matmul = handlers.gram, handlers.api.matmul

    def poisoned(product: Any, out: Any, *operands: Any, **options: Any) -> None:
        out.fill(np.nan)
        product(*operands, out=out, **options)

    monkeypatch.setattr(handlers, "gram", lambda **named: poisoned(gram, **named))
    monkeypatch.setattr(
        handlers.api, "matmul", lambda a, b, out, **named: poisoned(matmul, out, a, b, **named)
    )


@pytest.mark.parametrize(("half", "dtype", "how"), CASES)
def test_one_half_and_the_gradients_of_it(
    rng: np.random.Generator, half: str, dtype: str, how: Any, nan_beside_halves: None
) -> None:
    """The other half is zero, and passes no gradient; where nobody wrote it, it is not read either."""
    of = HALVES[half]
    parts = rng.standard_normal((2, 2, 9, 300))
    a = (parts[0] + 1j * parts[1] if dtype == "c8" else parts[0]).astype(dtype) / np.float32(17)
    s, weights = rng.standard_normal((9, 9)).astype("f4"), rng.standard_normal((2, 9, 9)).astype("f4")

    def ours(a: Any) -> Any:
        return lj.gram(a, triangle=half, alpha=0.5, **how)

    def theirs(a: Any) -> Any:
        return of(0.5 * (a @ a.swapaxes(-2, -1).conj()))

    def of_two(f: Any, a: Any) -> Any:
        left = (s + s.T) @ a
        return f(a, (a.swapaxes(-2, -1) @ left) @ a.swapaxes(-2, -1))

    def known(a: Any) -> Any:
        return of_two(lambda a, b: lj.matmul(a, b, symmetric=True, triangle=half, **how), a)

    pairs = [(ours, theirs)]
    pairs += [] if dtype == "c8" else [(known, partial(of_two, lambda a, b: of(a @ b)))]
    for pair in pairs:
        results = []
        for f in pair:
            value, gradient = jax.jit(jax.value_and_grad(lambda a, f=f: (f(a) * weights).sum().real))(a)
            results.append((jax.jit(f)(a), jax.vmap(f)(a), jax.jvp(f, (a,), (a,))[1], value, gradient))
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@lapidist.epilogue
def rooted(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return lapidist.rsqrt(acc * scale) + base


@pytest.mark.parametrize(("half", "how"), [("lower", EMULATED), ("upper", {})])
def test_a_function_of_one_half(
    rng: np.random.Generator, half: str, how: Any, nan_beside_halves: None
) -> None:
    a, base = rng.random((9, 300)).astype("f4"), np.ones((9, 9), "f4")
    how = {**how, "symmetric": ("base",), "triangle": half}

    def ours(a: Any, scale: Any) -> Any:
        return lj.gram(a, epilogue=rooted(scale=scale, base=base), **how)

    def known(a: Any, scale: Any) -> Any:
        return lj.matmul(a, a.T, epilogue=rooted(scale=scale, base=base), **how)

    def theirs(a: Any, scale: Any) -> Any:
        return HALVES[half](jax.numpy.reciprocal(jax.numpy.sqrt(a @ a.T * scale)) + base)

    (ours_at, known_at, right), gradients = (
        [jax.jit(f)(a, 0.5) for f in (ours, known, theirs)],
        [jax.grad(lambda *x, f=f: f(*x).sum(), (0, 1))(a, 0.5) for f in (ours, known, theirs)],
    )
    for result, gradient in ((ours_at, gradients[0]), (known_at, gradients[1])):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-4)
        for one, other in zip(gradient, gradients[2], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_halves_that_are_refused() -> None:
    a = jax.numpy.ones((4, 3))
    for call in (lj.gram, lambda a, **how: lj.matmul(a, a.T, symmetric=True, **how)):
        with pytest.raises(lapidist.ArgumentError, match='triangle: must be "lower" or "upper"; got'):
            call(a, triangle="left")
    with pytest.raises(
        lapidist.ArgumentError, match=r"triangle: is for a result .* got 'lower' and symmetric"
    ):
        lj.matmul(a, a.T, triangle="lower")


def test_a_call_outside_of_lapidist_jax_names_it() -> None:
    a = jax.numpy.ones((4, 4))
    for call in (lapidist.gram, lambda a: lapidist.matmul(a, a, symmetric=True)):
        with pytest.raises(lapidist.ArgumentError, match=r"Call gram or matmul of lapidist\.jax"):
            call(a)
