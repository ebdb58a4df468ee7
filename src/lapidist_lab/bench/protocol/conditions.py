"""What held while a run was measured: versions, chip, and the clocks, power and temperature that were seen.
Nothing is set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import lapidist
from lapidist.device import Device
from lapidist.dtypes import MATHS
from lapidist.errors import LapidistError
from lapidist_lab.bench.protocol.record import Conditions

SMI_FIELDS = ("clocks.sm", "power.draw", "temperature.gpu")


@dataclass(frozen=True, slots=True)
class SensorReading:
    """What the sensors read at one moment; None for what could not be read."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


class Gauge:
    """Reads the sensors of one GPU: by pynvml where that is installed (under a millisecond), else by
    nvidia-smi."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self._nvml: Any = None
        self._handle: Any = None
        with suppress(Exception):  # NVML raises its own family of errors; the gauge is an extra
            import pynvml

            pynvml.nvmlInit()
            bus = pci_bus(ordinal)
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
            self._nvml = pynvml

    @property
    def fast(self) -> bool:
        """Whether a reading is cheap enough to be taken while kernels run."""
        return self._nvml is not None

    def look(self) -> SensorReading:
        if self._nvml is None:
            return smi(self.ordinal)
        nvml, handle = self._nvml, self._handle
        with suppress(nvml.NVMLError):
            return SensorReading(
                float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                self._power(),
                float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            )
        return SensorReading()

    def _power(self) -> float:
        """Watts now; the plain reading of older bindings is the mean of the last second."""
        nvml, field = self._nvml, getattr(self._nvml, "NVML_FI_DEV_POWER_INSTANT", None)
        if field is not None:
            value = nvml.nvmlDeviceGetFieldValues(self._handle, [field])[0]
            if value.nvmlReturn == 0:
                return float(value.value.uiVal) / 1000.0
        return float(nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1000.0


def pci_bus(ordinal: int) -> str:
    """The GPU's bus: NVML numbers all GPUs of the host, CUDA those that it may see, and both know the bus."""
    from lapidist.backends.gpu.driver import check, load_driver

    driver = load_driver()
    device = check(driver.cuDeviceGet(ordinal), "cuDeviceGet")
    text: bytes = check(driver.cuDeviceGetPCIBusId(64, device), "cuDeviceGetPCIBusId")
    return text.split(b"\0")[0].decode()


def smi(ordinal: int) -> SensorReading:
    try:
        query = [
            "nvidia-smi",
            f"--id={pci_bus(ordinal)}",
            f"--query-gpu={','.join(SMI_FIELDS)}",
            "--format=csv,noheader,nounits",
        ]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
        clock, power, temperature = (float(part) for part in answer.strip().split(","))
    except (OSError, subprocess.SubprocessError, ValueError, LapidistError):
        return SensorReading()
    return SensorReading(clock, power, temperature)


# ---- versions ----


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def has_triton() -> bool:
    return version_of("triton") is not None


def words_of_triton(kernel: str) -> str:
    """What the conditions say of a peer, which is this module."""
    version = version_of("triton")
    return f"{kernel} by Triton {version}" if version else "without Triton, which is not installed"


def command_line(arguments: list[str]) -> str:
    """The command with its arguments, of paths the last part only: folders of a computer say nothing."""
    return " ".join(["lapidist", *(Path(one).name if one.startswith("/") else one for one in arguments)])


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The commit of a source checkout, with + where its sources have changed. LAPIDIST_COMMIT tells it of a
    copy without git."""
    if os.environ.get("LAPIDIST_COMMIT"):
        return os.environ["LAPIDIST_COMMIT"]
    package = Path(lapidist.__file__).resolve().parent
    git = ["git", "-C", str(package)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain", "."], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def nvrtc() -> str | None:
    from lapidist.build.compiler import nvrtc_version

    with suppress(LapidistError):
        return "{}.{}".format(*nvrtc_version())
    return None


def driver_versions() -> tuple[str | None, str | None]:
    """The kernel module's release and the CUDA version it gives."""
    from lapidist.backends.gpu.driver import check, load_driver

    release = None
    with suppress(OSError, IndexError):
        release = (
            Path("/proc/driver/nvidia/version").read_text().split("Kernel Module")[1].split("  ")[1].strip()
        )
    with suppress(LapidistError):
        number = check(load_driver().cuDriverGetVersion(), "cuDriverGetVersion")
        return release or smi_release(), f"{number // 1000}.{number % 1000 // 10}"
    return release, None


def smi_release() -> str | None:
    with suppress(OSError, subprocess.SubprocessError, IndexError):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.split()[0]
    return None


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def gather(device: Device, place: str, mode: str, protocol: str, **more: Any) -> Conditions:
    """The conditions as they are now. `place` is the device as rows call it."""
    release, cuda = driver_versions()
    facts = {
        "name": device.name,
        "capability": "{}.{}".format(*device.capability),
        "sms": device.sms,
        "clock_mhz": device.clock_mhz,
        "l2_bytes": device.l2_bytes,
        "dram_gbps": device.dram_gbps,
        "limit_tflops": {math: device.limit_tflops(math) for math in MATHS},
        "unit_tflops": {
            unit: {math: limit for math in MATHS if (limit := device.unit_limit(unit, math))}
            for unit in device.units
        },
    }
    return Conditions(
        date=now(),
        command=command_line(sys.argv[1:]),
        device=place,
        chip=facts,
        driver=release,
        cuda=cuda,
        nvrtc=nvrtc(),
        lapidist=lapidist.__version__,
        commit=commit(),
        torch=version_of("torch"),
        cupy=version_of("cupy-cuda13x"),
        numpy=version_of("numpy"),
        mode=mode,
        protocol=protocol,
        **more,
    )
