"""A Plan made ready for many runs on a GPU.

`GpuKernel.start` is the hot path (no allocation, no synchronisation): write the pointers into this thread's
parameter bytes, call the driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from lapidist.backends.gpu.driver import (
    check,
    encode_tensor_map,
    gpu_count,
    load_binary,
    load_driver,
    primary_context,
)
from lapidist.backends.gpu.placement import order_of
from lapidist.backends.gpu.workspaces import owned, stream_key
from lapidist.errors import LaunchError
from lapidist.launch import MOST_PAIRS, ParameterBlock
from lapidist.planning.plans import Plan
from lapidist.problems.modes import NOWHERE, Places

MAPS_KEPT = 256
Addresses = tuple[int, int]
# addresses of A, B, C and D, and the raw stream; returns at once
Start = Callable[[int, int, int, int, int], None]


class _Block:
    """One thread's parameter bytes and launch configuration: the driver call drops the GIL while it reads
    them.
    """

    __slots__ = (
        "a",
        "address",
        "arguments",
        "b",
        "c",
        "config",
        "d",
        "keep",
        "slots",
        "view",
        "words",
        "workspace",
        "workspace_key",
    )

    def __init__(self, parameters: ParameterBlock, content: bytes | bytearray, config: Any) -> None:
        raw = ctypes.create_string_buffer(parameters.nbytes + 64 + 16)
        start = -ctypes.addressof(raw) % 64  # tensor maps must lie on 64 bytes
        base = ctypes.addressof(raw) + start
        self.view = memoryview(raw).cast("B")[start : start + parameters.nbytes]
        self.view[:] = content
        # The pointers as 64-bit words of the whole buffer; an operand that the kernel is not passed gets the
        # last word.
        self.words = memoryview(raw).cast("B")[: len(raw) // 8 * 8].cast("Q")
        places = parameters.places("pointer")
        self.a, self.b, self.c, self.d = (
            (start + places[x]) // 8 if x in places else len(raw) // 8 - 1 for x in "ABCD"
        )
        pointers = (ctypes.c_void_p * len(parameters.offsets))(
            *(base + offset for offset in parameters.offsets.values())
        )
        self.address = ctypes.addressof(pointers)
        self.keep = (raw, pointers)
        self.config = config
        self.workspace = [(start + offset) // 8 for offset in parameters.places("workspace").values()]
        self.workspace_key: object = None
        self.slots = 0  # where the workspace's room begins
        self.arguments: tuple[int, int, int, int, int] | None = None  # what the last launch left in here


def launch_attributes(driver: Any, plan: Plan) -> list[Any]:
    """What the launch demands: all blocks on the chip at once, a start beside the launch before, a tile's
    peers as a cluster.
    """
    peers = 1 if plan.schedule is None else plan.schedule.cluster
    beside = "PROGRAMMATIC_STREAM_SERIALIZATION"
    attributes = []
    for name, wanted in (
        ("COOPERATIVE", plan.cooperative),
        (beside, plan.overlaps),
        ("CLUSTER_DIMENSION", peers > 1),
    ):
        if wanted:
            attribute, value = driver.CUlaunchAttribute(), driver.CUlaunchAttributeValue()
            if name == "CLUSTER_DIMENSION":
                value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = peers, 1, 1
            else:
                setattr(
                    value, "programmaticStreamSerializationAllowed" if name == beside else "cooperative", 1
                )
            attribute.id, attribute.value = (
                getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}"),
                value,
            )
            attributes.append(attribute)
    return attributes


def loaded(plan: Plan, ordinal: int) -> Any:
    """The kernel's handle. What the cache had may look like a kernel and be none: then it is compiled anew,
    once.
    """
    try:
        return load_binary(plan.binary, ordinal, plan.shared_bytes)
    except LaunchError:
        return load_binary(plan.recompiled(), ordinal, plan.shared_bytes)


class GpuKernel:
    """A kernel with everything fixed but the pointers, ready to `start` again and again."""

    def __init__(
        self,
        plan: Plan,
        ordinal: int,
        alpha: float,
        beta: float,
        own: Addresses | None = None,
        places: Places = NOWHERE,
    ) -> None:
        """`own` is where flags and room are in the caller's workspace, of zeros; `places` are the addresses
        of indices.
        """
        self.plan, self._ordinal = plan, ordinal
        self._workspace = own
        driver = load_driver()
        self._context = primary_context(ordinal)
        self._function = loaded(plan, ordinal)
        self._parameters = plan.kernel.signature.block(plan.problem)
        self._content = self._parameters.pack(plan.constants(alpha, beta, places))
        for place in self._parameters.places("order").values():
            self._content[place : place + MOST_PAIRS] = order_of(plan, ordinal)
        self._map_places = self._parameters.places("tensormap")
        self._encoded: dict[tuple[int, int, int, int], dict[str, bytes]] = {}
        self._local = threading.local()
        # With one GPU its context is current wherever a framework works; with several, each launch must look.
        here = self._starter(driver)
        self.start: Start = here if gpu_count() == 1 else self._anywhere(driver, here)

    def _starter(self, driver: Any) -> Start:
        """The launch itself, its names bound once: attribute look-ups would cost a tenth of it."""
        local, function, has_maps = self._local, self._function, bool(self._map_places)
        has_workspace, own = self.plan.workspace_bytes > 0, self._workspace is not None
        launch, stream_type = driver.cuLaunchKernelEx, driver.CUstream

        def start(a: int, b: int, c: int, d: int, stream: int) -> None:
            try:
                block = local.block
            except AttributeError:
                block = self._make_block()
            arguments = a, b, c, d, stream
            moved = block.arguments != arguments
            if moved:
                # until all of it is in place: what fails half way must not look ready to the next call
                block.arguments = None
                words = block.words
                words[block.a] = a
                words[block.b] = b
                words[block.c] = c
                words[block.d] = d
                block.config.hStream = stream_type(stream)
            if has_workspace:
                # asking the driver takes half a microsecond
                key = own or stream_key(driver, block.config.hStream, stream)
                if block.workspace_key != key:
                    block.arguments, moved = None, True
                    self._place_workspace(block, key)
            if moved:
                if has_maps:
                    self._place_maps(block, a, b, d)
                block.arguments = arguments
            status = launch(block.config, function, block.address, 0)[0]
            if status:
                raise LaunchError(
                    f"cuLaunchKernelEx: the driver answered {status.name} (grid {self.plan.grid}, block"
                    f" {self.plan.block}, {self.plan.shared_bytes} bytes of dynamic shared memory)"
                )

        return start

    def start_with(
        self, name: str, content: bytes, stream: int, operands: tuple[int, int, int, int] = (0, 0, 0, 0)
    ) -> None:
        """With these first bytes of a parameter: the addresses of lists, or of factors."""
        self.put(name, content)
        self.start(*operands, stream)

    def put(self, name: str, content: bytes) -> None:
        """The first bytes of a parameter of this thread's next launches."""
        try:
            block = self._local.block
        except AttributeError:
            block = self._make_block()
        place = self._parameters.offsets[name]
        block.view[place : place + len(content)] = content

    def _anywhere(self, driver: Any, here: Start) -> Start:
        """The launch with this GPU's context made current around it, where it is not already."""
        wanted = int(self._context)

        def start(a: int, b: int, c: int, d: int, stream: int) -> None:
            current = driver.cuCtxGetCurrent()[1]
            if int(current) == wanted:
                return here(a, b, c, d, stream)
            driver.cuCtxSetCurrent(self._context)
            try:
                return here(a, b, c, d, stream)
            finally:
                driver.cuCtxSetCurrent(current)

        return start

    def _make_block(self) -> _Block:
        """This thread's block; a thread that has no context yet gets the GPU's."""
        driver = load_driver()
        if not int(check(driver.cuCtxGetCurrent(), "cuCtxGetCurrent")):
            check(driver.cuCtxSetCurrent(self._context), "cuCtxSetCurrent")
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.plan.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.plan.block
        config.sharedMemBytes = self.plan.shared_bytes
        attributes = launch_attributes(driver, self.plan)
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        block = self._local.block = _Block(self._parameters, self._content, config)
        return block

    def _place_workspace(self, block: _Block, key: object) -> None:
        """Where this stream's flags and partial sums are: the caller's workspace, or the driver's own."""
        sizes = self.plan.partials_offset, self.plan.workspace_bytes - self.plan.partials_offset
        place = self._workspace or owned(load_driver(), self._ordinal, key, *sizes)
        for word in block.workspace:
            block.words[word], block.words[word + 1] = place
        block.slots = place[1]
        block.workspace_key = key

    def _place_maps(self, block: _Block, a: int, b: int, d: int) -> None:
        """Tensor maps hold addresses; the last ones are kept, since encoding one takes microseconds."""
        key = a, b, d, block.slots
        encoded = self._encoded.get(key)
        if encoded is None:
            if len(self._encoded) >= MAPS_KEPT:
                self._encoded.clear()
            at = {"A": a, "B": b, "D": d, "workspace": block.slots}
            maps = self.plan.tensor_maps(at)
            encoded = self._encoded[key] = {
                name: encode_tensor_map(tensor_map) for name, tensor_map in maps.items()
            }
        for name, offset in self._map_places.items():
            block.view[offset : offset + 128] = encoded[name]
