"""A folder of this process and of those forked from it, while the user's own cannot serve.

Each of them has the folder locked, which ends with the process in whatever way that ends: so the last one
knows that it may remove the folder. What killed processes left is removed by the next one that needs such a
folder. systemd-tmpfiles leaves locked folders alone, too.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from lapidist.build.portable_files import at_fork, lockable, open_folder, share_lock, this_user, try_lock

NAME = f"lapidist-{os.urandom(8).hex()}"  # forked children inherit it
SUCH_NAMES = re.compile(r"lapidist-[0-9a-f]{16}")
_locked: list[int] = []  # handles of the folder
_may_exist = False  # for this process may have made it, or a child


def joined() -> Path:
    """The folder, made if none of these processes has made it. Raises OSError where it cannot be made."""
    global _may_exist
    folder = Path(tempfile.gettempdir()) / NAME
    remove_abandoned(folder.parent)
    _locked.append(make_locked(folder))
    _may_exist = True
    # multiprocessing ends its children past atexit, and joins them at its own exit
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, leave, exitpriority=-100)
    return folder


def make_locked(folder: Path) -> int:
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            handle = opened(folder)
        except FileNotFoundError:  # one that ended has just removed it
            continue
        with suppress(OSError):  # a file system without locks, where nobody removes what another may use
            share_lock(handle)
        if is_current(folder, handle):
            return handle
        os.close(handle)


def opened(folder: Path) -> int:
    """A folder of this user's."""
    handle = open_folder(folder)
    if os.fstat(handle).st_uid == this_user():
        return handle
    os.close(handle)
    raise PermissionError(f"{folder} belongs to another user")


def is_current(folder: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(lockable(folder)), os.fstat(handle))
    except FileNotFoundError:
        return False


def leave() -> None:
    """Remove the folder at the end of a process, unless another one has it locked."""
    while _locked:
        os.close(_locked.pop())
    if _may_exist:
        with suppress(OSError):  # no place for such folders, so there is none
            remove_unless_locked(Path(tempfile.gettempdir()) / NAME)


def remove_abandoned(above: Path) -> None:
    with os.scandir(above) as listed:
        for folder in listed:
            if SUCH_NAMES.fullmatch(folder.name) and folder.name != NAME:
                remove_unless_locked(Path(folder.path))


def remove_unless_locked(folder: Path) -> None:
    with suppress(OSError):  # none, another user's, or locked
        handle = opened(folder)
        try:
            abandoned = try_lock(handle)
            if abandoned:
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
        if abandoned and lockable(folder) != str(folder):  # the locked file could not go while it was open
            shutil.rmtree(folder, ignore_errors=True)


def forked() -> None:
    global _may_exist
    _may_exist = True


atexit.register(leave)
at_fork(after_in_parent=forked)
