"""One rank of several in the machine: addresses of flags, its terms, and its launches with checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from lapidist.backends.machine_backend import sanitized, watched
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.machine.together import Arrived, Devices


def addressed(flags: Sequence[Any], **further: Any) -> tuple[tuple[int, ...], dict[str, Operand]]:
    """Addresses of the flags, and operands of all that the launch may touch."""
    names = [
        f"of rank {rank}: flags" for rank in range(len(flags))
    ]  # "flags" first would say: zero at the end
    arrays = {**dict(zip(names, flags, strict=True)), **further}
    operands = {name: operand_of(array, name) for name, array in arrays.items()}
    return tuple(operands[name].pointer for name in names), operands


@contextmanager
def with_checks(devices: Devices) -> Iterator[None]:
    """Launches of these devices' first one."""
    with sanitized(devices.seed), watched(Arrived(devices, 0)):
        yield


def drawn(count: int, dtype: Any, seed: int, skipped: int = 0) -> Any:
    """Elements that begin `skipped` ones behind what memory aligns."""
    draw = torch.Generator().manual_seed(seed)
    return (100 * torch.randn(skipped + count, generator=draw)).to(dtype)[skipped:]
