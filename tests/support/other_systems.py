"""This computer as another system, for a process of a test: what Windows or macOS lacks is taken away.

What the standard library and others need of this system is loaded before."""

from __future__ import annotations

import ctypes.util  # noqa: F401 - as macOS it wants ctypes.macholib, which Debian leaves out
import multiprocessing.connection  # noqa: F401
import os
import shutil
import sys
import tempfile  # noqa: F401 - before anything is taken away
import types

import matplotlib.pyplot  # noqa: F401
import numpy  # noqa: F401
import rich.console  # noqa: F401
import typer  # noqa: F401

POSIX_ONLY = (
    *("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "geteuid", "getuid", "fork", "nice"),
    *("register_at_fork", "sched_getaffinity", "sysconf", "fchmod", "chown", "mkfifo", "getpgid", "killpg"),
)


def become_windows() -> None:
    """As Windows: no owners, forks or fcntl; msvcrt locks bytes, for the handle that asked."""
    import fcntl

    load_nvrtc()
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.LK_NBLCK, msvcrt.LK_LOCK = 2, 1

    def locking(handle: int, mode: int, count: int) -> None:
        assert mode == msvcrt.LK_NBLCK, "LK_LOCK gives up after ten seconds"
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    msvcrt.locking = locking
    sys.modules["msvcrt"], sys.modules["fcntl"] = msvcrt, None
    for name in POSIX_ONLY:
        if hasattr(os, name):
            delattr(os, name)
    os.supports_fd = frozenset()
    shutil._use_fd_functions = False
    if hasattr(shutil, "_rmtree_impl"):  # from Python 3.14 on, chosen when shutil is imported
        shutil._rmtree_impl = shutil._rmtree_unsafe
    sys.platform = "win32"
    opened = os.open

    def open_no_folder(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, mode, **more)

    os.open = open_no_folder


def become_macos() -> None:
    """As macOS, for which NVIDIA has no wheels: nothing of the package cuda can be imported."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "cuda":
            del sys.modules[name]
    sys.modules["cuda"] = None
    del os.sched_getaffinity
    sys.platform = "darwin"


def load_nvrtc() -> None:
    """NVIDIA's own packages, which look for this system's library."""
    from cuda import pathfinder
    from cuda.bindings import nvrtc

    nvrtc.nvrtcVersion()
    pathfinder.find_nvidia_header_directory("cudart")
