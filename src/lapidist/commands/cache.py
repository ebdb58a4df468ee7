"""`lapidist cache`: what is kept on disk, and how to be rid of it."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from lapidist.commands.options import JsonObject
from lapidist.errors import ArgumentError
from lapidist.visible import visible

EXAMPLES = ("cache", "cache --clear", "cache --json")
MB = 1e6


def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="remove the compiled kernels; nothing else in the folder")
    ] = False,
    tuned: Annotated[bool, typer.Option("--tuned", help="with --clear: tuned.json, too")] = False,
    as_json: JsonObject = False,
) -> None:
    """What is kept on disk: compiled kernels, and what was tuned.

    LAPIDIST_CACHE_DIR says where, LAPIDIST_CACHE_BYTES (512M, 2G, ...) how much.
    """
    from lapidist.build.cache import limit_bytes
    from lapidist.build.folder import chosen_directory
    from lapidist.build.ownership import objection

    if tuned and not clear:
        raise ArgumentError("--tuned: is about what --clear removes; got it alone. Add --clear")
    folder = chosen_directory()
    if folder is None:
        raise ArgumentError(
            "LAPIDIST_CACHE_DIR: must name a folder for a user without a home; got none. Set it"
        )
    limit = limit_bytes()  # a misspelt one is reported before anything is removed
    removed = cleared(folder, tuned) if clear else {}
    facts = {
        "folder": str(folder),
        "objection": objection(folder),
        **removed,
        **kept_in(folder),
        "limit": limit,
    }
    print(json.dumps(facts) if as_json else in_words(facts))


def cleared(folder: Path, tuned: bool) -> dict[str, Any]:
    from lapidist.build.cache import clear

    gone = clear(folder)
    if tuned:
        with suppress(OSError):  # none, or a disk that is read-only: what is left is shown
            database(folder).unlink()
    return {"removed": len(gone), "removed_bytes": sum(entry.nbytes for entry in gone)}


def kept_in(folder: Path) -> dict[str, Any]:
    from lapidist.build.cache import entries

    stored = entries(folder)
    oldest = datetime.fromtimestamp(stored[0].used).date().isoformat() if stored else None
    nbytes = sum(entry.nbytes for entry in stored)
    return {"kernels": len(stored), "bytes": nbytes, "oldest": oldest, "tuned": tuned_in(folder)}


def database(folder: Path) -> Path:
    from lapidist.planning.tuned import database_path

    return folder / database_path().name


def tuned_in(folder: Path) -> dict[str, int] | str:
    """How many problems of each chip, or why nobody can tell."""
    from lapidist.planning.tuned import Unusable, parse

    path = database(folder)
    if not path.is_file():
        return {}
    try:
        chips = parse(path)
    except OSError as error:
        return f"it cannot be read ({type(error).__name__}: {error})"
    if isinstance(chips, Unusable):
        return f"it cannot be read ({chips.why})"
    return {chip: len(problems) for chip, problems in chips.items()}


def in_words(facts: dict[str, Any]) -> str:
    tuned = facts["tuned"]
    if not isinstance(tuned, str):
        # names as the file has them
        chips = {chip if chip.isprintable() else repr(chip): count for chip, count in tuned.items()}
        tuned = ", ".join(f"{count} products on {chip}" for chip, count in chips.items()) or "nothing"
    used = f", used since {facts['oldest']}" if facts["oldest"] else ""
    lines = {
        "folder": facts["folder"],
        "kernels": (
            f"{facts['kernels']}, {facts['bytes'] / MB:.1f} MB of at most {facts['limit'] / MB:.1f} MB{used}"
        ),
        "tuned.json": tuned,
    }
    if "removed" in facts:
        lines["removed"] = f"{facts['removed']} kernels, {facts['removed_bytes'] / MB:.1f} MB"
    if facts["objection"]:
        lines["warning"] = facts["objection"]
    return visible("\n".join(f"{name:<11} {words}" for name, words in lines.items()))
