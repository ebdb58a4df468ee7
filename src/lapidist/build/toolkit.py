"""Which of CUDA's toolkits compiles: 13, or 12 for older drivers (lapidist[cuda12]). The installed version of
cuda-bindings says it.

The wheels of both may be installed, as lapidist itself asks for 13's. Bindings of either would load 13's
NVRTC then, whose kernels a driver of CUDA 12 refuses. So 12's is loaded before they look for one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from lapidist.errors import DeviceError

NEWEST, OLDER = 13, 12
EXTRA = 'pip install "lapidist[cuda12]"'
LIBRARY = "bin/nvrtc64_120_0.dll" if sys.platform == "win32" else "lib/libnvrtc.so.12"
DRIVERS = {NEWEST: 580, OLDER: 525}  # the first releases that run what each compiles


@cache
def major() -> int:
    """12 where bindings of 12 are installed, else 13."""
    try:
        return OLDER if metadata.version("cuda-bindings").startswith(f"{OLDER}.") else NEWEST
    except metadata.PackageNotFoundError:
        return NEWEST


def load_older_nvrtc() -> None:
    """Load 12's NVRTC where its bindings are installed: what is loaded is what they find."""
    if major() == OLDER:
        ctypes.CDLL(str(part_of("nvidia.cuda_nvrtc", LIBRARY)))


def older_headers() -> Path | None:
    """The folder of 12's headers; None where 13's are wanted."""
    return part_of("nvidia.cuda_runtime", "include") if major() == OLDER else None


def part_of(package: str, name: str) -> Path:
    """A file or folder of a wheel of 12's toolkit."""
    for folder in folders_of(package):
        path = Path(folder) / name
        if path.exists():
            return path
    raise DeviceError(f"CUDA {OLDER}: {name} was not found. Install it with: {EXTRA}")


def folders_of(package: str) -> Sequence[str]:
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        return ()
    return () if spec is None else list(spec.submodule_search_locations or ())
