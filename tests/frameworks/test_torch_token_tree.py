"""Gradients of weights by a tree over tokens: no cut of a batch into micro-batches changes their bits."""

from __future__ import annotations

from typing import Any

import pytest

from lapidist.errors import ArgumentError, ShapeError

pytestmark = pytest.mark.frameworks

torch = pytest.importorskip("torch")
import lapidist.torch as lt  # noqa: E402

LEAF, ROWS = 16, 7 * 16
CUTS = ([ROWS], [LEAF] * 7, [3 * LEAF, 4 * LEAF], [2 * LEAF, LEAF, 2 * LEAF, 2 * LEAF])


def operands(dtype: Any) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(5)
    x, w, g = (torch.randn(shape, generator=generator) for shape in ((ROWS, 32), (24, 32), (ROWS, 24)))
    return x.to(dtype), w.to(dtype).requires_grad_(), g.to(dtype)


def gradient(x: Any, w: Any, g: Any, cut: list[int]) -> Any:
    tree = lt.TokenTree(tokens=LEAF)
    for rows, of_rows in zip(x.split(cut), g.split(cut), strict=True):
        lt.linear(rows, w, into=tree).backward(of_rows)
    assert w.grad is None
    return tree.total()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_no_cut_changes_a_bit(dtype: Any) -> None:
    x, w, g = operands(dtype)
    whole, *others = (gradient(x, w, g, cut) for cut in CUTS)
    assert whole.dtype == (dtype if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(whole.double(), g.double().T @ x.double(), rtol=1e-5, atol=1e-4)
    assert all(torch.equal(other, whole) for other in others)


def test_the_tree_is_that_of_a_binary_counter() -> None:
    """0 to 3, then 4 and 5, then 6: the last ones are joined first."""
    x, w, g = operands(torch.float32)
    leaves = [
        lt.gemm(of_rows, rows, trans_a=True)
        for rows, of_rows in zip(x.split(LEAF), g.split(LEAF), strict=True)
    ]
    four = (leaves[0] + leaves[1]) + (leaves[2] + leaves[3])
    assert torch.equal(gradient(x, w, g, [ROWS]), four + ((leaves[4] + leaves[5]) + leaves[6]))


def test_a_layer_sums_into_its_tree_and_begins_anew() -> None:
    layer, x = lt.Linear(8, 4), torch.randn(2, 2 * LEAF, 8)
    layer.weight.main_grad = tree = lt.TokenTree(LEAF)
    sums = []
    for _ in range(2):
        layer(x).sum().backward()
        sums.append(tree.total())
    assert torch.equal(*sums)
    assert tree.total() is None
    torch.testing.assert_close(sums[0], x.sum((0, 1)).expand(4, 8))


def test_what_is_refused() -> None:
    x, w, _ = operands(torch.float32)
    tree = lt.TokenTree(LEAF)
    with pytest.raises(ShapeError, match=r"input: must have whole leaves of 16 rows .* got 17 rows"):
        lt.linear(x[:17], w, into=tree)
    for tokens in (0, 2.0, True):
        with pytest.raises(ArgumentError, match="tokens: must be a whole number from 1 on; got"):
            lt.TokenTree(tokens)
    groups = torch.randn(2, 32, 24, requires_grad=True)
    with pytest.raises(ArgumentError, match="into: must be a tensor here; got a TokenTree"):
        lt.grouped(x, groups, torch.tensor([16, ROWS], dtype=torch.int32), into=tree)
    assert tree.total() is None
