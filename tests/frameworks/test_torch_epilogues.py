"""Epilogues in torch: one launch where nothing is recorded; by torch, with gradients, where something is.
Both give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import api, epilogues

pytestmark = pytest.mark.frameworks


@lapidist.epilogue
def dropped(acc: Any, bias: lapidist.Row, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    x = lapidist.dropout(lapidist.gelu(acc + bias), p, seed)
    return x, lapidist.column_sum(x), lapidist.row_max(x), lapidist.Output(x > 0, "bool")


@lapidist.epilogue
def of_all_operations(
    acc: Any, bias: lapidist.Row, scale: lapidist.Column, skip: lapidist.Tile, one: lapidist.Scalar
) -> Any:
    x = lapidist.clamp(acc * scale + bias, -2, 2) - skip / (one + 2)
    y = lapidist.where((x > 0) & ~(x == 1) | (x < -1), lapidist.exp(-abs(x)), lapidist.log(1 + x * x))
    z = (
        lapidist.tanh(y)
        + lapidist.erf(x) * lapidist.rsqrt(1 + x * x)
        + (x * x + 1) ** 0.5
        + lapidist.gelu_slope(x)
    )
    rounded = lapidist.rint(8 * x) + lapidist.floor(x) + lapidist.ceil(x) + lapidist.trunc(x)
    cast = lapidist.cast(z, "float32")
    return lapidist.silu(z) + cast, lapidist.Output(rounded, "int8"), lapidist.all_sum(z), lapidist.amax(z)


@lapidist.epilogue
def in_groups(acc: lapidist.Pair, seed: lapidist.Scalar) -> Any:
    kept = lapidist.dropout(acc.first * lapidist.sigmoid(acc.second), 0.25, seed)
    return kept, lapidist.Quantised(kept, "int8"), lapidist.row_sum(lapidist.Pair(kept, acc.second))


def operands(torch: Any, m: int, n: int) -> dict[str, Any]:
    def normal(*shape: int) -> Any:
        return torch.randn(shape, dtype=torch.float64)

    return {
        "bias": normal(n),
        "scale": normal(m),
        "skip": normal(m, n),
        "one": 0.5,
        "p": 0.4,
        "seed": 2**63 + 7,
    }


def cases(torch: Any, m: int, n: int) -> list[Any]:
    values, angle = operands(torch, m, n), torch.randn(m, n // 2, dtype=torch.float64)
    functions = (dropped, of_all_operations)
    given = [each(**{p.name: values[p.name] for p in each.function.parameters}) for each in functions]
    turned = epilogues.rotary(cosine=angle.cos(), sine=angle.sin())
    return [*given, in_groups(seed=torch.tensor([3])), turned, epilogues.swiglu(), epilogues.geglu()]


def close(torch: Any, found: Any, expected: Any) -> None:
    several = isinstance(expected, tuple)
    for one, other in zip(found, expected, strict=True) if several else ((found, expected),):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-6, atol=1e-6)


def recorded(torch: Any, *shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("which", range(6))
def test_by_torch_it_is_the_same(torch: Any, lt: Any, which: int) -> None:
    a, b, given = recorded(torch, 5, 4), recorded(torch, 4, 6), cases(torch, 5, 6)[which]
    with torch.no_grad():
        expected = lt.matmul(a, b, epilogue=given)
    found = lt.matmul(a, b, epilogue=given)
    close(torch, found, expected)
    assert (found[0] if isinstance(found, tuple) else found).requires_grad


@pytest.mark.parametrize("which", [0, 2, 3, 4, 5])
def test_gradients(torch: Any, lt: Any, which: int) -> None:
    """Of all results that have one."""
    a, b, given = recorded(torch, 5, 4), recorded(torch, 4, 6), cases(torch, 5, 6)[which]

    def call(*both: Any) -> Any:
        found = lt.matmul(*both, epilogue=given)
        return tuple(x for x in found if x.requires_grad) if isinstance(found, tuple) else found

    assert torch.autograd.gradcheck(call, (a, b))
    assert torch.autograd.gradgradcheck(call, (a, b))


def test_operands_have_gradients_too(torch: Any, lt: Any) -> None:
    a, b, bias = recorded(torch, 2, 5, 4), recorded(torch, 4, 6), recorded(torch, 6)
    given = {"p": 0.4, "seed": 1}
    assert torch.autograd.gradcheck(
        lambda a, b, bias: lt.matmul(a, b, epilogue=dropped(bias=bias, **given))[:2], (a, b, bias)
    )
    one = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    lt.matmul(a.detach(), b.detach(), epilogue=epilogues.scaled(factor=one)).sum().backward()
    torch.testing.assert_close(one.grad, (a @ b).sum().detach())


def test_vectors(torch: Any, lt: Any) -> None:
    a, b = recorded(torch, 5, 4), recorded(torch, 4, 6)
    for first, second in ((a[0], b), (a, b[:, 0]), (a[0], b[:, 0])):
        m, n = (1 if first.ndim == 1 else 5), (1 if second.ndim == 1 else 6)
        values = operands(torch, m, n) | {"skip": torch.ones(torch.matmul(first, second).shape)}
        for function in (dropped, of_all_operations):
            given = function(**{each.name: values[each.name] for each in function.function.parameters})
            with torch.no_grad():
                expected = lt.matmul(first, second, epilogue=given)
            close(torch, lt.matmul(first, second, epilogue=given), expected)


@pytest.mark.parametrize("shape", [(3, 1, 6), (1, 3, 1, 6), (3, 1, 1, 6), (3, 6), (1, 6)])
def test_batches_of_operands_lie_as_they_do_without_gradients(
    torch: Any, lt: Any, shape: tuple[int, ...]
) -> None:
    """A single dimension may be one of the batch, or stand for all rows: the first comes first."""
    a, b = recorded(torch, 3, 3, 6, 4), recorded(torch, 3, 3, 4, 6)
    given = epilogues.bias(bias=torch.randn(shape).double())
    with torch.no_grad():
        expected = lt.matmul(a, b, epilogue=given)
    close(torch, lt.matmul(a, b, epilogue=given), expected)


def test_a_batch_of_one_row_is_no_row(torch: Any, lt: Any) -> None:
    a, b, bias = recorded(torch, 3, 1, 1, 2), recorded(torch, 2, 5), torch.randn(3, 1, 5).double()
    close(torch, lt.matmul(a, b, epilogue=epilogues.bias(bias=bias)), a @ b + bias[:, :, None])
    bias = torch.randn(3, 1, 1).double()
    close(torch, lt.matmul(a, b, epilogue=columns_added(bias=bias)), a @ b + bias[..., None])


@lapidist.epilogue
def columns_added(acc: Any, bias: lapidist.Column) -> Any:
    return acc + bias


def test_a_layer_of_one_row_takes_a_tile_as_its_result_lies(torch: Any, lt: Any) -> None:
    x, weight, skip = recorded(torch, 4), torch.randn(6, 4).double(), torch.randn(6).double()
    for tile in (skip, skip[None]):
        found = lt.linear(x, weight, epilogue=epilogues.residual(residual=tile))
        close(torch, found, weight @ x + skip)
        with torch.no_grad():
            close(torch, lt.linear(x, weight, epilogue=epilogues.residual(residual=tile)), found)


# operands, and the error of a call whose D is 5 x 6
UNFIT: list[tuple[Any, Any, str]] = [
    (
        epilogues.residual,
        lambda torch: {"residual": torch.ones(4, 6)},
        "residual: must have a value for each",
    ),
    (epilogues.bias, lambda torch: {"bias": torch.ones(1)}, "bias: must have a value for each column"),
    (epilogues.bias, lambda torch: {"bias": torch.ones(5, 6)}, "bias: must have a value for each column"),
    (epilogues.bias, lambda torch: {"bias": torch.ones(6) * 1j}, "bias: must be of float64"),
    (
        epilogues.scaled,
        lambda torch: {"factor": torch.ones(2)},
        "factor: must be a number or an array of one",
    ),
    (epilogues.scaled, lambda torch: {"factor": 1e300}, "factor: must fit float32"),
    (epilogues.scaled, lambda torch: {"factor": "x"}, "factor: must be a real number"),
]


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize(("function", "values", "words"), UNFIT)
def test_operands_that_do_not_fit(
    torch: Any, lt: Any, function: Any, values: Any, words: str, is_recorded: bool
) -> None:
    """In the same words where torch has the function."""
    a, weight = torch.randn(5, 4, requires_grad=is_recorded), torch.randn(6, 4)
    given = function(**values(torch))
    for call in (
        lambda: lt.matmul(a, weight.T, epilogue=given),
        lambda: lt.linear(a, weight, epilogue=given),
    ):
        with pytest.raises(lapidist.LapidistError, match=words):
            call()


def test_what_torch_cannot_take(torch: Any, lt: Any) -> None:
    a, b = torch.randn(5, 4, requires_grad=True), torch.randn(4, 5)
    with pytest.raises(lapidist.ShapeError, match="swiglu takes columns in pairs"):
        lt.matmul(a, b, epilogue=epilogues.swiglu)
    with pytest.raises(lapidist.DTypeError, match="bias: must be a number or a tensor"):
        lt.matmul(a, b, epilogue=epilogues.bias(bias=np.ones(5, np.float32)))


def test_quantised_as_the_library_does(torch: Any, lt: Any) -> None:
    a, b = torch.randn(5, 4), torch.randn(4, 300)
    b[:, 128:256] = 0
    expected = lt.matmul(a, b, epilogue=epilogues.quantise_e4m3_groups)
    found = lt.matmul(a.requires_grad_(), b, epilogue=epilogues.quantise_e4m3_groups)
    assert [each.dtype for each in found] == [torch.float8_e4m3fn, torch.float32]
    for one, other in zip(found, expected, strict=True):
        assert not one.requires_grad
        torch.testing.assert_close(one.float(), other.float(), rtol=1e-6, atol=1e-6)


def test_a_type_of_torch_may_be_captured(torch: Any) -> None:
    dtype = torch.bfloat16
    assert str(lapidist.epilogue(lambda acc: lapidist.cast(acc, dtype))) == "cast(acc, 'bfloat16')"


def test_gelu_at_the_infinities(torch: Any, lt: Any) -> None:
    """torch's own on a CPU is NaN at infinity, in vectors of 8 numbers."""
    ends = torch.tensor([[float("inf"), -float("inf")] * 16])
    kept = lapidist.epilogue(lambda acc: lapidist.gelu(acc))
    found = lt.matmul(torch.ones(1, 1, requires_grad=True), ends, epilogue=kept)
    assert found.tolist() == [[float("inf"), 0.0] * 16]


def test_linear_and_gemm(torch: Any, lt: Any) -> None:
    x, weight, bias = recorded(torch, 3, 5, 4), recorded(torch, 6, 4), recorded(torch, 6)
    half = lapidist.epilogue(lambda acc: (0.5 * lapidist.silu(acc), lapidist.row_sum(acc)))

    def expected(sums: Any) -> Any:
        return 0.5 * torch.nn.functional.silu(sums), sums.sum(-1)

    for rows in (x, x[0], x[0, 0]):
        wanted = expected(torch.nn.functional.linear(rows, weight, bias))
        close(torch, lt.linear(rows, weight, bias, epilogue=half), wanted)
        with torch.no_grad():
            close(torch, lt.linear(rows, weight, bias, epilogue=half), wanted)
    c = recorded(torch, 5, 6)
    wanted = expected(2 * x[0] @ weight.T + 0.5 * c)
    how = {"alpha": 2.0, "beta": 0.5, "trans_b": True, "epilogue": half}
    close(torch, lt.gemm(x[0], weight, c, **how), wanted)
    assert torch.autograd.gradcheck(lambda *all: lt.gemm(*all, **how), (x[0], weight, c))


def test_it_is_one_launch_where_nothing_is_recorded(torch: Any, lt: Any, monkeypatch: Any) -> None:
    seen, matmul = [], api.matmul
    monkeypatch.setattr(
        api, "matmul", lambda *a, **more: seen.append(more.get("epilogue")) or matmul(*a, **more)
    )
    layer, x = torch.nn.Linear(4, 6), torch.randn(3, 4)
    with torch.no_grad():
        lt.matmul(x, layer.weight.T, epilogue=epilogues.bias(bias=layer.bias))
    assert seen[0] is not None
    lt.matmul(x, layer.weight.T.detach(), epilogue=epilogues.bias(bias=layer.bias)).sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((6,), 3.0))


def test_half_types_and_autocast(torch: Any, lt: Any) -> None:
    a, b = torch.randn(5, 4).bfloat16().requires_grad_(), torch.randn(4, 6).bfloat16()
    with torch.no_grad():
        expected = lt.matmul(a, b, epilogue=epilogues.swiglu)
    found = lt.matmul(a, b, epilogue=epilogues.swiglu)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
    found.sum().backward()
    assert a.grad.dtype is torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert lt.matmul(a.float(), b.float(), epilogue=epilogues.swiglu).dtype is torch.bfloat16


def test_compiled_by_torch(torch: Any, lt: Any) -> None:
    """Without a break in the graph."""
    a, b, bias, seed = torch.randn(5, 4), torch.randn(4, 6), torch.randn(6), torch.tensor([3])

    def call(*given: Any) -> Any:
        a, b, bias, seed = given
        return lt.matmul(a, b, epilogue=dropped(bias=bias, p=0.4, seed=seed))

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    close(torch, compiled(a, b, bias, seed), call(a, b, bias, seed))


def test_compiled_with_numbers_that_change(torch: Any, lt: Any) -> None:
    """They and extents are symbols then."""
    weight, skip = torch.randn(6, 4), lapidist.epilogue(skipped)

    def call(x: Any, tile: Any, s: float, seed: int) -> Any:
        return lt.linear(x, weight, epilogue=skip(tile=tile, s=s, seed=seed))

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for m, s, seed in ((3, 1.5, 1), (5, 2.5, 2)):
        given = torch.randn(m, 4), torch.randn(m, 6), s, seed
        close(torch, compiled(*given), call(*given))


def test_compiled_with_symbols_for_alpha_and_beta(torch: Any, lt: Any) -> None:
    """The function's outline asks no symbol for attributes, nor whether it is finite."""
    b = torch.randn(4, 6)

    def call(a: Any, c: Any, alpha: float, beta: float) -> Any:
        sums = lt.gemm(a, b, c, alpha=alpha, beta=beta, epilogue=epilogues.relu)
        return sums + lt.matmul(a, b, epilogue=epilogues.gelu)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for m, alpha, beta in ((3, 1.0, 2.0), (5, 0.5, 3.0), (7, 0.25, 0.0)):
        given = torch.randn(m, 4), torch.randn(m, 6), alpha, beta
        close(torch, compiled(*given), call(*given))


def skipped(acc: Any, tile: lapidist.Tile, s: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc * s, 0.5, seed) + tile


def test_under_vmap(torch: Any, lt: Any) -> None:
    a, b = torch.randn(3, 5, 4), torch.randn(4, 6)
    found = torch.vmap(lambda each: lt.matmul(each, b, epilogue=epilogues.swiglu))(a)
    torch.testing.assert_close(found, lt.matmul(a, b, epilogue=epilogues.swiglu))


@pytest.mark.parametrize("p", [0.0, 0.3, np.float32(0.7)])
def test_torch_drops_what_kernels_drop(torch: Any, lt: Any, p: Any) -> None:
    """Element by element."""
    of_p = lapidist.epilogue(lambda acc: lapidist.dropout(acc + 1, float(p), 2**64 - 3))
    a, b = torch.zeros(90, 1), torch.zeros(1, 70)
    for given in (of_p(), dropped_ones(p=float(p), seed=2**64 - 3)):
        expected = lt.matmul(a, b, epilogue=given)
        found = lt.matmul(a.clone().requires_grad_(), b, epilogue=given)
        assert torch.equal(found != 0, expected != 0)
        assert abs((expected != 0).double().mean() - (1 - float(p))) < 0.03


@lapidist.epilogue
def dropped_ones(acc: Any, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc + 1, p, seed)


def test_what_is_refused(torch: Any, lt: Any) -> None:
    x, weight = torch.randn(3, 4), torch.randn(6, 4)
    with pytest.raises(lapidist.ArgumentError, match="activation: must be None with an epilogue"):
        lt.linear(x, weight, activation="relu", epilogue=epilogues.relu)
    with pytest.raises(
        lapidist.ArgumentError, match="into: must be None with an activation, a residual or an epilogue"
    ):
        lt.linear(x, weight, into=torch.zeros(6, 4), epilogue=epilogues.relu)
    with pytest.raises(lapidist.ArgumentError, match=r"epilogue: must be a function of @lapidist\.epilogue"):
        lt.matmul(x, weight.T, epilogue=torch.relu)
