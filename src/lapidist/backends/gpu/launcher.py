"""A Launch made ready for many runs on a GPU.

`GpuKernel.start` is the hot path, without allocation or synchronisation. It writes what changed since the
last run into this thread's parameter bytes, and calls the driver.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from lapidist.backends.gpu.driver import (
    check,
    encode_tensor_map,
    gpu_count,
    load_binary,
    load_driver,
    primary_context,
    refused,
)
from lapidist.backends.gpu.encoded import EncodedMaps
from lapidist.backends.gpu.workspaces import owned, stream_key
from lapidist.launch import Dim3, Launch, Operands, Scalars

Addresses = tuple[int, int]
NO_STREAM = -1  # nothing was launched from this block yet
# (Operands, alpha and beta, the raw stream, Written or None) -> None; does not wait for the GPU
Start = Callable[..., None]


class Written(NamedTuple):
    """Further parameters of a call, beside matrices and alpha and beta. `constant`: by name, those that stay
    from call to call. `words`: index and content of 64-bit words of the parameters.
    """

    constant: Mapping[str, Any]
    words: list[tuple[int, int]]


class _Block:
    """Parameter bytes and launch configuration of one thread. The driver call releases the GIL while it reads
    them, so threads must not share them.
    """

    __slots__ = (
        "a",
        "address",
        "b",
        "c",
        "config",
        "constant",
        "d",
        "first",
        "keep",
        "operands",
        "scalars",
        "slots",
        "stream",
        "view",
        "words",
        "workspace_key",
        "written",
    )

    def __init__(self, launch: Launch, config: Any) -> None:
        size, offsets, patches = len(launch.arguments), launch.parameters.offsets, launch.patches
        raw = ctypes.create_string_buffer(size + 64 + 16)
        start = -ctypes.addressof(raw) % 64  # tensor maps must be aligned to 64 bytes
        base = ctypes.addressof(raw) + start
        memory = memoryview(raw).cast("B")
        self.view = memory[start : start + size]
        # Indices of the pointers among the buffer's 64-bit words. An operand that the kernel does not take is
        # written to the last word, behind the parameters.
        self.words, self.first = memory[: len(raw) // 8 * 8].cast("Q"), start // 8
        self.a, self.b, self.c, self.d = (
            (start + patches[x].offset) // 8 if x in patches else len(raw) // 8 - 1 for x in "ABCD"
        )
        pointers = (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets.values()])
        self.address = ctypes.addressof(pointers)
        self.keep = (raw, pointers)
        self.config = config
        self.begin(launch)

    def begin(self, launch: Launch) -> None:
        """Reset the block for a launch with the same parameters."""
        self.view[:] = launch.arguments
        config = self.config
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        self.workspace_key: object = None
        self.slots = 0  # address behind the workspace's flags
        # the values of the last launch
        self.scalars: Scalars | None = None
        self.operands: Operands | None = None
        self.stream = NO_STREAM
        self.constant: Mapping[str, Any] | None = None
        self.written: Written | None = None


SPARE = 64  # blocks that a thread keeps for kernels that start for the first time
_spare = threading.local()


def spare_blocks() -> dict[Any, _Block]:
    """This thread's spare blocks, by the properties that launches must share."""
    try:
        blocks: dict[Any, _Block] = _spare.blocks
    except AttributeError:
        blocks = _spare.blocks = {}
    return blocks


def put_back(key: Any, block: _Block) -> None:
    """Keep the block for the next launch like it. The driver has copied its content."""
    blocks = spare_blocks()
    if len(blocks) >= SPARE:
        blocks.clear()
    blocks[key] = block


class Once:
    """Stands for the blocks of all threads in a kernel's first launch."""

    __slots__ = ("block",)
    block: _Block


def launch_attributes(driver: Any, launch: Launch) -> list[Any]:
    """Attributes of the launch: all blocks on the chip at once, a start before the last launch ends, clusters
    that are not fixed in the binary.
    """
    clustered = launch.cluster != (1, 1, 1) and not launch.binary.has_cluster
    return attributes_of(driver, launch.cooperative, launch.overlaps, launch.cluster if clustered else None)


@lru_cache(maxsize=128)
def attributes_of(driver: Any, cooperative: bool, overlaps: bool, cluster: Dim3 | None) -> list[Any]:
    """The driver copies them with each configuration, so launches can share them."""
    overlap = "PROGRAMMATIC_STREAM_SERIALIZATION"
    attributes = []
    for name, applies in (
        ("COOPERATIVE", cooperative),
        (overlap, overlaps),
        ("CLUSTER_DIMENSION", cluster is not None),
    ):
        if applies:
            attribute, value = driver.CUlaunchAttribute(), driver.CUlaunchAttributeValue()
            if cluster is not None and name == "CLUSTER_DIMENSION":
                value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
            else:
                setattr(
                    value, "programmaticStreamSerializationAllowed" if name == overlap else "cooperative", 1
                )
            attribute.id, attribute.value = (
                getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}"),
                value,
            )
            attributes.append(attribute)
    return attributes


class GpuKernel:
    """A kernel with everything fixed but the entries of the launch's patch table, ready to `start` many
    times.
    """

    def __init__(self, launch: Launch, ordinal: int, workspace: Addresses | None = None) -> None:
        """`workspace`: addresses in the caller's workspace, of flags and of what follows them."""
        self.launch, self._ordinal = launch, ordinal
        self._workspace = workspace
        self._context = primary_context(ordinal)
        self._function = load_binary(launch.binary, ordinal, launch.shared_bytes)
        self._maps = None if launch.maps is None else EncodedMaps(launch.maps, encode_tensor_map)
        self._blocks: Any = None  # one for each thread, from the second start on
        self._started = False

    def start(self, operands: Operands, scalars: Scalars, stream: int) -> None:
        """The first start keeps no objects. A served model meets most of its products once, and Python's
        garbage collector takes time for every object that is kept.
        """
        once = self._blocks is None and not self._started
        self._started = True
        if not once:
            self.repeated_start()(operands, scalars, stream)
            return
        key, blocks = self._configured(), Once()
        spare = spare_blocks().pop(key, None)
        if spare is None:
            blocks.block = self._make_block()
        else:
            blocks.block = spare
            spare.begin(self.launch)
        self._make_start(blocks)(operands, scalars, stream)
        put_back(key, blocks.block)

    def _configured(self) -> tuple[Any, ...]:
        """Launches with equal values differ only in grid and parameters."""
        launch = self.launch
        return (
            id(self._function),
            launch.block,
            launch.shared_bytes,
            launch.cluster,
            launch.cooperative,
            launch.overlaps,
        )

    def repeated_start(self) -> Start:
        """The function that starts it repeatedly, with a block for each thread."""
        start: Start | None = self.__dict__.get("start")
        if start is None:
            start = self.__dict__["start"] = self._make_start(self._blocks_by_thread())
        return start

    def _blocks_by_thread(self) -> Any:
        if self._blocks is None:
            self._blocks = threading.local()
        return self._blocks

    def _make_start(self, blocks: Any) -> Start:
        """With one GPU its context is always current where a framework works. With several, each launch must
        check.
        """
        driver = load_driver()
        start = self._starter(driver, blocks)
        return start if gpu_count() == 1 else self._anywhere(driver, start)

    def _starter(self, driver: Any, blocks: Any) -> Start:
        """The launch itself. Names are bound once: attribute look-ups would take a tenth of its time."""
        function, has_maps = self._function, self.launch.maps is not None
        has_workspace, own_workspace = any(self.launch.scratch), self._workspace is not None
        launch, stream_type = driver.cuLaunchKernelEx, driver.CUstream

        def start(operands: Operands, scalars: Scalars, stream: int, written: Written | None = None) -> None:
            try:
                block = blocks.block
            except AttributeError:
                block = blocks.block = self._make_block()
            if written is not None and block.written is not written:
                self._write(block, written)
            moved = False
            # Mostly these are the same objects as before, and comparing identities is faster.
            if block.operands is not operands or block.scalars is not scalars or block.stream != stream:
                moved = block.operands != operands or block.scalars != scalars or block.stream != stream
                # None until all is written: after an error half-way the next call must write it again.
                block.operands = None if moved else operands
                if moved:
                    words = block.words
                    words[block.a], words[block.b], words[block.c], words[block.d] = operands
                    if block.stream != stream:
                        block.config.hStream = stream_type(stream)
                        block.stream = stream
                    if block.scalars != scalars:
                        self._place_scalars(block, scalars)
                block.scalars = scalars
            if has_workspace:
                # The driver is asked whether the stream is captured, which takes half a microsecond.
                key = own_workspace or stream_key(driver, block.config.hStream, stream)
                if block.workspace_key != key:
                    block.operands, moved = None, True
                    self._place_workspace(block, key)
            if moved:
                if has_maps:
                    self._place_maps(block, operands)
                block.operands = operands
            status = launch(block.config, function, block.address, 0)[0]
            if status:
                failed = self.launch
                more = f"block {failed.block}, {failed.shared_bytes} bytes of dynamic shared memory"
                raise refused(status, "cuLaunchKernelEx", f" (grid {failed.grid}, {more})")

        return start

    def start_with(
        self, values: Mapping[str, Any], stream: int, scalars: Scalars, operands: Operands = (0, 0, 0, 0)
    ) -> None:
        """Start with further values that change from run to run: addresses of lists, indices, factors."""
        block = self._thread_block()
        block.constant = block.written = None
        self.launch.write(block.view, values)
        self.start(operands, scalars, stream)

    def _write(self, block: _Block, written: Written) -> None:
        """Write the further parameters that changed."""
        constant, words = written
        block.written = None
        if block.constant is not constant:
            block.constant = None
            self.launch.write(block.view, constant)
            block.constant = constant
        into, first = block.words, block.first
        for place, value in words:
            into[first + place] = value
        block.written = written

    def _anywhere(self, driver: Any, launch: Start) -> Start:
        """The launch with this GPU's context made current, if it is not already."""
        context = int(self._context)

        def start(operands: Operands, scalars: Scalars, stream: int, written: Written | None = None) -> None:
            current = driver.cuCtxGetCurrent()[1]
            if int(current) == context:
                return launch(operands, scalars, stream, written)
            driver.cuCtxSetCurrent(self._context)
            try:
                return launch(operands, scalars, stream, written)
            finally:
                driver.cuCtxSetCurrent(current)

        return start

    def _thread_block(self) -> _Block:
        """This thread's block."""
        blocks = self._blocks
        try:
            block: _Block = blocks.block
        except AttributeError:
            blocks = self._blocks_by_thread()
            block = blocks.block = self._make_block()
        return block

    def _make_block(self) -> _Block:
        """A new block. A thread without a context gets the GPU's."""
        driver, launch = load_driver(), self.launch
        if not int(check(driver.cuCtxGetCurrent(), "cuCtxGetCurrent")):
            check(driver.cuCtxSetCurrent(self._context), "cuCtxSetCurrent")
        config = driver.CUlaunchConfig()
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.shared_bytes
        attributes = launch_attributes(driver, launch)
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        return _Block(launch, config)

    def _place_scalars(self, block: _Block, scalars: Scalars) -> None:
        block.scalars = None
        patches, view = self.launch.patches, block.view
        for name, value in zip(("alpha", "beta"), scalars, strict=True):
            if name in patches:
                patches[name].write(view, name, value)
        block.scalars = scalars

    def _place_workspace(self, block: _Block, key: object) -> None:
        """Write the address of this stream's workspace: the caller's, or one that the library keeps."""
        place = self._workspace or owned(load_driver(), self._ordinal, key, *self.launch.scratch)
        self.launch.write(block.view, {"workspace": place})
        block.slots = place[1]
        block.workspace_key = key

    def _place_maps(self, block: _Block, operands: Operands) -> None:
        """Tensor maps contain addresses, so they are written when these change."""
        assert self._maps is not None
        a, b, _, d = operands
        self._maps.write(block.view, (a, b, d, block.slots))
