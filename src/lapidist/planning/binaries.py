"""Compiled kernels in memory, by what they are compiled from. Those not in memory come from the cache on
disk.
"""

from __future__ import annotations

from lapidist.build.cache import has_any, read
from lapidist.build.compiler import Order, compile_kernel, key_of
from lapidist.config import Config
from lapidist.kernels.kernel import Kernel
from lapidist.launch import Binary

# not a constant of device code: the compiler fuses no multiplication with an addition
EACH_STEP_ROUNDED = "EACH_STEP_ROUNDED"
UNFUSED = ("--fmad=false",)
Macros = tuple[tuple[str, object], ...]
Build = tuple[Kernel, Macros, str]  # what a kernel is compiled from
Tile = tuple[str, object, object, object]  # a kernel's name, bm, bn and bk
_binaries: dict[tuple[Kernel, Macros, str, bool], Binary] = {}
_tiles: set[Tile] = set()


def compiled(kernel: Kernel, macros: Macros, architecture: str, assembled: bool = True) -> Binary:
    """The binary from memory or disk, compiled if neither has it."""
    key = kernel, macros, architecture, assembled
    if key not in _binaries:
        order = order_of(kernel, macros, architecture)
        _binaries[key] = compile_kernel(*order, assembled)
        _tiles.add(tile_of(kernel, macros))
    return _binaries[key]


def compiled_anew(kernel: Kernel, macros: Macros, architecture: str) -> Binary:
    """The binary, compiled although the cache has one, which the driver refused."""
    binary = compile_kernel(*order_of(kernel, macros, architecture), anew=True)
    remember(binary, kernel, macros, architecture)
    return binary


def in_memory(kernel: Kernel, macros: Macros, architecture: str) -> bool:
    return (kernel, macros, architecture, True) in _binaries


def at_hand(kernel: Kernel, macros: Macros, architecture: str) -> bool:
    """Whether the binary is in memory, or complete on disk, from where it is then loaded."""
    if in_memory(kernel, macros, architecture):
        return True
    order = order_of(kernel, macros, architecture)
    binary = read(key_of(*order), order.entry, architecture)
    if binary is not None:
        remember(binary, kernel, macros, architecture)
    return binary is not None


def nothing_is_compiled() -> bool:
    """Whether neither memory nor disk has any binary, so that a first call need not search for one."""
    return not _binaries and not has_any()


def remember(
    binary: Binary, kernel: Kernel, macros: Macros, architecture: str, assembled: bool = True
) -> None:
    _binaries[kernel, macros, architecture, assembled] = binary
    _tiles.add(tile_of(kernel, macros))


def forget() -> None:
    _binaries.clear()
    _tiles.clear()


def tile_of(kernel: Kernel, macros: Macros) -> Tile:
    values = dict(macros)
    return kernel.name, values.get("BM"), values.get("BN"), values.get("BK")


def may_be_in_memory(kernel: Kernel, config: Config) -> bool:
    """Whether some binary of this kernel in memory has such tiles: a cheap test before a plan is made."""
    return (kernel.name, config.bm, config.bn, config.bk) in _tiles


def order_of(kernel: Kernel, macros: Macros, architecture: str) -> Order:
    defines = dict(macros)
    unfused = UNFUSED if defines.pop(EACH_STEP_ROUNDED, None) else ()
    return Order(kernel.source, kernel.entry, defines, architecture, (*kernel.options, *unfused))
