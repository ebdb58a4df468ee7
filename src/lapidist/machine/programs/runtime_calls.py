"""What the stand-in for the CUDA runtime asks: each call of the program's that needs the machine."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from lapidist.build.toolkit import major
from lapidist.device import STATIC_SHARED
from lapidist.errors import ArgumentError
from lapidist.launch import Binary, Launch, TensorMap
from lapidist.machine.authors.kernel_text import demangled
from lapidist.machine.faults import PtxError
from lapidist.machine.heap import HEAP_BYTES
from lapidist.machine.program import compile_program
from lapidist.machine.programs import chip_answers
from lapidist.machine.programs.device_memory import DEVICE, FOLLOWED, MANAGED, VARIABLE, DeviceMemory
from lapidist.machine.programs.kernel_runs import KernelRuns
from lapidist.machine.programs.modules import ProgramModule
from lapidist.machine.programs.runtime_functions import refusal
from lapidist.machine.ptx.syntax_tree import Kernel
from lapidist.machine.residency import CHIP, blocks_per_sm
from lapidist.machine.run import check_tensor_map
from lapidist.machine.tensor_map_bytes import MAGIC, MAP_BYTES, decoded, encoded

REQUEST, ANSWER = struct.Struct("<24sII"), struct.Struct("<iII")
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, INVALID_SYMBOL = 1, 2, 9, 13
INVALID_FUNCTION, INVALID_DEVICE, NOT_SUPPORTED = 98, 101, 801
MAX_SHARED_ATTRIBUTE = 8  # cudaFuncAttributeMaxDynamicSharedMemorySize
# by their numbers in CUtensorMapDataType
MAP_TYPES = {
    **dict(enumerate(("uint8", "uint16", "uint32", "int32", "uint64", "int64"))),
    **dict(enumerate(("float16", "float32", "float64", "bfloat16", "float32", "tfloat32"), 6)),
}


class Answer(NamedTuple):
    error: int = 0
    numbers: tuple[int, ...] = ()
    content: bytes = b""


class RuntimeCalls:
    """`kernels` and `symbols` are known by addresses of the program's process, which identify them."""

    def __init__(self, memory: DeviceMemory, runs: KernelRuns, major: int) -> None:
        self.memory, self.runs, self.major = memory, runs, major
        self.modules: list[ProgramModule] = []
        self.kernels: dict[int, tuple[ProgramModule, str]] = {}
        self.symbols: dict[int, tuple[ProgramModule, str]] = {}
        self.most_shared: dict[int, int] = {}

    def serve(self, channel: socket.socket) -> None:
        """Answer until the program ends."""
        with channel.makefile("rwb") as stream:
            while head := stream.read(REQUEST.size):
                name, count, nbytes = REQUEST.unpack(head)
                numbers = struct.unpack(f"<{count}Q", stream.read(8 * count))
                content = stream.read(nbytes)
                call = CALLS[name.rstrip(b"\0").decode()]
                answer = call(self, numbers, content)
                stream.write(ANSWER.pack(answer.error, len(answer.numbers), len(answer.content)))
                stream.write(struct.pack(f"<{len(answer.numbers)}Q", *answer.numbers) + answer.content)
                stream.flush()

    # -- modules --

    def module(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.modules.append(ProgramModule(content, self.memory))
        return Answer(numbers=(len(self.modules) - 1,))

    def kernel(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        module, host = numbers
        self.kernels[host] = self.modules[module], content.decode()
        return Answer()

    def variable(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        module, host, _ = numbers
        self.symbols[host] = self.modules[module], content.decode()
        return Answer()

    def managed_variable(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        """The program's own pointer leads to it from the start."""
        self.variable(numbers, content)
        return self.symbol(numbers[1:2], b"")

    def symbol(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        module, name = self.symbols.get(numbers[0], (None, ""))
        piece = None if module is None else module.variables.get(name)
        return Answer(INVALID_SYMBOL) if piece is None else Answer(0, (piece.start, piece.nbytes))

    # -- kernels --

    def parsed(self, host: int) -> Kernel | None:
        module, entry = self.kernels.get(host, (None, ""))
        return None if module is None else module.kernel(entry)

    def parameters(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        kernel = self.parsed(numbers[0])
        if kernel is None:
            return Answer(INVALID_FUNCTION)
        layout = [number for p in kernel.parameters.values() for number in (p.offset, p.size)]
        return Answer(numbers=tuple(layout))

    def launch(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        host, gx, gy, gz, bx, by, bz, shared, stream, cooperative, cx, cy, cz, overlaps = numbers
        module, entry = self.kernels[host]
        kernel, text = module.kernel(entry), module.kernel_text(entry)
        if shared > (most := self.most_shared.get(host, STATIC_SHARED)):
            self.runs.notes[
                f"a launch of {demangled(entry)} was refused: it asks for {shared:,} bytes of dynamic shared"
                f" memory, of {most:,}. Allow more by cudaFuncSetAttribute"
            ] = None
            return Answer(INVALID_VALUE)
        named = [piece for name, piece in module.variables.items() if name in kernel.variables]
        reachable = [piece for piece in self.memory.pieces.values() if piece not in named]
        launch = Launch(
            Binary(entry, kernel.target, text.ptx, b"", ""),
            (gx, gy, gz),
            (bx, by, bz),
            content,
            shared,
            (cx, cy, cz),
            tuple(tensor_maps(content)),
            tuple(piece.as_memory() for piece in reachable if piece.nbytes),
            tuple(piece.as_memory() for piece in named),
            bool(cooperative),
            bool(overlaps),
        )
        try:
            return Answer(numbers=(self.runs.run(launch, text, stream),))
        except PtxError:
            raise
        except ArgumentError as error:  # as a card refuses it
            self.runs.notes[f"a launch of {demangled(entry)} was refused: {error}"] = None
            return Answer(INVALID_CONFIGURATION)

    def set_kernel_attribute(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        host, attribute, value = numbers
        if attribute == MAX_SHARED_ATTRIBUTE and value > CHIP.shared_per_block:
            return Answer(INVALID_VALUE)
        if attribute == MAX_SHARED_ATTRIBUTE:
            self.most_shared[host] = value
        return Answer()

    def kernel_attributes(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        """Sizes of shared, constant and local memory; threads, registers, versions, and dynamic memory."""
        kernel = self.parsed(numbers[0])
        if kernel is None:
            return Answer(INVALID_FUNCTION)
        module, entry = self.kernels[numbers[0]]
        program = compile_program(module.ptx, entry)
        sizes = (kernel_shared(kernel), 0, program.local_bytes)
        threads, dynamic = kernel.most_threads or 1024, self.most_shared.get(numbers[0], STATIC_SHARED)
        return Answer(numbers=(*sizes, threads, kernel.most_registers or 32, 90, 90, 0, dynamic, 0))

    def occupancy(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        host, threads, shared = numbers
        kernel = self.parsed(host)
        if kernel is None:
            return Answer(INVALID_FUNCTION)
        return Answer(numbers=(blocks_per_sm(threads, shared + kernel_shared(kernel)),))

    def dynamic_shared(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        host, blocks, threads = numbers
        kernel = self.parsed(host)
        if kernel is None:
            return Answer(INVALID_FUNCTION)
        return Answer(numbers=(chip_answers.dynamic_shared(blocks, threads, kernel_shared(kernel)),))

    def kernel_name(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        if numbers[0] not in self.kernels:
            return Answer(INVALID_FUNCTION)
        return Answer(content=self.kernels[numbers[0]][1].encode())

    def clusters(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        host, blocks, threads, shared = numbers
        kernel = self.parsed(host)
        if kernel is None:
            return Answer(INVALID_FUNCTION)
        count = chip_answers.clusters_on_chip(blocks, threads, shared + kernel_shared(kernel))
        return Answer(numbers=(count,))

    def tensor_map(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        """cuTensorMapEncodeTiled, as far as the machine has tensor maps."""
        kind, rank, address, interleave, swizzle, promotion, fill, *extents = numbers
        shape, strides, box, steps = (tuple(extents[5 * n : 5 * n + rank]) for n in range(4))
        if interleave or fill or swizzle > 3 or any(step != 1 for step in steps) or kind not in MAP_TYPES:
            return Answer(INVALID_VALUE)
        fetched = (64, 64, 128, 256)[min(promotion, 3)]
        swizzled = (0, 32, 64, 128)[swizzle]
        tensor = TensorMap(address, MAP_TYPES[kind], shape, strides[: rank - 1], box, swizzled, fetched)
        try:
            check_tensor_map(0, tensor)
        except ArgumentError as error:
            self.runs.notes[f"cuTensorMapEncodeTiled refused a map: {error}"] = None
            return Answer(INVALID_VALUE)
        return Answer(0, (MAP_BYTES,), encoded(tensor))

    # -- memory --

    def allocate(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        nbytes, kind = numbers
        piece = self.memory.allocate(nbytes, kind)
        if piece is not None and kind == DEVICE and nbytes > FOLLOWED:
            self.runs.notes[
                f"of allocations beyond {FOLLOWED >> 20} MiB it is not followed which bytes were written"
            ] = None
        return Answer(OUT_OF_MEMORY) if piece is None else Answer(0, (piece.start,))

    def reserve(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        piece = self.memory.reserve(numbers[0])
        return Answer(OUT_OF_MEMORY) if piece is None else Answer(0, (piece.start,))

    def revive(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        return Answer(0 if self.memory.revive(numbers[0]) else OUT_OF_MEMORY)

    def graph_memory(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        """Bytes in use, and kept, each with its peak, in the order of cudaGraphMemAttributeType."""
        peak, reserved = self.memory.graph_peaks
        return Answer(0, (self.memory.graph_bytes(), peak, reserved, max(peak, reserved)))

    def reset_graph_memory(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.memory.graph_peaks[0] = self.memory.graph_bytes()
        return Answer()

    def trim_graph_memory(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.memory.graph_peaks[1] = self.memory.graph_bytes()
        return Answer()

    def free(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        pointer, is_asynchronous = numbers
        if not is_asynchronous:
            self.wait_for_all((), b"")
        return Answer(0 if self.memory.free(pointer) else INVALID_VALUE)

    def register_host(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.runs.notes[
            "kernels cannot reach what cudaHostRegister names, as it is the program's alone; copies can. For"
            " kernels allocate by cudaMallocHost"
        ] = None
        return Answer()

    def pointer(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        piece = self.memory.at(numbers[0])
        if piece is None:
            return Answer(INVALID_VALUE)
        return Answer(0, (DEVICE if piece.kind == VARIABLE else min(piece.kind, MANAGED),))

    def room(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        return Answer(0, (self.memory.total - self.memory.used, self.memory.total))

    def copy(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        target, target_pitch, target_slice, source, source_pitch, source_slice = numbers[:6]
        width, height, depth, kind, stream, is_asynchronous = numbers[6:]
        targets = rows_of(target, target_pitch, target_slice, height, depth)
        sources = rows_of(source, source_pitch, source_slice, height, depth)
        to_device, from_device = kind in (1, 3), kind in (2, 3)
        sides = ((targets, to_device, target), (sources, from_device, source))
        for addresses, is_device, first in sides:
            inside = self.memory.is_inside(first)
            if (is_device and not inside) or (inside and not self.have(addresses, width)):
                return Answer(INVALID_VALUE)
        for place, origin in zip(targets, sources, strict=True):
            self.memory.write(place, width, origin)
        name = "cudaMemcpyAsync" if is_asynchronous else "cudaMemcpy"
        shared = [addresses if self.memory.is_inside(first) else [] for addresses, _, first in sides]
        self.runs.copied(name, shared[0], shared[1], width, stream)
        if is_asynchronous == 0 or (is_asynchronous == 1 and not self.memory.is_inside(target)):
            self.wait_for_stream((stream,), b"")  # the call returns when it is done
        return Answer()

    def fill(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        target, pitch, apart, width, height, depth, stream = numbers
        targets = rows_of(target, pitch, apart, height, depth)
        if not self.have(targets, width):
            return Answer(INVALID_VALUE)
        for place in targets:
            self.memory.write(place, width)
        self.runs.copied("cudaMemset", targets, [], width, stream)
        return Answer()

    def have(self, addresses: list[int], nbytes: int) -> bool:
        return all(nbytes == 0 or self.memory.at(address, nbytes) is not None for address in addresses)

    # -- streams --

    def stream(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.runs.order.create(*numbers)
        return Answer()

    def record(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.runs.order.record(*numbers)
        return Answer()

    def stream_waits(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.runs.order.stream_waits(*numbers)
        return Answer()

    def wait_for_stream(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        order = self.runs.order
        order.host_waits([order.clock(numbers[0])])
        return Answer()

    def wait_for_event(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        order = self.runs.order
        order.host_waits([order.events.get(numbers[0], {})])
        return Answer()

    def wait_for_all(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        order = self.runs.order
        order.host_waits(list(order.clocks.values()))
        return Answer()

    # -- the device --

    def properties(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        if numbers[0] != 0:
            return Answer(INVALID_DEVICE)
        if self.major != major():
            way = "Compile it with the other, or install lapidist[cuda12]"
            self.runs.notes[
                f"cudaGetDeviceProperties failed: the program is of CUDA {self.major}, the installed"
                f" cuda-bindings are of {major()}. {way}"
            ] = None
            return Answer(NOT_SUPPORTED)
        content = chip_answers.properties()
        return Answer(0, (len(content),), content)

    def attribute(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        value = chip_answers.attribute(numbers[0])
        if numbers[1] != 0:
            return Answer(INVALID_DEVICE)
        return Answer(INVALID_VALUE) if value is None else Answer(0, (value,))

    def no_device(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        self.runs.notes[
            f"the program asked for device {numbers[0]}; the machine has one, device 0: the call answered"
            " cudaErrorInvalidDevice. Run the program on one device"
        ] = None
        return Answer(INVALID_DEVICE)

    def heap_limit(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        if numbers[0] > HEAP_BYTES:
            self.runs.notes[
                f"cudaDeviceSetLimit asked for {numbers[0]:,} bytes of heap; the machine's holds"
                f" {HEAP_BYTES:,}, and malloc gives a null pointer beyond. Allocate by cudaMalloc"
            ] = None
        return Answer()

    def error_text(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        return Answer(content=chip_answers.error_text(numbers[0], is_name=False))

    def error_name(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        return Answer(content=chip_answers.error_text(numbers[0], is_name=True))

    def lacking(self, numbers: tuple[int, ...], content: bytes) -> Answer:
        name = content.decode()
        self.runs.notes[
            f"{name} was called, which the stand-in for the CUDA runtime lacks: {refusal(name)}. The call"
            " answered cudaErrorNotSupported"
        ] = None
        return Answer()


Call = Callable[[RuntimeCalls, tuple[int, ...], bytes], Answer]
CALLS: dict[str, Call] = {
    name: call
    for name, call in vars(RuntimeCalls).items()
    if name not in ("serve", "parsed", "have") and not name.startswith("_")
}


def rows_of(start: int, pitch: int, apart: int, height: int, depth: int) -> list[int]:
    """Where the rows of all planes begin."""
    return [start + plane * apart + row * pitch for plane in range(depth) for row in range(height)]


def kernel_shared(kernel: Kernel) -> int:
    return sum(v.size for v in kernel.variables.values() if v.space == "shared")


def tensor_maps(content: bytes) -> list[tuple[int, TensorMap]]:
    """The tensor maps among the bytes of parameters, in structs, too. What the driver would not have made is
    none: a struct may have room for a map that its author never made, with bytes of an older one."""
    maps = []
    for offset in range(0, len(content) - MAP_BYTES + 1, 64):
        tensor = decoded(content[offset : offset + MAP_BYTES]) if content.startswith(MAGIC, offset) else None
        if tensor is not None:
            with suppress(ArgumentError):
                check_tensor_map(offset, tensor)
                maps.append((offset, tensor))
    return maps
