"""Files, locks and forks as each system has them.

Windows has no owners and modes of files, no flags against links and pipes, and no forks. There, who may write
into a user's folders is the system's affair. What is locked is a byte of a file, not a folder. In a browser
(Emscripten) there is one process, and nothing is locked.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

if sys.platform == "win32":
    import msvcrt
elif sys.platform != "emscripten":
    import fcntl

WINDOWS = sys.platform == "win32"
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
NOT_INHERITED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
BYTES = getattr(os, "O_BINARY", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)
CAREFULLY = NO_LINK | NO_WAIT | NOT_INHERITED | BYTES  # no link is followed, no pipe waited for
HAS_OWNERS = hasattr(os, "geteuid")
LOOK_AGAIN_SECONDS = 0.05
LOCK_FILE = "lock"  # in a folder that is locked, where folders themselves cannot be


def this_user() -> int:
    """The number of the user, or 0, who owns all files where they have no owners."""
    return os.geteuid() if HAS_OWNERS else 0


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """A handle of a file that is no link. Raises OSError."""
    if not NO_LINK and os.path.islink(path):
        raise OSError(f"{os.fspath(path)} is a link")
    return os.open(path, flags | CAREFULLY, mode)


def open_folder(folder: str | os.PathLike[str]) -> int:
    """A handle by which a folder can be locked: the folder's own, or that of a file in it."""
    if not WINDOWS:
        return os.open(folder, os.O_RDONLY | FOLDER | NO_LINK | NOT_INHERITED)
    return open_file(lockable(folder), os.O_RDWR | os.O_CREAT)


def lockable(folder: str | os.PathLike[str]) -> str:
    """What `open_folder` opens."""
    return os.path.join(folder, LOCK_FILE) if WINDOWS else os.fspath(folder)


def lock(handle: int) -> None:
    """Wait until no other handle has a lock, and take the only one. It ends when the handle is closed."""
    if sys.platform == "win32":
        while not try_lock(handle):
            time.sleep(LOOK_AGAIN_SECONDS)  # msvcrt waits for ten seconds, then raises
    elif sys.platform != "emscripten":
        fcntl.flock(handle, fcntl.LOCK_EX)


def try_lock(handle: int) -> bool:
    """Take the only lock, if no other handle has any."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        elif sys.platform != "emscripten":
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def share_lock(handle: int) -> None:
    """Take a lock beside those of forked processes; on Windows, where there are none, the only one."""
    if sys.platform == "win32":
        try_lock(handle)
    elif sys.platform != "emscripten":
        fcntl.flock(handle, fcntl.LOCK_SH)


def at_fork(**functions: Callable[[], Any]) -> None:
    """os.register_at_fork, where processes fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)
