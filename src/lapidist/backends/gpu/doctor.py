"""What lapidist finds on this computer, and for each missing thing the command that installs it."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from lapidist.build import toolkit
from lapidist.build.cache import entries
from lapidist.build.compiler import (
    MEASURED_NVRTC,
    NO_COMPILER,
    NVRTC_HINT,
    include_paths,
    load_nvrtc,
    nvrtc_version,
)
from lapidist.build.folder import chosen_directory, make_directory
from lapidist.build.ownership import objection
from lapidist.errors import DeviceError
from lapidist.visible import visible

DETAIL = 23  # the column in which a finding's detail begins

DRIVER_HINT = (
    "sudo apt install nvidia-driver-580   (release 580 or newer; elsewhere: https://www.nvidia.com/drivers)"
)
GPU_HINT = (
    'a GPU of compute capability 7.5 or newer; without one NumPy multiplies and device="machine" runs the'
    " kernels"
)
TORCH_HINT = 'pip install "torch>=2.11"'
CUPY_HINT = 'pip install "cupy-cuda13x>=13.6"'
LAB_HINT = 'pip install "lapidist[lab]"'


@dataclass(frozen=True, slots=True)
class Part:
    """Something to look for. `probe` returns version and place, or raises. Without `base` parts lapidist does
    not work at all.
    """

    name: str
    probe: Callable[[], str]
    remedy: str
    base: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    part: Part
    usable: bool
    detail: str

    @property
    def as_data(self) -> dict[str, str | bool | None]:
        remedy = None if self.usable else self.part.remedy
        return {"part": self.part.name, "found": self.usable, "detail": self.detail, "remedy": remedy}

    def __str__(self) -> str:
        mark = "ok     " if self.usable else "MISSING" if self.part.base else "absent "
        line = visible(f"{mark} {self.part.name:<14} {self.detail}")
        return line if self.usable else f"{line}\n{'':{DETAIL}}get it: {self.part.remedy}"


def run(as_json: bool = False, fold: Callable[[str, int], str] = lambda line, _: line) -> int:
    """Print every finding, its lines as `fold` breaks them. Returns 0 if compiling and host products work,
    else 1.
    """
    findings = [look_for(part) for part in PARTS]
    if as_json:
        for finding in findings:
            print(json.dumps(finding.as_data))
        return int(any(finding.part.base and not finding.usable for finding in findings))
    for finding in findings:
        for line in str(finding).splitlines():
            print(fold(line, DETAIL))
    broken = [finding.part.name for finding in findings if finding.part.base and not finding.usable]
    gpu = next(finding.usable for finding in findings if finding.part.name == "GPU")
    print()
    if broken:
        print(f"The base does not work: {', '.join(broken)} missing.")
        return 1
    works = "The base works."
    print(fold(works if gpu else f"{works} Without a GPU products run in NumPy or in the machine.", 0))
    return 0


def look_for(part: Part) -> Finding:
    """A probe may raise anything on a half-installed computer: any error means that the part is not
    usable.
    """
    try:
        return Finding(part, True, part.probe())
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return Finding(part, False, reason[0])


# ---- probes ----


def find_python() -> str:
    return f"{platform.python_version()}  {sys.executable}"


def find_package(module: str, distribution: str | None = None) -> str:
    """Version and place of an importable package; it is not imported (torch alone takes seconds)."""
    spec = find_spec(module)
    if spec is None:
        raise DeviceError("not installed")
    try:
        version = metadata.version(distribution or module)
    except metadata.PackageNotFoundError:
        version = "unknown version"
    return f"{version}  {Path(spec.origin).parent if spec.origin else ''}".rstrip()


def find_cupy() -> str:
    """CuPy's distributions are named by CUDA version."""
    names = [
        name for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy") if any(metadata.distributions(name=name))
    ]
    return find_package("cupy", names[0] if names else None)


def find_nvrtc() -> str:
    from cuda import pathfinder

    load_nvrtc()
    version, place = nvrtc_version(), pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    description = "{}.{}  {}".format(*version, place)
    if toolkit.major() == toolkit.OLDER:
        measured = "speeds were measured with {}.{}".format(*MEASURED_NVRTC)
        return f"{description}; for drivers of release {toolkit.DRIVERS[toolkit.OLDER]} or newer; {measured}"
    if version == MEASURED_NVRTC:
        return description
    return "{}; speeds were measured with {}.{}: {}".format(description, *MEASURED_NVRTC, NVRTC_HINT)


def find_headers() -> str:
    folder = include_paths()[-1]
    if not (folder / "cuda_fp16.h").is_file():
        raise DeviceError(f"no cuda_fp16.h in {folder}")
    return str(folder)


@cache
def disassembler() -> str | None:
    """Where nvdisasm is: the pip package, CUDA_HOME or PATH."""
    try:
        from cuda import pathfinder

        return pathfinder.find_nvidia_binary_utility("nvdisasm")
    except (ImportError, RuntimeError, OSError):
        return None


def find_disassembler() -> str:
    tool = disassembler()
    if tool is None:
        raise DeviceError("nvdisasm not found; `lapidist static` counts PTX instead of machine code")
    return tool


def find_driver() -> str:
    from lapidist.backends.gpu.driver import load_driver

    try:
        version = load_driver().cuDriverGetVersion()[1]
    except DeviceError as error:  # its message advises a failed call; the doctor only needs the reason
        raise DeviceError(str(error.__cause__ or error)) from error
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def find_gpu() -> str:
    from lapidist.backends.gpu.driver import gpu_count, query_device

    devices = [query_device(ordinal) for ordinal in range(gpu_count())]
    if not devices:
        raise DeviceError("no GPU seen")
    return ", ".join(
        "{} ({}.{}, {} SMs)".format(device.name, *device.capability, device.sms) for device in devices
    )


def find_cache() -> str:
    folder = chosen_directory()
    if folder is None:
        raise DeviceError("this user has no home folder")
    refusal = objection(folder)
    if refusal is not None:
        raise DeviceError(refusal)
    make_directory(folder)
    with tempfile.TemporaryFile(dir=folder):
        pass
    kernels = entries(folder)
    return f"{folder}  ({len(kernels)} kernels, {sum(entry.nbytes for entry in kernels) / 1e6:.1f} MB)"


CAN_COMPILE = sys.platform != "darwin"
PARTS = (
    Part("Python", find_python, "https://www.python.org/downloads", base=True),
    Part("NumPy", lambda: find_package("numpy"), 'pip install "numpy>=2"', base=True),
    Part(
        "cuda-bindings",
        lambda: find_package("cuda.bindings", "cuda-bindings"),
        'pip install "cuda-bindings>=13.0,<14"',
        base=CAN_COMPILE,
    ),
    Part(
        "cuda-core",
        lambda: find_package("cuda.core", "cuda-core"),
        'pip install "cuda-core>=1.2,<2"',
        base=CAN_COMPILE,
    ),
    Part("NVRTC", find_nvrtc, NVRTC_HINT if CAN_COMPILE else NO_COMPILER, base=CAN_COMPILE),
    Part("CUDA headers", find_headers, NVRTC_HINT if CAN_COMPILE else NO_COMPILER, base=CAN_COMPILE),
    Part("driver", find_driver, DRIVER_HINT),
    Part("GPU", find_gpu, GPU_HINT),
    Part("torch", lambda: find_package("torch"), TORCH_HINT),
    Part("CuPy", find_cupy, CUPY_HINT),
    Part("JAX", lambda: find_package("jax"), 'pip install "jax[cuda13]>=0.10"'),
    Part("cache folder", find_cache, "export LAPIDIST_CACHE_DIR=/a/folder/that/can/be/written"),
    # Parts of the lab.
    Part("lapidist-lab", lambda: find_package("lapidist_lab", "lapidist-lab"), LAB_HINT),
    Part("disassembler", find_disassembler, LAB_HINT),
    Part("matplotlib", lambda: find_package("matplotlib"), LAB_HINT),
    Part("pynvml", lambda: find_package("pynvml", "nvidia-ml-py"), LAB_HINT),
)
