"""Products as the command line names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapidist.commands.products import Product, parse_mnk, product_of, read_products
from lapidist.errors import ArgumentError


def test_products_come_from_options_and_files(tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text('[[1, 2, 3], {"m": 4, "n": 5, "k": 6, "dtype": "float64"}]')
    assert read_products(file, "float32") == [Product(1, 2, 3, "float32"), Product(4, 5, 6, "float64")]
    assert parse_mnk("7,8,9", "float16") == parse_mnk("7x8x9", "float16") == Product(7, 8, 9, "float16")


@pytest.mark.parametrize(
    "text", ["[]", "{}", "[[1, 2]]", "[[1, 2, 0]]", '[["a", 2, 3]]', "[[true, 2, 3]]", "not json"]
)
def test_a_bad_file_of_products_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.json"
    file.write_text(text)
    with pytest.raises(ArgumentError, match="--file"):
        read_products(file, "float32")


@pytest.mark.parametrize("extent", [0, -1, 2**31])
def test_an_extent_outside_its_range_is_quoted(extent: int) -> None:
    with pytest.raises(ArgumentError, match=rf"--size: n .* got {extent}"):
        product_of(1, extent, 1, "float32", "--size")
