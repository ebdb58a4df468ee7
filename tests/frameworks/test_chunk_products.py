"""Sums over k in chunks have the same bits for every number of ranks: in the machine, and over the memory of
peers."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lapidist.distributed as ld  # noqa: E402
from lapidist import Accuracy  # noqa: E402
from lapidist.distributed.product_gradients import Reduced  # noqa: E402
from lapidist.distributed.product_options import Options  # noqa: E402
from lapidist.distributed.row_products import RowProducts  # noqa: E402
from lapidist.errors import ArgumentError, ShapeError  # noqa: E402

pytestmark = pytest.mark.frameworks
CHUNKS, M, N, K = 8, 20, 24, 1024


def drawn(dtype: Any, *shape: int) -> Any:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return (numbers * 9).round().to(dtype) if dtype == torch.int8 else numbers.to(dtype)


def bits(tensor: Any) -> bytes:
    data: bytes = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
    return data


def shares(tensor: Any, ranks: int, dim: int) -> list[Any]:
    return [part.contiguous() for part in tensor.chunk(ranks, dim)]


def over_ranks(a: Any, b: Any, ranks: int, trans_b: bool) -> Any:
    """The sums of each rank's chunks, added as an exchange adds them."""
    options = Options(trans_b=trans_b, chunks=CHUNKS // ranks, device="machine")
    pairs = zip(shares(a, ranks, 1), shares(b, ranks, 1 if trans_b else 0), strict=True)
    terms = [RowProducts([matrix], options).multiply(rows)[0] for rows, matrix in pairs]
    return RowProducts([b], options).sum_of(terms)


@pytest.mark.parametrize("trans_b", [False, True], ids=["kn", "nk"])
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "int8"])
def test_one_two_four_and_eight_ranks_in_the_machine(name: str, trans_b: bool) -> None:
    dtype = getattr(torch, name)
    a, b = drawn(dtype, M, K), drawn(dtype, *((N, K) if trans_b else (K, N)))
    one = ld.matmul_in_chunks(a, b, chunks=CHUNKS, trans_b=trans_b, device="machine")
    exact = a.double() @ (b.double().t() if trans_b else b.double())
    torch.testing.assert_close(one.double(), exact, rtol=2e-2, atol=1e-3 * K**0.5)
    for ranks in (1, 2, 4, 8):
        assert bits(over_ranks(a, b, ranks, trans_b).to(one.dtype)) == bits(one), ranks
    few = ld.matmul_in_chunks(a[3:5], b, chunks=CHUNKS, trans_b=trans_b, device="machine")
    assert bits(few) == bits(one[3:5])


def test_another_tree_has_other_bits() -> None:
    """So equal bits are no accident of these numbers."""
    a, b = drawn(torch.float32, M, K), drawn(torch.float32, K, N)
    eight, four = (ld.matmul_in_chunks(a, b, chunks=chunks, device="machine") for chunks in (8, 4))
    options = Options(chunks=1, device="machine")
    parts = zip(shares(a, CHUNKS, 1), shares(b, CHUNKS, 0), strict=True)
    terms = [RowProducts([matrix], options).multiply(rows)[0] for rows, matrix in parts]
    in_turn = RowProducts([b], Options()).sum_of(terms)
    assert len({bits(eight), bits(four), bits(in_turn)}) == 3


@pytest.mark.parametrize("trans_b", [False, True], ids=["kn", "nk"])
def test_gradients_are_those_of_one_rank(trans_b: bool) -> None:
    dim, shape = (1, (N, K)) if trans_b else (0, (K, N))
    a, b = drawn(torch.bfloat16, M, K), drawn(torch.bfloat16, *shape)
    g = drawn(torch.bfloat16, M, N)

    def gradients(rows: Any, matrix: Any, chunks: int) -> Any:
        rows, matrix = rows.requires_grad_(), matrix.requires_grad_()
        options = Options(trans_b=trans_b, chunks=chunks, device="machine")
        return torch.autograd.grad(
            Reduced.apply(rows, None, options, None, matrix), (rows, matrix), g.float()
        )

    of_a, of_b = gradients(a, b, CHUNKS)
    torch.testing.assert_close(of_a, (g.double() @ (b if trans_b else b.t()).double()).bfloat16())
    for ranks in (2, 4, 8):
        parts = zip(
            shares(a.detach(), ranks, 1),
            shares(b.detach(), ranks, dim),
            shares(of_a, ranks, 1),
            shares(of_b, ranks, dim),
            strict=True,
        )
        for rows, matrix, *expected in parts:
            found = gradients(rows, matrix, CHUNKS // ranks)
            assert [*map(bits, found)] == [*map(bits, expected)]


@pytest.mark.parametrize("way", ["slots", "one_shot"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_terms_in_peers_memory(ranks: int, way: str) -> None:
    played = importlib.import_module("played_ranks")
    a, b = drawn(torch.float32, 16, K), drawn(torch.float32, K, N)
    one = ld.matmul_in_chunks(a, b, chunks=CHUNKS, device="machine")
    group = played.Ranks(ranks, seed=3)
    options = Options(chunks=CHUNKS // ranks, device="machine")
    call = {"slots": "scattered", "one_shot": "reduced"}[way]
    parts = zip(group.members, shares(a, ranks, 1), shares(b, ranks, 0), strict=True)
    results = [
        getattr(member, call)(rows, None, RowProducts([matrix], options)) for member, rows, matrix in parts
    ]
    group.run()
    expected = shares(one, ranks, 0) if way == "slots" else [one] * ranks
    assert [*map(bits, results)] == [*map(bits, expected)]


def test_what_is_refused() -> None:
    a, b = torch.ones(2, 24), torch.ones(24, 3)
    for chunks in (3, 0, True, 2.0):
        with pytest.raises(ArgumentError, match="chunks: must be a power of two; got"):
            ld.matmul_in_chunks(a, b, chunks=chunks)
    for precision in ("emulated", "emulated_any_range", Accuracy(21)):
        for device in ("machine", None):
            with pytest.raises(
                ArgumentError, match=r"with chunks, .* looks at all rows. Leave it out, or leave"
            ):
                ld.matmul_in_chunks(a, b, chunks=8, precision=precision, device=device)
    with pytest.raises(ShapeError, match="chunks: must divide k of all ranks, 24; got 16"):
        ld.matmul_in_chunks(a, b, chunks=16)
