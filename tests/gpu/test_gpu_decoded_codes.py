"""On a GPU: many rows of e4m3 by weights of few bits, beside decoded weights in float64."""

from __future__ import annotations

from typing import Any

import pytest

from lapidist import quantised
from lapidist.quantised import product

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("format", "group"), [("int4", 128), ("int4", None), ("e4m3", 128), ("mxfp4", None)])
@pytest.mark.parametrize("rows", [257, 1000])
def test_many_rows(
    torch: Any, monkeypatch: pytest.MonkeyPatch, format: str, group: int | None, rows: int
) -> None:
    monkeypatch.setattr(product, "way_on", lambda *_: "decoded")
    k, n = 1024, 520
    more = {} if group is None else {"group": group}
    packed = quantised.pack(torch.randn(k, n, device="cuda"), format, **more)
    x = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
    factors, bias = torch.rand(rows, 1, device="cuda") + 0.5, torch.randn(n, device="cuda")
    for _ in range(3):
        found = quantised.matmul(x, packed, bias, scale_a=factors, out_dtype="float32").double()
        left, weight = x.double() * factors, quantised.unpack(packed, "float64")
        terms = left.abs() @ weight.abs() + bias.abs()
        assert ((found - (left @ weight + bias)).abs() <= 2.0**-11 * terms).all()
