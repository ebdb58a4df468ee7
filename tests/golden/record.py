"""Record what the chip answers: python tests/golden/record.py [FILE]

Needs an NVIDIA GPU of compute capability 9.0 and a driver that knows PTX 9.0 (release 580 or newer). Every
case runs once; one that the driver refuses is reported and left out. Takes half a minute, after which FILE
(tests/golden/h200.npz unless named) holds the output bytes and digest of each case."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case, all_cases

from lapidist.backends.gpu.driver import check, encode_tensor_map, load_driver, primary_context

DEFAULT = Path(__file__).parent / "h200.npz"


def run_on_gpu(driver: Any, case: Case) -> np.ndarray:
    """The output bytes of one case; memory beyond what the kernel writes stays 0xEE."""
    module = check(driver.cuModuleLoadData(case.ptx.encode() + b"\0"), f"cuModuleLoadData of {case.name}")
    source = check(driver.cuMemAlloc(max(case.source.nbytes, 256)), "cuMemAlloc")
    out = check(driver.cuMemAlloc(max(case.out_bytes, 256)), "cuMemAlloc")
    result = np.full(case.out_bytes, 0xEE, np.uint8)
    try:
        data = np.ascontiguousarray(case.source)
        check(driver.cuMemcpyHtoD(source, data.ctypes.data, data.nbytes), "cuMemcpyHtoD")
        check(driver.cuMemcpyHtoD(out, result.ctypes.data, result.nbytes), "cuMemcpyHtoD")
        start(
            driver,
            check(driver.cuModuleGetFunction(module, b"k"), "cuModuleGetFunction"),
            case,
            int(source),
            int(out),
        )
        check(driver.cuMemcpyDtoH(result.ctypes.data, out, result.nbytes), "cuMemcpyDtoH")
    finally:
        driver.cuMemFree(source)
        driver.cuMemFree(out)
        driver.cuModuleUnload(module)
    return result


def start(driver: Any, function: Any, case: Case, source: int, out: int) -> None:
    """Launch and wait."""
    encoded = (
        bytes(128)
        if case.tensor is None
        else encode_tensor_map(
            replace(case.tensor, address=(out if case.writes else source) + case.tensor.address)
        )
    )
    map_bytes = (ctypes.c_char * 128).from_buffer_copy(encoded)
    pointers = ctypes.c_uint64(source), ctypes.c_uint64(out)
    parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in (map_bytes, *pointers)))
    check(
        driver.cuLaunchKernel(
            function, case.cluster, 1, 1, case.threads, 1, 1, 0, 0, ctypes.addressof(parameters), 0
        ),
        f"cuLaunchKernel of {case.name}",
    )
    check(driver.cuCtxSynchronize(), f"cuCtxSynchronize after {case.name}")


def record_from(start: int) -> tuple[dict[str, np.ndarray], str]:
    """The outputs of the cases from `start` on, up to the first one that fails; and why it did."""
    driver = load_driver()
    check(driver.cuCtxSetCurrent(primary_context(0)), "cuCtxSetCurrent")
    recorded: dict[str, np.ndarray] = {}
    for case in all_cases()[start:]:
        try:
            recorded[f"{case.name}|{case.digest[:16]}"] = run_on_gpu(driver, case)
        except Exception as error:
            return recorded, f"{case.name}: {error}"
    return recorded, ""


def chip_name() -> np.ndarray:
    driver = load_driver()
    name = check(driver.cuDeviceGetName(128, check(driver.cuDeviceGet(0), "cuDeviceGet")), "cuDeviceGetName")
    return np.frombuffer(bytes(name).rstrip(b"\0"), np.uint8)


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    recorded: dict[str, np.ndarray] = {}
    refused: list[str] = []
    while len(recorded) + len(refused) < len(all_cases()):
        # A fault takes its process' context along: what follows runs in a new process.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            found, error = pool.submit(record_from, len(recorded) + len(refused)).result()
        recorded |= found
        refused += [error] if error else []
    np.savez_compressed(target, chip=chip_name(), **recorded)  # type: ignore[arg-type]
    print(f"{len(recorded)} cases recorded in {target}, {len(refused)} refused")
    print("\n".join(refused))
    return 0 if recorded else 1


if __name__ == "__main__":
    sys.exit(main())
