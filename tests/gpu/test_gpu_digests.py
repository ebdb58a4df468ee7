"""On a GPU: the order and the bits of every type and tier, beside those that an H200 gave."""

from __future__ import annotations

from typing import Any

import pytest

from lapidist_lab import bit_digests as digest

pytestmark = pytest.mark.gpu
CHIP, ANSWERS = digest.recorded()


@pytest.mark.parametrize("name", digest.CASES)
def test_a_card_gives_the_recorded_bits(torch: Any, name: str) -> None:
    answer, expected = digest.answer_of(digest.CASES[name]), ANSWERS[name]
    if answer.order != expected.order:
        chip = torch.cuda.get_device_name()
        pytest.skip(f"{chip} plans another order than {CHIP} did, so bits may differ: {answer.order}")
    assert answer == expected
