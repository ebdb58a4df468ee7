"""Where a call runs: where `device=` says, or where its arrays are."""

from __future__ import annotations

from functools import lru_cache

from lapidist.backends.backend import Backend
from lapidist.errors import ArgumentError
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
    return device is None or device in ON_HOST


def choose_place(where: int, device: int | str | None) -> int | str:
    """The place to run at: the arrays' own device, or what `device` says ("gpu", a GPU's number, "machine",
    "host" or "cpu").
    """
    if device is None:
        return where
    if device in (MACHINE, *ON_HOST):
        if where != HOST:
            raise ArgumentError(
                f"device: {device!r} takes arrays in host memory; these are on GPU {where}. Copy them to the"
                " host"
            )
        return MACHINE if device == MACHINE else HOST
    ordinal = 0 if device in ("gpu", "cuda") else device
    if not isinstance(ordinal, int) or ordinal < 0:
        raise ArgumentError(
            f'device: must be "gpu", a GPU\'s number, "machine" or "host"; got {device!r}. Leave it out for'
            " where the arrays are"
        )
    if where not in (HOST, ordinal):
        raise ArgumentError(
            f"device: the arrays are on GPU {where}, not {ordinal}. Leave device out or move them"
        )
    from lapidist.backends.gpu.driver import require_gpu

    require_gpu(ordinal)
    return ordinal
