"""Whether a file can be written, asked before the work whose result it is for."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lapidist.errors import ArgumentError


def require_writable(option: str, path: Path) -> None:
    """Raise unless a file can be made or replaced there."""
    problem = try_to_write(path)
    if is_folder(path):
        raise ArgumentError(f"{option}: must be a file; {str(path)!r} is a folder. Name a file in it")
    if not is_folder(path.parent):
        rule = f"must lie in a folder that exists; {str(path.parent)!r} does not"
        raise ArgumentError(f"{option}: {rule}. Make it, or choose another")
    if problem:
        raise ArgumentError(
            f"{option}: must be writable; {str(path)!r} is not ({problem}). Choose another place"
        )


def require_folder(option: str, folder: Path) -> None:
    if not is_folder(folder):
        raise ArgumentError(
            f"{option}: must be a folder that exists; {str(folder)!r} is none. Make it, or choose another"
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        rule = f"must be writable; {str(folder)!r} is not ({error.strerror})"
        raise ArgumentError(f"{option}: {rule}. Choose another folder") from error


def try_to_write(path: Path) -> str:
    """The system's message if the file cannot be written. Only opening it shows that: root has all
    permissions, but a file system may be read-only.
    """
    try:
        existed = path.exists()
        if existed and not path.is_file():  # opening a pipe waits for its reader
            return "" if os.access(path, os.W_OK) else "permission denied"
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; False where the system refuses such a path."""
    try:
        return path.is_dir()
    except OSError:
        return False
