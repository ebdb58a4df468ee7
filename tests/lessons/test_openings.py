"""What lessons open with: the idea's moment, the ring of stages, shared tiles, banks, swizzled tiles."""

from __future__ import annotations

import re

import pytest

from in_turns import surveyed
from lapidist.kernels.registry import RUNGS, kernel_named
from lapidist_lab.lessons.ideas import IDEAS, PARTS, PICTURES, SHORT_WAY
from lapidist_lab.lessons.page import TEMPLATES
from lapidist_lab.lessons.rung_pictures import registers, shares
from lapidist_lab.lessons.thumbnails import DRAWN, thumbnail
from lapidist_lab.lessons.watch import Copy, Multiplication, Request
from rung_lessons import lesson, observed

# ---- ideas ----


def test_every_rung_has_an_idea_with_a_question() -> None:
    assert list(IDEAS) == [rung.name for rung in RUNGS]
    for number, idea in enumerate(IDEAS.values(), 1):
        assert idea.question.endswith("?")
        assert idea.answer.endswith(".")
        assert all(need < number for need in idea.needs)
        assert (idea.picture == "counts") == bool(idea.row)


def test_every_picture_is_drawn_on_the_page_and_on_the_index() -> None:
    script = (TEMPLATES / "opening.js").read_text()
    table = re.search(r"const PICTURES = \{(.*?)\};", script)
    assert table is not None
    assert set(re.findall(r"(\w+): (?:\w+Pictures?|\(\))", table[1])) == set(PICTURES) == set(DRAWN)
    assert {idea.picture for idea in IDEAS.values()} == set(PICTURES)


def test_the_order_of_reading_has_every_rung_once() -> None:
    numbers = [number for _, first, last in PARTS for number in range(first, last + 1)]
    assert numbers == list(range(1, len(RUNGS) + 1))
    assert all(set(IDEAS[RUNGS[number - 1].name].needs) <= set(numbers) for number in SHORT_WAY)


def test_the_load_of_bs_stands_beside_that_before() -> None:
    found = lesson("padded_tile")
    warp, place = found["opening"]["place"]
    moment, before = found["warps"][warp]["moments"][place], found["opening"]["before"]
    assert (moment["kind"], moment["what"], moment["turns"]) == ("shared", "load", 1)
    assert (before["kind"], before["what"], before["turns"]) == ("shared", "load", 32)


def test_a_thumbnail_draws_what_the_page_opens_with() -> None:
    assert thumbnail(lesson("padded_tile")).count("<rect") == 32
    assert thumbnail(lesson("wgmma_specialised")).count("<rect") == 3 * 6


# ---- the ring of stages ----


@pytest.mark.parametrize("name", ["wgmma_specialised", "wgmma_rounds", *surveyed(["producer_warp"])])
def test_a_stage_is_filled_read_and_given_back_by_turns(name: str) -> None:
    found = lesson(name)
    fills = found["opening"]["ring"]
    stages, steps = (
        observed(name).kernel.config_for(found["math"]).stages,
        found["shape"][2] // found["tile"][2],
    )
    tiles = 2 if name == "wgmma_rounds" else 1
    assert [fill[1] for fill in fills] == [*range(0, found["shape"][2], found["tile"][2])] * tiles
    assert [fill[0] for fill in fills] == [place % stages for place in range(tiles * steps)]
    for place, (_, _, ordered, landed, first, back) in enumerate(fills):
        assert ordered < landed <= first <= back
        if place >= stages:
            assert ordered >= fills[place - stages][-1]


# ---- shared tiles ----


@pytest.mark.parametrize("split", [False, True])
def test_blocks_compute_each_step_of_each_tile_once(split: bool) -> None:
    found = shares(split)
    all_steps = sorted((tile, step) for tile in range(6) for step in range(found["steps"]))
    for rows in filter(None, (found["before"], found["now"])):
        done = [(tile, k) for row in rows for tile, first, end, *_ in row for k in range(first, end)]
        assert sorted(done) == all_steps
    lengths = [sum(end - first for _, first, end, *_ in row) for row in found["now"]]
    assert (len(set(lengths)) == 1) == split


# ---- banks of registers ----


def test_the_order_of_fmas_spares_the_banks() -> None:
    before, now = (registers(kernel_named(name), "float32") for name in ("tall_tile", "bank_order"))
    assert before is not None
    assert now is not None
    assert now["late"] / now["fmas"] < 0.02 < before["late"] / before["fmas"]
    assert all(bank == register % 2 for fma in now["rows"] for register, bank, _ in fma)


# ---- what lies where ----


def test_a_product_reads_pieces_where_the_swizzle_put_them() -> None:
    """Piece p of row r of A lies at p ^ r; the first product reads pieces 0 and 1 of each row."""
    seen = observed("wgmma_tma")
    moments = seen.clock.warps[0].moments
    product = next(each.event for each in moments if isinstance(each.event, Multiplication))
    of_a = product.atoms[0]
    depth = seen.product.a.shape[1]
    for place, (element, read) in enumerate(zip(of_a.elements, of_a.read, strict=True)):
        row, piece = place // 8, place % 8 ^ place // 8
        assert element == row * depth + 8 * piece
        assert read == (piece < 2)


def test_blocks_of_a_cluster_get_the_halves_of_b_from_each_other() -> None:
    seen = observed("wgmma_clusters")
    copies = [each.event for each in seen.clock.warps[8].moments if isinstance(each.event, Copy)]
    of_b = [int(copy.elements.min()) >= seen.elements.starts[1] for copy in copies]
    assert [copy.blocks for copy in copies] == [2 if shared else 1 for shared in of_b]
    assert any(of_b)


def test_a_block_that_stays_stores_two_tiles() -> None:
    seen = observed("wgmma_rounds")
    stores = [
        each.event.elements.min() - seen.elements.starts[2]
        for each in seen.clock.warps[0].moments
        if isinstance(each.event, Request) and each.event.action == "store"
    ]
    assert {int(first) % seen.shape[1] // 256 for first in stores} == {0, 1}
