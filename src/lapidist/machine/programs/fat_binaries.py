"""PTX in a fat binary, as nvcc embeds it: a header, then an entry for each kind of code and architecture."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from lapidist.errors import ArgumentError

HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of the header, bytes behind it
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
MAGIC, PTX = 0xBA55ED50, 1
LZ4, ZSTD = 0x2000, 0x8000  # flags
TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)([a-z]?)", re.M)
NEWEST = 90  # the machine's
WAY = "Compile with nvcc -gencode arch=compute_90a,code=compute_90a"


@dataclass(frozen=True)
class Part:
    is_ptx: bool
    architecture: int
    flags: int
    content: bytes
    nbytes: int  # before it was compressed


def parts_of(content: bytes) -> Iterator[Part]:
    position = 0
    while position + HEADER.size <= len(content):
        magic, _, header, nbytes = HEADER.unpack_from(content, position)
        if magic != MAGIC:
            raise ArgumentError(
                f"program: its fat binary begins with {magic:#x}, not with {MAGIC:#x}. Compile it with nvcc"
            )
        position += header
        end = position + nbytes
        while position + ENTRY.size <= end:
            kind, _, header, nbytes, packed, _, _, _, arch, _, _, flags, _, unpacked = ENTRY.unpack_from(
                content, position
            )
            start = position + header
            code = content[start : start + (packed or nbytes)]
            yield Part(kind == PTX, arch, flags, code, unpacked or nbytes)
            position = start + nbytes


def ptx_of(content: bytes) -> str:
    """The PTX for the newest architecture that the machine has."""
    parts = list(parts_of(content))
    texts = [text_of(part) for part in parts if part.is_ptx and part.architecture <= NEWEST]
    fitting = [text for text in texts if is_for_machine(text)]
    if not parts:
        rule = "must hold its kernels whole; -rdc=true leaves them to be linked, which the machine cannot do"
        way = "Compile without -rdc=true, each kernel in one file with the functions that it calls"
        raise ArgumentError(f"program: {rule}. {way}")
    if not fitting:
        listed = ", ".join(f"{'PTX' if p.is_ptx else 'machine code'} of sm_{p.architecture}" for p in parts)
        rule = "must hold PTX of compute_90a, or of an older architecture without features of its own"
        raise ArgumentError(f"program: {rule}; got {listed}. {WAY}, without -rdc=true")
    return max(fitting, key=target_of)


def target_of(text: str) -> tuple[int, str]:
    match = TARGET.search(text)
    return (int(match[1]), match[2]) if match else (0, "")


def is_for_machine(text: str) -> bool:
    number, feature = target_of(text)
    return 0 < number <= NEWEST and (not feature or (number, feature) == (NEWEST, "a"))


def text_of(part: Part) -> str:
    content = part.content
    if part.flags & LZ4:
        content = unpacked_lz4(content, part.nbytes)
    elif part.flags & ZSTD:
        content = unpacked_zstd(content, part.nbytes)
    return content.rstrip(b"\0").decode(errors="replace")


def unpacked_lz4(content: bytes, nbytes: int) -> bytes:
    """A block of LZ4: literals, then a piece of what was unpacked before, and so on."""
    out, position = bytearray(), 0

    def more(count: int) -> int:
        """A length of 15 goes on in the next bytes."""
        nonlocal position
        octet = 255 if count == 15 else 0
        while octet == 255:
            octet = content[position]
            position, count = position + 1, count + octet
        return count

    while position < len(content) and len(out) < nbytes:
        token = content[position]
        position += 1
        count = more(token >> 4)
        out += content[position : position + count]
        position += count
        if position >= len(content) or len(out) >= nbytes:
            break
        distance = content[position] | content[position + 1] << 8
        position += 2
        count = more(token & 15) + 4
        if not 0 < distance <= len(out):
            raise ArgumentError(f"program: its compressed PTX is damaged. {WAY}, and --no-compress")
        while count > 0:
            piece = out[len(out) - distance :][:count]
            out += piece
            count -= len(piece)
    return bytes(out[:nbytes])


@cache
def zstd() -> Any:
    """The system's library; None where there is none."""
    name = ctypes.util.find_library("zstd") or "libzstd.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    library.ZSTD_decompress.restype = ctypes.c_size_t
    return library


def unpacked_zstd(content: bytes, nbytes: int) -> bytes:
    library = zstd()
    if library is None:
        rule = "its PTX is compressed by zstd, whose library libzstd.so.1 must be installed"
        raise ArgumentError(f"program: {rule}. Install it, or compile with nvcc --no-compress")
    out = ctypes.create_string_buffer(nbytes)
    sizes = [ctypes.c_size_t(nbytes), ctypes.c_size_t(len(content))]
    length = library.ZSTD_decompress(out, sizes[0], content, sizes[1])
    if length != nbytes:
        raise ArgumentError(f"program: its compressed PTX is damaged. {WAY}, and --no-compress")
    return out.raw
