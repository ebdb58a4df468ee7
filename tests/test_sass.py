"""The rescheduling pass: equal code comes out, and faults planted into it are caught. No GPU is needed."""

from __future__ import annotations

import random
from functools import cache

import pytest

from lapidist import compiler, sass
from lapidist.sass.decode import Instruction, decode, read_words, straight_blocks, text_sections, with_field
from lapidist.sass.emit import READ_BOARD
from lapidist.sass.schedule import bank_cycles
from lapidist.sass.structure import Unrecognised
from lapidist.sass.verify import verify

RUNG = "ladder/15_tma_producer.cu"


@cache
def cubin(element: str = "float", level: str = "O1") -> bytes:
    options = (*compiler.compile_options({"ELEMENT": element, "ALIGNED": 1}, "sm_90a"), f"--ptxas-options=-{level}")
    text = (compiler.CUDA_SOURCES / RUNG).read_text()
    return compiler.compile_source(text, "tma_producer", options, "sm_90a", RUNG).cubin


def hot_block() -> list[Instruction]:
    for offset, size in text_sections(cubin()):
        words = read_words(cubin(), offset, size)
        for place in straight_blocks(words):
            block = [decode(words[i]) for i in place]
            if sum(x.kind == "ffma" for x in block) >= sass.HOT:
                return block
    raise AssertionError("the rung has no hot block")


def test_the_rung_is_rescheduled_and_gains() -> None:
    (report,) = sass.reschedule_with_report(cubin())[1]
    assert report.outcome == "rescheduled"
    assert report.before.ffmas == report.after.ffmas == 512
    assert report.after.bank_stalls < report.before.bank_stalls
    assert report.after.ffma_share > 0.9


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
@pytest.mark.parametrize("element", ["float", "double", "half"])
def test_every_kernel_keeps_its_instructions(element: str, level: str) -> None:
    before, after = cubin(element, level), sass.reschedule(cubin(element, level))
    assert len(before) == len(after)
    for offset, size in text_sections(before):
        old, new = (sorted(w & 0xFFF for w in read_words(c, offset, size)) for c in (before, after))
        assert old == new
    assert sass.reschedule(before) == after, "the pass is deterministic"


def test_a_kernel_without_a_product_loop_is_left_alone() -> None:
    assert sass.reschedule(cubin("double")) == cubin("double")


def rebuilt() -> tuple[list[Instruction], list[Instruction], int]:
    old = hot_block()
    words, left_over = sass.rebuild(old)
    return old, [decode(word) for word in words], left_over


def replaced(block: list[Instruction], index: int, word: int) -> list[Instruction]:
    return [*block[:index], decode(word), *block[index + 1 :]]


def test_the_new_block_is_accepted_and_the_old_one_equals_itself() -> None:
    old, new, left_over = rebuilt()
    verify(old, new, left_over)


@pytest.mark.parametrize("seed", range(20))
def test_a_wrong_operand_is_caught(seed: int) -> None:
    old, new, left_over = rebuilt()
    random_ = random.Random(seed)
    index = random_.choice([i for i, x in enumerate(new) if x.kind == "ffma"])
    start = random_.choice([16, 24, 32, 64])
    word = with_field(new[index].word, start, 8, (new[index].word >> start & 0xFF) ^ random_.choice([1, 2, 4]))
    with pytest.raises(Unrecognised):
        verify(old, replaced(new, index, word), left_over)


def test_each_missing_wait_is_caught() -> None:
    """All but those that another instruction in between happens to make needless."""
    old, new, left_over = rebuilt()
    elsewhere = 0
    for x in new:
        elsewhere |= x.waits if x.kind == "other" else 0
    waiting = [i for i, x in enumerate(new) if x.kind == "ffma" and x.waits & ~elsewhere]
    assert len(waiting) >= 6
    for index in waiting:
        with pytest.raises(Unrecognised):
            verify(old, replaced(new, index, with_field(new[index].word, 116, 6, 0)), left_over)


def test_a_load_before_the_last_reader_of_its_registers_is_caught() -> None:
    old, new, left_over = rebuilt()
    for index in [i for i, x in enumerate(new) if x.kind == "lds"]:
        early = [*new[:20], new[index], *new[20:index], *new[index + 1 :]]
        with pytest.raises(Unrecognised):
            verify(old, early, left_over)


def test_a_forgotten_load_at_the_end_is_caught() -> None:
    old, new, _ = rebuilt()
    with pytest.raises(Unrecognised):
        verify(old, new, 0)


def test_an_address_overwritten_too_early_is_caught() -> None:
    old, new, left_over = rebuilt()
    holders = [i for i, x in enumerate(new) if x.kind == "other" and x.waits >> READ_BOARD & 1]
    assert holders
    with pytest.raises(Unrecognised):
        verify(old, replaced(new, holders[0], with_field(new[holders[0]].word, 116, 6, 0)), left_over)


def test_others_moved_together_are_caught() -> None:
    old, new, left_over = rebuilt()
    first = next(i for i, x in enumerate(new) if x.kind == "other")
    others = [x for x in new[:-1] if x.kind == "other"]
    moved = [*new[:first], *others, *(x for x in new[first:-1] if x.kind != "other"), new[-1]]
    with pytest.raises(Unrecognised):
        verify(old, moved, left_over)


@pytest.mark.parametrize(
    ("reads", "before", "cycles"),
    [
        ((2, 5, 4), (), 2),  # two even
        ((2, 5, 7), (), 2),  # two odd
        ((2, 4, 6), (), 3),
        ((2, 5, 4), (2, 9, 8), 1),  # a cached: one odd, one even
        ((2, 5, 7), (2, 9, 8), 2),  # a cached: two odd
        ((2, 5, 4), (8, 5, 9), 2),  # b cached: two even
        ((2, 5, 4), (5, 2, 9), 2),  # the cache is by operand slot
    ],
)
def test_bank_cycles(reads: tuple[int, ...], before: tuple[int, ...], cycles: int) -> None:
    assert bank_cycles(reads, before) == cycles
