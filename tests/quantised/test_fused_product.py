"""Products with weights of few bits whose sums a function changes, in the machine beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import epilogues, quantised
from lapidist.backends.machine_backend import MachineBackend, sanitized
from lapidist.device import chip as chip_named
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.quantised import fused_product as fused

K, N = 256, 72
rng = np.random.default_rng(52)
ROW = rng.standard_normal(N).astype(np.float32)
TILE = rng.standard_normal((2, 3, N)).astype(np.float16)


@lapidist.epilogue
def gated(acc: lapidist.Pair) -> Any:
    return lapidist.silu(acc[0]) * acc[1]


@lapidist.epilogue
def with_copy(acc: Any, bias: lapidist.Row, scale: lapidist.Scalar) -> Any:
    return lapidist.Output(acc * scale, "float32"), acc + bias


# each with whether the kernels for few rows take it
CASES = [
    (epilogues.gelu(), True),
    (epilogues.bias_residual(bias=ROW, residual=TILE), True),
    (gated(), True),
    (with_copy(bias=ROW, scale=0.5), True),
    (epilogues.amax(), False),  # a second pass
    (epilogues.scaled_rows(factors=np.arange(3.0)), False),  # the same three for both matrices
    (epilogues.scaled_rows(factors=np.arange(6.0).reshape(2, 3)), True),
]


@pytest.mark.parametrize("name", ["h200", "a100"])
@pytest.mark.parametrize(("epilogue", "direct"), CASES)
def test_functions_follow_sums(
    monkeypatch: pytest.MonkeyPatch, name: str, epilogue: Any, direct: bool
) -> None:
    monkeypatch.setattr(MachineBackend, "chip", chip_named(name))
    taken, ran = fused.by_few_rows, []
    monkeypatch.setattr(fused, "by_few_rows", lambda *given: (ran.append(1), taken(*given)))
    packed = quantised.pack(rng.standard_normal((K, N)).astype(np.float32) / 16, "int4", group=128)
    x = rng.standard_normal((2, 3, K)).astype(numpy_dtype("bfloat16"))
    with sanitized(52):
        found = lapidist.matmul(x, packed, epilogue=epilogue, device="machine")
    expected = lapidist.matmul(x.astype(np.float32), quantised.unpack(packed), epilogue=epilogue)
    assert bool(ran) == direct
    on_host = lapidist.matmul(x, packed, epilogue=epilogue)
    for value, near, same in zip(*map(as_tuple, (found, expected, on_host)), strict=True):
        allowed = 2.0**-7 if direct else 2.0**-5  # decoded weights are rounded
        assert value.shape == near.shape
        assert value.dtype == same.dtype
        assert np.allclose(value.astype("f4"), near.astype("f4"), rtol=2.0**-7, atol=allowed)


def as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_odd_columns_and_an_output_of_the_caller() -> None:
    """The last column has no neighbour; rows of the caller's array lie apart."""
    packed = quantised.pack(rng.standard_normal((64, 71)).astype(np.float32), "int8")
    x = rng.standard_normal((9, 64)).astype(np.float16)
    room = np.full((9, 80), 7, np.float16)
    bias = rng.standard_normal(71).astype(np.float32)
    with sanitized(1):
        lapidist.matmul(
            x, packed, out=room[:, :71], epilogue=epilogues.bias_relu(bias=bias), device="machine"
        )
    near = np.maximum(x.astype("f8") @ quantised.unpack(packed) + bias, 0)
    assert np.allclose(room[:, :71], near, rtol=2.0**-9, atol=0.01)
    assert np.all(room[:, 71:] == 7)


def test_what_does_not_fit_is_refused() -> None:
    packed = quantised.pack(np.ones((64, 8)), "int8")
    x = np.ones((2, 64), np.float16)
    with pytest.raises(LapidistError, match="bias: must be an operand of the epilogue"):
        quantised.matmul(x, packed, np.ones(8, np.float16), epilogue=epilogues.gelu)
    with pytest.raises(LapidistError, match=r"bias: must have a value for each column of D, shape \(8,\)"):
        lapidist.matmul(x, packed, epilogue=epilogues.bias_gelu(bias=np.ones(7)))
    scales = packed.scales.view(np.float16).reshape(-1)[:16].reshape(2, 8)
    with pytest.raises(LapidistError, match="must share no memory with the weight"):
        lapidist.matmul(x, packed, out=scales, epilogue=epilogues.gelu)
