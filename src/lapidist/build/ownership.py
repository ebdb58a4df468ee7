"""Whose a folder is. Its files are executed, so no other user may write them, or put another folder in its
place.

Root is trusted: it may change everything anyway, and it fills the images of containers. So is the owner of /,
as whom some containers show root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

ROOT = 0
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_LINKS = 40  # as the system follows


def objection(folder: Path) -> str | None:
    """Why the files of a folder may be another user's, and what to do. None: the folder is ours, or does not
    exist yet.
    """
    trusted = os.geteuid(), ROOT, os.stat("/").st_uid
    why = objection_to(folder, trusted) or objection_to_way(folder, trusted)
    return why and f"{folder} is not used: {why}"


def objection_to(folder: Path, trusted: tuple[int, ...]) -> str | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder. Move it elsewhere"
    if found.st_uid not in trusted:
        return f"it belongs to user {found.st_uid}. Run chown -R {os.geteuid()} {folder}"
    if found.st_mode & OTHERS_WRITE:
        mode = stat.S_IMODE(found.st_mode)
        # /tmp, say, which must stay as it is
        shared = found.st_mode & stat.S_ISVTX or found.st_uid != os.geteuid()
        remedy = f"Make {folder / 'lapidist'} and name that" if shared else f"Run chmod go-w {folder}"
        return f"others may write there (mode {mode:o}). {remedy}"
    return None


def objection_to_way(folder: Path, trusted: tuple[int, ...]) -> str | None:
    for step, found in way_to(folder):
        if found.st_uid not in trusted:
            whose = f"it is reached through {step}, which belongs to user {found.st_uid}"
            return f"{whose}. Make one where all folders above are yours or root's"
        open_to_all = found.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
        if open_to_all and stat.S_ISDIR(found.st_mode):
            return f"everyone may put another in its place. Run chmod o-w {step}"
    return None


def way_to(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Folders and links, each with its own status, through which the system comes to the folder; as far as
    they exist.
    """
    try:
        here, links = "", 0
        rest = os.fspath(folder if folder.is_absolute() else Path.cwd() / folder).split("/")[::-1]
        yield "/", os.lstat("/")
        while rest and links <= MOST_LINKS:
            name = rest.pop()
            if name in ("", "."):
                continue
            step = os.path.dirname(here) if name == ".." else f"{here}/{name}"
            found = os.lstat(step or "/")
            yield step, found
            if not stat.S_ISLNK(found.st_mode):
                here = step
                continue
            target, links = os.readlink(step), links + 1
            rest += target.split("/")[::-1]
            here = "" if target.startswith("/") else here
    except OSError:
        return
