"""What a program hears of the device: the machine's H200, as cudaGetDeviceProperties says it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from lapidist.build.toolkit import major
from lapidist.device import STATIC_SHARED
from lapidist.machine.residency import CHIP, RESERVED_SHARED, blocks_per_sm

NAME = b"NVIDIA H200 (in Lapidist's machine)"
SHARED_UNIT = 128  # bytes in which it is given
DRAM_BYTES = 141 << 30
PROPERTIES_BYTES = {12: 1032, 13: 1008}  # sizeof(cudaDeviceProp)
PROPERTIES: dict[str, Any] = {
    "major": CHIP.capability[0],
    "minor": CHIP.capability[1],
    "multiProcessorCount": CHIP.sms,
    "warpSize": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiProcessor": CHIP.threads_per_sm,
    "maxBlocksPerMultiProcessor": CHIP.blocks_per_sm,
    "maxThreadsDim": [1024, 1024, 64],
    "maxGridSize": [2**31 - 1, 65535, 65535],
    "regsPerBlock": 65536,
    "regsPerMultiprocessor": CHIP.registers_per_sm,
    "sharedMemPerBlock": STATIC_SHARED,
    "sharedMemPerBlockOptin": CHIP.shared_per_block,
    "sharedMemPerMultiprocessor": CHIP.shared_per_sm,
    "reservedSharedMemPerBlock": RESERVED_SHARED,
    "totalConstMem": 64 << 10,
    "l2CacheSize": CHIP.l2_bytes,
    "memoryBusWidth": 6144,
    "memPitch": 2**31 - 1,
    "textureAlignment": 512,
    "asyncEngineCount": 3,
    "unifiedAddressing": 1,
    "managedMemory": 1,
    "concurrentManagedAccess": 1,
    "concurrentKernels": 1,
    "cooperativeLaunch": 1,
    "clusterLaunch": 1,
    "canMapHostMemory": 1,
    "memoryPoolsSupported": 1,
    "computePreemptionSupported": 1,
    "streamPrioritiesSupported": 0,
}
# attributes of cudaDeviceAttr that cudaDeviceProp has not, or has by another name
ATTRIBUTES = {
    "cudaDevAttrMaxBlockDimX": 1024,
    "cudaDevAttrMaxBlockDimY": 1024,
    "cudaDevAttrMaxBlockDimZ": 64,
    "cudaDevAttrMaxGridDimX": 2**31 - 1,
    "cudaDevAttrMaxGridDimY": 65535,
    "cudaDevAttrMaxGridDimZ": 65535,
    "cudaDevAttrComputeCapabilityMajor": CHIP.capability[0],
    "cudaDevAttrComputeCapabilityMinor": CHIP.capability[1],
    "cudaDevAttrClockRate": 1000 * CHIP.clock_mhz,
    "cudaDevAttrMemoryClockRate": 3201000,
    "cudaDevAttrGlobalMemoryBusWidth": 6144,
    "cudaDevAttrMaxSharedMemoryPerBlock": STATIC_SHARED,
    "cudaDevAttrMaxSharedMemoryPerBlockOptin": CHIP.shared_per_block,
    "cudaDevAttrMaxSharedMemoryPerMultiprocessor": CHIP.shared_per_sm,
    "cudaDevAttrReservedSharedMemoryPerBlock": RESERVED_SHARED,
    "cudaDevAttrMaxRegistersPerBlock": 65536,
    "cudaDevAttrMaxRegistersPerMultiprocessor": CHIP.registers_per_sm,
    "cudaDevAttrTotalConstantMemory": 64 << 10,
    "cudaDevAttrMaxPitch": 2**31 - 1,
}


@cache
def runtime() -> Any:
    """NVIDIA's own bindings, for their layouts, numbers and texts; no driver is called."""
    from cuda.bindings import runtime

    return runtime


def properties() -> bytes:
    """cudaDeviceProp as the installed CUDA lays it out."""
    content = runtime().cudaDeviceProp()
    content.name = NAME.ljust(256, b"\0")
    content.totalGlobalMem = DRAM_BYTES
    for name, value in PROPERTIES.items():
        setattr(content, name, value)
    return ctypes.string_at(content.getPtr(), PROPERTIES_BYTES[major()])


def attribute(number: int) -> int | None:
    """The value of a cudaDeviceAttr; 0 for what the machine has not; None for what is no attribute."""
    try:
        name = runtime().cudaDeviceAttr(number).name
    except ValueError:
        return None
    field = name.removeprefix("cudaDevAttr")
    value = PROPERTIES.get(field[:1].lower() + field[1:], 0)
    return ATTRIBUTES.get(name, value if isinstance(value, int) else 0)


def error_text(number: int, is_name: bool) -> bytes:
    try:
        error = runtime().cudaError_t(number)
    except ValueError:
        return b"unrecognized error code"
    return bytes((runtime().cudaGetErrorName if is_name else runtime().cudaGetErrorString)(error)[1])


def dynamic_shared(blocks: int, threads: int, static_bytes: int) -> int:
    """Bytes of dynamic shared memory that so many blocks of an SM may each have; 0 where they do not fit."""
    if blocks < 1 or blocks_per_sm(threads, static_bytes) < blocks:
        return 0
    most = CHIP.shared_per_sm // blocks // SHARED_UNIT * SHARED_UNIT - RESERVED_SHARED
    return min(most, CHIP.shared_per_block) - static_bytes


def clusters_on_chip(blocks: int, threads: int, shared_bytes: int) -> int:
    """Clusters of so many blocks that are resident at once."""
    return CHIP.clusters_resident(blocks) * blocks_per_sm(threads, shared_bytes) if blocks else 0
