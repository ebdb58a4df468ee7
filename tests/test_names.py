"""Words in names of host and device code: those of the field, and few that only point."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

from offenders import hold_none
from project_files import DEVICE_FILES, HOST_FILES, relative, text_of, tree_of

# What they were: Call, UnitQueue, Cursor, Routing, Operation, fast_path, slots or offsets, transposed.
PRIVATE_WORDS = ("told", "board", "desk", "wishes", "form", "steady", "places", "turned")


@cache
def words_of(name: str) -> list[str]:
    """Of a name in any case: `turned_line`, TURNED_LINES and FragmentPlaces have two each."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().split("_")


def identifiers(path: Path) -> set[str]:
    """The names that a file gives or uses, its own among them."""
    found = {path.stem}
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text_of(path)).readline)
        return found | {each.string for each in tokens if each.type == tokenize.NAME}
    code = re.sub(r"//[^\n]*", "", text_of(path))
    return found | set(re.findall(r"\b[A-Za-z_]\w*", code))


def test_names_are_the_fields_words() -> None:
    hold_none(
        f"{relative(path)}: {name}"
        for path in (*HOST_FILES, *DEVICE_FILES)
        for name in sorted(identifiers(path))
        if {*words_of(name)} & {*PRIVATE_WORDS}
    )


def test_comments_of_device_code_say_tma() -> None:
    """And not by words that a copy of the driver's could be meant with."""
    comments = {relative(path): re.sub(r"\n\s*//", "", text_of(path)) for path in DEVICE_FILES}
    assert [name for name, text in comments.items() if re.search(r"\bcopy\s+engine", text, re.I)] == []


# They say where a thing stands in a sentence, not what it is.
POINTING_WORDS = (
    "again apart asked beside besides each found given here kept known left made ones others own rest said"
    " seen taken them there those wanted what whole"
)
POINTING = frozenset(POINTING_WORDS.split())
POINTING_PER_1000 = 3.0


def names_used(path: Path) -> list[str]:
    """Each name that a Python file gives or uses, as often as it does."""
    names: list[str] = []
    for node in ast.walk(tree_of(path)):
        for field in ("id", "attr", "arg", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                names.append(name)
    return names


@cache
def points(name: str) -> bool:
    return not POINTING.isdisjoint(words_of(name.rpartition(".")[2].strip("_")))


def test_few_names_only_point() -> None:
    counts = {
        path: (sum(map(points, names)), len(names)) for path in HOST_FILES if (names := names_used(path))
    }
    pointing, total = (sum(column) for column in zip(*counts.values(), strict=True))
    worst, (number, _) = max(counts.items(), key=lambda entry: entry[1][0])
    share = 1000 * pointing / total
    assert share < POINTING_PER_1000, (
        f"{share:.1f} of 1,000 names; the worst file: {relative(worst)}, {number}"
    )


def test_private_words_are_found_in_names_of_any_case() -> None:
    for name in ("B_TURNED", "turned_line", "FragmentPlaces", "PLACES", "ATurned"):
        assert {*words_of(name)} & {*PRIVATE_WORDS}, name
    assert not {*words_of("replaced_returned")} & {*PRIVATE_WORDS}
