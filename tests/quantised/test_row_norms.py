"""Products of rows that have an RMSNorm first, in the launch of the product or not: near exact ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import quantised
from lapidist.backends.machine_backend import MachineBackend, sanitized
from lapidist.device import chip as chip_named
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.quantised import activations, launches, row_norms

ULP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of a rounding to nearest, relative
EPSILON = 0.25  # large beside the squares of some rows
# chip, format, rows, k, type, and whether the launch of the product divides its sums
CASES: list[tuple[str, str, dict[str, Any], int, int, str, bool]] = [
    ("h200", "int4", {"group": 128}, 1, 1152, "bfloat16", True),
    ("h200", "mxfp4", {}, 4, 328, "float16", True),  # x is copied, with zeros behind k
    ("a100", "int4", {"group": 64, "zero_points": True}, 20, 256, "bfloat16", True),
    ("h200", "nvfp4", {}, 3, 256, "bfloat16", True),
    ("h200", "int4", {"group": 64}, 9, 256, "bfloat16", False),
    ("a100", "int8", {}, 130, 128, "bfloat16", False),  # by the decoded weight
]


@pytest.mark.often(2)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_sums_are_divided_by_the_roots_of_mean_squares(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    chip, format, more, m, k, dtype, fused = CASES[number]
    monkeypatch.setattr(MachineBackend, "chip", chip_named(chip))
    before: list[float] = []

    def normalised(x: Any, epsilon: float) -> Any:
        before.append(epsilon)
        return row_norms.normalised(x, epsilon)

    monkeypatch.setattr(activations, "normalised", normalised)
    packed = quantised.pack(rng.standard_normal((k, 72)).astype(np.float32), format, **more)
    sizes = 2.0 ** rng.integers(-3, 4, (m, 1))
    x = (rng.standard_normal((m, k)) * sizes).astype(numpy_dtype(dtype))
    more_rows = rng.standard_normal((m, 72)).astype(x.dtype)
    epilogue = lapidist.epilogues.residual(residual=more_rows) if number % 2 else None
    with sanitized(m):
        found = quantised.matmul(x, packed, epilogue=epilogue, device="machine", norm_eps=EPSILON)
    assert (before == []) is fused
    rows, weight = x.astype("f8"), quantised.unpack(packed, "float64")
    rows = rows / np.sqrt((rows * rows).mean(1, keepdims=True) + EPSILON)
    exact, terms = rows @ weight, np.abs(rows) @ np.abs(weight)
    if epilogue is not None:
        exact, terms = exact + more_rows.astype("f8"), terms + np.abs(more_rows.astype("f8"))
    rounded = 0 if fused else 2 * ULP[dtype]  # x, and a decoded weight
    allowed = np.abs(exact) * ULP[dtype] + terms * ((k + 8) * 2.0**-24 + rounded) + 2.0**-24
    assert np.all(np.abs(found.astype("f8") - exact) <= allowed)
    on_host = quantised.matmul(x, packed, epilogue=epilogue, norm_eps=EPSILON)
    assert np.all(np.abs(on_host.astype("f8") - exact) <= allowed)


def test_a_norm_that_is_none(rng: np.random.Generator) -> None:
    packed = quantised.pack(rng.standard_normal((128, 8)).astype(np.float32), "int4")
    x = rng.standard_normal((2, 128)).astype(np.float16)
    for value in (-1e-6, float("inf"), float("nan")):
        rule = f"norm_eps: must be a number from 0 on; got {value}. Pass that of the model's RMSNorm"
        with pytest.raises(LapidistError, match=re.escape(rule)):
            quantised.matmul(x, packed, norm_eps=value)
    with pytest.raises(LapidistError, match="norm_eps: must be a real number; got ndarray"):
        quantised.matmul(x, packed, norm_eps=np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(LapidistError, match=r"norm_eps: is for x of 16 bits; got x of int8\. Normalise x"):
        quantised.matmul(x.astype(np.int8), packed, scale_a=1.0, norm_eps=1e-6)


def test_launches_know_whether_there_is_a_norm(rng: np.random.Generator) -> None:
    """One kernel serves every epsilon; one without a norm has none of its arguments."""
    packed = quantised.pack(rng.standard_normal((128, 8)).astype(np.float32), "int4")
    x = rng.standard_normal((1, 128)).astype(np.float16)
    launches.multiplying.cache_clear()
    first, second = (quantised.matmul(x, packed, device="machine", norm_eps=e) for e in (0.0, 100.0))
    assert launches.multiplying.cache_info().misses == 1
    assert np.abs(second).max() < np.abs(first).max() / 5
