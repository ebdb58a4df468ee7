"""A recorded case in the machine: the same PTX, the same input, its output bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from cases import Case

from lapidist.launch import Memory
from lapidist.machine import run
from lapidist.machine.foreign import make_launch


def run_on_machine(case: Case, chip_sums: bool = True) -> np.ndarray:
    out = np.full(case.out_bytes, 0xEE, np.uint8)
    source = case.source.copy()  # atomics change it
    viewed = out if case.writes else source
    tensor = (
        bytes(128)
        if case.tensor is None
        else replace(case.tensor, address=viewed.ctypes.data + case.tensor.address)
    )
    blocks = (case.cluster, 1, 1)
    launch = make_launch(
        case.ptx, "k", blocks, (case.threads, 1, 1), {"map": tensor, "in": source, "out": out}, cluster=blocks
    )
    memory = (*launch.memory, Memory("source", source.ctypes.data, source.nbytes, source))
    run(replace(launch, memory=memory), chip_sums=chip_sums)
    return out


def distance(case: Case, mine: np.ndarray, chip: np.ndarray) -> float:
    """0 if equal (any NaN equals any other); else in ulps of the largest result, or infinite where bits had
    to agree.
    """
    if any(same_numbers(mine, chip, code) for code in ("u1", "f4", "f2", "f8")):
        return 0.0
    if case.ulps == 0:
        return float("inf")
    a, b = mine.view(case.floats).astype("f8"), chip.view(case.floats).astype("f8")
    scale = np.spacing(np.nanmax(np.abs(b)).astype(case.floats)).astype("f8")
    return float(np.nanmax(np.abs(a - b)) / scale)


def same_numbers(mine: np.ndarray, chip: np.ndarray, code: str) -> bool:
    """Bit for bit, but for NaN."""
    if len(mine) % np.dtype(code).itemsize:
        return False
    a, b = mine.view(code), chip.view(code)
    unequal = a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")
    return bool((np.isnan(a) & np.isnan(b))[unequal].all())
