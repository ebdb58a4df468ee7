"""Epilogues over products: one that has operands of each kind, and what D must be, with a bound for each
element."""

from __future__ import annotations

from typing import Any

import numpy as np

import lapidist
from lapidist.dtypes import TYPES, accumulators_of, number_type, numpy_dtype
from lapidist.epilogues.numeric import Near, near
from lapidist.epilogues.tracing import Epilogue
from lapidist.verify import Verdict, expect, to_float64, worst_of

Array = np.ndarray[Any, Any]


@lapidist.epilogue
def of_all_kinds(
    acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, one: lapidist.Scalar
) -> Any:
    return lapidist.gelu(acc * one + row) * column + tile


def operands(
    rng: np.random.Generator, m: int, n: int, batch: tuple[int, ...] = (), dtype: str = "float32"
) -> dict[str, Any]:
    """Fresh ones; where there is a batch, the row is each matrix' own."""

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(numpy_dtype(dtype))

    return {"row": normal(*batch, n), "column": normal(m), "tile": normal(m, n), "one": 0.75}


def judge_finished(
    d: Any,
    epilogue: Epilogue,
    values: dict[str, Any],
    a: Any,
    b: Any,
    c: Any = None,
    *,
    seen: Any = None,
    **more: Any,
) -> Verdict:
    """`values` are the operands as the call had them; `seen`, as they broadcast to D, where that is not the
    same."""
    accumulator = more.get("accumulator") or accumulators_of(str(a.dtype).rpartition(".")[2])[0]
    dtype = number_type(accumulator).name
    sums = expect(a, b, c, out_dtype=np.dtype(dtype), **more)
    broadcast = {"column": lambda x: x[..., None], "row": lambda x: x[..., None, :]}
    as_seen = {
        each.name: broadcast.get(each.kind.lower(), lambda x: x)(doubles(values[each.name]))
        for each in epilogue.function.parameters
    }
    exact = Near(doubles(sums.reference), doubles(sums.bound))
    value, off = near(epilogue.function, exact, {**as_seen, **(seen or {})}, dtype)
    output = TYPES[str(d.dtype).rpartition(".")[2]]
    bound = off + output.roundoff * (abs(value) + off) + output.spacing
    return worst_of(abs(doubles(d) - value) / bound)


def doubles(values: Any) -> Array:
    """Of NumPy, of torch, or a number."""
    found = to_float64(values if hasattr(values, "dtype") else np.asarray(values))
    return np.asarray(found.cpu() if hasattr(found, "cpu") else found)
