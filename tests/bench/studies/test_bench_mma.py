"""The kernel on mma.sync beside CUTLASS's: who is compared with whom, on which data, and how the peer is
built.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from lapidist.device import chip
from lapidist.errors import DeviceError
from lapidist_lab.bench.protocol import cutlass_47, peers
from lapidist_lab.bench.protocol.cases import Case, Part
from lapidist_lab.bench.protocol.contenders import Facts
from lapidist_lab.bench.protocol.record import Record, read_run, write_run
from lapidist_lab.bench.studies import tensor_cores


def row(kernel: str, seconds: float | None, ratio: float | None = None, **more: Any) -> Record:
    kind = "production" if kernel == "mma" else "peer"
    numbers = (4096, 4096, 4096, seconds, None, ratio, None, 0.1, seconds is not None)
    return Record(kernel, kind, "NVIDIA H100", "float16", "rrr", *numbers, **more)


def test_our_rows_have_the_ratio_to_cutlass_and_others_the_vendors() -> None:
    rows = [row("cublas", 2e-4, 1.0), row("cutlass_47", 3e-4, 0.667), row("mma", 2.5e-4, 0.8)]
    cublas, theirs, ours = tensor_cores.with_cutlass_ratio(rows)
    assert (ours.peer, ours.ratio) == ("cutlass_47", pytest.approx(1.2))
    assert (cublas.peer, cublas.ratio, theirs.peer, theirs.ratio) == (None, 1.0, None, 0.667)


@pytest.mark.parametrize("theirs", [row("cutlass_47", None, error="DeviceError: no"), None])
def test_without_cutlass_there_is_no_ratio(theirs: Record | None) -> None:
    rows = [row("cublas", 2e-4, 1.0), *([theirs] if theirs else []), row("mma", 2.5e-4, 0.8)]
    assert tensor_cores.with_cutlass_ratio(rows)[-1].ratio is None


def test_the_peer_is_kept_in_a_record(tmp_path: Path) -> None:
    from lapidist_lab.bench.protocol.record import Conditions

    (ours,) = tensor_cores.with_cutlass_ratio([row("mma", 2.5e-4, 0.8)])
    write_run(tmp_path / "run.jsonl", Conditions("2026-01-01", "bench mma", "NVIDIA H100"), [ours])
    assert read_run(tmp_path / "run.jsonl").records == (ours,)


def test_every_layout_and_both_types_are_measured() -> None:
    every = tensor_cores.cases()
    assert {(case.math, case.layout) for case in every if case.extents == (4096, 4096, 4096)} == {
        *(("float16", layout) for layout in ("rr", "rc", "cr", "cc")),
        ("bfloat16", "rr"),
    }
    assert tensor_cores.cases(Part(2, 1)) == every[1:3]


def test_the_peer_is_compiled_for_the_layouts_of_a_case() -> None:
    assert cutlass_47.macros_of(Case(1, 2, 3, "bfloat16", "cr")) == (
        "ELEMENT=cutlass::bfloat16_t",
        "A_LAYOUT=ColumnMajor",
        "B_LAYOUT=RowMajor",
        "ACCUMULATOR=float",
    )
    with pytest.raises(DeviceError, match="multiplies float16, bfloat16; the type is float64"):
        cutlass_47.macros_of(Case(1, 2, 3, "float64"))


def test_libraries_of_other_macros_are_other_files(monkeypatch: Any, tmp_path: Path) -> None:
    """Each is compiled once, with its macros."""
    commands: list[list[str]] = []

    def compile_nothing(command: list[str], **_: Any) -> None:
        commands.append(command)
        Path(command[command.index("-o") + 1]).write_bytes(b"")

    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(subprocess, "run", compile_nothing)
    monkeypatch.setattr(peers.ctypes, "CDLL", lambda path: path)
    (tmp_path / "cutlass").mkdir()
    (tmp_path / "cutlass" / "version.h").write_text("#define CUTLASS_MAJOR 4\n")
    one, other, again = (
        peers.build_cutlass(tmp_path, chip("h100"), cutlass_47.SOURCE, (f"A_LAYOUT={layout}",))
        for layout in ("RowMajor", "ColumnMajor", "RowMajor")
    )
    assert one == again != other
    assert [command[-4] for command in commands] == ["-DA_LAYOUT=RowMajor", "-DA_LAYOUT=ColumnMajor"]
    assert all(command[-1] == str(cutlass_47.SOURCE) for command in commands)


def test_the_faster_of_its_schedules_is_kept(monkeypatch: Any) -> None:
    started: list[int] = []

    class Library:
        def __init__(self) -> None:
            for name in ("cutlass_config_name", "cutlass_milliseconds", "cutlass_ready", "cutlass_free"):
                setattr(self, name, getattr(self, f"{name}_"))

        def cutlass_config_count(self) -> int:
            return 2

        def cutlass_run(self, handle: Any, _: Any) -> int:
            started.append(handle.value)
            return 0

    functions: dict[str, Any] = {
        "cutlass_config_name_": lambda _, config: (b"a block a tile", b"Stream-K")[config],
        "cutlass_milliseconds_": lambda _, handle, stream: {1: 2.0, 2: 1.0}[handle.value],
        "cutlass_ready_": lambda _, config, *more: config + 1,
        "cutlass_free_": lambda _, handle: None,
    }
    for name, function in functions.items():
        # a function of a library has attributes, which a method has not
        monkeypatch.setattr(Library, name, property(lambda self, f=function: lambda *a: f(self, *a)), False)
    monkeypatch.setattr(cutlass_47, "build_cutlass", lambda *_: Library())
    monkeypatch.setattr(cutlass_47, "operand_of", lambda array, _: array)
    monkeypatch.setattr(cutlass_47, "stream_of", lambda *_: 0)

    class Array:
        pointer, framework, device = 16, "torch", 0

    peer = cutlass_47.Cutlass47(Path(), chip("h100"))
    call = peer.prepare(Case(8, 8, 8, "float16"), [Array()], [Array()], [Array()])
    call(0)
    assert started == [2]
    assert peer.facts(chip("h100")) == Facts(config="Stream-K", unit="mma")


def test_without_a_checkout_the_way_out_is_named(monkeypatch: Any) -> None:
    monkeypatch.delenv("CUTLASS_HOME", raising=False)
    with pytest.raises(DeviceError, match=r"CUTLASS_HOME is not set \(a checkout of"):
        tensor_cores.measure(0, lambda *_: None)
