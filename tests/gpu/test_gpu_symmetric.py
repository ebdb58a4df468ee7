"""Symmetric products on a GPU: right, and symmetric bit by bit, by halves and by plain products."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TYPES = ["bfloat16", "float16", "float32", "float64"]
# a plain product, halves of whole tiles, lines that start anywhere, k that split-K or Stream-K cuts
SHAPES = [(300, 64), (3072, 256), (1025, 77), (640, 8200)]
ERRORS = {"bfloat16": 2**-7, "float16": 2**-9, "float32": 2**-18, "float64": 2**-45}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_right_and_symmetric(dtype: str, shape: tuple[int, int]) -> None:
    a = torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))
    exact, size = a.double() @ a.double().T, (a.double().abs() @ a.double().abs().T).max()
    for precision in ("ieee", "tf32") if dtype == "float32" else ("ieee",):
        for compiling in ("background", "wait"):
            result = lapidist.gram(a, precision=precision, compile=compiling)
            assert (result == result.T).all()
            error = ((result.double() - exact).abs().max() / size).item()
            assert error <= (2**-10 if precision == "tf32" else ERRORS[dtype])


@pytest.mark.parametrize("triangle", ["lower", "upper"])
@pytest.mark.parametrize("n", [300, 3072])
def test_one_half_alone(triangle: Any, n: int) -> None:
    a = torch.randint(-2, 3, (n, 96), device="cuda").to(torch.bfloat16)
    out = torch.full((n, n), 7.0, device="cuda", dtype=torch.bfloat16)
    half = torch.tril if triangle == "lower" else torch.triu
    lapidist.gram(a, triangle=triangle, out=out)
    right = (a.double() @ a.double().T).to(torch.bfloat16)
    here = half(torch.ones_like(out)).bool()
    assert (out[here] == right[here]).all()
    assert (out[~here] == 7).all()


def test_a_batch_with_c_in_a_graph() -> None:
    a = torch.randn(3, 1100, 160, device="cuda")
    c = torch.randn(3, 1100, 1100, device="cuda")
    c = c + c.mT
    out = torch.empty_like(c)

    def product() -> None:
        lapidist.gram(a, c, alpha=0.5, beta=2.0, out=out)

    product()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product()
    out.zero_()
    graph.replay()
    right = 0.5 * a.double() @ a.double().mT + 2.0 * c.double()
    assert (out == out.mT).all()
    assert (out.double() - right).abs().max() < 1e-3


def test_the_step_of_muon() -> None:
    import lapidist.torch as lt

    gradient = torch.randn(4, 512, 1024, device="cuda")
    spread = torch.linalg.svdvals(lt.orthogonalised(gradient).float())
    assert spread.min() > 0.3
    assert spread.max() < 1.5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(4096, 1024), (4090, 1000), (2048, 512), (2, 3072, 3072)])
def test_one_launch_stores_both_halves(dtype: str, shape: tuple[int, ...]) -> None:
    """Also by the fast path of the third call, into another output, and after a function of each sum."""
    a = torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))
    right = a.float() @ a.float().mT
    size = right.abs().max()
    for _ in range(4):
        out = torch.full_like(right, 7, dtype=a.dtype)
        assert lapidist.gram(a, out=out, compile="wait") is out
        assert (out == out.mT).all()
        assert ((out.float() - right).abs() <= 2**-7 * size).all()
    d = lapidist.gram(a, alpha=0.5, epilogue=lapidist.epilogues.relu, compile="wait")
    assert (d == d.mT).all()
    assert ((d.float() - (0.5 * right).clamp_min(0)).abs() <= 2**-7 * size).all()


@lapidist.epilogue
def shifted(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return acc * scale + base


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [2048, 1000, 4096])
def test_one_launch_whatever_is_added(dtype: Any, n: int) -> None:
    """Exactly, as tiles on the diagonal are stored by elements: with C, a Tile, and what the caller knows."""
    a = torch.randint(-2, 3, (n, 264), device="cuda").to(dtype)
    c = torch.randint(-4, 5, (n, n), device="cuda").to(dtype)
    c, sums = c + c.T, a.double() @ a.double().T
    how: Any = {"precision": "tf32" if dtype is torch.float32 else "ieee", "compile": "wait"}
    tile: Any = {"epilogue": shifted(scale=0.5, base=c), "symmetric": ("base",)}
    for _ in range(4):
        out = torch.full((n, n), 7, device="cuda", dtype=dtype)
        lapidist.gram(a, c, alpha=0.5, beta=2.0, out=out, **how)
        assert torch.equal(out, (0.5 * sums + 2 * c.double()).to(dtype))
        assert torch.equal(lapidist.gram(a, **tile, **how), (0.5 * sums + c.double()).to(dtype))
        known = lapidist.matmul(a, a.T, out.fill_(7), symmetric=True, **how)
        assert torch.equal(known, sums.to(dtype))


@pytest.mark.parametrize(("half", "of"), [("lower", torch.tril), ("upper", torch.triu)])
def test_one_half_by_torch(half: Any, of: Any) -> None:
    """The other half is zero, and passes no gradient."""
    import lapidist.torch as lt

    a = torch.randint(-2, 3, (520, 96), device="cuda").float().requires_grad_()
    (lt.gram(a, triangle=half) + lt.matmul(a, a.T, symmetric=True, triangle=half)).sum().backward()
    gradient, a.grad = a.grad, None
    (2 * of(a @ a.T)).sum().backward()
    assert torch.equal(lt.gram(a, triangle=half), of(a @ a.T))
    assert torch.allclose(gradient, a.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("trans", [False, True])
def test_epilogues_of_the_operator(dtype: Any, trans: bool) -> None:
    """In one launch, on the fast path, and by torch where gradients are recorded."""
    import lapidist.torch as lt

    parts = torch.randint(-2, 3, (2, 3, 520, 96), device="cuda").double()
    a = (torch.complex(*parts) if dtype.is_complex else parts[0]).to(dtype)
    n = 96 if trans else 520
    base = torch.arange(n, device="cuda").remainder(5).to(dtype)
    base = base + base[:, None]
    wide = a.to(torch.complex128 if dtype.is_complex else torch.float64)
    right = ((wide.mH @ wide if trans else wide @ wide.mH) * 0.5 + base).to(dtype)
    for recorded in (False, False, False, True):
        operand = a.clone().requires_grad_(recorded)
        epilogue = shifted(scale=0.5, base=base)
        d = lt.gram(operand, trans=trans, epilogue=epilogue, symmetric=("base",))
        assert torch.equal(d, d.mH)
        assert torch.equal(d, right)
    d.real.sum().backward()
    ones = torch.ones_like(right)
    assert torch.allclose(operand.grad, wide.to(dtype) @ ones if trans else ones @ wide.to(dtype), rtol=0.01)
