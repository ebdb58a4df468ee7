"""Where a call runs: where `device=` says, or where its arrays are."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from lapidist.backends.backend import Backend
from lapidist.dtypes import integer
from lapidist.errors import ArgumentError, shown
from lapidist.frameworks.arrays import HOST

MACHINE, ON_HOST = "machine", ("host", "cpu")


@lru_cache
def backend_at(place: int | str) -> Backend:
    """`place`: the value of `choose_place`."""
    if place == HOST:
        from lapidist.backends.host_backend import HostBackend

        return HostBackend()
    if place == MACHINE:
        from lapidist.backends.machine_backend import MachineBackend

        return MachineBackend()
    from lapidist.backends.gpu.launched_products import GpuBackend

    return GpuBackend(int(place))


def is_on_host(device: object) -> bool:
    """Whether host arrays are multiplied on the host."""
    return device is None or is_one_of(ON_HOST, named(device))


def is_one_of(names: tuple[str, ...], device: object) -> bool:
    """An array would compare its elements."""
    return isinstance(device, str) and device in names


def named(device: Any) -> Any:
    """A device as it is written here: torch's and CuPy's objects by their names, "cuda:1" as the number."""
    if device is None or (ordinal := integer(device)) is not None:
        return device if device is None else ordinal
    if type(device).__module__.partition(".")[0] == "cupy":
        return int(device.id)
    match = re.fullmatch(r"(?:cuda|gpu):(\d+)", str(device), re.IGNORECASE)
    return int(match[1]) if match else str(device) if type(device).__name__ == "device" else device


def choose_place(where: int, device: Any) -> int | str:
    """The place to run at: the arrays' own device, or what `device` says ("gpu", a GPU's number, "machine",
    "host" or "cpu", or a device as torch and CuPy name it).
    """
    device = named(device)
    if device is None:
        return where
    if is_one_of((MACHINE, *ON_HOST), device):
        if where != HOST:
            raise ArgumentError(
                f"device: {device!r} takes arrays in host memory; these are on GPU {where}. Copy them to the"
                " host"
            )
        return MACHINE if device == MACHINE else HOST
    ordinal = 0 if is_one_of(("gpu", "cuda"), device) else device
    if not isinstance(ordinal, int) or ordinal < 0:
        raise ArgumentError(
            'device: must be "gpu", a GPU\'s number, "machine" or "host"; got'
            f" {shown(device)}. {way_out(device)}"
        )
    if where not in (HOST, ordinal):
        raise ArgumentError(
            f"device: the arrays are on GPU {where}, not {ordinal}. Leave device out or move them"
        )
    from lapidist.backends.gpu.driver import require_gpu

    require_gpu(ordinal)
    return ordinal


def way_out(device: object) -> str:
    """What to write in place of a device that is none."""
    if isinstance(device, str) and device.lower().startswith("cpu"):
        return 'Write device="host"'
    if isinstance(device, str) and device.lower().partition(":")[0] in (
        "mps",
        "xpu",
        "hip",
        "rocm",
        "tpu",
        "npu",
    ):
        return "Leave it out, and NumPy multiplies NumPy's arrays: kernels are for NVIDIA's GPUs"
    return f"Leave it out for where the arrays are{of_chip(device)}"


def of_chip(device: object) -> str:
    """The way to plan for a chip that is not here."""
    from lapidist.device import CHIPS

    if not isinstance(device, str) or device.lower() not in CHIPS:
        return ""
    return f"; `lapidist plan --mnk M,N,K --chip {device.lower()}` plans for a chip that is not here"
