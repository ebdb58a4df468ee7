"""The way of a product with a weight of few bits: what took least on an H200, and what callers wish."""

from __future__ import annotations

from typing import Any

import pytest

from lapidist.device import chip as chip_named
from lapidist.problems.modes import Modes
from lapidist.problems.ragged import ROWS, Ragged
from lapidist.quantised.kernel_parameters import Rows
from lapidist.quantised.ways import way_on
from lapidist.quantised.weight_facts import Weight

INT4 = Weight(8192, 8192, "int4", 128, "bfloat16", False, "bfloat16")
MXFP4 = INT4._replace(format="mxfp4", group=32, scale_type="e8m0")
E4M3: dict[str, Any] = {"dtype": "float8_e4m3fn", "out": "bfloat16"}
H200, A100 = chip_named("h200"), chip_named("a100")
# Rows, n, k, the weight, and the fastest way: of the two fastest, one took a tenth longer at least
MEASURED = [
    (16, 28672, 4096, INT4, "streamed"),
    (1024, 8192, 8192, INT4, "streamed"),
    (4096, 7168, 2048, INT4, "decoded"),
    (192, 28672, 4096, INT4._replace(**E4M3), "streamed"),
    (1024, 8192, 8192, INT4._replace(**E4M3), "decoded"),
    (16, 2048, 768, MXFP4._replace(**E4M3), "streamed"),
    (128, 28672, 4096, MXFP4._replace(**E4M3), "converted"),
    (1024, 28672, 4096, MXFP4._replace(**E4M3), "decoded"),
]


@pytest.mark.parametrize(("rows", "n", "k", "weight", "fastest"), MEASURED)
def test_the_way_that_took_least(rows: int, n: int, k: int, weight: Weight, fastest: str) -> None:
    assert way_on(H200, Rows(rows, n), weight._replace(n=n, k=k)) == fastest


def test_wishes_of_callers() -> None:
    for chip in (H200, A100):
        assert [way_on(chip, Rows(8, 8192), INT4, wish) for wish in (True, False)] == ["decoded", "streamed"]
    exact = MXFP4._replace(**E4M3)
    assert way_on(H200, Rows(4096, 8192), exact, may_decode=False) == "converted"


def test_few_rows_are_read_as_they_are() -> None:
    assert {way_on(H200, Rows(m, 8192), MXFP4._replace(**E4M3)) for m in (0, 1, 4)} == {"streamed"}


def test_rows_that_end_inside_of_a_vector_are_not_converted() -> None:
    ways = [way_on(H200, Rows(100, 28672), MXFP4._replace(**E4M3, n=28672, k=k)) for k in (4096, 4104)]
    assert ways == ["converted", "streamed"]


def test_groups_and_other_chips_count_rows() -> None:
    groups = Modes(ragged=Ragged(ROWS, 4, 8000))
    for chip, modes, most in ((A100, Modes(), 128), (H200, groups, 512)):
        ways = [way_on(chip, Rows(each, 8192, each, modes), INT4) for each in (most, most + 1)]
        assert ways == ["streamed", "decoded"]
    assert way_on(A100, Rows(4096, 8192), MXFP4._replace(**E4M3)) == "streamed"


def test_what_cannot_be_decoded() -> None:
    """Rows of int8 have no scaled product, groups of 64 no factor there, and e4m3 holds no code of int8."""
    int8 = INT4._replace(dtype="int8", out="float32")
    for weight in (int8, INT4._replace(**E4M3, group=64)):
        assert way_on(H200, Rows(8192, 8192), weight) == "streamed"
