"""Compiled kernels in memory, by what they are compiled from. Those not in memory come from the cache on
disk.
"""

from __future__ import annotations

from lapidist.build.cache import has_any, read
from lapidist.build.compiler import Order, compile_kernel, key_of
from lapidist.config import Config
from lapidist.kernels.kernel import Kernel
from lapidist.launch import Binary

Macros = tuple[tuple[str, object], ...]
Build = tuple[Kernel, Macros, str]  # what a kernel is compiled from
Tile = tuple[str, object, object, object]  # a kernel's name, bm, bn and bk
_known: dict[tuple[Kernel, Macros, str, bool], Binary] = {}
_tiles: set[Tile] = set()


def compiled(kernel: Kernel, macros: Macros, architecture: str, assembled: bool = True) -> Binary:
    """The binary from memory or disk, compiled if neither has it."""
    key = kernel, macros, architecture, assembled
    if key not in _known:
        order = order_of(kernel, macros, architecture)
        _known[key] = compile_kernel(*order, assembled)
        _tiles.add(tile_of(kernel, macros))
    return _known[key]


def compiled_anew(kernel: Kernel, macros: Macros, architecture: str) -> Binary:
    """Compile even if the cache has it: the driver refused the cached one."""
    binary = compile_kernel(*order_of(kernel, macros, architecture), anew=True)
    remember(binary, kernel, macros, architecture)
    return binary


def in_memory(kernel: Kernel, macros: Macros, architecture: str) -> bool:
    return (kernel, macros, architecture, True) in _known


def at_hand(kernel: Kernel, macros: Macros, architecture: str) -> bool:
    """Whether it is in memory or complete on disk, from where it is then loaded. Nothing is compiled."""
    if in_memory(kernel, macros, architecture):
        return True
    order = order_of(kernel, macros, architecture)
    found = read(key_of(*order), order.entry, architecture)
    if found is not None:
        remember(found, kernel, macros, architecture)
    return found is not None


def nothing_is_there() -> bool:
    """Whether there is no binary at all, so that a first call need not search for one."""
    return not _known and not has_any()


def remember(binary: Binary, kernel: Kernel, macros: Macros, architecture: str) -> None:
    _known[kernel, macros, architecture, True] = binary
    _tiles.add(tile_of(kernel, macros))


def forget() -> None:
    _known.clear()
    _tiles.clear()


def tile_of(kernel: Kernel, macros: Macros) -> Tile:
    known = dict(macros)
    return kernel.name, known.get("BM"), known.get("BN"), known.get("BK")


def may_be_in_memory(kernel: Kernel, config: Config) -> bool:
    """A cheap test before a plan is made: false if no binary of this kernel has such tiles."""
    return (kernel.name, config.bm, config.bn, config.bk) in _tiles


def order_of(kernel: Kernel, macros: Macros, architecture: str) -> Order:
    return Order(kernel.source, kernel.entry, dict(macros), architecture, kernel.options)
