"""CUTLASS's kernel for mma.sync as a peer: what its example 47 measures, compiled for a case's types and
layouts.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lapidist.device import Device
from lapidist.errors import DeviceError
from lapidist.frameworks.arrays import operand_of
from lapidist.frameworks.streams import stream_of
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import Call, Facts
from lapidist_lab.bench.protocol.peers import build_cutlass

SOURCE = Path(__file__).parent / "cutlass_47.cu"
ELEMENTS = {"float16": "cutlass::half_t", "bfloat16": "cutlass::bfloat16_t"}
LAYOUTS = {"r": "RowMajor", "c": "ColumnMajor"}
NAME = "cutlass_47"


class Cutlass47:
    """Its 128x128x32 with a block for each tile or Stream-K, whichever is faster on the case. Sums are float,
    as ours."""

    name = NAME
    kind = "peer"
    columns = False
    capturable = True

    def __init__(self, include: Path, device: Device) -> None:
        self.include, self.device = include, device
        self.chosen = ""

    def library(self, case: Case) -> ctypes.CDLL:
        """The library of a case's types, compiled where the cache folder has none."""
        library = build_cutlass(self.include, self.device, SOURCE, macros_of(case))
        library.cutlass_config_name.restype = ctypes.c_char_p
        library.cutlass_milliseconds.restype = ctypes.c_float
        library.cutlass_ready.restype = ctypes.c_void_p
        return library

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        library = self.library(case)
        place = operand_of(a[0], "a")
        stream = ctypes.c_void_p(stream_of(place.framework, place.device))
        ready = [
            Ready(library, config, case, [operand_of(array, "set").pointer for array in (a[0], b[0], c[0])])
            for config in range(library.cutlass_config_count())
        ]
        times = [library.cutlass_milliseconds(product.handle, stream) for product in ready]
        if min(times) < 0:
            raise DeviceError(f"peer {NAME}: answered status {-min(times):.0f} for {case.shape}")
        best = times.index(min(times))
        self.chosen = library.cutlass_config_name(best).decode()
        sets = [
            Ready(library, best, case, [operand_of(array, "set").pointer for array in triple])
            for triple in zip(a, b, c, strict=True)
        ]
        return lambda index: sets[index].run(stream)

    def facts(self, device: Device) -> Facts:
        return Facts(config=self.chosen, unit="mma")


def macros_of(case: Case) -> tuple[str, ...]:
    if case.math not in ELEMENTS:
        raise DeviceError(f"peer {NAME}: multiplies {', '.join(ELEMENTS)}; the type is {case.math}")
    a, b = (LAYOUTS[by] for by in case.layout)
    return f"ELEMENT={ELEMENTS[case.math]}", f"A_LAYOUT={a}", f"B_LAYOUT={b}", "ACCUMULATOR=float"


class Ready:
    """A prepared product with its workspace; the library frees it together with this object."""

    def __init__(self, library: ctypes.CDLL, config: int, case: Case, pointers: Sequence[int]) -> None:
        operands = (ctypes.c_void_p(pointer) for pointer in pointers)
        self.library = library
        self.handle = ctypes.c_void_p(library.cutlass_ready(config, *case.extents, *operands))
        weakref.finalize(self, library.cutlass_free, self.handle)

    def run(self, stream: ctypes.c_void_p) -> None:
        status = self.library.cutlass_run(self.handle, stream)
        if status:
            raise DeviceError(f"peer {NAME}: a launch answered status {status}")
