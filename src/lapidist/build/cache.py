"""Compiled binaries on disk: one file each, named by its key and bound to it by a digest. The least recently
used are removed first.

Anything unusable in an entry's place (part of a file, another user's, a link, a device) counts as missing,
and the kernel is compiled again. Errors of the disk are reported once, and the call goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from lapidist.build.folder import VARIABLE, cache_directory, folders_read_first, make_directory, warn_once
from lapidist.build.ownership import ROOT, SHARED_WRITE_BITS
from lapidist.build.portable_files import HAS_OWNERS, open_file, this_user
from lapidist.errors import ArgumentError
from lapidist.launch import Binary

MAGIC = b"lapidist-binary-"
FORMAT = MAGIC + b"3\n"
DIGEST_BYTES = 32
MOST_BYTES = 64 << 20  # of an entry, compressed or not: the largest kernel has a hundredth of it
ENTRY_NAME = re.compile(r"[0-9a-f]{64}\.bin")
LEFTOVER_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9_]{8}\.part")
LEFTOVER_SECONDS = 3600.0  # writing takes milliseconds: the writer of an older file is dead
# An entry's time of use is kept to a day: a write for each load would cost more than it is worth.
TOUCH_SECONDS = 86400.0
LIMIT = "LAPIDIST_CACHE_BYTES"
DEFAULT_LIMIT = 1 << 30
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
CUBIN_MACHINE = 190  # EM_CUDA
# A process counts entries again when it has written its share of the room: 1,200 entries take 10 ms.
WRITERS = 8  # processes that may fill a folder at once and stay below the limit
_room: dict[tuple[Path, int], int] = {}  # bytes, by folder and limit


class Entry(NamedTuple):
    path: Path
    nbytes: int
    used: float  # seconds since 1970, exact to a day


# ---- one entry ----


def entry_path(key: str) -> Path:
    return cache_directory() / f"{key}.bin"


def has_any() -> bool:
    """Whether a folder of the cache holds anything, usable or not."""
    return any(map(holds_entries, (*folders_read_first(), cache_directory())))


def holds_entries(folder: Path) -> bool:
    with suppress(OSError), os.scandir(folder) as listed:
        return any(ENTRY_NAME.fullmatch(file.name) for file in listed)
    return False


def read(key: str, entry: str, architecture: str) -> Binary | None:
    """The binary under a key, of the first folder that has it; None if there is none that is complete, ours,
    and of this kernel.
    """
    above = (folder / f"{key}.bin" for folder in folders_read_first())
    usable = (read_file(path, key, entry, architecture) for path in (*above, entry_path(key)))
    return next(filter(None, usable), None)


def read_file(path: Path, key: str, entry: str, architecture: str) -> Binary | None:
    try:
        return decode(content_of(path), key, entry, architecture)
    except (OSError, ValueError, TypeError, KeyError, zlib.error, struct.error, RecursionError, MemoryError):
        return None


def content_of(path: Path) -> bytes:
    """The content of a file that is ours. Its time of use is updated at most once a day."""
    with opened(path) as handle:
        status = os.fstat(handle)
        anothers = status.st_uid not in (this_user(), ROOT) or status.st_mode & SHARED_WRITE_BITS
        if (HAS_OWNERS and anothers) or status.st_size > MOST_BYTES:
            raise ValueError("another's, or no entry")
        with open(handle, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES)
        if time.time() - status.st_mtime > TOUCH_SECONDS:
            with suppress(OSError):  # root's file, or a read-only disk
                os.utime(handle if os.utime in os.supports_fd else path)
        return content


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A plain file opened for reading: no link is followed, no FIFO waited for, no device read."""
    handle = open_file(path, os.O_RDONLY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("no plain file")
        yield handle
    finally:
        os.close(handle)


def digest_of(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + body).digest()


def encode(key: str, binary: Binary) -> bytes:
    header = json.dumps({"ptx": binary.ptx, "log": binary.log}).encode()
    body = zlib.compress(header + b"\n" + binary.cubin, level=1)
    return FORMAT + digest_of(key, body) + body


def decode(content: bytes, key: str, entry: str, architecture: str) -> Binary:
    """Raises one of many errors if `content` is not what `encode` made for this key."""
    start = len(FORMAT) + DIGEST_BYTES
    body = content[start:]
    if content[:start] != FORMAT + digest_of(key, body):
        raise ValueError("another key's, or damaged")
    header, cubin = unpacked(body).split(b"\n", 1)
    fields = json.loads(header)
    binary = Binary(entry, architecture, fields["ptx"], cubin, fields["log"])
    require_kernel(binary)
    return binary


def unpacked(body: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(body, MOST_BYTES)
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("too large, or too long")
    return content


def require_kernel(binary: Binary) -> None:
    """Check what needs no driver: PTX for the architecture with the entry in it, and a complete CUDA ELF."""
    if not isinstance(binary.log, str) or f".target {binary.architecture}" not in binary.ptx:
        raise ValueError("no PTX of this architecture")
    if not re.search(rf"\.entry\s+{re.escape(binary.entry)}\b", binary.ptx):
        raise ValueError("another entry")
    if binary.cubin and not is_cubin(binary.cubin, binary.entry):
        raise ValueError("no machine code")


def is_cubin(cubin: bytes, entry: str) -> bool:
    """Whether it has the header of a 64-bit CUDA ELF, a table of sections inside it, and a section of the
    kernel's code.
    """
    (machine,) = struct.unpack_from("<H", cubin, 18)
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count = struct.unpack_from("<2H", cubin, 58)
    complete = (
        cubin[:5] == b"\x7fELF\x02"
        and machine == CUBIN_MACHINE
        and 0 < table <= table + size * count <= len(cubin)
    )
    return complete and b".text." + entry.encode() + b"\0" in cubin


def write(key: str, binary: Binary) -> None:
    """Keep the binary, and stay below the limit."""
    path, content, limit = entry_path(key), encode(key, binary), limit_or_default()
    if len(content) > min(limit, MOST_BYTES):
        return
    try:
        make_directory(path.parent)
        replace_atomically(path, content)
        remove_leftovers(path.parent)
        stay_below(limit, path.parent, len(content))
    except OSError as error:
        warn_once(
            f"cache: what is compiled cannot be kept in {path.parent} ({error.strerror}), so each process"
            f" compiles it. Make room there, or set {VARIABLE} to another folder"
        )


def replace_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file, then rename: other processes see the whole entry or none. Other users may
    read it where they may read the folder, as that of an image.
    """
    mode = 0o600 | (path.parent.stat().st_mode & 0o044)
    handle, temporary = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


# ---- all entries ----


def plain_files(folder: Path, name: re.Pattern[str]) -> list[Entry]:
    """Plain files with such names, without links and folders."""
    files = []
    with suppress(OSError), os.scandir(folder) as listed:
        for file in listed:
            if name.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # another process was faster
                    status = file.stat(follow_symlinks=False)
                    files.append(Entry(Path(file.path), status.st_size, status.st_mtime))
    return files


def entries(folder: Path) -> list[Entry]:
    """All entries, the least recently used first."""
    return sorted(plain_files(folder, ENTRY_NAME), key=lambda entry: entry.used)


def remove_leftovers(folder: Path, older: float = LEFTOVER_SECONDS) -> None:
    """Remove temporary files of writers that were killed."""
    for leftover in plain_files(folder, LEFTOVER_NAME):
        if time.time() - leftover.used > older:
            with suppress(OSError):
                leftover.path.unlink()


def stay_below(limit: int, folder: Path, written: int) -> None:
    """Count what lies in the folder, unless this process has written less than its share of the room since
    it last did.
    """
    room = _room.get((folder, limit), 0) - written
    _room[folder, limit] = room if room >= 0 else (limit - evict(folder, limit)) // WRITERS


def evict(folder: Path, limit: int) -> int:
    """Remove the least recently used above the limit. Returns the bytes that stay."""
    total = entries(folder)
    nbytes = sum(entry.nbytes for entry in total)
    for entry in total:
        if nbytes <= limit:
            break
        nbytes -= entry.nbytes
        remove(entry)
    return nbytes


def clear(folder: Path) -> list[Entry]:
    """Remove every entry, and nothing else in the folder. Returns what was removed."""
    remove_leftovers(folder, 0.0)
    return [entry for entry in entries(folder) if remove(entry)]


def remove(entry: Entry) -> bool:
    """Remove the file if it begins like an entry of any format, or is empty."""
    try:
        with opened(entry.path) as handle:
            if os.read(handle, len(MAGIC)) not in (MAGIC, b""):
                return False
        entry.path.unlink()
    except (OSError, ValueError):
        return False
    return True


# ---- the limit ----


def limit_or_default() -> int:
    """The limit; if the variable is misspelt, a log line says so, and the default counts."""
    try:
        return limit_bytes()
    except ArgumentError as error:
        warn_once(f"cache: {error}")
        return DEFAULT_LIMIT


def limit_bytes() -> int:
    """LAPIDIST_CACHE_BYTES in bytes; 0 keeps nothing."""
    text = os.environ.get(LIMIT, "").strip()
    if not text:
        return DEFAULT_LIMIT
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([KMG]?)", text.upper(), re.ASCII)
    if match is None:
        raise ArgumentError(
            f"{LIMIT}: must be a number of bytes, or of K, M or G of them; got {text!r}. Write for example"
            " 512M"
        )
    return int(float(match[1]) * UNITS[match[2]])
