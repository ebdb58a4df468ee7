"""Compiled kernels in memory, by what they are compiled with; the cache on disk lies behind."""

from __future__ import annotations

from lapidist.build.cache import read
from lapidist.build.compiler import compile_kernel, key_of
from lapidist.build.workers import Order
from lapidist.kernels.row import Kernel
from lapidist.launch import Binary

Macros = tuple[tuple[str, object], ...]
Build = tuple[Kernel, Macros, str]  # what a kernel is compiled from
_known: dict[tuple[Kernel, Macros, str, bool], Binary] = {}


def compiled(kernel: Kernel, macros: Macros, architecture: str, assembled: bool = True) -> Binary:
    """From memory, or from disk; compiled where neither has it."""
    key = kernel, macros, architecture, assembled
    if key not in _known:
        order = order_of(kernel, macros, architecture)
        _known[key] = compile_kernel(*order, assembled)
    return _known[key]


def compiled_anew(kernel: Kernel, macros: Macros, architecture: str) -> Binary:
    """Whatever the cache had: the driver refused that."""
    binary = compile_kernel(*order_of(kernel, macros, architecture), anew=True)
    remember(binary, kernel, macros, architecture)
    return binary


def in_memory(kernel: Kernel, macros: Macros, architecture: str) -> bool:
    return (kernel, macros, architecture, True) in _known


def at_hand(kernel: Kernel, macros: Macros, architecture: str) -> bool:
    """In memory or, whole, on disk: then in memory from now on. Nothing is compiled."""
    if in_memory(kernel, macros, architecture):
        return True
    order = order_of(kernel, macros, architecture)
    found = read(key_of(*order), order.entry, architecture)
    if found is not None:
        remember(found, kernel, macros, architecture)
    return found is not None


def remember(binary: Binary, kernel: Kernel, macros: Macros, architecture: str) -> None:
    _known[kernel, macros, architecture, True] = binary


def forget() -> None:
    _known.clear()


def order_of(kernel: Kernel, macros: Macros, architecture: str) -> Order:
    return Order(kernel.source, kernel.entry, dict(macros), architecture, kernel.options)
