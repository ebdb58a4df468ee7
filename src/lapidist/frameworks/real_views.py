"""Arrays of complex numbers seen as real ones, in the same memory, and real ones of other strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from lapidist.dtypes import PART_OF, numpy_dtype, size_of
from lapidist.frameworks.arrays import Operand, Outlined, operand_of


def real_view(operand: Operand, shape: tuple[int, ...], strides: tuple[int, ...]) -> Operand:
    """Real and imaginary parts in turn, from where the operand begins, whether it is conjugated or not.
    Strides count real numbers. Real operands are seen with this shape and these strides.
    """
    part = PART_OF.get(operand.dtype, operand.dtype)
    array: Any
    if operand.framework == "torch":
        array = of_torch(operand.owner, shape, strides)
    elif operand.framework == "cupy":
        import cupy

        memory = operand.owner.data
        array = cupy.ndarray(shape, numpy_dtype(part), memory, in_bytes(strides, part))
    else:
        array = np.asarray(OwnedNumbers(operand, part, shape, strides))
    return operand_of(array, operand.name)


def of_torch(tensor: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    import torch

    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.conj() if plain.is_conj() else plain)
    return plain.as_strided(shape, strides, plain.storage_offset())


def in_bytes(strides: tuple[int, ...], part: str) -> tuple[int, ...]:
    return tuple(stride * size_of(part) for stride in strides)


class OwnedNumbers(Outlined):
    """Real numbers in memory of an operand, which they keep alive."""

    def __init__(self, operand: Operand, part: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        description = {
            "version": 3,
            "typestr": numpy_dtype(part).str,
            "shape": shape,
            "strides": in_bytes(strides, part),
            "data": (operand.pointer, not operand.writable and not operand.conjugated),
        }
        super().__init__(description)
        self.owner = operand.owner
