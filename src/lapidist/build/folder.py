"""The folder for files that outlive the process: the user's own, or a temporary one if others could write
there.

Its files are executed, so no other user may write them. Root is trusted: it may change everything anyway, and
it fills the images of containers.
"""

from __future__ import annotations

import logging
import os
import stat
from functools import cache, lru_cache
from pathlib import Path

from lapidist.build.temporary import joined

log = logging.getLogger("lapidist")

VARIABLE = "LAPIDIST_CACHE_DIR"
ALL_VARIABLES = VARIABLE, "XDG_CACHE_HOME", "HOME"  # which name the folder
NOWHERE = Path(os.devnull) / "lapidist"  # a path that can neither be read nor created
ROOT = 0
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_directory() -> Path:
    """LAPIDIST_CACHE_DIR, else the user's cache folder. A temporary one if the user has no home, or others
    may write there.
    """
    folder = chosen_directory()
    if folder is None:
        return temporary_directory()
    found = objection(folder)
    if found is None:
        return folder
    warn_once(
        f"cache: {found}, or set {VARIABLE} to another folder. A temporary one serves until then, for this"
        " process"
    )
    return temporary_directory()


def chosen_directory() -> Path | None:
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    above = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(above or Path.home() / ".cache") / "lapidist"
    except RuntimeError:  # neither HOME nor an entry of this user, as in a container with any user id
        return None


def holds_no(name: str) -> bool:
    """Whether the folder surely has no file of this name: a quick test, before it is checked who may write
    there.
    """
    folder = folder_by(*map(os.environ.get, ALL_VARIABLES))
    unused = not temporary_directory.cache_info().currsize
    return folder is not None and unused and not os.path.lexists(os.path.join(folder, name))


@lru_cache(maxsize=8)
def folder_by(*variables: str | None) -> Path | None:
    """The folder that these values of ALL_VARIABLES lead to."""
    return chosen_directory()


def objection(folder: Path) -> str | None:
    """Why the files of a folder may be another user's, and what to do. None: the folder is ours, or does not
    exist yet.
    """
    above = status(folder.parent)
    if above is not None and above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        return f"{folder} is not used: everyone may put another in its place. Run chmod o-w {folder.parent}"
    found = status(folder)
    if found is None:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not used: it is not a folder. Move it elsewhere"
    if found.st_uid not in (os.geteuid(), ROOT):
        return (
            f"{folder} is not used: it belongs to user {found.st_uid}. Run chown -R {os.geteuid()} {folder}"
        )
    if found.st_mode & OTHERS_WRITE:
        mode = stat.S_IMODE(found.st_mode)
        # /tmp, say, which must stay as it is
        shared = found.st_mode & stat.S_ISVTX or found.st_uid != os.geteuid()
        remedy = f"Make {folder / 'lapidist'} and name that" if shared else f"Run chmod go-w {folder}"
        return f"{folder} is not used: others may write there (mode {mode:o}). {remedy}"
    return None


def status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def make_directory(folder: Path) -> None:
    """Create it for this user alone. Missing folders above it are readable for others, whatever the umask."""
    for above in reversed(folder.parents):
        if not above.exists():
            above.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


@lru_cache(maxsize=1)
def temporary_directory() -> Path:
    """NOWHERE if none can be made."""
    try:
        return joined()
    except OSError as error:
        warn_once(
            f"cache: no temporary folder can be made ({error}); what is compiled is kept in memory only"
        )
        return NOWHERE


@cache
def warn_once(message: str) -> None:
    """A log line, which no filter of warnings turns into an error."""
    log.warning("%s", message)
