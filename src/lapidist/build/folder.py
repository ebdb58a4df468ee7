"""The folder for files that outlive the process: the user's own, or a temporary one if others could write
there.
"""

from __future__ import annotations

import logging
import os
from functools import cache, lru_cache
from pathlib import Path

from lapidist.build.ownership import objection
from lapidist.build.temporary import joined
from lapidist.visible import visible

log = logging.getLogger("lapidist")

VARIABLE = "LAPIDIST_CACHE_DIR"
ALL_VARIABLES = VARIABLE, "XDG_CACHE_HOME", "HOME"  # which name the folder
NOWHERE = Path(os.devnull) / "lapidist"  # a path that can neither be read nor created


def cache_directory() -> Path:
    """LAPIDIST_CACHE_DIR, else the user's cache folder. A temporary one if the user has no home, or others
    may write there.
    """
    folder = chosen_directory()
    if folder is None:
        return temporary_directory()
    refusal = objection(folder)
    if refusal is None:
        return folder
    warn_once(
        f"cache: {refusal}, or set {VARIABLE} to another folder. A temporary one serves until then, for this"
        " process"
    )
    return temporary_directory()


def named_folders() -> list[Path]:
    """The folders of LAPIDIST_CACHE_DIR, which may name several like PATH does: the last one is written.
    Without a shell ~ stays as it is in variables.
    """
    return [Path(os.path.expanduser(name)) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def folders_read_first() -> list[Path]:
    """Folders that are only read, as of an image or of a cluster's share; none that others may write to."""
    return [folder for folder in named_folders()[:-1] if is_ours(folder)]


def is_ours(folder: Path) -> bool:
    refusal = objection(folder)
    if refusal is not None:
        warn_once(f"cache: {refusal}. Its kernels are compiled again")
    return refusal is None


def chosen_directory() -> Path | None:
    chosen = named_folders()
    if chosen:
        return chosen[-1]
    # From relative ones each working directory would bring a cache of its own; XDG has them ignored.
    above = os.environ.get("XDG_CACHE_HOME", "")
    try:
        caches = Path(above) if os.path.isabs(above) else Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry of this user, as in a container with any user id
        return None
    return caches / "lapidist" if caches.is_absolute() else None


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


def make_directory(folder: Path) -> None:
    """Create it for this user alone. Missing folders above it are readable for others, whatever the umask."""
    for above in reversed(folder.parents):
        if not above.exists():
            above.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


@lru_cache(maxsize=1)
def temporary_directory() -> Path:
    """The temporary folder; NOWHERE if none can be made."""
    try:
        return joined()
    except OSError as error:
        warn_once(
            f"cache: no temporary folder can be made ({error}); what is compiled is kept in memory only"
        )
        return NOWHERE


@cache
def warn_once(message: str) -> None:
    """Log a line, which no filter of warnings turns into an error."""
    log.warning("%s", visible(message))
