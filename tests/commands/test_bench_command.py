"""What `lapidist bench` makes of its options: which products, beside whom, under which name."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from lapidist.commands import cli
from lapidist.errors import ArgumentError
from lapidist_lab.commands import bench


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been measured."""
    asked: list[Any] = []
    monkeypatch.setattr(bench, "perform", lambda *given, **_: asked.append(given))
    monkeypatch.setattr(bench, "require_place", lambda place: place)
    return asked


def run(*words: str) -> None:
    typer.main.get_command(cli.app)(["bench", *words], standalone_mode=False)


def test_a_ragged_corpus_is_padded_too_and_an_aligned_one_is_not(performed: list[Any]) -> None:
    run("corpus", "--dtype", "bf16", "--count", "6")
    run("corpus", "--dtype", "bf16", "--count", "6", "--multiple", "16", "--layout", "rc")
    (ragged, _, mode, *_), (aligned, _, _, _, outputs, words) = performed
    assert mode == "corpus sustained"
    assert [work.padded for work in ragged] == [True] * 6 + [False] * 2  # the last ones rounded up
    assert [work.padded for work in aligned] == [False] * 6
    assert {work.case.layout for work in aligned} == {"rc"}
    assert all(extent % 16 == 0 for work in aligned for extent in work.case.extents)
    assert "multiples of 16, seed 2301" in words
    assert outputs.name == "bench-corpus-bf16-0-x16-rc"


def test_squares_in_other_layouts(performed: list[Any]) -> None:
    run("squares", "--dtype", "fp64", "--layout", "rr,cr", "--burst", "--count", "2")
    run("layers", "--dtype", "bf16")
    (works, _, mode, _, outputs, _), (layers, *_) = performed
    assert [(work.case.layout, work.case.m) for work in works] == [
        (layout, size) for layout in ("rr", "cr") for size in (512, 1024)
    ]
    assert (mode, outputs.name) == ("burst", "bench-squares-fp64-rr-cr")
    assert {work.case.layout for work in layers} == {"rc"}
    with pytest.raises(ArgumentError, match="--layout: must be one of"):
        run("squares", "--layout", "rr,xy")


def test_groups_are_selected_by_names_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bench, "measure_on_gpu", lambda *given: asked.append(given))
    run("grouped", "--case", "mixtral,qwen3", "--rows", "64,8192", "--lengths", "one", "--way", "forward")
    run("grouped", "--dtype", "e4m3", "--skip", "3", "--count", "2")
    (subject, _, outputs, measure), (_, _, of_bytes, later) = asked
    assert (subject, outputs.name, of_bytes.name) == ("grouped", "bench-grouped-bf16", "bench-grouped-e4m3-3")
    selection = measure.keywords["selection"]
    assert {(case.rows, case.spread, case.way) for case in selection.cases()} == {
        (64, "one", "forward"),
        (8192, "one", "forward"),
    }
    assert len(selection.cases()) == 8
    assert len(later.keywords["selection"].cases()) == 2
    for words, error in (
        (["--rows", "64,a"], "--rows: must be whole numbers from 1 on, with commas between; got '64,a'"),
        (["--case", "llama"], "--case: must be among"),
    ):
        with pytest.raises(ArgumentError, match=error):
            run("grouped", *words)
