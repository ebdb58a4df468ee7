"""The file of products that LAPIDIST_SHAPES names, as `lapidist warm` reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lapidist.errors import ArgumentError
from lapidist.planning.logged_shapes import Logged, of_line
from lapidist.planning.shape_log import VARIABLE
from lapidist.writable import is_folder


def read_shapes(path: Path) -> list[Logged]:
    """The products and second passes of such a file, each once."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        way_out = "Name a file in it" if is_folder(path) else f"Run the program with {VARIABLE}={path} first"
        raise ArgumentError(f"--shapes: must be a file that {VARIABLE} named; {error}. {way_out}") from error
    return [logged_of(line, number) for line, number in first_lines(lines)]


def first_lines(lines: list[str]) -> Iterator[tuple[str, int]]:
    """The lines with their numbers, in their order. Repeated and empty ones are left out."""
    numbers = {line: number for number, line in reversed(list(enumerate(lines, 1))) if line.strip()}
    return iter(sorted(numbers.items(), key=lambda entry: entry[1]))


def logged_of(line: str, number: int) -> Logged:
    try:
        return of_line(line)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"--shapes: line {number} must be of a file that {VARIABLE} named; got {line[:80]!r} ({error})."
            " Log the shapes again with this version"
        ) from error
