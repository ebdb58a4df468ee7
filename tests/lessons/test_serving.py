"""Which sectors and turns serve a request: the same totals as the counters, and lanes where they belong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapidist.machine.counters import pieces, wavefronts
from lapidist_lab.lessons.serving import least_turns, sectors_of, turns_of_words

LANE = np.arange(32)
ALL = np.ones(32, bool)


def test_a_column_of_a_wide_tile_takes_a_turn_for_each_lane() -> None:
    assert turns_of_words(128 * LANE, ALL, 4, True)[:, 0].tolist() == LANE.tolist()


def test_a_padded_column_is_served_at_once() -> None:
    assert set(turns_of_words(132 * LANE, ALL, 4, True).ravel()) == {0}


def test_one_word_serves_all_lanes() -> None:
    assert set(turns_of_words(0 * LANE + 64, ALL, 4, True).ravel()) == {0}


def test_quarters_of_a_warp_follow_each_other() -> None:
    turns = turns_of_words(16 * LANE, ALL, 16, True)
    assert turns[:, 0].tolist() == (LANE // 8).tolist()
    assert (turns == turns[:, :1]).all()


def test_a_broadcast_of_16_bytes_is_no_conflict() -> None:
    assert turns_of_words(0 * LANE, ALL, 16, True).max() + 1 == least_turns(0 * LANE, ALL, 16, True) == 2


def test_absent_lanes_are_served_in_no_turn() -> None:
    some = LANE < 4
    turns = turns_of_words(128 * LANE, some, 4, True)
    assert turns[:, 0].tolist() == [0, 1, 2, 3, *[-1] * 28]
    assert sectors_of(128 * LANE, some, 4) == [0, 4, 8, 12]


@given(
    st.lists(st.integers(0, 255), min_size=32, max_size=32),
    st.integers(1, 2**32 - 1),
    st.sampled_from([2, 4, 8, 16]),
    st.booleans(),
)
def test_the_counters_see_as_many(numbers: list[int], lanes: int, size: int, load: bool) -> None:
    offsets, present = size * np.array(numbers, np.int64), lanes >> LANE & 1 == 1
    rows = np.where(present, offsets, 0).reshape(1, 32)
    turns = turns_of_words(offsets, present, size, load)
    assert turns.max() + 1 == wavefronts(rows, present.reshape(1, 32), size, load)
    assert least_turns(offsets, present, size, load) <= turns.max() + 1
    assert len(sectors_of(offsets, present, size)) == pieces(rows, present.reshape(1, 32), size, 32)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_bank_gives_one_word_in_a_turn(size: int) -> None:
    offsets = size * np.random.default_rng(1).integers(0, 200, 32)
    turns = turns_of_words(offsets, ALL, size, True)
    words = offsets[:, None] // 4 + np.arange(size // 4)
    served: dict[tuple[int, int], int] = {}
    for turn, word in zip(turns.ravel().tolist(), words.ravel().tolist(), strict=True):
        assert served.setdefault((turn, word % 32), word) == word
