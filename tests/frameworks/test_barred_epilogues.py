"""Which functions of gathered rows may be computed of some of them: others take all rows at once."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

pytest.importorskip("torch")  # which these modules import

import torch

from lapidist.distributed.product_options import Options
from lapidist.distributed.row_products import RowProducts

pytestmark = pytest.mark.frameworks
M, N = 4, 6


@lapidist.epilogue
def scaled(acc: Any, row: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.silu(acc + row) * s


@lapidist.epilogue
def of_columns(acc: Any, column: lapidist.Column) -> Any:
    return acc * column


@lapidist.epilogue
def of_tiles(acc: Any, tile: lapidist.Tile) -> Any:
    return acc * tile


@lapidist.epilogue
def narrowed(acc: lapidist.Pair) -> Any:
    return lapidist.silu(acc.first) * acc.second


@lapidist.epilogue
def two_results(acc: Any) -> Any:
    return acc, lapidist.relu(acc)


@lapidist.epilogue
def dropped(acc: Any) -> Any:
    return lapidist.dropout(acc, 0.5, seed=7)


FUNCTIONS = [
    (scaled(row=torch.ones(N), s=0.5), False),
    (of_columns(column=torch.ones(M)), True),
    (of_tiles(tile=torch.ones(M, N)), True),
    (narrowed(), True),
    (two_results, True),
    (dropped, True),
]


@pytest.mark.parametrize(("function", "is_barred"), FUNCTIONS, ids=lambda value: str(value)[:12])
def test_functions_of_all_rows_are_barred(function: Any, is_barred: bool) -> None:
    """Also behind one that is not."""
    matrix = torch.ones(8, N)
    for epilogues in ([function], [None, function], [FUNCTIONS[0][0], function]):
        products = RowProducts([matrix] * len(epilogues), Options(), epilogues=epilogues)
        assert bool(products.barred()) == is_barred
        assert ("the epilogue has" in products.described()) == is_barred
