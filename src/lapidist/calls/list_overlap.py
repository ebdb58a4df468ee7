"""Whether products of a list overlap: none may write what another one reads or writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lapidist.calls.bound import Bound
from lapidist.dtypes import size_of
from lapidist.errors import StrideError
from lapidist.frameworks.arrays import Operand

# (first byte, one past the last, number of the product) of each line of memory, sorted
Lines = np.ndarray[Any, Any]
Numbered = tuple[int, Operand]  # with the number of its product


def require_disjoint_calls(calls: Sequence[Bound]) -> None:
    """Each call was checked by itself. Inputs may be shared, and C may be the output of its own product."""
    require_disjoint_copies([call.copied_to for call in calls])
    written = lines_of([(number, result) for number, call in enumerate(calls) for result in call.results])
    if (written[1:, 0] < written[:-1, 1]).any():
        written = joined(written)
    for name, operands in read_by(calls).items():
        read = lines_of(operands)
        # for each line that is read, the range of written lines that overlap it
        first = np.searchsorted(written[:, 1], read[:, 0], side="right")
        after = np.searchsorted(written[:, 0], read[:, 1])
        for line in np.flatnonzero(first < after):
            number, met = read[line, 2], written[first[line] : after[line], 2]
            if (met != number).any():
                refuse(name, number, met[met != number][0])


def read_by(calls: Sequence[Bound]) -> dict[str, list[Numbered]]:
    """The operands that are read, by the argument's name."""
    operands_by_name: dict[str, list[Numbered]] = {}
    for number, call in enumerate(calls):
        for operand in (call.a, call.b, call.c, *(call.epilogue.read if call.epilogue else ())):
            if operand is not None:
                operands_by_name.setdefault(operand.name, []).append((number, operand))
    return operands_by_name


def joined(written: Lines) -> Lines:
    """The same lines with overlaps of one product merged. Its results were checked before; only the gaps
    between their lines overlap.
    """
    merged: list[list[int]] = []
    for low, high, number in written.tolist():
        if not merged or low >= merged[-1][1]:
            merged.append([low, high, number])
            continue
        if number != merged[-1][2]:
            refuse("out", number, merged[-1][2])
        merged[-1][1] = max(merged[-1][1], high)
    return np.array(merged, np.int64)


def require_disjoint_copies(arrays: Sequence[Any]) -> None:
    """Host outputs that results are copied to at the end must not overlap each other."""
    for number, array in enumerate(arrays):
        for other in range(number if array is not None else 0):
            if arrays[other] is not None and np.shares_memory(array, arrays[other]):
                refuse("out", number, other)


def refuse(name: str, number: int, other: int) -> None:
    """`other` is the number of the product whose output it is."""
    raise StrideError(
        f"out: must not share memory with another product of the lists; out[{other}] overlaps"
        f" {name}[{number}]. Pass separate arrays, or one list after the other"
    )


def lines_of(operands: Sequence[Numbered]) -> Lines:
    """The byte ranges of all matrices. A matrix without contiguous lines counts with its gaps."""
    alike: dict[Any, list[tuple[int, int]]] = {}
    for number, operand in operands:
        if 0 not in operand.shape:
            layout = operand.shape, operand.strides, size_of(operand.dtype)
            alike.setdefault(layout, []).append((operand.pointer, number))
    lines_by_layout = [np.empty((0, 3), np.int64)]
    for layout, starts in alike.items():
        starts_and_numbers = np.array(starts, np.int64)
        lines = lines_within(*layout)[None] + starts_and_numbers[:, 0, None, None]
        numbers = np.broadcast_to(starts_and_numbers[:, 1, None, None], (*lines.shape[:2], 1))
        lines_by_layout.append(np.concatenate([lines, numbers], axis=2).reshape(-1, 3))
    together = np.concatenate(lines_by_layout)
    return together[np.argsort(together[:, 0], kind="stable")]


def lines_within(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Lines:
    """First and last byte of each line of a matrix, relative to its pointer. Adjacent lines are merged."""
    (rows, cols), (row_step, col_step) = shape[-2:], (stride * size for stride in strides[-2:])
    if abs(row_step) < abs(col_step):
        rows, cols, row_step, col_step = cols, rows, col_step, row_step
    low, high = min(0, (cols - 1) * col_step), max(0, (cols - 1) * col_step) + size
    if abs(row_step) <= high - low:
        low, high, rows = low + min(0, (rows - 1) * row_step), high + max(0, (rows - 1) * row_step), 1
    starts = np.arange(rows, dtype=np.int64) * row_step
    return np.stack([starts + low, starts + high], axis=1)
