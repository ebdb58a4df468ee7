"""The puzzles: each fault is found where it is, each rung passes, and a costly repair is told so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from in_turns import surveyed, surveyed_but
from lapidist.commands.cli import app
from lapidist.errors import CompileError
from lapidist_lab.puzzles.broken_rungs import PUZZLES, Puzzle, broken, puzzle_named
from lapidist_lab.puzzles.puzzle_verdicts import judge

ROOT = Path(__file__).parents[2]
SEEDS = 2
# By rung: the rule that the machine finds broken ("" for none), and a part of a line that it names.
FOUND = {
    "shared_tile": ("race", "As[thread_row][thread_col] = a_gmem"),
    "padded_tile": ("", "Acc(Bs[thread_col][k])"),
    "vector_loads": ("out-of-bounds", "load4(b_gmem, b_last)"),
    "double_buffer": ("race", "As[stage][a_col + i][a_row]"),
    "async_pipeline": ("uninitialised", "read_fragment<ROW_STEP>(a_frag[(k + 1) % 2]"),
    "tma_tiles": ("", ""),
    "producer_warp": ("race", "tma_load(stage.A"),
    "mma_swizzled": ("race", "patch[(lane / 4"),
    "wgmma_tma": ("race", "tma_load(stage.A"),
    "wgmma_specialised": ("deadlock", "barrier_wait(&pipeline.full[stage], parity)"),
}
# What is right and costs more: the rung, an edit of it, and the count that tells.
COSTLY = (
    (
        "double_buffer",
        "      outer_product(acc, a_frag, b_frag);\n    }",
        "      outer_product(acc, a_frag, b_frag);\n    }\n    __syncthreads();",
        "barriers of blocks",
    ),
    ("async_pipeline", "cp_async_wait<STAGES - 2>", "cp_async_wait<0>", "waits for all that is under way"),
    ("wgmma_specialised", "products_wait<1>", "products_wait<0>", "waits for all that is under way"),
)
# What the last hint says, done to the puzzle.
ANSWERS = {
    "shared_tile": [("Acc(Bs[thread_col][k]);", "Acc(Bs[thread_col][k]);\n    __syncthreads();")],
    "padded_tile": [("Bs[BN][BK];", "Bs[BN][BK + 1];")],
    "vector_loads": [
        (
            "b_first = tile_col + b_col, b_last = 3;",
            "b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;",
        )
    ],
    "double_buffer": [("k0 += BK)", "k0 += BK, stage ^= 1)")],
    "async_pipeline": [
        ("<STAGES - 1>();\n        __syncthreads();", "<STAGES - 2>();\n        __syncthreads();")
    ],
    "tma_tiles": [("place = k;", "place = k ^ (lane_row + m % 2 * LANES_M) * 16 / sizeof(T);")],
    "producer_warp": [
        (
            "    if (lane == 0) barrier_arrive(&pipeline.empty[freed]);",
            "    __syncwarp();\n    if (lane == 0) barrier_arrive(&pipeline.empty[freed]);",
        )
    ],
    "mma_swizzled": [("  // Store: a warp's rows", "  __syncthreads();\n  // Store: a warp's rows")],
    "wgmma_tma": [
        ("  products_wait<0>();\n", ""),
        ("    products_commit();\n", "    products_commit();\n    products_wait<0>();\n"),
    ],
    "wgmma_specialised": [("int parity = 0;", "int parity = 1;")],
}


def test_there_are_ten_in_the_ladders_order() -> None:
    numbers = [puzzle.number for puzzle in PUZZLES]
    assert len(numbers) == 10
    assert numbers == sorted(set(numbers))
    assert {puzzle.rung for puzzle in PUZZLES} == set(FOUND) == set(ANSWERS)


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda puzzle: puzzle.rung)
def test_its_source_is_the_rungs_but_for_the_edits(puzzle: Puzzle) -> None:
    """The header, which tells the answer, is left out; the last hint has it."""
    rung, mine = (text.splitlines() for text in (puzzle.rung_source(), puzzle.source()))
    added = [line for line in mine if line not in rung and not line.startswith("//")]
    assert len(added) <= len(puzzle.edits)
    assert not any(line.startswith("// Change:") for line in mine)
    assert len(puzzle.hints) == 3


def test_an_edit_that_no_longer_applies_is_told() -> None:
    with pytest.raises(ValueError, match="has 0 places like 'gone'"):
        broken("a rung", [("gone", "")])
    with pytest.raises(ValueError, match="has 2 places"):
        broken("twice twice", [("twice", "")])


# the race of wgmma_tma's is found in the same way as producer_warp's
OFTEN = [place for place, puzzle in enumerate(PUZZLES) if puzzle.rung != "producer_warp"]


@pytest.mark.often(2)
@pytest.mark.parametrize("puzzle", surveyed_but(PUZZLES, *OFTEN), ids=lambda puzzle: puzzle.rung)
def test_what_is_missing_is_found_where_it_is_missed(puzzle: Puzzle) -> None:
    rule, line = FOUND[puzzle.rung]
    verdict = judge(puzzle, puzzle.source(), SEEDS)
    assert not verdict.solved
    assert {finding.rule for finding in verdict.findings.errors} == ({rule} if rule else set())
    if rule:
        assert line in str(verdict)
        assert f"{puzzle.file_name}:" in str(verdict)
        assert "PTX" not in str(verdict)
    elif line:
        costly = [measure for measure in verdict.measures if not measure.good]
        assert [measure.name for measure in costly] == ["turns of shared loads", "turns of shared stores"]
        assert line in puzzle.source().splitlines()[costly[0].lines[0] - 1]
    else:
        assert "results are wrong, in rows 1 to 127" in str(verdict)


STAND_FOR_ALL = ("double_buffer", "wgmma_tma")  # in `make test`


@pytest.mark.often(1)
@pytest.mark.parametrize(
    "puzzle",
    [
        *(puzzle_named(name) for name in STAND_FOR_ALL),
        *surveyed(puzzle for puzzle in PUZZLES if puzzle.rung not in STAND_FOR_ALL),
    ],
    ids=lambda puzzle: puzzle.rung,
)
def test_the_rung_solves_it(puzzle: Puzzle) -> None:
    verdict = judge(puzzle, puzzle.rung_source(), SEEDS)
    assert verdict.solved, str(verdict)
    assert str(verdict).startswith("Solved")


@pytest.mark.parametrize("rung", ["wgmma_tma", *surveyed(name for name in ANSWERS if name != "wgmma_tma")])
def test_the_last_hint_solves_it(rung: str) -> None:
    """By a reader who does what it says, and no more."""
    puzzle = puzzle_named(rung)
    answer = broken(puzzle.source(), ANSWERS[rung])
    verdict = judge(puzzle, answer, 1)
    assert verdict.solved, str(verdict)


@pytest.mark.often(1)
@pytest.mark.parametrize(("rung", "old", "new", "count"), COSTLY)
def test_what_costs_more_than_the_rung_is_not_solved(rung: str, old: str, new: str, count: str) -> None:
    puzzle = puzzle_named(rung)
    source = puzzle.rung_source()
    assert old in source
    verdict = judge(puzzle, source.replace(old, new), 1)
    assert verdict.right
    assert not verdict.solved
    assert count in [measure.name for measure in verdict.measures if not measure.good]


def test_a_copy_that_does_not_compile_is_told_with_its_line() -> None:
    puzzle = puzzle_named("04")
    with pytest.raises(CompileError) as error:
        judge(puzzle, puzzle.source().replace("Acc acc = 0;", "Acc acc = nothing;"), 0)
    assert "04_shared_tile.cu(" in str(error.value)


# ---- the command ----


def test_the_command_writes_a_copy_once_and_judges_what_is_there(tmp_path: Path) -> None:
    arguments = ["puzzle", "12", "--into", str(tmp_path)]
    first = CliRunner().invoke(app, arguments)
    copy = tmp_path / "12_double_buffer.cu"
    assert first.exit_code == 1
    assert "written" in first.stdout
    assert copy.read_text() == puzzle_named("12").source()
    mended = puzzle_named("12").rung_source()
    copy.write_text(mended)
    second = CliRunner().invoke(app, [*arguments, "--json"])
    assert second.exit_code == 0
    assert json.loads(second.stdout)["solved"]
    assert copy.read_text() == mended


def test_the_command_lists_and_hints() -> None:
    listed = CliRunner().invoke(app, ["puzzle"])
    assert listed.exit_code == 0
    assert all(puzzle.goal in listed.stdout for puzzle in PUZZLES)
    hints = CliRunner().invoke(app, ["puzzle", "padded_tile", "--hint", "3"])
    assert hints.stdout.splitlines()[2].startswith("3. A row that is one element longer")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["99"], "PUZZLE: must be one of 04, 05"),
        (["05", "--hint", "9"], "--hint: must be from 1 to 3"),
        (["--anew"], "PUZZLE: must be given"),
        (["05", "--into", "/nowhere"], "--into: must be a folder that exists"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["puzzle", *arguments])
    assert words in str(result.exception)


def test_the_page_has_every_puzzle() -> None:
    page = (ROOT / "docs" / "puzzles.md").read_text()
    for puzzle in PUZZLES:
        assert (
            f"| `lapidist puzzle {puzzle.number:02d}` | [{puzzle.rung}](ladder.md) | {puzzle.goal} |" in page
        )
