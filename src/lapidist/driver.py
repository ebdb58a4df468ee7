"""The GPU's side of a Launch: load the cubin, encode tensor maps, start the kernel on a stream.

`GpuKernel` is a Plan made ready for many runs. Its `start` is the hot path (no allocation, no synchronisation): write the
pointers into this thread's parameter bytes, call the driver.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from lapidist.arrays import Operand
from lapidist.device import Device, chip, known_as
from lapidist.dtypes import TYPES
from lapidist.errors import DeviceError, LaunchError
from lapidist.launch import Binary, ParameterBlock, TensorMap
from lapidist.modes import NOWHERE, Places
from lapidist.placement import MOST_PAIRS, order_of
from lapidist.plans import Plan
from lapidist.workspaces import owned, stream_key

MINIMUM_DRIVER = 13000  # CUDA 13.0: cubins from NVRTC 13.x need an R580 driver or newer
MAPS_KEPT = 256
STATIC_SHARED_LIMIT = 48 * 1024  # above it a kernel must opt in to dynamic shared memory


def check(result: tuple[Any, ...], call: str) -> Any:
    """The driver's answer without its status, or a LaunchError that names the call."""
    status, *values = result
    if status.value != 0:
        raise LaunchError(f"{call}: the driver answered {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


@lru_cache(maxsize=1)
def load_driver() -> Any:
    """cuda.bindings.driver, initialised; a missing or old driver is a DeviceError that says what to install."""
    try:
        from cuda.bindings import driver

        check(driver.cuInit(0), "cuInit")
        version = check(driver.cuDriverGetVersion(), "cuDriverGetVersion")
    except (ImportError, RuntimeError, OSError, LaunchError) as error:
        raise DeviceError(
            f"device: no usable NVIDIA driver or GPU ({str(error).splitlines()[0]}). Host arrays are multiplied without one; "
            "`lapidist doctor` shows what was found"
        ) from error
    require_driver_version(version)
    return driver


def require_driver_version(version: int) -> None:
    if version < MINIMUM_DRIVER:
        raise DeviceError(
            f"driver: CUDA {MINIMUM_DRIVER // 1000}.0 is needed, this one gives {version // 1000}.{version % 1000 // 10}. "
            "Install an NVIDIA driver of release 580 or newer"
        )


def gpu_count() -> int:
    """How many GPUs the driver sees; 0 without a driver."""
    try:
        return check(load_driver().cuDeviceGetCount(), "cuDeviceGetCount")
    except DeviceError:
        return 0


def require_gpu(ordinal: int) -> None:
    """Raise unless GPU number `ordinal` exists."""
    load_driver()
    count = gpu_count()
    if ordinal >= count:
        raise DeviceError(f"device: GPU {ordinal} was asked for, but the driver sees {count}. Choose one below {count}")


@cache
def primary_context(ordinal: int) -> Any:
    """The context that torch, CuPy and JAX use, retained for the life of the process."""
    driver = load_driver()
    device = check(driver.cuDeviceGet(ordinal), "cuDeviceGet")
    return check(driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")


class current_device:
    """Makes a GPU's primary context current, and puts back what was there."""

    __slots__ = ("_context", "_driver", "_previous")

    def __init__(self, ordinal: int) -> None:
        self._driver = load_driver()
        self._context = primary_context(ordinal)
        self._previous: Any = None

    def __enter__(self) -> None:
        current = self._driver.cuCtxGetCurrent()[1]
        if int(current) != int(self._context):
            check(self._driver.cuCtxSetCurrent(self._context), "cuCtxSetCurrent")
            self._previous = current

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            self._driver.cuCtxSetCurrent(self._previous)


# ---- tensor maps ----


def encode_tensor_map(tensor_map: TensorMap) -> bytes:
    """The 128 opaque bytes that the copy engine reads."""
    driver = load_driver()
    name = TYPES[tensor_map.dtype].tensor_map if tensor_map.dtype in TYPES else tensor_map.dtype.upper()
    rank = len(tensor_map.shape)
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{f'{tensor_map.swizzle}B' if tensor_map.swizzle else 'NONE'}"
    encoded = check(
        driver.cuTensorMapEncodeTiled(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}"),
            rank,
            tensor_map.address,
            [driver.cuuint64_t(extent) for extent in tensor_map.shape],
            [driver.cuuint64_t(stride) for stride in tensor_map.strides or (16,)],  # a row alone has none, and no list is refused
            [driver.cuuint32_t(extent) for extent in tensor_map.box],
            [driver.cuuint32_t(1)] * rank,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, swizzle),
            getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_L2_{tensor_map.fetched}B"),
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        f"cuTensorMapEncodeTiled of {tensor_map}",
    )
    return ctypes.string_at(encoded.getPtr(), 128)


# ---- kernels ----


@cache
def load_binary(binary: Binary, ordinal: int, shared_bytes: int) -> Any:
    """The kernel handle on one GPU, allowed `shared_bytes` of dynamic shared memory. The library lives as long as the process."""
    driver = load_driver()
    with current_device(ordinal):
        library = check(driver.cuLibraryLoadData(binary.cubin, [], [], 0, [], [], 0), f"cuLibraryLoadData of {binary.entry}")
        kernel = check(driver.cuLibraryGetKernel(library, binary.entry.encode()), f"cuLibraryGetKernel of {binary.entry}")
        if shared_bytes > STATIC_SHARED_LIMIT:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device = check(driver.cuDeviceGet(ordinal), "cuDeviceGet")
            check(driver.cuKernelSetAttribute(attribute, shared_bytes, kernel, device), "cuKernelSetAttribute")
        # A CUkernel is good in any context; the launch call takes it under the CUfunction type.
        return driver.CUfunction(int(kernel))


class _Block:
    """One thread's parameter bytes and launch configuration: the driver call drops the GIL while it reads them."""

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
        # The pointers as 64-bit words of the whole buffer; an operand that the kernel is not passed gets the last word.
        self.words = memoryview(raw).cast("B")[: len(raw) // 8 * 8].cast("Q")
        places = parameters.places("pointer")
        self.a, self.b, self.c, self.d = ((start + places[x]) // 8 if x in places else len(raw) // 8 - 1 for x in "ABCD")
        pointers = (ctypes.c_void_p * len(parameters.offsets))(*(base + offset for offset in parameters.offsets.values()))
        self.address = ctypes.addressof(pointers)
        self.keep = (raw, pointers)
        self.config = config
        self.workspace = [(start + offset) // 8 for offset in parameters.places("workspace").values()]
        self.workspace_key: object = None
        self.slots = 0  # where the workspace's room begins
        self.arguments: tuple[int, int, int, int, int] | None = None  # what the last launch left in here


def launch_attributes(driver: Any, plan: Plan) -> list[Any]:
    """What the launch demands: all blocks on the chip at once, a start beside the launch before, a tile's peers as a cluster."""
    peers = 1 if plan.schedule is None else plan.schedule.cluster
    beside = "PROGRAMMATIC_STREAM_SERIALIZATION"
    attributes = []
    for name, wanted in (("COOPERATIVE", plan.cooperative), (beside, plan.overlaps), ("CLUSTER_DIMENSION", peers > 1)):
        if wanted:
            attribute, value = driver.CUlaunchAttribute(), driver.CUlaunchAttributeValue()
            if name == "CLUSTER_DIMENSION":
                value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = peers, 1, 1
            else:
                setattr(value, "programmaticStreamSerializationAllowed" if name == beside else "cooperative", 1)
            attribute.id, attribute.value = getattr(driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}"), value
            attributes.append(attribute)
    return attributes


Addresses = tuple[int, int]
Start = Callable[[int, int, int, int, int], None]  # addresses of A, B, C and D, and the raw stream; returns at once


class GpuKernel:
    """A kernel with everything fixed but the pointers, ready to `start` again and again."""

    def __init__(
        self, plan: Plan, ordinal: int, alpha: float, beta: float, own: Addresses | None = None, places: Places = NOWHERE
    ) -> None:
        """`own` is where flags and room are in the caller's workspace, of zeros; `places` are the addresses of indices."""
        self.plan, self._ordinal = plan, ordinal
        self._workspace = own
        driver = load_driver()
        self._context = primary_context(ordinal)
        self._function = load_binary(plan.binary, ordinal, plan.shared_bytes)
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
                block.arguments = None  # until all of it is in place: what fails half way must not look ready to the next call
                words = block.words
                words[block.a] = a
                words[block.b] = b
                words[block.c] = c
                words[block.d] = d
                block.config.hStream = stream_type(stream)
            if has_workspace:
                key = own or stream_key(driver, block.config.hStream, stream)  # asking the driver takes half a microsecond
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
                    f"cuLaunchKernelEx: the driver answered {status.name} (grid {self.plan.grid}, block {self.plan.block}, "
                    f"{self.plan.shared_bytes} bytes of dynamic shared memory)"
                )

        return start

    def start_with(self, name: str, content: bytes, stream: int, operands: tuple[int, int, int, int] = (0, 0, 0, 0)) -> None:
        """With these first bytes of a parameter: the addresses of lists, or of factors."""
        try:
            block = self._local.block
        except AttributeError:
            block = self._make_block()
        place = self._parameters.offsets[name]
        block.view[place : place + len(content)] = content
        self.start(*operands, stream)

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
            encoded = self._encoded[key] = {name: encode_tensor_map(tensor_map) for name, tensor_map in maps.items()}
        for name, offset in self._map_places.items():
            block.view[offset : offset + 128] = encoded[name]


# ---- the chip ----


@cache
def query_device(ordinal: int) -> Device:
    """The facts of an installed GPU: what the driver tells, completed from the table of known chips."""
    require_gpu(ordinal)
    driver = load_driver()
    handle = check(driver.cuDeviceGet(ordinal), "cuDeviceGet")
    name = check(driver.cuDeviceGetName(96, handle), "cuDeviceGetName").split(b"\0")[0].decode()

    def attribute(key: str) -> int:
        code = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{key}")
        return int(check(driver.cuDeviceGetAttribute(code, handle), f"cuDeviceGetAttribute {key}"))

    known = known_as(name) or chip("h200")
    return replace(
        known,
        name=name,
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        sms=attribute("MULTIPROCESSOR_COUNT"),
        clock_mhz=attribute("CLOCK_RATE") // 1000,
        shared_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        threads_per_sm=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
    )


# ---- host arrays ----


@contextmanager
def upload(ordinal: int, operands: Sequence[Operand]) -> Iterator[list[int]]:
    """Copies of host operands on a GPU, as pointers; the last one is the output and is copied back at the end."""
    driver = load_driver()
    with current_device(ordinal):
        buffers: list[tuple[int, Operand, int, int]] = []
        try:
            for operand in operands:
                start, end = operand.span
                buffer = int(check(driver.cuMemAlloc(max(end - start, 1)), "cuMemAlloc"))
                buffers.append((buffer, operand, start, end - start))
                if end > start:
                    check(driver.cuMemcpyHtoD(buffer, start, end - start), "cuMemcpyHtoD")
            yield [buffer + operand.pointer - start for buffer, operand, start, _ in buffers]
            check(driver.cuCtxSynchronize(), "cuCtxSynchronize")
            buffer, _, start, size = buffers[-1]
            if size:
                check(driver.cuMemcpyDtoH(start, buffer, size), "cuMemcpyDtoH")
        finally:
            for buffer, *_ in buffers:
                driver.cuMemFree(buffer)


def synchronize(stream: int) -> None:
    """Wait for everything on a stream."""
    driver = load_driver()
    check(driver.cuStreamSynchronize(driver.CUstream(stream)), "cuStreamSynchronize")
