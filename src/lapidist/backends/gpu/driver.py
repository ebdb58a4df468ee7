"""The CUDA driver: calls with readable errors, contexts, loaded kernels, tensor maps, facts of a chip,
copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from lapidist.build import toolkit
from lapidist.device import Device, like
from lapidist.dtypes import TYPES
from lapidist.errors import DeviceError, LaunchError
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Binary, TensorMap

# What a caller can do about an answer.
WAYS_OUT = {
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": (
        ". Another thread called the driver while this graph was captured. JAX's threads do so. Capture with"
        ' capture_error_mode="thread_local" (torch), or call this product with compile="wait" before'
    )
}


def check(result: tuple[Any, ...], call: str) -> Any:
    """The driver's answer without its status, or a LaunchError that names the call."""
    status, *values = result
    if status.value != 0:
        raise refused(status, call)
    return values[0] if len(values) == 1 else tuple(values)


def refused(status: Any, call: str, more: str = "") -> LaunchError:
    """The error for what the driver answered. `more`: what was launched."""
    return LaunchError(f"{call}: the driver answered {status.name}{more}{WAYS_OUT.get(status.name, '')}")


@lru_cache(maxsize=1)
def load_driver() -> Any:
    """cuda.bindings.driver, initialised. If the driver is missing or too old, a DeviceError says what to
    install.
    """
    try:
        from cuda.bindings import driver

        check(driver.cuInit(0), "cuInit")
        version = check(driver.cuDriverGetVersion(), "cuDriverGetVersion")
    except (ImportError, RuntimeError, OSError, LaunchError) as error:
        raise DeviceError(
            f"device: no usable NVIDIA driver or GPU ({str(error).splitlines()[0]}). Host arrays are"
            " multiplied without one; `lapidist doctor` shows what was found"
        ) from error
    require_driver_version(version)
    return driver


def require_driver_version(version: int) -> None:
    """Cubins of a toolkit need a driver of the same major version, or of a later one."""
    needed = toolkit.major()
    if version < needed * 1000:
        older = f", or for this one CUDA 12's compiler: {toolkit.EXTRA}"
        older = older if version >= toolkit.OLDER * 1000 else ""
        raise DeviceError(
            f"driver: CUDA {needed}.0 is needed, this one gives {version // 1000}.{version % 1000 // 10}."
            f" Install an NVIDIA driver of release {toolkit.DRIVERS[needed]} or newer{older}"
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
        raise DeviceError(
            f"device: GPU {ordinal} was asked for, but the driver sees {count}. Choose one below {count}"
        )


@cache
def primary_context(ordinal: int) -> Any:
    """The context that torch, CuPy and JAX use, retained for the life of the process."""
    driver = load_driver()
    device = check(driver.cuDeviceGet(ordinal), "cuDeviceGet")
    return check(driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")


class current_device:
    """Makes a GPU's primary context current, and restores the one before."""

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
    """The 128 opaque bytes that TMA reads."""
    driver = load_driver()
    dtype, box, element_strides, *how = tensor_map_words(
        tensor_map.dtype, tensor_map.box, tensor_map.swizzle, tensor_map.fetched
    )
    word = driver.cuuint64_t
    status, encoded = driver.cuTensorMapEncodeTiled(
        dtype,
        len(tensor_map.shape),
        tensor_map.address,
        [word(extent) for extent in tensor_map.shape],
        [word(stride) for stride in tensor_map.strides or (16,)],  # the driver refuses an empty list
        box,
        element_strides,
        *how,
    )
    if status.value != 0:
        check((status,), f"cuTensorMapEncodeTiled of {tensor_map}")
    return ctypes.string_at(encoded.getPtr(), 128)


@lru_cache(maxsize=1024)
def tensor_map_words(dtype: str, box: tuple[int, ...], swizzle: int, fetched: int) -> tuple[Any, ...]:
    """The driver's values for type, box and swizzle, which maps of many shapes share."""
    driver = load_driver()
    name = TYPES[dtype].tensor_map if dtype in TYPES else dtype.upper()
    swizzled = f"CU_TENSOR_MAP_SWIZZLE_{f'{swizzle}B' if swizzle else 'NONE'}"
    return (
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}"),
        [driver.cuuint32_t(extent) for extent in box],
        [driver.cuuint32_t(1)] * len(box),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, swizzled),
        getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_L2_{fetched}B"),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )


# ---- captures ----


@contextmanager
def captures_ignored(driver: Any) -> Iterator[None]:
    """A context in which calls of this thread, as allocations, invalidate no graph that is captured."""
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    previous = check(driver.cuThreadExchangeStreamCaptureMode(relaxed), "cuThreadExchangeStreamCaptureMode")
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(previous)


# ---- kernels ----


@cache
def load_binary(binary: Binary, ordinal: int, shared_bytes: int) -> Any:
    """The kernel handle on one GPU, with `shared_bytes` of dynamic shared memory allowed. The library stays
    loaded for the life of the process. Calls meet new kernels also while a graph is captured.
    """
    driver = load_driver()
    with current_device(ordinal), captures_ignored(driver):
        library = check(
            driver.cuLibraryLoadData(binary.cubin, [], [], 0, [], [], 0),
            f"cuLibraryLoadData of {binary.entry}",
        )
        kernel = check(
            driver.cuLibraryGetKernel(library, binary.entry.encode()), f"cuLibraryGetKernel of {binary.entry}"
        )
        # A kernel gets 48 KB without asking, but static shared memory, unknown here, counts towards them.
        if shared_bytes:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device = check(driver.cuDeviceGet(ordinal), "cuDeviceGet")
            check(
                driver.cuKernelSetAttribute(attribute, shared_bytes, kernel, device), "cuKernelSetAttribute"
            )
        finish_loading(driver, kernel)
        # A CUkernel works in any context; the launch call takes it as a CUfunction.
        return driver.CUfunction(int(kernel))


def finish_loading(driver: Any, kernel: Any) -> None:
    """Bring the kernel to the GPU. Otherwise its first launch does, which now and then invalidated a capture
    (CUDA 13.0). Drivers before 12.4 load with the first launch alone.
    """
    with suppress(RuntimeError):  # of a call that the driver lacks
        status, function = driver.cuKernelGetFunction(kernel)
        if status.value == 0:
            driver.cuFuncLoad(function)


# ---- the chip ----


@cache
def query_device(ordinal: int) -> Device:
    """The facts of an installed GPU: from the driver, completed from the table of known chips."""
    require_gpu(ordinal)
    driver = load_driver()
    handle = check(driver.cuDeviceGet(ordinal), "cuDeviceGet")
    name = check(driver.cuDeviceGetName(96, handle), "cuDeviceGetName").split(b"\0")[0].decode()

    def attribute(key: str) -> int:
        code = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{key}")
        return int(check(driver.cuDeviceGetAttribute(code, handle), f"cuDeviceGetAttribute {key}"))

    return replace(
        like(name),
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
    """Copies of host operands on a GPU, as pointers. The last one is the output, copied back at the end."""
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
