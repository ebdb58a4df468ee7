"""The others in the same run: the vendor's library, and CUTLASS where its headers and nvcc are found.

A peer is a Contender (contenders.py). The first one is the vendor's: ratios refer to it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lapidist.build.folder import cache_directory, make_directory
from lapidist.device import Device
from lapidist.dtypes import FP8, element_of, size_of
from lapidist.errors import DeviceError
from lapidist.frameworks.arrays import operand_of
from lapidist.frameworks.streams import stream_of
from lapidist_lab.bench.protocol.array_library import Framework
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import Call, Contender, Facts

CUTLASS_SOURCE = Path(__file__).parent / "cutlass_simt.cu"
NVCC_SECONDS = 600


class Vendor:
    """cuBLAS, as the array library calls it. 8-bit types have k contiguous in both operands: others it
    refuses or does slowly."""

    kind = "peer"

    def __init__(self, framework: Framework, math: str, fast: bool = True) -> None:
        self.framework, self.math, self.fast = framework, math, fast
        self.name = "cublas" if fast else "cublas_exact"
        self.columns = size_of(element_of(math).name) == 1
        self.capturable = framework.capturable

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        return self.framework.multiply(case.math, a, b, c, self.fast)

    def facts(self, device: Device) -> Facts:
        sums = {True: ", sums stay in the tensor core", False: ", sums leave the tensor core for floats"}[
            self.fast
        ]
        return Facts(config=f"its own choice{sums if self.math in FP8 else ''}")


class Padded:
    """Padding by hand, where lines do not start on 16 bytes: A and B are copied into aligned arrays, cuBLAS
    multiplies, the product is copied back. The arrays are made outside of the time."""

    name = "padded"
    kind = "peer"

    def __init__(self, framework: Framework, math: str) -> None:
        self.framework, self.math = framework, math
        self.columns = size_of(element_of(math).name) == 1
        self.capturable = framework.capturable

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        if self.framework.name != "torch":
            raise DeviceError("peer padded: pads torch's tensors. Install torch")
        n, k = (
            -(-extent // chunk) * chunk
            for extent, chunk in ((case.n, self.chunk(c[0])), (case.k, self.chunk(a[0])))
        )
        wide_a = None if k == case.k else self.zeros(a[0], case.m, k)
        wide_b = None if (n, k) == (case.n, case.k) else self.zeros(b[0], k, n)
        wide_c = None if n == case.n else self.zeros(c[0], case.m, n)
        multiply = self.framework.multiply(
            self.math,
            a if wide_a is None else [wide_a] * len(a),
            b if wide_b is None else [wide_b] * len(b),
            c if wide_c is None else [wide_c] * len(c),
        )

        def call(index: int) -> None:
            if wide_a is not None:
                wide_a[:, : case.k].copy_(a[index])
            if wide_b is not None:
                wide_b[: case.k, : case.n].copy_(b[index])
            multiply(index)
            if wide_c is not None:
                c[index].copy_(wide_c[:, : case.n])

        return call

    def chunk(self, array: Any) -> int:
        """How many elements 16 bytes hold."""
        return 16 // int(array.element_size())

    def zeros(self, like: Any, rows: int, cols: int) -> Any:
        """Zeros, contiguous along the same dimension as `like`."""
        by_columns = like.stride(0) == 1 and like.shape[0] > 1
        return like.new_zeros((cols, rows)).T if by_columns else like.new_zeros((rows, cols))

    def facts(self, device: Device) -> Facts:
        return Facts(config="copied into aligned arrays, multiplied by cuBLAS, copied back")


class Compiled:
    """torch.compile's product: it pads operands inside of the time where it finds that faster. Compiling
    takes seconds, so it gets products whose sides exceed `MORE_THAN` only."""

    name = "compiled"
    kind = "peer"
    capturable = True
    MORE_THAN = 1024

    def __init__(self, framework: Framework, math: str) -> None:
        self.framework, self.math = framework, math
        self.columns = size_of(element_of(math).name) == 1

    @classmethod
    def takes(cls, case: Case) -> bool:
        return min(case.extents) > cls.MORE_THAN and case.math not in (*FP8, "int8", "uint8", "tf32")

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        if self.framework.name != "torch":
            raise DeviceError("peer compiled: is torch's own compiler. Install torch")
        torch = self.framework.torch  # type: ignore[attr-defined]
        torch._dynamo.reset()  # else shapes seen before make this one's extents unknown to the compiler
        multiply = self.compiled(torch)
        precision = self.framework.precision  # type: ignore[attr-defined]

        def call(index: int) -> None:
            # As the vendor's own call: else a product split along k may round each part to 16 bits.
            with precision("ieee"):
                product = multiply(a[index], b[index])
            if not torch.cuda.is_current_stream_capturing():
                c[index].copy_(product)  # to be judged; the product that is timed is where torch puts it

        return call

    def compiled(self, torch: Any) -> Any:
        return torch.compile(lambda x, y: torch.mm(x, y), dynamic=False)

    def facts(self, device: Device) -> Facts:
        return Facts(config="torch.compile's own choice, padded where it finds that faster")


class Cutlass:
    """CUTLASS's SIMT SGEMM: its generator's large tiles, of which the fastest on the case is kept."""

    name = "cutlass"
    kind = "peer"
    columns = False
    capturable = True

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.chosen = ""
        library.cutlass_config_name.restype = ctypes.c_char_p

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        (m, k), n = a[0].shape, b[0].shape[1]
        pointers = [
            tuple(operand_of(array, "set").pointer for array in triple)
            for triple in zip(a, b, c, strict=True)
        ]
        place = operand_of(a[0], "a")
        stream = stream_of(place.framework, place.device)

        def start(config: int, index: int) -> None:
            pa, pb, pc = (ctypes.c_void_p(pointer) for pointer in pointers[index])
            scalars = ctypes.c_float(1.0), ctypes.c_float(0.0)
            status = self.library.cutlass_sgemm(
                config, m, n, k, pa, pb, pc, *scalars, ctypes.c_void_p(stream)
            )
            if status:
                raise DeviceError(
                    f"peer cutlass: config {config} answered status {status} for {m} x {n} x {k}"
                )

        best = self._fastest(start)
        return lambda index: start(best, index)

    def _fastest(self, start: Any) -> int:
        """The fastest config by the library's own clock: events around three calls, after a warm-up."""
        times = []
        for config in range(self.library.cutlass_config_count()):
            start(config, 0)
            self.library.cutlass_clock_start()
            for _ in range(3):
                start(config, 0)
            self.library.cutlass_clock_stop.restype = ctypes.c_float
            times.append(self.library.cutlass_clock_stop())
        best = times.index(min(times))
        self.chosen = self.library.cutlass_config_name(best).decode()
        return best

    def facts(self, device: Device) -> Facts:
        return Facts(config=self.chosen)


def find_cutlass() -> tuple[Path | None, str]:
    """CUTLASS's include folder, or None; and its version, or why it cannot be measured."""
    home = os.environ.get("CUTLASS_HOME")
    if not home:
        return None, "not measured: CUTLASS_HOME is not set (a checkout of github.com/NVIDIA/cutlass)"
    include = Path(home) / "include"
    try:
        version = (include / "cutlass" / "version.h").read_text()
    except OSError:
        return None, f"not measured: CUTLASS_HOME={home} has no include/cutlass/version.h"
    if not shutil.which("nvcc"):
        return None, "not measured: headers found, but no nvcc on the PATH"
    return include, ".".join(re.findall(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH) (\d+)", version))


def build_cutlass(
    include: Path, device: Device, source: Path = CUTLASS_SOURCE, macros: tuple[str, ...] = ()
) -> ctypes.CDLL:
    return build_peer("cutlass", include, include / "cutlass" / "version.h", device, source, macros)


def build_peer(
    name: str, include: Path, version: Path, device: Device, source: Path, macros: tuple[str, ...] = ()
) -> ctypes.CDLL:
    """The library of a source, compiled by nvcc once for each version, source and macros, and cached.
    `version`: a file of the peer's that differs between versions.
    """
    content = source.read_bytes() + version.read_bytes() + " ".join((device.architecture, *macros)).encode()
    target = cache_directory() / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not target.exists():
        make_directory(target.parent)
        partial = target.with_suffix(f".{os.getpid()}")
        options = [
            "-O3",
            "-std=c++17",
            f"-arch={device.architecture}",
            "--expt-relaxed-constexpr",
            "-shared",
            "-Xcompiler",
            "-fPIC",
            f"-I{include}",
            *(f"-D{macro}" for macro in macros),
        ]
        command = ["nvcc", *options, "-o", str(partial), str(source)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=NVCC_SECONDS)
        os.replace(partial, target)
    return ctypes.CDLL(str(target))


def find_peers(framework: Framework, device: Device, math: str) -> tuple[list[Contender], str]:
    """The vendor first, then the optional peers; and what the conditions say of CUTLASS."""
    peers: list[Contender] = [
        Vendor(framework, math),
        *([Vendor(framework, math, fast=False)] if math in FP8 else []),
    ]
    include, words = find_cutlass()
    if include is None or math != "float32":
        return peers, words if include is None else "not measured: its SIMT peer is float32"
    try:
        peers.append(Cutlass(build_cutlass(include, device)))
    except (OSError, subprocess.SubprocessError) as error:
        log = getattr(error, "stderr", None) or str(error)
        return peers, f"not measured: {words} did not build: {log.strip().splitlines()[0]}"
    return peers, f"{words}, SIMT SGEMM, fastest of its configurations for each case"
