"""Look-up of kernels. The production kernels of most calls are imported alone, all others with the whole
registry.
"""

from __future__ import annotations

import copyreg
from dataclasses import fields
from functools import cache
from typing import Any

from lapidist.kernels.kernel import Kernel


@cache
def kernel_named(name: str) -> Kernel:
    """The kernel of that name. The two cases spare a process the import of all other families."""
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


def reduced(kernel: Kernel) -> tuple[Any, ...]:
    """How a row is pickled and copied: by its name, since rows of the registry are compared by identity."""
    if any(listed is kernel for listed in every_kernel()):
        return kernel_named, (kernel.name,)
    return Kernel, tuple(getattr(kernel, field.name) for field in fields(kernel))


copyreg.pickle(Kernel, reduced)
