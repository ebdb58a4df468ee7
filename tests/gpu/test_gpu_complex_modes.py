"""Complex products on a GPU whose rows are gathered and scattered, of Pointers, and of planned lists. Small
whole numbers have exact products.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lapidist  # noqa: E402

pytestmark = pytest.mark.gpu
TYPES = [torch.complex64, torch.complex128]


def whole(*shape: int, dtype: Any = torch.complex64) -> Any:
    parts = torch.randint(-4, 5, (2, *shape), device="cuda").to(dtype.to_real())
    return torch.complex(*parts)


def product(a: Any, b: Any) -> Any:
    """By torch on the host, exact."""
    return (a.cpu().to(torch.complex128) @ b.cpu().to(torch.complex128)).to(torch.complex128)


def same(result: Any, right: Any) -> None:
    assert torch.equal(result.cpu().to(torch.complex128), right)


def pointers(arrays: list[Any]) -> lapidist.Pointers:
    addresses = torch.tensor([array.data_ptr() for array in arrays], device="cuda")
    rows, columns = arrays[0].shape
    row, col = arrays[0].stride()
    return lapidist.Pointers(addresses, (rows, columns), arrays[0].dtype, (row, col), alignment=16)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_rows_that_are_gathered_and_scattered(dtype: Any, index: Any) -> None:
    a, b, c = whole(70, 90, dtype=dtype), whole(90, 130, dtype=dtype), whole(200, 50, dtype=dtype)
    rows, columns = (
        torch.randint(0, size, (count,), device="cuda") for size, count in ((70, 150), (130, 50))
    )
    into = torch.randperm(200, device="cuda")[:150]
    out = torch.full_like(c, 7)
    indices = {"gather_a": rows, "gather_b": columns, "scatter_d": into}
    given: dict[str, Any] = {name: values.to(index) for name, values in indices.items()}
    expected = torch.full((200, 50), 7, dtype=torch.complex128)
    right = 1j * product(a[rows], b[:, columns]) - c[into].cpu()
    expected[into.cpu()] = right
    for _ in range(3):
        lapidist.gemm(a, b, c, alpha=1j, beta=-1.0, out=out, **given)
        same(out, expected)
    real = torch.view_as_real(a)[..., 0].contiguous()
    same(lapidist.gemm(real, b, gather_a=given["gather_a"]), product(real.to(dtype)[rows], b))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("numbers", [(1.0, 0.0), (2 - 1j, 1j)])
def test_addresses(dtype: Any, numbers: tuple[Any, Any]) -> None:
    alpha, beta = numbers
    count = 70  # more than a launch of listed arrays takes
    a = [whole(33, 40, dtype=dtype).mT for _ in range(count)]  # neighbours of a column touch: copied
    b, c = ([whole(*shape, dtype=dtype) for _ in range(count)] for shape in ((65, 33), (40, 65)))
    right = [alpha * product(x, y.mH) + beta * z.cpu() for x, y, z in zip(a, b, c, strict=True)]
    how: dict[str, Any] = {"alpha": alpha, "beta": beta, "trans_b": "C"}
    out = [torch.empty_like(z) for z in c]
    given = pointers(a), pointers(b), pointers(c) if beta else None
    assert isinstance(lapidist.gemm(*given, out=pointers(out), **how), lapidist.Pointers)
    for found, expected in zip(out, right, strict=True):
        same(found, expected)
    if beta:
        inside = pointers(c)
        plan = lapidist.plan(*given[:2], inside, out=inside, **how)
        plan.execute(*given[:2], inside, inside)
        for found, expected in zip(c, right, strict=True):
            same(found, expected)


def test_a_graph_of_addresses() -> None:
    a, b, out = ([whole(*shape) for _ in range(5)] for shape in ((40, 33), (33, 65), (40, 65)))
    given, to = (pointers(a), pointers(b)), pointers(out)
    lapidist.gemm(*given, out=to)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.gemm(*given, out=to)
    for x, y in zip(a, out, strict=True):
        x.copy_(whole(40, 33))
        y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    for x, y, found in zip(a, b, out, strict=True):
        same(found, product(x, y))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_plan_of_lists(dtype: Any) -> None:
    a, b = (
        [whole(*shape, dtype=dtype) for shape in shapes]
        for shapes in (((5, 90), (300, 40)), ((90, 7), (40, 65)))
    )
    plan = lapidist.plan(a, b, alpha=2j)
    for _ in range(3):
        for result, x, y in zip(plan.execute(a, b), a, b, strict=True):
            same(result, 2j * product(x, y))
        for x in a:
            x.copy_(whole(*x.shape, dtype=dtype))
