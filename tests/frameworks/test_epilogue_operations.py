"""Every operation of an epilogue gives the same number in NumPy, torch and JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lapidist.epilogues import interpreter, numeric
from lapidist.epilogues.error_bound import Near, near
from lapidist.epilogues.expressions import Expression, Tape, Tile
from lapidist.epilogues.operations import CASTS, OPERATIONS
from lapidist.epilogues.results import Output
from lapidist.epilogues.steps import CAST, DROPOUT_MASK, DROPOUT_MASK_BY_OPERAND, TILE, Function, Parameter

pytestmark = pytest.mark.frameworks
Array = np.ndarray[Any, Any]
SEED, NAMES = 2**63 + 5, ("x", "y", "z")


def special(dtype: str) -> dict[str, Array]:
    """Each beside each: what is not finite, zeros, subnormals, the ends of the type and of its functions."""
    ends = np.finfo(dtype)
    sizes = [np.inf, 0, ends.smallest_subnormal, 5 * ends.smallest_subnormal, ends.tiny, ends.max, 1, 0.5]
    sizes += [1e-3, 0.7, 1.5, 2.5, 3.3, 5, 9, 41, 88, 104, 709, 746, 2.0**23 + 0.5, 65520, 1e30]
    values = np.array([np.nan, *sizes, *(-each for each in sizes)], dtype)
    x, y = np.meshgrid(values, values)
    return {"x": x, "y": y, "z": -x}


def of_one_step(name: str, value: str = "") -> Function:
    tape, row = Tape(name), OPERATIONS[name]
    parameters = [Parameter(each, TILE) for each in NAMES]
    args: list[Any] = [tape.operand(each, Tile) for each in parameters[: row.arity]]
    if name in (DROPOUT_MASK, DROPOUT_MASK_BY_OPERAND):
        args = [tape.seed(SEED), tape.position(), *args[2:]]
    applied: Expression = tape.apply(name, *args, value=value)
    return tape.function(tuple(parameters), [Output(applied)], False)


CASES = {
    **{name: of_one_step(name) for name in OPERATIONS if name not in (DROPOUT_MASK, CAST)},
    **{f"{CAST} {dtype}": of_one_step(CAST, dtype) for dtype in CASTS},
    **{f"{DROPOUT_MASK} {p}": of_one_step(DROPOUT_MASK, p) for p in ("0.0", "0.3", repr(1 - 2**-40))},
}


def by_torch(function: Function, values: dict[str, Array]) -> Array:
    torch, namespace = (
        importlib.import_module("torch"),
        importlib.import_module("lapidist.calls.torch_epilogues").TORCH,
    )
    tensors = {name: torch.tensor(value) for name, value in values.items()}
    found: Array = interpreter.evaluate(function, tensors["x"], tensors, namespace)[0].numpy()
    return found


def by_jax(function: Function, values: dict[str, Array]) -> Array:
    jax, namespace = (
        importlib.import_module("jax"),
        importlib.import_module("lapidist.jax.epilogue_functions").Jax(),
    )
    with jax.enable_x64(True):
        arrays = {name: jax.numpy.asarray(value) for name, value in values.items()}
        return np.asarray(interpreter.evaluate(function, arrays["x"], arrays, namespace)[0])


def flushed(values: Array) -> Array:
    return np.where(np.abs(values) < np.finfo(values.dtype).tiny, np.copysign(0, values), values)


def is_near(found: Array, function: Function, values: dict[str, Array], off: float) -> Any:
    """The same as NumPy's, or within so many bounds of it."""
    (expected,), dtype = numeric.evaluate(function, values["x"], values), str(found.dtype)
    ((_, bound),) = near(function, Near(values["x"], 0.0), values, dtype)
    with np.errstate(invalid="ignore"):
        close = np.abs(found - expected) <= (off * bound if off else 0)
    return close | (found == expected) | (np.isnan(found) & np.isnan(expected))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", [by_torch, by_jax])
@pytest.mark.parametrize("case", CASES)
def test_it_is_numpys(case: str, library: Callable[..., Array], dtype: str) -> None:
    """To the bit, where an operation is rounded once at most; of others both may be off by their bound."""
    function, values = CASES[case], special(dtype)
    found, (expected,) = library(function, values), numeric.evaluate(function, values["x"], values)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    is_library = OPERATIONS[case.partition(" ")[0]].roundings > 1
    right = is_near(found, function, values, 2 * is_library)
    if is_library or library is by_jax:  # XLA takes subnormals for zeros on a CPU, torch's exp gives none
        zeroed = {name: flushed(value) for name, value in values.items()}
        for each in (values, zeroed):
            right |= flushed(found) == flushed(numeric.evaluate(function, each["x"], each)[0])
        right |= is_near(found, function, zeroed, 2 * is_library)
    wrong = zip(*(each[~right].tolist() for each in (values["x"], values["y"], expected, found)), strict=True)
    assert [*wrong] == []
    # What is too small may be zero of either sign: gelu of torch differs from processor to processor.
    zeros = (found == 0) & (expected == 0) & ((values["x"] == 0) | (not is_library))
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))
