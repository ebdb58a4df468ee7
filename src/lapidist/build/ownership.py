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

from lapidist.build.portable_files import HAS_OWNERS

ROOT = 0
SHARED_WRITE_BITS = stat.S_IWGRP | stat.S_IWOTH
NO_FOLDER = "it is not a folder. Move it elsewhere"
MOST_LINKS = 40  # as the system follows


def objection(folder: Path) -> str | None:
    """Why the files of a folder may be another user's, and what to do. None: the folder is ours, or does not
    exist yet.
    """
    if HAS_OWNERS:
        trusted = os.geteuid(), ROOT, os.stat("/").st_uid
        why = objection_to(folder, trusted) or objection_to_way(folder, trusted)
    else:
        why = NO_FOLDER if folder.exists() and not folder.is_dir() else None
    return why and f"{folder} is not used: {why}"


def objection_to(folder: Path, trusted: tuple[int, ...]) -> str | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return NO_FOLDER
    if status.st_uid not in trusted:
        return f"it belongs to user {status.st_uid}. Run chown -R {os.geteuid()} {folder}"
    if status.st_mode & SHARED_WRITE_BITS:
        mode = stat.S_IMODE(status.st_mode)
        # /tmp, say, which must stay as it is
        shared = status.st_mode & stat.S_ISVTX or status.st_uid != os.geteuid()
        remedy = f"Make {folder / 'lapidist'} and name that" if shared else f"Run chmod go-w {folder}"
        return f"others may write there (mode {mode:o}). {remedy}"
    return None


def objection_to_way(folder: Path, trusted: tuple[int, ...]) -> str | None:
    for step, status in way_to(folder):
        if status.st_uid not in trusted:
            whose = f"it is reached through {step}, which belongs to user {status.st_uid}"
            return f"{whose}. Make one where all folders above are yours or root's"
        open_to_all = status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
        if open_to_all and stat.S_ISDIR(status.st_mode):
            return f"everyone may put another in its place. Run chmod o-w {step}"
    return None


def way_to(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The folders and links on the way to the folder, as far as they exist, with the status of each."""
    try:
        parent, links = "", 0
        names = os.fspath(folder if folder.is_absolute() else Path.cwd() / folder).split("/")[::-1]
        yield "/", os.lstat("/")
        while names and links <= MOST_LINKS:
            name = names.pop()
            if name in ("", "."):
                continue
            step = os.path.dirname(parent) if name == ".." else f"{parent}/{name}"
            status = os.lstat(step or "/")
            yield step, status
            if not stat.S_ISLNK(status.st_mode):
                parent = step
                continue
            target, links = os.readlink(step), links + 1
            names += target.split("/")[::-1]
            parent = "" if target.startswith("/") else parent
    except OSError:
        return
