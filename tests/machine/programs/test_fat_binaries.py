"""PTX in fat binaries: which of several is taken, and how it is unpacked."""

from __future__ import annotations

import ctypes

import pytest

from cuda_programs import fat_binary, fat_ptx
from lapidist.errors import ArgumentError
from lapidist.machine.programs import fat_binaries
from lapidist.machine.programs.fat_binaries import LZ4, ZSTD, ptx_of, unpacked_lz4

PTX, CODE = 1, 2


def text(target: str) -> bytes:
    return f".version 8.0\n.target {target}\n// {target * 40}\n".encode()


def test_the_newest_ptx_that_the_machine_has_is_taken() -> None:
    parts = [
        (PTX, number, 0, text(f"sm_{number}{end}"), 0)
        for number, end in ((80, ""), (90, "a"), (90, ""), (100, ""))
    ]
    assert ".target sm_90a\n" in ptx_of(fat_binary((CODE, 90, 0, b"\x7fELF", 0), *parts))
    assert ".target sm_80\n" in ptx_of(fat_binary(parts[3], parts[0]))
    # nvcc's host code may hold several, one behind the other
    assert ".target sm_90\n" in ptx_of(fat_ptx(text("sm_75").decode(), 75) + fat_ptx(text("sm_90").decode()))


def test_other_code_is_refused_in_words() -> None:
    for content, words in (
        (fat_binary((CODE, 90, 0, b"\x7fELF", 0)), r"got machine code of sm_90\. Compile with nvcc -gencode"),
        (fat_ptx(text("sm_80f").decode(), 80), "without features of its own; got PTX of sm_80"),
        (fat_binary(), "-rdc=true leaves them to be linked.*without -rdc=true, each kernel in one file"),
        (bytes(64), "its fat binary begins with 0x0"),
    ):
        with pytest.raises(ArgumentError, match=words):
            ptx_of(content)


def packed_lz4(content: bytes, repeated: int) -> bytes:
    """All but the last bytes as literals; these repeat what stands `repeated` bytes before."""
    count, tail = len(content) - repeated, 5
    literals, again = content[:count], repeated - tail
    lengths = [
        bytes([255] * ((n - 15) // 255) + [(n - 15) % 255]) if n >= 15 else b"" for n in (count, again - 4)
    ]
    token = min(count, 15) << 4 | min(again - 4, 15)
    sequence = bytes([token]) + lengths[0] + literals + count.to_bytes(2, "little") + lengths[1]
    return sequence + bytes([tail << 4]) + content[-tail:]


@pytest.mark.parametrize("half", [b"abc", text("sm_90"), bytes(range(256)) * 3])
def test_lz4_is_unpacked(half: bytes) -> None:
    content = half * 8
    assert unpacked_lz4(packed_lz4(content, 7 * len(half)), len(content)) == content


def test_compressed_ptx_is_read() -> None:
    content = text("sm_90") * 2
    packed = packed_lz4(content, len(content) // 2)
    assert len(packed) < len(content)
    assert ptx_of(fat_binary((PTX, 90, LZ4, packed, len(content)))) == content.decode()
    with pytest.raises(ArgumentError, match="its compressed PTX is damaged"):
        ptx_of(fat_binary((PTX, 90, LZ4, b"\x00\x09\x00" + packed, len(content))))


def test_zstd_takes_the_systems_library(monkeypatch: pytest.MonkeyPatch) -> None:
    content = text("sm_90")
    library = fat_binaries.zstd()
    if library is not None:
        library.ZSTD_compress.restype = ctypes.c_size_t
        room = ctypes.create_string_buffer(1024)
        sizes = [ctypes.c_size_t(number) for number in (1024, len(content))]
        count = library.ZSTD_compress(room, sizes[0], content, sizes[1], 1)
        assert ptx_of(fat_binary((PTX, 90, ZSTD, room.raw[:count], len(content)))) == content.decode()
        with pytest.raises(ArgumentError, match="its compressed PTX is damaged"):
            ptx_of(fat_binary((PTX, 90, ZSTD, room.raw[: count // 2], len(content))))
    monkeypatch.setattr(fat_binaries, "zstd", lambda: None)
    with pytest.raises(
        ArgumentError, match=r"libzstd.so.1 must be installed. Install it, or compile with nvcc --no-c"
    ):
        ptx_of(fat_binary((PTX, 90, ZSTD, b"x", 9)))
