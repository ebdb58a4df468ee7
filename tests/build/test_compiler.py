"""The compiler and its cache: an entry is whole or absent, and whatever happens to the disk the call
succeeds.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lapidist.build import cache as kept
from lapidist.build import compiler
from lapidist.build.compiler import cache_key, compile_kernel, compile_options, compile_source, compile_to_ptx
from lapidist.errors import CompileError, DeviceError
from lapidist.knobs.header import snippet_header
from lapidist.launch import Binary

SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'
OPTIONS = compile_options("sm_90a")
LEFT_NOTHING: list[str] = []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def uncached() -> Iterator[None]:
    """What the compiler remembers about NVRTC and the headers is forgotten before and after."""
    remembered = (
        compiler.load_nvrtc,
        compiler.nvrtc_version,
        compiler.include_paths,
        compiler.header_fingerprint,
    )
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


def build(text: str = SOURCE) -> Binary:
    return compile_source(text, "twice", OPTIONS, "sm_90a", "twice.cu")


def code(binary: Binary) -> tuple[str, bytes]:
    """What must be the same in two compilations; the log tells how long each took."""
    return binary.ptx, binary.cubin


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def forbid_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Binary:
        raise AssertionError("compiled although the cache has it")

    monkeypatch.setattr(compiler, "run_nvrtc", refuse)


# ---- what a compilation gives ----


def test_one_pass_gives_ptx_cubin_and_the_report(cache: Path) -> None:
    binary = build()
    assert ".visible .entry twice" in binary.ptx
    assert "\0" not in binary.ptx
    assert binary.cubin.startswith(b"\x7fELF")
    assert re.search(r"Used \d+ registers", binary.log)
    assert (binary.entry, binary.architecture) == ("twice", "sm_90a")


def test_without_the_assembler_the_ptx_is_the_same(cache: Path) -> None:
    alone = compile_to_ptx(SOURCE, "twice", OPTIONS, "sm_90a", "twice.cu")
    assert alone == replace(build(), cubin=b"", log=alone.log)
    assert "registers" not in alone.log


def test_what_was_assembled_serves_who_needs_the_ptx(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build()
    forbid_nvrtc(monkeypatch)
    assert compile_to_ptx(SOURCE, "twice", OPTIONS, "sm_90a", "twice.cu") == whole


def test_the_header_reaches_the_source(cache: Path) -> None:
    text = '#include "config.cuh"\nextern "C" __global__ void twice(int* x) { *x = WIDTH * 1000 + 7; }'
    config = "constexpr int WIDTH = 4;"
    assert "4007" in compile_source(text, "twice", OPTIONS, "sm_90a", "twice.cu", config).ptx


def test_a_file_below_cuda_is_compiled_by_its_path() -> None:
    binary = compile_kernel("ladder/02_coalesced.cu", "coalesced", {"BM": 32, "BN": 32}, "sm_80")
    assert ".target sm_80" in binary.ptx


# ---- the cache ----


def test_headers_of_the_working_directory_are_not_read(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVRTC looks beside the source's name first, and the key would not tell the binaries apart."""
    names = [header.relative_to(compiler.CUDA_SOURCES) for header in compiler.CUDA_SOURCES.rglob("*.cuh")]
    for name in (*names, Path("cuda_fp16.h"), Path("twice.cu")):
        for path in (tmp_path / name, tmp_path / "gemm" / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#error of the working directory")
    monkeypatch.chdir(tmp_path)
    config = snippet_header("twice.cu", {"T": "half"})
    text = f'#include "mma_instructions.cuh"\n#include "packing/shares.cuh"\n{SOURCE}'
    assert compile_source(text, "twice", OPTIONS, "sm_90a", "gemm/twice.cu", config).cubin


def test_the_second_call_reads_what_the_first_wrote(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build()
    assert len(entries(cache)) == 1
    forbid_nvrtc(monkeypatch)
    assert build() == first


def test_the_key_depends_on_everything_that_changes_the_binary(
    monkeypatch: pytest.MonkeyPatch, uncached: None
) -> None:
    keys = {
        "as it is": cache_key(SOURCE, "twice", OPTIONS),
        "source": cache_key(SOURCE + " ", "twice", OPTIONS),
        "entry": cache_key(SOURCE, "thrice", OPTIONS),
        "header": cache_key(SOURCE, "twice", OPTIONS, "constexpr int WIDTH = 8;"),
        "architecture": cache_key(SOURCE, "twice", compile_options("sm_80")),
        "split": cache_key(SOURCE + "twice", "", OPTIONS),
    }
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: (13, 99))
    keys["version"] = cache_key(SOURCE, "twice", OPTIONS)
    assert len(set(keys.values())) == len(keys)
    assert all(re.fullmatch(r"[0-9a-f]{64}", key) for key in keys.values())


def test_the_key_depends_on_the_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uncached: None
) -> None:
    monkeypatch.setattr(compiler, "CUDA_SOURCES", tmp_path)
    header = tmp_path / "deep" / "one.cuh"
    header.parent.mkdir()
    keys = []
    for text in ("int a;", "int b;"):
        header.write_text(text)
        compiler.header_fingerprint.cache_clear()
        keys.append(cache_key(SOURCE, "twice", OPTIONS))
    assert keys[0] != keys[1]


def test_include_paths_are_no_part_of_the_key(cache: Path) -> None:
    assert not any("-I" in option or str(Path.home()) in option for option in OPTIONS)


@pytest.mark.parametrize("keep", [0, 5, 18, 40, 0.5, -1], ids=str)
def test_a_truncated_entry_is_compiled_again_and_repaired(
    cache: Path, monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    first = build()
    path = cache / entries(cache)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep) if keep == 0.5 else int(keep)])
    assert code(build()) == code(first)
    forbid_nvrtc(monkeypatch)
    assert code(build()) == code(first)


@pytest.mark.parametrize("where", [3, 30, 60, -1])
def test_a_damaged_entry_is_compiled_again_and_repaired(
    cache: Path, monkeypatch: pytest.MonkeyPatch, where: int
) -> None:
    first = build()
    path = cache / entries(cache)[0]
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[where] ^= 0x10
    path.write_bytes(damaged)
    assert code(build()) == code(first)
    forbid_nvrtc(monkeypatch)
    assert code(build()) == code(first)


def test_an_entry_that_is_a_folder_is_no_obstacle(cache: Path) -> None:
    first = build()
    path = cache / entries(cache)[0]
    path.unlink()
    path.mkdir()
    assert code(build()) == code(first)
    assert entries(cache) == [path.name]


def test_another_process_sees_a_whole_entry_or_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the entry gets its name it is complete, and it had no name before."""
    seen = []
    rename = os.replace

    def watch(source: str, target: Path) -> None:
        seen.append((target.exists(), kept.decode(Path(source).read_bytes(), target.stem, "twice", "sm_90a")))
        rename(source, target)

    monkeypatch.setattr(os, "replace", watch)
    binary = build()
    assert seen == [(False, binary)]


PROGRAM = """
import hashlib, sys, time
from lapidist.build.compiler import compile_options, compile_source
while time.time() < float(sys.argv[2]): pass
binary = compile_source(sys.argv[1], "twice", compile_options("sm_90a"), "sm_90a", "twice.cu")
print(hashlib.sha256(binary.cubin + binary.ptx.encode()).hexdigest())
"""


def test_two_processes_compile_the_same_kernel_at_once(cache: Path) -> None:
    import time

    start = str(time.time() + 1.5)
    command = [sys.executable, "-c", PROGRAM, SOURCE, start]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    results = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert [name[-4:] for name in entries(cache)] == [".bin"]  # one entry, no temporary file left


# ---- a disk that will not ----


def no_space(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_room_for_a_new_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkstemp", no_space)
    assert build().cubin
    assert entries(cache) == LEFT_NOTHING


def test_no_room_for_its_content(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, handle: int, _: str) -> None:
            self.handle = handle

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            os.close(self.handle)

        write = staticmethod(no_space)

    monkeypatch.setattr(os, "fdopen", Full)
    assert build().cubin
    assert entries(cache) == LEFT_NOTHING


def test_the_rename_fails(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", no_space)
    assert build().cubin
    assert entries(cache) == LEFT_NOTHING


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert build().cubin
    assert entries(tmp_path) == ["file"]


# ---- errors ----


def test_a_compile_error_carries_the_log(cache: Path) -> None:
    wrong = "\n".join(f"int a{i} = missing_{i};" for i in range(40)) + SOURCE
    with pytest.raises(CompileError, match=r"twice\.cu.*--std=c\+\+17") as caught:
        compile_source(wrong, "twice", OPTIONS, "sm_90a", "twice.cu", "constexpr int WIDTH = 4;")
    assert "missing_0" in str(caught.value)
    assert "missing_39" in caught.value.log
    assert "constexpr int WIDTH = 4;" in caught.value.log
    assert "missing_39" not in str(caught.value)
    assert "more lines in .log" in str(caught.value)
    assert entries(cache) == LEFT_NOTHING


def test_nvrtc_that_is_not_installed(cache: Path, monkeypatch: pytest.MonkeyPatch, uncached: None) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceError, match=r'NVRTC: .*pip install "nvidia-cuda-nvrtc==13\.0\.\*"'):
        build()


def test_a_library_that_is_not_found(cache: Path, monkeypatch: pytest.MonkeyPatch, uncached: None) -> None:
    from cuda.bindings import nvrtc
    from cuda.pathfinder import DynamicLibNotFoundError

    def missing() -> None:
        raise DynamicLibNotFoundError("libnvrtc.so.13 or libnvrtc.so.12")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    with pytest.raises(DeviceError, match=r"libnvrtc\.so\.13.*pip install"):
        build()


def test_headers_that_are_not_installed(cache: Path, monkeypatch: pytest.MonkeyPatch, uncached: None) -> None:
    from cuda import pathfinder

    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda name: None)
    with pytest.raises(DeviceError, match=r'cuda_fp16\.h.*pip install .*"nvidia-cuda-runtime==13\.0\.\*"'):
        build()
