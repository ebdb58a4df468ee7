"""Epilogues over products: one that has operands of each kind, and what D must be, with a bound for each
element."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import machine
from lapidist.backends import machine_backend
from lapidist.dtypes import TYPES, accumulators_of, number_type, numpy_dtype
from lapidist.epilogues.error_bound import Near, near
from lapidist.epilogues.tracing import Epilogue
from lapidist.launch import Launch
from lapidist.verify.sum_bound import Verdict, expect, to_float64, worst_of

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
    result: int = 0,
    **more: Any,
) -> Verdict:
    """`values` are the operands as the call had them; `seen`, as they broadcast to D, where that is not the
    same. `d` is the result of that number."""
    accumulator = more.get("accumulator") or accumulators_of(str(a.dtype).rpartition(".")[2])[0]
    dtype = number_type(accumulator).name
    sums = expect(a, b, c, out_dtype=np.dtype(dtype), **more)
    broadcast = {"column": lambda x: x[..., None], "row": lambda x: x[..., None, :]}
    as_seen = {
        each.name: broadcast.get(each.kind.lower(), lambda x: x)(doubles(values[each.name]))
        for each in epilogue.function.parameters
    }
    exact = Near(doubles(sums.reference), doubles(sums.bound))
    value, off = near(epilogue.function, exact, {**as_seen, **(seen or {})}, dtype)[result]
    output = TYPES[str(d.dtype).rpartition(".")[2]]
    bound = off + output.roundoff * (abs(value) + off) + output.spacing
    bounded = ~np.isinf(bound)  # a function may blow up what a sum is off: then any value is right
    with np.errstate(invalid="ignore"):  # where both blew up
        far = abs(doubles(d) - value)
    return worst_of(np.divide(far, bound, out=np.zeros_like(bound), where=bounded))


def watch(monkeypatch: pytest.MonkeyPatch, passes: bool = False) -> None:
    """Runs of the machine are sanitized, those of second passes where `passes` says so. All blocks of a
    product are resident, as those that share tiles wait for each other. A pass has eight at a time.
    """
    run, run_pass = machine.run, machine_backend.run_pass

    def watched(launch: Launch, **more: Any) -> Any:
        return run(launch, sanitize=True, seed=3, residency=math.prod(launch.grid), **more)

    def watched_pass(*given: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(machine, "run", partial(run, sanitize=passes, seed=3, residency=8))
            run_pass(*given)

    monkeypatch.setattr(machine, "run", watched)
    monkeypatch.setattr(machine_backend, "run_pass", watched_pass)


def doubles(values: Any) -> Array:
    """Of NumPy, of torch, or a number."""
    found = to_float64(values if hasattr(values, "dtype") else np.asarray(values))
    return np.asarray(found.cpu() if hasattr(found, "cpu") else found)
