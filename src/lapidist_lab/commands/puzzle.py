"""`lapidist puzzle`: a rung with one thing missing, mended in a file of the reader's, and judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapidist.commands.fold import folded, folded_text
from lapidist.commands.options import JsonObject
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist_lab.puzzles.broken_rungs import Puzzle

EXAMPLES = ("puzzle", "puzzle 05", "puzzle 05 --hint 1", "puzzle 05 --anew --into puzzles")


def puzzle(
    number: Annotated[
        str | None,
        typer.Argument(metavar="PUZZLE", help="a rung's number or name; without one, all are listed"),
    ] = None,
    into: Annotated[Path, typer.Option(help="the folder of your copies")] = Path(),
    hint: Annotated[
        int | None, typer.Option(min=1, help="show the hints up to this one, and no more")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="write the copy again, whatever you changed in it")
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Mend a rung that lacks one thing; the machine judges it.

    The first call writes a copy of the rung into the folder. Change it, and call again. Code 1: not mended
    yet.
    """
    from lapidist_lab.puzzles.broken_rungs import puzzle_named

    if number is None:
        if hint is not None or anew:
            raise ArgumentError(
                "PUZZLE: must be given with --hint and --anew; got none. Write: lapidist puzzle 05"
            )
        list_puzzles(as_json)
        return
    chosen = puzzle_named(number)
    if hint is not None:
        show_hints(chosen, hint, as_json)
        return
    solve(chosen, into, anew, as_json)


def list_puzzles(as_json: bool) -> None:
    from lapidist_lab.puzzles.broken_rungs import PUZZLES

    if as_json:
        rows = [{"number": each.number, "rung": each.rung, "goal": each.goal} for each in PUZZLES]
        print(json.dumps(rows))
        return
    for each in PUZZLES:
        print(folded_text(f"{each.number:02d}  {each.rung}\n    {each.goal}"))
    print("Begin: lapidist puzzle 04")


def show_hints(chosen: Puzzle, hint: int, as_json: bool) -> None:
    if hint > len(chosen.hints):
        raise ArgumentError(
            f"--hint: must be from 1 to {len(chosen.hints)} here; got {hint}. The last one is the answer"
        )
    shown = chosen.hints[:hint]
    print(
        json.dumps(shown)
        if as_json
        else "\n".join(folded(f"{number}. {text}", 3) for number, text in enumerate(shown, 1))
    )


def solve(chosen: Puzzle, folder: Path, anew: bool, as_json: bool) -> None:
    """Write the copy where there is none, and judge it."""
    from lapidist.machine.authors.cuda_sources import read_text
    from lapidist.writable import require_folder
    from lapidist_lab.puzzles.puzzle_verdicts import judge

    path = folder / chosen.file_name
    written = anew or not path.exists()
    if written:
        require_folder("--into", folder)
        path.write_text(chosen.source(), encoding="utf-8")
    verdict = judge(chosen, read_text(path, str(path)))
    if as_json:
        print(json.dumps(verdict.data() | {"file": str(path)}))
    else:
        print(folded_text(f"{path}: {'written; ' if written else ''}{chosen.goal}\n{verdict}"))
        if not verdict.solved:
            advice = f"Change {path} and ask again. Hints: lapidist puzzle {chosen.number:02d} --hint 1"
            print(folded_text(advice))
    raise typer.Exit(int(not verdict.solved))
