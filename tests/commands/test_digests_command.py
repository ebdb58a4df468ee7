"""`lapidist digests`: recorded bits, a card that gives others, and one that sums in another order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import in_a_process
from lapidist.dtypes import EMULATIONS, OPERANDS, TF32
from lapidist_lab import bit_digests as digest

TINY = [case for case in digest.CASES.values() if case.shape == digest.TINY]


def test_every_type_and_tier_is_recorded_on_an_h200() -> None:
    chip, answers = digest.recorded()
    assert chip == "NVIDIA H200"
    assert list(answers) == list(digest.CASES)
    types = {name for case in digest.CASES.values() for name in (case.a, case.b)}
    assert types == set(OPERANDS)
    assert {case.precision for case in digest.CASES.values()} == {"ieee", TF32, *EMULATIONS}


@pytest.mark.often(2)
@pytest.mark.parametrize("case", TINY, ids=str)
def test_the_machine_gives_the_bits_of_the_card(case: digest.DigestCase) -> None:
    """The machine models the chip's instructions. A planner that chose another order since says so."""
    _, answers = digest.recorded()
    answer, expected = digest.answer_of(case, "machine"), answers[str(case)]
    assert digest.verdict(answer, expected) == (
        digest.SAME if answer.order == expected.order else digest.OTHER_ORDER
    )


def test_every_type_has_an_order_as_recorded() -> None:
    """Else `lapidist digests --record` has to be run on a card again."""
    _, answers = digest.recorded()
    same = [case for case in TINY if digest.answer_of(case, "machine").order == answers[str(case)].order]
    assert {name for case in same for name in (case.a, case.b)} == set(OPERANDS)


def test_slices_hold_even_numbers_and_fall_back_from_others() -> None:
    """Both ways of an emulated product are recorded."""
    _, answers = digest.recorded()
    plain, fallen, even = (
        answers[f"float32 40x48x272{words}"].digest
        for words in ("", " precision=emulated", " precision=emulated even")
    )
    assert plain == fallen != even


def test_other_bits_fail_and_another_order_is_told(tmp_path: Path) -> None:
    chip, answers = digest.recorded()
    names = [str(case) for case in TINY]
    changed = {name: answers[name] for name in names}
    changed[names[0]] = changed[names[0]]._replace(digest="0" * 16)
    changed[names[1]] = changed[names[1]]._replace(order="another one", digest="0" * 16)
    digest.write(chip, changed, tmp_path / "other.json")
    ended = in_a_process(
        "digests", "--device", "machine", "--json", "--against", str(tmp_path / "other.json")
    )
    verdicts = [json.loads(line)["verdict"] for line in ended.stdout.splitlines()]
    assert ended.returncode == 1
    assert verdicts[:2] == [digest.DIFFERENT, digest.OTHER_ORDER]
    assert digest.SAME in verdicts
    assert digest.DIFFERENT not in verdicts[1:]
    wrong = in_a_process("digests", "--device", "host")
    assert wrong.returncode == 2
    assert "--device: must be gpu or machine; got 'host'" in wrong.stderr
