"""What the stand-in for CUDA's runtime asks, without a program: memory, streams, launches, the device."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cuda_programs import fat_ptx, ptx
from lapidist.errors import ArgumentError
from lapidist.launch import TensorMap
from lapidist.machine import schedule_budget
from lapidist.machine.programs import kernel_runs
from lapidist.machine.programs.chip_answers import PROPERTIES_BYTES, blocks_per_sm
from lapidist.machine.programs.device_memory import DEVICE, MANAGED, PINNED, DeviceMemory
from lapidist.machine.programs.kernel_runs import KernelRuns
from lapidist.machine.programs.runtime_calls import CALLS, Answer, RuntimeCalls, tensor_maps
from lapidist.machine.run import DEFAULT_BUDGET
from lapidist.machine.tensor_map_bytes import decoded

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="programs and machine share memory at one address, as Linux allows it"
)
TO_DEVICE, TO_HOST, WITHIN = 1, 2, 3
HOST = 0x1000  # an address of the program's alone
SUMS = -1  # stands for the address of the sums
ILLEGAL_ADDRESS, LAUNCH_TIMEOUT = 700, 702


class Program:
    """Calls by name, as the stand-in makes them."""

    def __init__(self, memory: DeviceMemory, seeds: int = 1) -> None:
        self.memory, self.runs = memory, KernelRuns(memory, seeds, (), {}, 1 << 32, DEFAULT_BUDGET)
        self.calls = RuntimeCalls(memory, self.runs, 13)

    def ask(self, name: str, *numbers: int, content: bytes = b"") -> Answer:
        return CALLS[name](self.calls, numbers, content)

    def allocate(self, nbytes: int, kind: int = DEVICE) -> int:
        answer = self.ask("allocate", nbytes, kind)
        assert not answer.error
        return answer.numbers[0]

    def load(self, text: str, *kernels: str) -> None:
        (module,) = self.ask("module", content=fat_ptx(text)).numbers
        for number, name in enumerate(kernels, 1):
            self.ask("kernel", module, number, content=name.encode())
        for number, name in ((90, "factors"), (91, "blocks_done")):
            self.ask("variable", module, number, 0, content=name.encode())

    def launch(
        self,
        kernel: int,
        arguments: bytes,
        stream: int = 0,
        grid: int = 1,
        block: int = 64,
        shared: int = 0,
        overlaps: bool = False,
    ) -> Answer:
        return self.ask(
            "launch", kernel, grid, 1, 1, block, 1, 1, shared, stream, 0, 1, 1, 1, overlaps, content=arguments
        )

    def fill(self, address: int, nbytes: int, stream: int = 0) -> int:
        return self.ask("fill", address, nbytes, 0, nbytes, 1, 1, stream).error

    def copy(
        self, target: int, source: int, nbytes: int, kind: int, stream: int = 0, waits: bool = True
    ) -> int:
        rows = (target, nbytes, 0, source, nbytes, 0, nbytes, 1, 1)
        return self.ask("copy", *rows, kind, stream, not waits).error

    def rules(self) -> list[str]:
        return [finding.rule for _, finding in self.runs.findings()]


@pytest.fixture
def program() -> Iterator[Program]:
    memory = DeviceMemory()
    yield Program(memory)
    memory.close()


def partial(x: int, sums: int, n: int) -> bytes:
    return struct.pack("<QQi", x, sums, n)


def test_memory_has_gaps_and_bounds(program: Program) -> None:
    first, second = program.allocate(100), program.allocate(8, PINNED)
    assert second - first >= 356
    assert first % 256 == second % 256 == 0
    assert program.copy(first, HOST, 100, TO_DEVICE) == 0
    assert program.copy(first + 1, HOST, 100, TO_DEVICE) == 1
    assert program.copy(HOST, HOST, 4, TO_DEVICE) == 1
    assert program.copy(HOST, first + 96, 4, TO_HOST) == 0
    assert program.fill(second, 8) == 0
    assert program.fill(second, 9) == 1
    assert program.ask("pointer", second + 7).numbers == (PINNED,)
    assert program.ask("pointer", second + 8).error == 1
    assert program.ask("free", first, 0).error == 0
    assert program.ask("free", first, 0).error == 1
    assert program.copy(HOST, first, 4, TO_HOST) == 1
    assert program.ask("allocate", 1 << 50, DEVICE).error == 2
    unused, total = program.ask("room").numbers
    assert (total - unused, program.allocate(0) > second) == (8, True)


def test_rows_of_a_copy_are_each_inside(program: Program) -> None:
    place = program.allocate(3 * 64 + 16, MANAGED)
    for height, error in ((4, 0), (5, 1)):
        rows = (place, 64, 0, HOST, 16, 0, 16, height, 1)
        assert program.ask("copy", *rows, TO_DEVICE, 0, 0).error == error
        assert program.ask("fill", place, 64, 0, 16, height, 1, 0).error == error


def test_planes_of_a_copy_are_each_inside(program: Program) -> None:
    """Two planes of two rows of 16 bytes, rows 64 bytes apart and planes 256."""
    place = program.allocate(256 + 64 + 16)
    for depth, error in ((2, 0), (3, 1)):
        rows = (place, 64, 256, HOST, 16, 32, 16, 2, depth)
        assert program.ask("copy", *rows, TO_DEVICE, 0, 0).error == error
        assert program.ask("fill", place, 64, 256, 16, 2, depth, 0).error == error
    piece = program.memory.at(place)
    assert piece is not None
    assert piece.undefined is not None
    written = [
        64 * row + 256 * plane + column for plane in range(2) for row in range(2) for column in range(16)
    ]
    assert np.flatnonzero(piece.undefined == 0).tolist() == sorted(written)


def test_what_a_copy_brings_is_as_defined_as_its_source(program: Program) -> None:
    x, y, z, sums = (program.allocate(256) for _ in range(4))
    program.load(ptx(), "partial")
    program.fill(x, 256)
    program.copy(y, x, 256, WITHIN)
    assert program.launch(1, partial(y, sums, 64)).numbers == (0,)
    assert program.rules() == []
    program.copy(z, sums, 256, WITHIN)  # of which the kernel wrote the first number
    assert program.launch(1, partial(z, sums, 1)).numbers == (0,)
    assert program.rules() == []
    assert program.launch(1, partial(z, sums, 2)).numbers == (0,)
    assert program.rules() == ["uninitialised"]


def test_what_tma_stores_is_written(program: Program) -> None:
    x, sums = program.allocate(512), program.allocate(4)
    program.load(ptx(), "bulk", "partial")
    assert program.launch(1, struct.pack("<Q", x)).numbers == (0,)
    assert program.launch(2, partial(x, sums, 64)).numbers == (0,)
    assert program.rules() == []
    assert program.launch(2, partial(x + 64, sums, 64)).numbers == (0,)
    assert program.rules() == ["uninitialised"]


def test_a_launch_that_overlaps_waits_before_it_reads(program: Program) -> None:
    x, sums, out = program.allocate(256), program.allocate(4), program.allocate(4)
    program.load(ptx(), "partial", "total")
    program.fill(x, 256)
    for overlaps in (False, True):
        program.launch(1, partial(x, sums, 64))
        program.launch(2, struct.pack("<QQi", sums, out, 1), block=1, overlaps=overlaps)
        assert program.rules() == ["race"] * overlaps


def test_the_heap_outlives_a_launch(program: Program) -> None:
    slot, out = program.allocate(8, MANAGED), program.allocate(4)
    program.load(ptx(), "keep", "use", "drop")
    for _ in range(2):
        assert program.launch(1, struct.pack("<Q", slot), block=1).numbers == (0,)
        assert program.launch(2, struct.pack("<QQ", slot, out), block=1).numbers == (0,)
        piece = program.memory.at(out)
        assert piece is not None
        assert piece.array.view(np.int32).tolist() == [7]
        assert program.launch(3, struct.pack("<Q", slot), block=1).numbers == (0,)
    assert program.rules() == []
    assert program.launch(2, struct.pack("<QQ", slot, out), block=1).numbers == (ILLEGAL_ADDRESS,)
    assert program.rules() == ["out-of-bounds"]
    assert not program.ask("heap_limit", 8 << 20).error
    assert not program.runs.notes
    program.ask("heap_limit", 9 << 20)
    assert "holds 8,388,608, and malloc gives a null pointer beyond" in next(iter(program.runs.notes))


def test_the_plain_run_alone_prints(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    program.load(ptx(), "hello")
    assert program.launch(1, struct.pack("<i", 7)).numbers == (0,)
    assert capsys.readouterr().out == "hello 7\n"


def test_variables_live_as_long_as_the_program(program: Program) -> None:
    x, sums = program.allocate(256), program.allocate(4)
    program.load(ptx(), "partial")
    program.fill(x, 256)
    for _ in range(2):
        assert program.launch(1, partial(x, sums, 64)).numbers == (0,)
    address, nbytes = program.ask("symbol", 91).numbers
    piece = program.memory.at(address)
    assert piece is not None
    assert (nbytes, piece.array.view(np.uint32).tolist()) == (4, [2])
    assert program.ask("symbol", 92).error == 13
    assert program.ask("free", address, 0).error == 1


def test_a_freed_piece_is_outside_all_memory(program: Program) -> None:
    x, sums = program.allocate(256), program.allocate(4)
    program.load(ptx(), "partial")
    program.fill(x, 256)
    program.ask("free", x, 0)
    assert program.launch(1, partial(x, sums, 64)).numbers == (ILLEGAL_ADDRESS,)
    assert program.rules() == ["out-of-bounds"]


@pytest.mark.parametrize(
    ("orders", "races"),
    [
        ([], True),
        ([("record", 9, 5), ("stream_waits", 6, 9)], False),
        ([("stream_waits", 6, 9), ("record", 9, 5)], True),
        ([("wait_for_stream", 5)], False),
        ([("wait_for_stream", 6)], True),
        ([("record", 9, 5), ("wait_for_event", 9)], False),
        ([("wait_for_all",)], False),
        ([("free", 0, 0)], False),
        ([("free", 0, 1)], True),
        ([("record", 9, 5), ("fill", SUMS, 4, 0, 4, 1, 1, 5), ("stream_waits", 6, 9)], True),
    ],
)
def test_streams_are_ordered_by_events_and_waits(
    program: Program, orders: list[tuple[Any, ...]], races: bool
) -> None:
    x, sums, out = program.allocate(256), program.allocate(4), program.allocate(4)
    program.load(ptx(), "partial", "total")
    for stream in (5, 6):
        program.ask("stream", stream, 1)
    program.fill(x, 256, stream=5)
    program.launch(1, partial(x, sums, 64), stream=5)
    for name, *numbers in orders:
        program.ask(name, *(sums if number == SUMS else number for number in numbers))
    program.launch(2, struct.pack("<QQi", sums, out, 1), stream=6, block=1)
    assert program.rules() == ["stream-race"] * races


@pytest.mark.parametrize(("flags", "races"), [(0, False), (1, True)])
def test_the_default_stream_waits_for_others_but_those_that_say_no(
    program: Program, flags: int, races: bool
) -> None:
    x = program.allocate(256)
    program.ask("stream", 5, flags)
    program.fill(x, 256, stream=5)
    program.copy(x, HOST, 256, TO_DEVICE)
    assert program.rules() == ["stream-race"] * races
    program.ask("wait_for_all")
    program.fill(x, 256)
    program.copy(x, HOST, 256, TO_DEVICE, stream=5, waits=False)
    assert program.rules() == ["stream-race"] * (2 * races)
    program.copy(HOST, x, 256, TO_HOST, stream=5, waits=False)  # the copy before was waited for
    assert program.rules() == ["stream-race"] * (2 * races)


def test_atomics_and_places_apart_are_no_race(program: Program) -> None:
    """Two launches add to one counter, and write other numbers of one piece."""
    x, sums = program.allocate(256), program.allocate(8)
    program.load(ptx(), "partial")
    program.fill(x, 256)
    program.ask("wait_for_all")
    for stream in (5, 6):
        program.ask("stream", stream, 1)
        program.launch(1, partial(x, sums + 4 * (stream - 5), 64), stream=stream)
    assert program.rules() == []
    program.launch(1, partial(x, sums, 64), stream=6)
    assert program.rules() == ["stream-race"]


def test_launches_that_a_card_refuses_are_refused(program: Program) -> None:
    program.load(ptx(), "partial")
    assert program.launch(1, bytes(24), block=2048).error == 9
    assert program.launch(1, partial(0, 0, 0), shared=48 << 10).numbers == (ILLEGAL_ADDRESS,)
    assert program.launch(1, bytes(24), shared=49 << 10).error == 1
    program.ask("set_kernel_attribute", 1, 8, 227 << 10)
    assert program.launch(1, bytes(24), shared=227 << 10).error == 9  # with the static memory beside it
    assert program.ask("parameters", 2).error == 98
    assert program.ask("parameters", 1).numbers == (0, 8, 8, 8, 16, 4)
    assert all(note.startswith("a launch of partial was refused: ") for note in program.runs.notes)
    assert len(program.runs.notes) == 3


def test_launches_of_any_size_run_on_schedules_unless_the_user_says_how_many(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A large one is announced once, as it may take long."""
    monkeypatch.setattr(kernel_runs, "LARGE", 3)
    x, sums = program.allocate(64), program.allocate(8)
    program.load(ptx(barrier=""), "partial")
    program.runs.most_warps = 3
    assert program.launch(1, partial(x, sums, 0), grid=2).numbers == (0,)
    assert (program.rules(), capsys.readouterr().err) == ([], "")
    (note,) = program.runs.notes
    assert note.startswith("partial ran plainly in launches of more than 3 warps (--most-warps)")
    program.runs.most_warps = None
    for _ in range(2):
        assert program.launch(1, partial(x, sums, 0), grid=2).numbers == (0,)
    assert "race" in program.rules()
    assert capsys.readouterr().err.splitlines() == [
        "lapidist: a launch of partial has 4 warps, and may take minutes on schedules; --most-warps 3 lets"
        " such launches run plainly"
    ]


def test_the_budget_of_schedules_follows_what_warps_run_in_step(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedules run each warp alone: of many warps more blocks of code than the plain run, and no fault."""
    x, sums = program.allocate(64), program.allocate(64)
    program.load(ptx(), "partial")
    program.runs.budget = 120
    assert program.launch(1, partial(x, sums, 0), grid=16).numbers == (0,)
    assert program.rules() == ["budget"]
    program.runs.judges.clear()
    monkeypatch.setattr(schedule_budget, "COUNTED_FROM", 4)
    assert program.launch(1, partial(x, sums, 0), grid=16).numbers == (0,)
    assert program.rules() == []


def test_a_launch_of_many_warps_without_end_runs_on_no_schedule(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, sums = program.allocate(64), program.allocate(64)
    program.load(ptx(), "partial")
    program.runs.budget, seeds = 3, []
    monkeypatch.setattr(schedule_budget, "COUNTED_FROM", 4)
    run = kernel_runs.run
    monkeypatch.setattr(kernel_runs, "run", lambda *a, **k: (seeds.append(k["seed"]), run(*a, **k))[1])
    assert program.launch(1, partial(x, sums, 0), grid=16).numbers == (LAUNCH_TIMEOUT,)
    assert (program.rules(), seeds) == (["budget"], [None])


def test_a_launch_whose_schedules_want_too_much_memory_runs_plainly(program: Program) -> None:
    x, sums = program.allocate(256), program.allocate(4)
    program.allocate(1 << 20)  # the schedules follow who wrote and read what there is
    program.load(ptx(barrier=""), "partial")
    program.fill(x, 256)
    program.runs.memory_budget = 1 << 20
    assert program.launch(1, partial(x, sums, 64)).numbers == (0,)
    assert program.rules() == []
    (note,) = program.runs.notes
    assert note.startswith("partial ran plainly, as its schedules were refused: memory_budget: must hold")


def test_variables_of_other_modules_are_refused_in_words(program: Program) -> None:
    program.load(ptx().replace(".address_size 64", ".address_size 64\n.extern .global .u32 far;"), "partial")
    with pytest.raises(
        ArgumentError, match=r"needs variables of another \(partial\). Compile without -rdc=true"
    ):
        program.ask("parameters", 1)


def test_the_device_is_an_h200(program: Program) -> None:
    count, attribute = 16, {10: 32, 75: 9, 76: 0, 97: 232448, 39: 2048, 1: 1024, 7: 65535, 21: 0}
    assert program.ask("attribute", count, 0).numbers == (132,)
    for number, value in attribute.items():
        assert program.ask("attribute", number, 0).numbers == (value,), number
    assert (program.ask("attribute", 10**6, 0).error, program.ask("attribute", 16, 1).error) == (1, 101)
    properties = program.ask("properties", 0)
    assert properties.numbers == (PROPERTIES_BYTES[13],)
    assert properties.content.startswith(b"NVIDIA H200 (in Lapidist's machine)\0")
    assert program.ask("error_text", 700).content == b"an illegal memory access was encountered"
    assert program.ask("error_name", 700).content == b"cudaErrorIllegalAddress"
    assert program.ask("error_text", 12345).content == b"unrecognized error code"
    assert [
        blocks_per_sm(256, 0),
        blocks_per_sm(256, 100 << 10),
        blocks_per_sm(32, 0),
        blocks_per_sm(0, 0),
    ] == [8, 2, 32, 0]
    program.load(ptx(), "partial")
    assert program.ask("occupancy", 1, 64, 0).numbers == (32,)
    assert program.ask("clusters", 1, 2, 1024, 120 << 10).numbers == (66,)
    assert program.ask("kernel_attributes", 1).numbers[:4] == (256, 0, 0, 1024)
    assert program.ask("set_kernel_attribute", 1, 8, 1 << 20).error == 1
    assert program.ask("set_kernel_attribute", 1, 8, 200 << 10).error == 0
    assert program.ask("kernel_attributes", 1).numbers[8] == 200 << 10


def test_tensor_maps_are_made_and_met_in_parameters(program: Program) -> None:
    numbers = [
        6,
        2,
        4096,
        0,
        3,
        2,
        0,
        *(64, 32, 0, 0, 0),
        *(128, 0, 0, 0, 0),
        *(64, 8, 0, 0, 0),
        *(1, 1, 0, 0, 0),
    ]
    answer = program.ask("tensor_map", *numbers)
    tensor = TensorMap(4096, "float16", (64, 32), (128,), (64, 8), 128, 128)
    assert (answer.error, decoded(answer.content)) == (0, tensor)
    assert tensor_maps(bytes(64) + answer.content + bytes(8)) == [(64, tensor)]
    assert tensor_maps(answer.content) == [(0, tensor)]
    assert tensor_maps(bytes(200)) == []
    assert tensor_maps(answer.content[:60] + b"\xff" * 68) == []
    for place, value in ((0, 77), (3, 1), (4, 4), (2, 4097), (22, 2)):
        assert program.ask("tensor_map", *numbers[:place], value, *numbers[place + 1 :]).error == 1


def test_blocks_may_wait_for_blocks_that_a_chip_holds(program: Program) -> None:
    """The schedule runs again, with all six blocks resident; in later launches it has them at once."""
    program.load(ptx(), "turns")
    for launches in (1, 2):
        flags = program.allocate(24)
        piece = program.memory.at(flags)
        assert piece is not None
        piece.array[:] = program.fill(flags, 24)
        assert not program.launch(1, struct.pack("<Q", flags), grid=6, block=1).error
        assert piece.array.view(np.int32).tolist() == [1] * 6
        assert [len(finding.seeds) for _, finding in program.runs.findings()] == [1], launches
        assert program.rules() == ["residency"]
    assert program.runs.in_order == {"turns"}
