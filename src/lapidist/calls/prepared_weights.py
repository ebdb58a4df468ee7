"""A float32 weight whose parts stay between products of emulated precision."""

from __future__ import annotations

from typing import Any

from lapidist.backends.backend import Backend
from lapidist.backends.selection import backend_at, choose_place
from lapidist.calls.call import Call
from lapidist.calls.emulated import has_parts, parts_for
from lapidist.calls.emulated import multiplied as emulated
from lapidist.calls.emulated_launches import CutColumns
from lapidist.calls.emulation_rules import require_emulation, require_float32_weight
from lapidist.calls.full_path import multiplied
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.operation import Operation, is_invariant, types_named
from lapidist.calls.repeat import FastPath
from lapidist.calls.repeat.shape import key_of_matrices
from lapidist.dtypes import EMULATED, Precision, bits_in, tier_of
from lapidist.errors import explained
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.new_arrays import empty
from lapidist.launch import AS_IT_IS
from lapidist.planning.emulated_passes import Lines, Parts, padded, slicing, words_of_lines


class PreparedWeight:
    """A float32 matrix, cut once into the parts that products of emulated precision multiply.

    `matmul(a)` has the bits of `lapidist.matmul(a, weight, precision=precision)`, and takes one pass less.
    Parts take 3 bytes an element beside the weight, with `"emulated_any_range"` 4. torch tells when a tensor
    was written to: it is then cut anew, in the same memory. After writing to other arrays call `renew()`.

    Parameters
    ----------
    weight : array of two dimensions
        The b of products, or with trans_b its transpose.
    precision : {"emulated", "emulated_any_range"} or Accuracy
    trans_b : bool
        Whether products take the weight transposed, as layers do.
    device : {"machine"}, optional
        As in `matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> weight = lapidist.PreparedWeight(np.ones((300, 4), np.float32), device="machine")
    >>> float(weight.matmul(np.ones((2, 300), np.float32))[0, 0])
    300.0
    """

    @explained
    def __init__(
        self,
        weight: Any,
        precision: Precision = EMULATED,
        *,
        trans_b: bool = False,
        device: int | str | None = None,
    ) -> None:
        require_emulation(precision)
        require_float32_weight(operand_of(weight, "weight"))
        self.weight, self.precision = weight, precision
        self._b = weight.T if trans_b else weight
        self._choices = OPEN if device is None else Choices(device)
        self._paths: dict[Any, FastPath] = {}
        self._cut: CutColumns | None = None
        self.renew()

    def __repr__(self) -> str:
        return f"PreparedWeight({tuple(self._b.shape)}, {self.precision})"

    def renew(self) -> None:
        """Cut the weight as it is now."""
        b = operand_of(self._b, "weight")
        backend = backend_at(choose_place(b.device, self._choices.device))
        self._state = state_of(self.weight)
        if backend.plans and has_parts(b.shape[0], bits_in(self.precision)) and b.shape[1]:
            self._cut = self._cut or self._room(b)
            self._slice(b, self._cut, backend)

    def _parts(self, k: int) -> Parts:
        return parts_for(tier_of(self.precision), k)

    def _room(self, b: Operand) -> CutColumns:
        k, n = b.shape
        parts = self._parts(k)
        arrays = (((n, parts.pieces * padded(k)), parts.dtype), ((words_of_lines(0, n),), "float32"))
        return CutColumns(*(operand_of(empty(shape, b, dtype), "weight") for shape, dtype in arrays))

    def _slice(self, b: Operand, cut: CutColumns, backend: Backend) -> None:
        """The pass adds up spans, so they begin with none."""
        k, n = b.shape
        cut.lines.owner[...] = 0
        lines = Lines(0, n, k, True, *b.strides[::-1])
        launch = slicing(lines, self._parts(k), backend.chip.architecture, backend.compiles)
        at = {"A": b, "B": cut.lines, "C": cut.lines, "D": cut.parts}
        backend.launch_alone(launch, at, AS_IT_IS, b.framework, None)

    @explained
    def matmul(self, a: Any, bias: Any = None, out: Any = None) -> Any:
        """a @ weight + bias, of a (..., k); `out`: where the result goes."""
        if self._state != state_of(self.weight):
            self.renew()
        if len(a.shape) > 2 and out is None:
            rows = self.matmul(a.reshape(-1, a.shape[-1]), bias)
            return rows.reshape(*a.shape[:-1], rows.shape[-1])
        types = types_named(None, None, self.precision, None, is_invariant(None))
        operation = Operation(vectors=bias is None, beta=float(bias is not None), types=types)
        call = Call(a, self._b, bias, out, operation, self._choices).numbered()
        key = key_of_matrices(call)
        fast_path = self._paths.get(key) if key is not None else None
        if fast_path is not None:
            scalars = call.operation.alpha, call.operation.beta
            result = fast_path(a, self._b, bias, out, scalars, None)
            if result is not None:
                return result
        return emulated(call, multiplied, key, self._paths, self._cut)


def state_of(weight: Any) -> tuple[Any, ...] | None:
    """A value that changes when a tensor is written to or moved; of other arrays nothing tells."""
    version = getattr(weight, "_version", None)
    return None if version is None or weight.is_inference() else (weight.data_ptr(), version)
