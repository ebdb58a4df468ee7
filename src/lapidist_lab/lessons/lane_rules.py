"""How instructions of single lanes move elements: loads, stores, copies, arithmetic."""

from __future__ import annotations

import numpy as np

from lapidist_lab.lessons.elements import NOWHERE
from lapidist_lab.lessons.origins import Executed, Origins, Rule, alike, padded, united

Array = np.ndarray


def load(origins: Origins, site: int, block: Executed) -> None:
    i = origins.code[site]
    if i.predicate is None and site not in block.accesses:  # a parameter's
        origins.forget(site, block.threads)
    for access in block.accesses.get(site, ()):
        origins.write(site, i.operands[0], access.threads, origins.loaded(access))


def store(origins: Origins, site: int, block: Executed) -> None:
    for access in block.accesses.get(site, ()):
        origins.put(access, origins.read(origins.code[site].operands[1], access.threads))


def update(origins: Origins, site: int, block: Executed) -> None:
    """An atomic: what it leaves is no element, nor what it returns."""
    for access in block.accesses.get(site, ()):
        origins.put(access, np.zeros((len(access.threads), 0), np.int64))
    origins.forget(site, block.threads)


def copy(origins: Origins, site: int, block: Executed) -> None:
    """cp.async: a lane may read fewer bytes than it writes, or none."""
    brought = np.full((origins.threads, 16 // origins.size), NOWHERE, np.int64)
    for access in block.accesses.get(site, ()):
        if access.space == "global":
            brought[access.threads] = padded(origins.loaded(access), brought.shape[1])
    for access in block.accesses.get(site, ()):
        origins.put(access, brought[access.threads])


def move(origins: Origins, site: int, block: Executed) -> None:
    """mov, which also takes words apart and puts them together."""
    target, source = origins.code[site].operands[:2]
    origins.write(site, target, block.threads, origins.read(source, block.threads))


def sources(origins: Origins, site: int, block: Executed, count: int) -> list[Array]:
    """The elements of each source, in as many cells as the target has."""
    target, *operands = origins.code[site].operands
    width = origins.width(target)
    return [alike(origins.read(operand, block.threads), width) for operand in operands[:count]]


def set_target(origins: Origins, site: int, block: Executed, values: Array) -> None:
    origins.write(site, origins.code[site].operands[0], block.threads, values)


def keep(origins: Origins, site: int, block: Executed) -> None:
    """A function of one value, or another type of it; a cvt that packs two keeps none."""
    operands = origins.code[site].operands
    values = sources(origins, site, block, 1)[0]
    set_target(origins, site, block, values if len(operands) == 2 else values[:, :0])


def add(origins: Origins, site: int, block: Executed) -> None:
    """A sum or a choice of two values."""
    set_target(origins, site, block, united(*sources(origins, site, block, 2)))


def multiply(origins: Origins, site: int, block: Executed) -> None:
    set_target(origins, site, block, product(origins, *sources(origins, site, block, 2)))


def multiply_add(origins: Origins, site: int, block: Executed) -> None:
    x, y, total = sources(origins, site, block, 3)
    set_target(origins, site, block, united(total, product(origins, x, y)))


def product(origins: Origins, x: Array, y: Array) -> Array:
    """The sum that A[i, k] B[k, j] belongs to; a sum times a factor stays that sum."""
    _, of_b, of_c = origins.elements.starts
    columns, depth = origins.elements.arrays[1].shape[1], origins.elements.arrays[0].shape[1]
    low, high = np.minimum(x, y), np.maximum(x, y)
    row, k = np.divmod(low, depth)
    k_of_b, column = np.divmod(high - of_b, columns)
    meet = (low >= 0) & (low < of_b) & (high >= of_b) & (high < of_c) & (k == k_of_b)
    scaled = np.where((low == NOWHERE) & (high >= of_c), high, NOWHERE)
    return np.where(meet, of_c + row * columns + column, scaled)


LANE_RULES: dict[str, Rule] = {
    "ld": load,
    "st": store,
    "atom": update,
    "red": update,
    "cp.async": copy,
    "mov": move,
    "cvt": keep,
    "neg": keep,
    "add": add,
    "sub": add,
    "selp": add,
    "mul": multiply,
    "fma": multiply_add,
}
