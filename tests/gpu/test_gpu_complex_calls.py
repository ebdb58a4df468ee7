"""Complex products on a GPU, as calls and plans make them: factors in memory, epilogues, other ways to
multiply, lists, and gram. All against complex128 of NumPy, exact for small whole numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import mixed, scaled
from complex_samples import count_of_right_samples, samples_of_torch
from lapidist import Column, Row, Scalar, Tile
from lapidist.frameworks import new_arrays

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

C64, C128 = torch.complex64, torch.complex128
TYPES = [C64, C128]
SHAPES = [(31, 19, 35), (9, 5, 7), (129, 70, 77)]  # m, n, k: one launch for small ones, ragged, several tiles


def whole(*shape: int, dtype: Any = C64) -> Any:
    parts = (torch.randint(-4, 5, shape, device="cuda", dtype=dtype.to_real()) for _ in range(2))
    return torch.complex(*parts)


def of(tensor: Any) -> Any:
    """The numbers in complex128 of NumPy."""
    return tensor.detach().to(C128).resolve_conj().cpu().numpy()


def same(result: Any, right: Any, dtype: Any = C64) -> None:
    assert result.dtype == dtype
    np.testing.assert_array_equal(of(result), right)


def factors(dtype: Any) -> list[tuple[Any, Any]]:
    """alpha and beta, complex and real, in memory and not."""

    def number(value: complex, real: bool = False) -> Any:
        return torch.tensor([value], device="cuda", dtype=dtype.to_real() if real else dtype)

    return [
        (number(1 - 2j), number(1j)[:, None]),
        (number(2, real=True), number(1 + 1j).conj()),
        (number(2 + 1j), 1j),
        (1 - 1j, number(3, real=True)),
    ]


def value_of(number: Any) -> complex:
    return of(number).item() if isinstance(number, torch.Tensor) else number


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_in_memory(dtype: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for alpha, beta in factors(dtype):
        for turn in range(3):  # with other numbers in the same memory, once calls are repeated
            a, b, c = whole(m, k, dtype=dtype), whole(k, n, dtype=dtype), whole(m, n, dtype=dtype)
            for x, y in ((a, b), (a.real, b), (a, b.imag), (a.conj(), b.flip(1))):
                out = torch.full((n, m) if turn == 1 else (m, n), 7, device="cuda", dtype=dtype)
                out = out.mT if turn == 1 else out
                result = lapidist.gemm(x, y, c, alpha=alpha, beta=beta, out=out)
                assert result is out
                same(out, value_of(alpha) * (of(x) @ of(y)) + value_of(beta) * of(c), dtype)
            for number in (alpha, beta):
                if isinstance(number, torch.Tensor):
                    number += 1


def test_what_a_zero_in_memory_multiplies_is_not_read() -> None:
    a, b, c = whole(70, 90), whole(90, 80), whole(70, 80)
    zero, one = torch.zeros(1, device="cuda", dtype=C64), torch.full((1,), 1j, device="cuda", dtype=C64)
    nothing, no_c = torch.full_like(a, torch.nan), torch.full_like(c, torch.nan)
    same(lapidist.gemm(nothing, b, c, alpha=zero, beta=one), 1j * of(c))
    same(lapidist.gemm(a, b, no_c, alpha=one, beta=zero), 1j * (of(a) @ of(b)))


def test_factors_in_memory_of_a_plan_and_a_graph() -> None:
    a, b, c = whole(70, 90), whole(90, 80), whole(70, 80)
    alpha, beta = (torch.full((1,), 1j, device="cuda", dtype=C64) for _ in range(2))
    plan, out = lapidist.plan(a, b, c, alpha=alpha, beta=beta), torch.empty_like(c)
    for value in (1j, 1 - 1j, 0):
        alpha.fill_(value)
        same(plan.execute(a, b, c), value * (of(a) @ of(b)) + 1j * of(c))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.gemm(a, b, c, alpha=alpha, beta=beta, out=out)
    for value in (1 + 1j, 2):
        alpha.fill_(value)
        graph.replay()
        same(out, value * (of(a) @ of(b)) + 1j * of(c))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ["ieee", "3m"])
def test_epilogues(dtype: Any, shape: tuple[int, int, int], precision: Any) -> None:
    m, n, k = shape
    by_row, by_column = (
        torch.exp2(torch.randint(0, 3, (size,), device="cuda").to(dtype.to_real())) for size in (n, m)
    )
    for turn in range(3):
        a, b, c = whole(m, k, dtype=dtype), whole(k, n, dtype=dtype), whole(m, n, dtype=dtype)
        row, column, tile = (whole(*of_shape, dtype=dtype) for of_shape in ((n,), (m,), (n, m)))
        for of_row, of_tile in ((row, tile.mH), (row.real, tile.mT.imag)):
            followed = mixed(row=of_row, column=column, tile=of_tile, by_row=by_row, by_column=by_column)
            out = torch.empty_strided((m, n), (1, m) if turn == 1 else (n, 1), device="cuda", dtype=dtype)
            lapidist.gemm(a, b, c, beta=1j, epilogue=followed, out=out, precision=precision)
            sums = 2 * (of(a) @ of(b) + 1j * of(c)) + of(of_row) - of(column)[:, None]
            same(out, sums * of(by_row) / of(by_column)[:, None] - of(of_tile), dtype)


@lapidist.epilogue
def shifted(acc: Any, factor: Row) -> Any:
    return 2 - (2 * acc - 3) * factor


def test_constants_are_added_to_real_parts() -> None:
    a, b = whole(70, 90), whole(90, 80)
    factor = torch.exp2(torch.randint(0, 3, (80,), device="cuda")).float()
    for out in (
        torch.empty(70, 80, device="cuda", dtype=C64),
        torch.empty(80, 70, device="cuda", dtype=C64).mT,
    ):
        lapidist.matmul(a, b, out, epilogue=shifted(factor=factor))
        same(out, 2 - (2 * (of(a) @ of(b)) - 3) * of(factor))


@lapidist.epilogue
def of_both(acc: Any, row: Row, column: Column, tile: Tile, by: Scalar) -> Any:
    return (acc + 1) * row / (column * by + 40) + tile * tile


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("precision", ["ieee", "3m"])
def test_functions_of_both_parts(dtype: Any, precision: Any) -> None:
    a, b, row, column, tile = (
        whole(*s, dtype=dtype) for s in ((2, 70, 90), (90, 80), (80,), (70,), (80, 70))
    )
    for by in (2j, torch.full((1,), 1 - 1j, device="cuda", dtype=dtype).conj()):
        followed = of_both(row=row.conj(), column=column, tile=tile.mH, by=by)
        right = (of(a) @ of(b) + 1) * of(row).conj() / (of(column)[:, None] * value_of(by) + 40)
        right += (of(tile) * of(tile)).conj().T
        for out in (torch.empty(2, 70, 80, device="cuda", dtype=dtype), None):
            result = lapidist.matmul(a, b, out, epilogue=followed, precision=precision)
            np.testing.assert_allclose(of(result), right, rtol=1e-5, atol=1e-3)


def test_epilogues_of_numbers_batches_lists_and_plans() -> None:
    a, b, bias = whole(2, 70, 90), whole(90, 80), whole(2, 1, 80)
    half = torch.full((1,), 0.5, device="cuda")
    for scale, shift in ((0.5, 3 - 1j), (half, whole(1)), (2.0, half)):
        followed = scaled(scale=scale, shift=shift)
        right = value_of(scale) * -(of(a) @ of(b)) + value_of(shift)
        same(lapidist.matmul(a, b, epilogue=followed), right)
        same(lapidist.matmul(a[0], b[:, 0], epilogue=followed), right[0, :, 0])
    same(lapidist.matmul(a, b, epilogue=lapidist.epilogues.bias(bias=bias)), of(a) @ of(b) + of(bias))
    followed = lapidist.epilogues.bias(bias=bias[0, 0])
    for result, x in zip(lapidist.gemm_lists([*a], [b, b], epilogue=followed), a, strict=True):
        same(result, of(x) @ of(b) + of(bias[0, 0]))
    plan = lapidist.plan(a[0], b, epilogue=followed, alpha=1j)
    for x in a:
        bias += 1
        same(plan.execute(x, b), 1j * (of(x) @ of(b)) + of(bias[0, 0]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_three_products(dtype: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    how: dict[str, Any] = {"precision": "3m"}
    for _ in range(3):
        a, b, c = whole(2, m, k, dtype=dtype), whole(k, n, dtype=dtype), whole(m, n, dtype=dtype)
        same(lapidist.matmul(a.conj(), b, **how), of(a).conj() @ of(b), dtype)
        result = lapidist.gemm(a[0], b.mH, c, trans_b="C", alpha=1j, beta=2 - 1j, **how)
        same(result, 1j * (of(a[0]) @ of(b)) + (2 - 1j) * of(c), dtype)
        for alpha, beta in factors(dtype)[:2]:
            result = lapidist.gemm(a, b, c, alpha=alpha, beta=beta, **how)
            same(result, value_of(alpha) * (of(a) @ of(b)) + value_of(beta) * of(c), dtype)
        same(lapidist.matmul(a[0].real, b, **how), of(a[0].real) @ of(b), dtype)
    plan, x = lapidist.plan(a[0], b, **how), a[1].clone()
    same(plan.execute(x, b), of(x) @ of(b), dtype)


def test_three_products_in_a_graph_without_a_call_before() -> None:
    new_arrays.constant.cache_clear()
    a, b = whole(63, 90), whole(90, 81)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = lapidist.matmul(a.conj(), b, precision="3m")
    for _ in range(2):
        b.copy_(whole(90, 81))
        graph.replay()
        same(out, of(a).conj() @ of(b))
    same(lapidist.matmul(a, b, precision="3m"), of(a) @ of(b))


@pytest.mark.parametrize("precision", ["tf32", "emulated", "emulated_any_range"])
def test_other_ways_to_multiply(precision: Any) -> None:
    """Batches, conjugates and C; numbers that fill all their bits, beside the product of magnitudes."""
    for m, n, k in SHAPES:
        a, b, c = (torch.randn(s, dtype=C64, device="cuda") for s in ((2, m, k), (k, n), (m, n)))
        for x, y in ((a, b), (a.conj(), b), (a.real, b)):
            result = lapidist.gemm(x, y, c, alpha=1j, beta=0.5, precision=precision)
            error = abs(of(result) - (1j * (of(x) @ of(y)) + 0.5 * of(c)))
            size = 2 * abs(of(x)) @ abs(of(y)) + abs(of(c))
            assert (error <= (2.0**-9 if precision == "tf32" else 2.0**-18) * size).all()


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_halves() -> None:
    """complex32: sums of float32, by kernels of float16 where alpha and beta are real."""
    real, number = torch.tensor([2.0], device="cuda"), torch.tensor([1j], device="cuda", dtype=C64)
    by = torch.exp2(torch.randint(0, 2, (70,), device="cuda")).to(torch.float16)
    for m, n, k in ((9, 70, 7), (129, 70, 77), (256, 70, 512)):
        for _ in range(3):
            a, b, c = (
                torch.complex(*torch.randint(-1, 2, (2, *s), device="cuda").half())
                for s in ((m, k), (k, n), (m, n))
            )
            for x, y in ((a, b), (a.conj(), b), (a.real, b), (a, b.imag)):
                for alpha, beta in ((2.0, 0.5), (real, 1.0), (1j, real), (number, 1 - 1j)):
                    result = lapidist.gemm(x, y, c, alpha=alpha, beta=beta)
                    right = value_of(alpha) * (of(x) @ of(y)) + value_of(beta) * of(c)
                    same(result, right, torch.complex32)
            followed = with_factors(bias=c[0], by=by)
            same(
                lapidist.matmul(a, b, epilogue=followed), (of(a) @ of(b) + of(c[0])) * of(by), torch.complex32
            )
            same(lapidist.matmul(a, b, precision="3m"), of(a) @ of(b), torch.complex32)
    same(lapidist.gram(a[:, :64]), of(a[:, :64]) @ of(a[:, :64]).T.conj(), torch.complex32)


@lapidist.epilogue
def with_factors(acc: Any, bias: Row, by: Row) -> Any:
    return (acc + bias) * by


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_of_any_shapes(dtype: Any) -> None:
    a, b, c = (
        [whole(*(s[i] for i in places), dtype=dtype) for s in SHAPES] for places in ((0, 2), (2, 1), (0, 1))
    )
    for _ in range(3):
        for d, x, y, z in zip(lapidist.gemm(a, b, c, alpha=1j, beta=2.0), a, b, c, strict=True):
            same(d, 1j * (of(x) @ of(y)) + 2 * of(z), dtype)
        a = [x.conj() for x in a]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [30, 257])
def test_gram(dtype: Any, n: int) -> None:
    for _ in range(3):
        a, c = whole(2, n, 33, dtype=dtype), whole(n, n, dtype=dtype)
        c = c + c.mH
        for x in (a, a.conj(), a[0].mT):
            trans = x.ndim == 2
            rows = of(x).T.conj() @ of(x) if trans else of(x) @ of(x).swapaxes(1, 2).conj()
            result = lapidist.gram(x, c, trans=trans, alpha=2.0, beta=-1.0)
            same(result, 2 * rows - of(c), dtype)
            assert torch.equal(result, result.mH)
        out = torch.full((n, n), 7, device="cuda", dtype=dtype)
        lapidist.gram(a[0], triangle="lower", out=out)
        same(out, np.tril(of(a[0]) @ of(a[0]).T.conj()) + np.triu(np.full((n, n), 7), 1), dtype)


def test_gram_of_random_numbers_equals_its_mirror_image() -> None:
    for precision in ("ieee", "tf32", "3m"):
        a = torch.randn(300, 77, dtype=C64, device="cuda")
        result = lapidist.gram(a, precision=precision)
        assert torch.equal(result, result.mH)
        assert (abs(of(result) - of(a) @ of(a).T.conj()) <= 2.0**-9 * 77 * 8).all()


def test_gradients_and_programs() -> None:
    import lapidist.torch as lt

    how: dict[str, Any] = {"alpha": 1j, "beta": 2 - 1j, "trans_a": "C", "trans_b": True}

    def ours(a: Any, b: Any, c: Any) -> Any:
        return lt.gemm(a, b, c, epilogue=lapidist.epilogues.bias(bias=c[0]), **how)

    def theirs(a: Any, b: Any, c: Any) -> Any:
        return 1j * (a.mH @ b.mT) + (2 - 1j) * c + c[0]

    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    for function in (ours, ours, ours, compiled):
        operands = [whole(*s, dtype=C128).requires_grad_() for s in ((90, 70), (80, 90), (70, 80))]
        weights = whole(70, 80, dtype=C128)
        results = [(f(*operands) * weights).real.sum() for f in (function, theirs)]
        found, right = (torch.autograd.grad(result, operands) for result in results)
        assert torch.equal(*(x.detach() for x in results))
        for one, other in zip(found, right, strict=True):
            assert torch.equal(one, other)


# What torch's samples import may use what NumPy deprecates.
@pytest.mark.filterwarnings("ignore:The 'generic' unit for NumPy timedelta:DeprecationWarning")
def test_torchs_own_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    import lapidist.torch as lt

    assert count_of_right_samples(lt, samples_of_torch(monkeypatch), "cuda") > 60


def test_products_of_no_terms() -> None:
    """Their operands have no elements, so no place in memory."""
    a, b = (torch.ones(shape, device="cuda", dtype=torch.complex64) for shape in ((3, 0), (0, 4)))
    c = torch.full((3, 4), 2 + 1j, device="cuda")
    for _ in range(3):
        assert torch.equal(lapidist.matmul(a, b), torch.zeros(3, 4, device="cuda", dtype=torch.complex64))
        assert torch.equal(lapidist.gemm(a, b, c, beta=2.0), 2 * c)
