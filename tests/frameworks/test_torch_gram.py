"""lapidist.torch.gram and the Newton-Schulz steps of Muon."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lapidist  # noqa: E402
import lapidist.torch as lt  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.mark.parametrize("trans", [False, True])
def test_gradients_are_those_of_the_whole_product(trans: bool) -> None:
    a = torch.randn(2, 7, 5, dtype=torch.float64, requires_grad=True)
    n = 5 if trans else 7
    c = torch.randn(n, n, dtype=torch.float64)
    c = (c + c.T).requires_grad_()
    result = lt.gram(a, c, trans=trans, alpha=0.5, beta=2.0)
    left, right = (a.mT, a) if trans else (a, a.mT)
    torch.testing.assert_close(result, 0.5 * left @ right + 2.0 * c)
    weights = torch.randn_like(result)
    ours = torch.autograd.grad((result * weights).sum(), (a, c))
    torchs = torch.autograd.grad(((0.5 * left @ right + 2.0 * c) * weights).sum(), (a, c))
    for one, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_many_gradients_at_once(dtype: str) -> None:
    """is_grads_batched, of gram and of a product whose right operand a batch shares."""
    a = torch.randn(2, 4, 3, dtype=getattr(torch, dtype), requires_grad=True)
    b = torch.randn(3, 5, dtype=a.dtype, requires_grad=True)
    for ours, torchs, given in ((lt.gram(a), a @ a.mH, (a,)), (lt.matmul(a, b), a @ b, (a, b))):
        many = torch.randn(6, *ours.shape, dtype=a.dtype)
        found = torch.autograd.grad(ours, given, many, is_grads_batched=True)
        expected = torch.autograd.grad(torchs, given, many, is_grads_batched=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.fixture
def one_call_of_a_batch() -> Iterator[None]:
    """torch may not call an operator for each element."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("trans", [False, True])
def test_tangents_and_vmap(dtype: str, trans: bool, one_call_of_a_batch: None) -> None:
    n = 3 if trans else 4
    (a, of_a), (c, of_c) = (
        torch.randn(2, 3, *shape, dtype=getattr(torch, dtype)) for shape in ((4, 3), (n, n))
    )
    c, of_c = c + c.mH, of_c + of_c.mH

    def ours(a: Any, c: Any) -> Any:
        return lt.gram(a, c, trans=trans, alpha=0.5, beta=2.0)

    def torchs(a: Any, c: Any) -> Any:
        return 0.5 * (a.mH @ a if trans else a @ a.mH) + 2.0 * c

    def tangent(f: Any, *operands: Any) -> Any:
        return torch.func.jvp(f, *operands)[1]

    close = torch.testing.assert_close
    found, right = (
        (
            tangent(f, (a, c), (of_a, of_c)),
            tangent(lambda a, f=f: f(a, c), (a,), (of_a,)),
            tangent(lambda c, f=f: f(a, c), (c,), (of_c,)),
            torch.vmap(f)(a, c),
            torch.vmap(f, (0, None))(a, c[0]),
            torch.vmap(f, (None, 0))(a[0], c),
            torch.vmap(torch.func.grad(lambda a, f=f: f(a, c[0]).real.square().sum()))(a),
        )
        for f in (ours, torchs)
    )
    for one, other in zip(found, right, strict=True):
        close(one, other)


def test_tangents_have_the_type_of_the_result() -> None:
    a = torch.randn(4, 3).bfloat16()
    result, tangent = torch.func.jvp(lambda a: lt.gram(a, out_dtype=torch.float32), (a,), (a,))
    assert tangent.dtype is result.dtype is torch.float32
    torch.testing.assert_close(tangent, 2 * result)


def test_compiled_as_one_graph() -> None:
    function = torch.compile(lambda a: lt.gram(a, alpha=2.0) + 1, fullgraph=True, backend="aot_eager")
    a = torch.randn(6, 4)
    torch.testing.assert_close(function(a), 2 * a @ a.T + 1)


@lapidist.epilogue
def squashed(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return lapidist.tanh(acc * scale) + base


@lapidist.epilogue
def scaled(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return acc * scale + base


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_epilogues_and_their_gradients(trans: bool, dtype: Any) -> None:
    """In one launch, and by torch where gradients are recorded: symmetric bit by bit both times."""
    n, followed = 5 if trans else 7, scaled if dtype.is_complex else squashed
    a, c, base = (torch.randn(*shape, dtype=dtype) for shape in ((2, 7, 5), (n, n), (n, n)))
    operands = a, c + c.mH, base + base.mH

    def ours(a: Any, c: Any, base: Any) -> Any:
        epilogue = followed(scale=0.25, base=base)
        return lt.gram(a, c, alpha=0.5, beta=2.0, trans=trans, epilogue=epilogue, symmetric=("base",))

    def theirs(a: Any, c: Any, base: Any) -> Any:
        sums = (0.5 * (a.mH @ a if trans else a @ a.mH) + 2.0 * c) * 0.25
        return (sums if dtype.is_complex else torch.tanh(sums)) + base

    at_once, right = ours(*operands), theirs(*operands)
    operands = tuple(operand.requires_grad_() for operand in operands)
    recorded = ours(*operands)
    for result in (at_once, recorded):
        assert torch.equal(result, result.mH)
        torch.testing.assert_close(result, right)
    weights = torch.randn_like(right)
    losses = (
        (result * weights).sum().real if dtype.is_complex else (result * weights).sum()
        for result in (recorded, theirs(*operands))
    )
    for one, other in zip(*(torch.autograd.grad(loss, operands) for loss in losses), strict=True):
        torch.testing.assert_close(one, other)


def test_what_torch_computes_is_mirrored() -> None:
    """Where it computes the two of a pair otherwise; infinite elements stay so."""
    mirrored = importlib.import_module("lapidist.torch.symmetric").mirrored
    d = torch.tensor([[1.0, 2.0, 5.0], [3.0, torch.inf, 7.0], [5.0, torch.nan, 0.0]], requires_grad=True)
    result = mirrored(d)
    right = torch.tensor([[1.0, 3.0, 5.0], [3.0, torch.inf, torch.nan], [5.0, torch.nan, 0.0]])
    torch.testing.assert_close(result, right, equal_nan=True)
    (of_d,) = torch.autograd.grad(result[0].sum(), d)
    assert of_d.tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 0]]
    z = torch.tensor([[1 + 2j, 3.0], [4j, 5.0]])
    assert mirrored(z).tolist() == [[1, -4j], [4j, 5]]


def test_epilogues_compiled_and_of_other_types() -> None:
    a, base = torch.randn(6, 4), torch.ones(6, 6)

    def product(a: Any, scale: float) -> Any:
        return lt.gram(a, epilogue=squashed(scale=scale, base=base), symmetric=["base"], out_dtype=None) * 2

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    result = compiled(a.requires_grad_(), 0.5)
    torch.testing.assert_close(result, 2 * (torch.tanh(0.5 * a @ a.T) + 1))
    torch.testing.assert_close(
        *torch.autograd.grad(result.sum(), a), *torch.autograd.grad(product(a, 0.5).sum(), a)
    )
    narrow = a.detach().bfloat16()
    for x in (narrow, narrow.clone().requires_grad_()):
        d = lt.gram(x, epilogue=lapidist.epilogues.relu)
        assert d.dtype == torch.bfloat16
        torch.testing.assert_close(d, (narrow @ narrow.T).relu())


@pytest.mark.parametrize("recorded", [False, True])
def test_epilogues_that_are_refused(recorded: bool) -> None:
    a = torch.ones(6, 4, requires_grad=recorded)
    z, base = a.to(torch.complex64), torch.ones(6, 6)
    refused: Any = (
        (a, lapidist.epilogues.bias(bias=torch.ones(6)), (), "has the Row bias, by which"),
        (a, scaled(scale=1.0, base=base), (), r"the Tile base.*name it: symmetric=\('base',\)"),
        (a, None, ("base",), r"got \('base',\) and no epilogue"),
        (z, scaled(scale=2j, base=base), ("base",), "scale: must be real, as the result of gram"),
        (z, lapidist.epilogues.relu, (), "of complex numbers must add"),
    )
    for operand, epilogue, symmetric, words in refused:
        with pytest.raises(lapidist.ArgumentError, match=words):
            lt.gram(operand, epilogue=epilogue, symmetric=symmetric)


def test_flops_count_as_torchs() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        lt.gram(torch.ones(6, 4))
    assert counter.get_total_flops() == 2 * 6 * 6 * 4


def newton_schulz(gradient: Any, steps: int) -> Any:
    """As the authors of Muon write it."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.double()
    x = x.mT if x.shape[-2] > x.shape[-1] else x
    x = x / x.norm(dim=(-2, -1), keepdim=True)
    for _ in range(steps):
        squared = x @ x.mT
        x = a * x + (b * squared + c * squared @ squared) @ x
    return x.mT if gradient.shape[-2] > gradient.shape[-1] else x


@pytest.mark.parametrize("shape", [(12, 20), (3, 20, 12)])
def test_the_step_of_muon(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    gradient = torch.randn(shape)
    result = lt.orthogonalised(gradient)
    assert result.shape == gradient.shape
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.double(), newton_schulz(gradient, 5), atol=0.05, rtol=0.05)
    spread = torch.linalg.svdvals(result.double())
    assert spread.min() > 0.5
    assert spread.max() < 1.4


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [("float32", 2.0**100), ("float64", 2.0**900), ("bfloat16", 2.0**120), ("float16", 2.0**12)],
)
def test_the_step_of_muon_has_no_unit(dtype: str, unit: float) -> None:
    """Gradients in larger numbers give the same bits, also where squares of them are infinite."""
    torch.manual_seed(1)
    gradient = torch.randn(3, 12, 20, dtype=getattr(torch, dtype))
    units = torch.tensor([1.0, unit, 2.0], dtype=gradient.dtype).reshape(3, 1, 1)
    assert torch.equal(lt.orthogonalised(gradient * units), lt.orthogonalised(gradient))
    assert lt.orthogonalised(gradient[:, :0]).shape == (3, 0, 20)


def test_what_is_no_matrix_is_refused() -> None:
    with pytest.raises(lapidist.ArgumentError, match="gradient: must be a matrix"):
        lt.orthogonalised(torch.ones(3))
    for gradient in ([[1.0]], torch.ones(2, 2, dtype=torch.complex64), torch.ones(2, 2, dtype=torch.int32)):
        with pytest.raises(lapidist.DTypeError, match=r"gradient: must be a torch.Tensor of floating-point"):
            lt.orthogonalised(gradient)
    with pytest.raises(lapidist.DTypeError, match=r"a: must be a torch\.Tensor"):
        lt.gram([[1.0]])


# ---- products that the caller knows to be symmetric ----


def of_both_sides(dtype: Any = torch.float64) -> tuple[Any, Any]:
    """A S and A^T, of a batch."""
    a, s = torch.randn(2, 7, 5, dtype=dtype), torch.randn(5, 5, dtype=dtype)
    return a @ (s + s.mT), a.mT.contiguous()


def test_a_product_that_the_caller_knows_to_be_symmetric() -> None:
    operands = tuple(operand.requires_grad_() for operand in of_both_sides())

    def ours(a: Any, b: Any) -> Any:
        return lt.matmul(a, b, symmetric=True)

    close = torch.testing.assert_close
    result, right = ours(*operands), operands[0] @ operands[1]
    assert torch.equal(result, result.mT)
    close(result, right)
    weights = torch.randn_like(right)
    close(torch.autograd.grad(result, operands, weights), torch.autograd.grad(right, operands, weights))
    detached = tuple(operand.detach() for operand in operands)
    for transform in (
        lambda f: torch.func.jvp(f, detached, detached),
        lambda f: torch.vmap(f)(*detached),
        lambda f: torch.compile(f, fullgraph=True, backend="aot_eager")(*operands),
    ):
        close(transform(ours), transform(torch.matmul))


@pytest.mark.parametrize("recorded", [False, True])
def test_its_epilogues(recorded: bool) -> None:
    operands = tuple(operand.requires_grad_(recorded) for operand in of_both_sides())
    base = torch.ones(7, 7, dtype=torch.float64)
    how: Any = {"epilogue": squashed(scale=0.1, base=base), "symmetric": ("base",)}
    result = lt.matmul(*operands, **how)
    assert torch.equal(result, result.mT)
    torch.testing.assert_close(result, torch.tanh(0.1 * operands[0] @ operands[1]) + 1)
    for words, changed in (
        ("the Tile base.*name it", {"symmetric": True}),
        (r"got \('base',\) and no epilogue", {"epilogue": None}),
        ("symmetric: must be True or False", {"symmetric": "yes"}),
    ):
        with pytest.raises(lapidist.ArgumentError, match=words):
            lt.matmul(*operands, **{**how, **changed})
    with pytest.raises(lapidist.ShapeError, match="symmetric: the result must be square"):
        lt.matmul(operands[0], torch.ones(5, 3, dtype=torch.float64), symmetric=True)
    with pytest.raises(lapidist.ArgumentError, match="symmetric: is for real numbers"):
        lt.matmul(*of_both_sides(torch.complex64), symmetric=True)


# ---- one half alone ----

HALVES = [("lower", torch.tril), ("upper", torch.triu)]


@lapidist.epilogue
def rooted(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return lapidist.rsqrt(acc * scale) + base


@pytest.mark.parametrize(("half", "of"), HALVES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_one_half_and_the_gradients_of_it(half: str, of: Any, dtype: Any, one_call_of_a_batch: None) -> None:
    """The other half is zero, takes nothing of c's, and passes no gradient."""
    a, tangent = torch.randn(2, 2, 4, 3, dtype=dtype)
    c = torch.randn(4, 4, dtype=dtype)
    c, weights = c + c.mH, torch.randn(2, 4, 4, dtype=dtype)
    beside = ~of(torch.ones(4, 4)).bool()
    unread = c.masked_fill(beside, torch.nan)

    def ours(a: Any, c: Any) -> Any:
        return lt.gram(a, c, alpha=0.5, beta=2.0, triangle=half)

    def theirs(a: Any, c: Any) -> Any:
        return of(0.5 * a @ a.mH + 2.0 * c)

    def found(f: Any, c: Any) -> Any:
        operands = a.clone().requires_grad_(), c.clone().requires_grad_()
        result = f(*operands)
        many = torch.stack([weights, 2 * weights])
        return (
            result,
            *torch.autograd.grad(result, operands, weights, retain_graph=True),
            *torch.autograd.grad(result, operands, many, is_grads_batched=True),
            torch.func.jvp(lambda a: f(a, c), (a,), (tangent,))[1],
            torch.vmap(f, (0, None))(a, c),
            torch.compile(f, fullgraph=True, backend="aot_eager")(a, c),
        )

    torch.testing.assert_close(found(ours, unread), found(theirs, c))


@pytest.mark.parametrize(("half", "of"), HALVES)
def test_one_half_of_what_the_caller_knows(half: str, of: Any) -> None:
    operands, weights = of_both_sides(), torch.randn(2, 7, 7, dtype=torch.float64)

    def found(f: Any) -> Any:
        recorded = tuple(operand.clone().requires_grad_() for operand in operands)
        return (
            torch.autograd.grad(f(*recorded), recorded, weights),
            torch.func.jvp(f, operands, operands),
            torch.vmap(f)(*operands),
            torch.compile(f, fullgraph=True, backend="aot_eager")(*operands),
        )

    ours = found(lambda a, b: lt.matmul(a, b, symmetric=True, triangle=half))
    torch.testing.assert_close(ours, found(lambda a, b: of(a @ b)))


@pytest.mark.parametrize(("half", "of"), HALVES)
def test_a_function_of_one_half(half: str, of: Any) -> None:
    """Also where torch computes it: zeros beside a half would have infinite slopes."""
    a, base = torch.rand(7, 5, dtype=torch.float64), torch.ones(7, 7, dtype=torch.float64)
    scale = torch.tensor(0.5, dtype=torch.float64)
    how: Any = {"symmetric": ("base",), "triangle": half}

    def ours(a: Any, scale: Any) -> Any:
        return lt.gram(a, epilogue=rooted(scale=scale, base=base), **how)

    def known(a: Any, scale: Any) -> Any:
        return lt.matmul(a, a.mT, epilogue=rooted(scale=scale, base=base), **how)

    def theirs(a: Any, scale: Any) -> Any:
        return of(torch.rsqrt(a @ a.mT * scale) + base)

    right = theirs(a, scale)
    torch.testing.assert_close((ours(a, 0.5), known(a, 0.5)), (right, right))
    operands = a.requires_grad_(), scale.requires_grad_()
    gradients = [torch.autograd.grad(f(*operands).sum(), operands) for f in (ours, known, theirs)]
    torch.testing.assert_close(gradients[:2], [gradients[2]] * 2)


def test_halves_that_are_refused() -> None:
    a = torch.ones(4, 3)
    for call in (lt.gram, lambda a, **how: lt.matmul(a, a.mT, symmetric=True, **how)):
        with pytest.raises(lapidist.ArgumentError, match='triangle: must be "lower" or "upper"; got'):
            call(a, triangle="left")
        with pytest.raises(Exception, match='triangle: must be "lower" or "upper"; got'):
            torch.compile(partial(call, triangle="left"), backend="aot_eager")(a)
    with pytest.raises(
        lapidist.ArgumentError, match=r"triangle: is for a result .* got 'lower' and symmetric"
    ):
        lt.matmul(a, a.mT, triangle="lower")
    with pytest.raises(TypeError, match=r"'triangle'. gram and matmul\(symmetric=True\) take it"):
        lt.gemm(a, a.mT, triangle="lower")
