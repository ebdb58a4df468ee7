"""On a GPU: sums over k by a tree of chunks, for any number of ranks and rows, and sums over tokens."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def the_best_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIDIST_COMPILE", "wait")


def over_ranks(a: Any, b: Any, ranks: int, chunks: int) -> Any:
    from lapidist.distributed.product_options import Options
    from lapidist.distributed.row_products import RowProducts

    options = Options(trans_b=True, chunks=chunks // ranks)
    parts = zip(a.chunk(ranks, 1), b.chunk(ranks, 1), strict=True)
    terms = [RowProducts([w.contiguous()], options).multiply(x.contiguous())[0] for x, w in parts]
    return RowProducts([b], options).sum_of(terms)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize(("n", "k"), [(512, 4096), (1024, 8192), (136, 1048)])
def test_any_number_of_ranks_and_rows(dtype: str, n: int, k: int) -> None:
    from lapidist import distributed as ours

    kind = getattr(torch, dtype)
    a, b = torch.randn(1000, k, device="cuda").to(kind), torch.randn(n, k, device="cuda").to(kind)
    one = ours.matmul_in_chunks(a, b, trans_b=True)
    torch.testing.assert_close(one.double(), a.double() @ b.double().T, rtol=2e-2, atol=1e-2 * k**0.5)
    for ranks in (1, 2, 4, 8):
        assert torch.equal(over_ranks(a, b, ranks, 8).to(one.dtype), one)
    for rows in (slice(3, 4), slice(0, 64), slice(900, 1000)):
        assert torch.equal(ours.matmul_in_chunks(a[rows], b, trans_b=True), one[rows])


def test_many_rows_take_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of chunks are there for some rows at a time, with the same bits."""
    from lapidist import distributed as ours
    from lapidist.distributed import chunk_products

    a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((900, 2048), (2048, 512)))
    one = ours.matmul_in_chunks(a, b)
    monkeypatch.setattr(chunk_products, "ROOM", 8 * 512 * 4 * 128)
    assert torch.equal(ours.matmul_in_chunks(a, b), one)


def test_micro_batches_change_no_bit_of_a_weights_gradient() -> None:
    import lapidist.torch as operators

    x, w = torch.randn(4096, 1024, device="cuda").bfloat16(), torch.randn(512, 1024, device="cuda").bfloat16()
    g, w = torch.randn(4096, 512, device="cuda").bfloat16(), w.requires_grad_()
    sums = []
    for rows in (4096, 512, 1024, 1536):
        tree = operators.TokenTree(tokens=512)
        for part, of_part in zip(x.split(rows), g.split(rows), strict=True):
            operators.linear(part, w, into=tree, invariant=True).backward(of_part)
        sums.append(tree.total())
    torch.testing.assert_close(sums[0].double(), g.double().T @ x.double(), rtol=1e-4, atol=1e-2)
    assert all(torch.equal(other, sums[0]) for other in sums)
