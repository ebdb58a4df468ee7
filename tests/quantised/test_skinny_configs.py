"""Configs of skinny, which multiplies few rows by weights of few bits: those that took least on an H200."""

from __future__ import annotations

import pytest

from lapidist.problems.modes import Modes
from lapidist.problems.ragged import ROWS, Ragged
from lapidist.quantised import launches
from lapidist.quantised.kernel_parameters import Rows
from lapidist.quantised.weight_facts import Weight

# n, k, and warps, tiles ahead, sixteens and blocks on an SM of the config that was the fastest on an H200
FASTEST = [
    (6144, 4096, (16, 1, 1, 3)),
    (4096, 4096, (16, 3, 1, 2)),
    (4096, 14336, (16, 3, 1, 2)),
    (8192, 8192, (16, 1, 2, 2)),
    (28672, 4096, (4, 3, 2, 7)),
    (32000, 4096, (8, 1, 4, 4)),
    (13568, 2048, (16, 1, 2, 2)),
    (18432, 768, (4, 3, 2, 7)),
    (62464, 4096, (8, 1, 4, 4)),
]


@pytest.mark.parametrize(("n", "k", "fastest"), FASTEST)
def test_one_row_has_the_config_that_was_the_fastest(n: int, k: int, fastest: tuple[int, ...]) -> None:
    weight = Weight(k, n, "int4", 128, "bfloat16", False, "bfloat16")
    assert launches.skinny_config(Rows(1, n), weight, 132)[1:] == fastest


def test_eight_bits_have_narrow_tiles() -> None:
    weight = Weight(4096, 28672, "int8", 128, "bfloat16", False, "bfloat16")
    assert launches.skinny_config(Rows(1, 28672), weight, 132) == (1, 8, 3, 1, 4)


def test_blocks_of_groups_are_few_and_long() -> None:
    """Rows that are drawn leave some experts empty. A block takes 3 us to begin and to end."""

    def rows(pairs: int, groups: int) -> Rows:
        return Rows(pairs, 2048, -(-pairs // groups), Modes(ragged=Ragged(ROWS, groups, pairs)))

    int4 = Weight(2048, 1536, "int4", 128, "bfloat16", False, "bfloat16")
    mxfp4 = int4._replace(format="mxfp4", group=32, scale_type="e8m0")
    for weight, fastest in ((int4, (4, 3, 2, 7)), (mxfp4, (8, 1, 4, 4))):
        for pairs in (128, 512):
            assert launches.skinny_config(rows(pairs, 128), weight, 132)[1:] == fastest
        wide = weight._replace(k=7168, n=4096)
        for few, each in ((rows(8, 128), weight), (rows(8, 8), wide)):
            assert launches.skinny_config(few, each, 132)[1:] == (16, 1, 2, 2)
    down = launches.skinny_config(Rows(1, 4096), mxfp4._replace(k=14336, n=4096), 132)
    assert down[1:] == (16, 2, 1, 2)
    assert [rows(pairs, 128).expected_blocks(8) for pairs in (8, 128, 512, 1536)] == [8, 81, 126, 256]
    assert [launches.fills_groups(rows(pairs, 8)) for pairs in (8, 16, 24)] == [False, False, True]
    assert not launches.fills_groups(Rows(64, 2048))
