"""Rows of a product that are stored at their owners, on a card: owners are tensors of the same one."""

from __future__ import annotations

from typing import Any

import pytest

from lapidist.device import chip
from lapidist.distributed.product_options import Options

pytestmark = pytest.mark.gpu
SHAPES = [
    (2, 64, 72, 144),
    (2, 512, 8192, 256),
    (3, 48, 1040, 520),
    (4, 1024, 2048, 512),
    (8, 16, 256, 4096),
    (2, 4096, 1024, 1024),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize(("owners", "rows", "n", "k"), SHAPES)
def test_owners_get_their_rows(torch: Any, dtype: str, owners: int, rows: int, n: int, k: int) -> None:
    """By the planner's kernel, whichever owner is first; whole numbers are exact in any order."""
    from lapidist.distributed.row_products import RowProducts

    if torch.cuda.get_device_capability() != chip("h200").capability:
        pytest.skip("only Hopper has kernels that store rows at their owners")
    a, b = (
        torch.randint(-3, 4, shape, device="cuda").to(getattr(torch, dtype))
        for shape in ((owners * rows, k), (n, k))
    )
    out = torch.int32 if dtype == "int8" else torch.float32
    products = RowProducts([b.t()], Options(out_dtype=out))
    expected = a.double() @ b.t().double()
    for first in (0, owners - 1):
        like = torch.full((owners * rows, n), -1, device="cuda", dtype=out)
        # apart, and in another order than the rows
        slots = [torch.full((rows, n), -1, device="cuda", dtype=out) for _ in range(owners)][::-1]
        products.multiply_to_owners(a, None, slots, like, first)
        assert torch.equal(torch.cat(slots).double(), expected)
        assert (like == -1).all()
