"""Kernels as most calls need them: a production kernel is loaded alone, all others with the registry."""

from __future__ import annotations

from functools import cache

from lapidist.kernels.row import Kernel


@cache
def kernel_named(name: str) -> Kernel:
    """By its name in the registry; of four families the first call of a process needs one."""
    if name == "wgmma":
        from lapidist.kernels.wgmma.family import WGMMA_FAMILY

        return WGMMA_FAMILY
    if name == "sgemm":
        from lapidist.kernels.sgemm.family import SGEMM

        return SGEMM
    from lapidist.kernels import registry

    return registry.kernel_named(name)


def every_kernel() -> tuple[Kernel, ...]:
    from lapidist.kernels.registry import KERNELS

    return KERNELS
