"""Products with weights of few bits that have groups, or whose sums a function changes, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist import epilogues, quantised
from lapidist.backends.machine_backend import MachineBackend, sanitized
from lapidist.device import chip as chip_named
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.quantised import bound_product as products
from lapidist.quantised import ways

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


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "case"), in_turns(["h200", "a100"], range(len(CASES)), share=1))
def test_functions_follow_sums(monkeypatch: pytest.MonkeyPatch, name: str, case: int) -> None:
    epilogue, direct = CASES[case]
    monkeypatch.setattr(MachineBackend, "chip", chip_named(name))
    taken, ran = products.by_few_rows, []
    monkeypatch.setattr(products, "by_few_rows", lambda *given: (ran.append(1), taken(*given)))
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


OUTS = {
    "columns are left": lambda: np.zeros((5, 80), "f2")[:, :64],
    "by columns": lambda: np.zeros((64, 5), "f2").T,
    "steps in rows": lambda: np.zeros((5, 128), "f2")[:, ::2],
    "backwards": lambda: np.zeros((10, 64), "f2")[::-2],
}


@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize("layout", OUTS)
def test_out_lies_as_it_likes(layout: str, device: str | None) -> None:
    rng = np.random.default_rng(7)
    packed = quantised.pack(rng.standard_normal((128, 64)).astype("f4"), "int4", group=32)
    x, bias = rng.standard_normal((5, 128)).astype("f2"), rng.standard_normal(64).astype("f2")
    for more in ({}, {"bias": bias}, {"epilogue": epilogues.relu()}):
        out = OUTS[layout]()
        whole = out.base.copy()
        assert quantised.matmul(x, packed, out=out, device=device, **more) is out
        assert np.array_equal(out, quantised.matmul(x, packed, device=device, **more))
        out[...] = 0
        assert np.array_equal(out.base, whole), "what lies between was written"
    out = OUTS[layout]()
    out.flags.writeable = False
    with pytest.raises(LapidistError, match="out: must be writable"):
        quantised.matmul(x, packed, out=out, device=device)
    repeated = np.lib.stride_tricks.as_strided(np.zeros(64, "f2"), (5, 64), (0, 2))
    with pytest.raises(LapidistError, match="out: each element must have its own memory"):
        quantised.matmul(x, packed, out=repeated, device=device)


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


# ---- groups ----

EXPERTS, TOTAL = 5, 70
ENDS = np.array([3, 3, 10, 50, 61], np.int32)


def experts_and_tokens(format: str, **more: Any) -> tuple[Any, Any]:
    weights = rng.standard_normal((EXPERTS, K, N)).astype(np.float32) / 16
    tokens = rng.standard_normal((TOTAL, K)).astype(numpy_dtype("bfloat16"))
    return quantised.pack(weights, format, **more), tokens


FORMATS: dict[str, dict[str, Any]] = {"int4": {"group": 128, "zero_points": True}, "mxfp4": {}, "int8": {}}
OFTEN = [("h200", 512, "int4"), ("a100", 1, "mxfp4"), ("a100", 512, "int8")]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("name", "few_rows", "format"), in_turns(["h200", "a100"], [512, 1], FORMATS, often=OFTEN, share=1)
)
def test_groups_have_their_own_weights(
    monkeypatch: pytest.MonkeyPatch, name: str, few_rows: int, format: str
) -> None:
    """Groups end inside of a block, one is empty; rows behind the last stay as they are, and NaN before."""
    monkeypatch.setattr(MachineBackend, "chip", chip_named(name))
    monkeypatch.setattr(ways, "few_rows", lambda _: few_rows)
    packed, tokens = experts_and_tokens(format, **FORMATS[format])
    tokens[ENDS[-1] :] = np.nan
    out = np.full((TOTAL, N), 7, tokens.dtype)
    bias = rng.standard_normal((EXPERTS, N)).astype(np.float32)
    epilogue = epilogues.bias_silu(bias=bias)
    with sanitized(few_rows):
        lapidist.grouped(tokens, packed, ENDS, out=out, epilogue=epilogue, device="machine")
    expected = lapidist.grouped(tokens.astype("f4"), quantised.unpack(packed), ENDS, epilogue=epilogue)
    last = ENDS[-1]
    allowed = 2.0**-7 if few_rows > 1 else 2.0**-5
    assert np.allclose(out[:last].astype("f4"), expected[:last], rtol=2.0**-7, atol=allowed)
    assert np.all(out[last:] == 7)
    on_host = lapidist.grouped(tokens, packed, ENDS, epilogue=epilogue)
    assert np.allclose(on_host[:last].astype("f4"), expected[:last], rtol=2.0**-7, atol=2.0**-7)


def test_counts_of_stacked_rows() -> None:
    packed, tokens = experts_and_tokens("int4", group=64)
    tokens, counts = tokens.reshape(EXPERTS, TOTAL // EXPERTS, K), np.array([0, 14, 3, 9, 1])
    with sanitized(5):
        found = lapidist.grouped(tokens, packed, counts=counts, device="machine")
    expected = lapidist.grouped(tokens.astype("f4"), quantised.unpack(packed), counts=counts)
    for group, count in enumerate(counts):
        near = expected[group, :count]
        assert np.allclose(found[group, :count].astype("f4"), near, rtol=2.0**-7, atol=2.0**-7)


def test_experts_are_their_weights() -> None:
    packed, _ = experts_and_tokens("mxfp4")
    again = quantised.load(quantised.stack([packed[i] for i in range(EXPERTS)]).state_dict())
    assert len(again) == EXPERTS
    assert np.array_equal(quantised.unpack(again), quantised.unpack(packed))
    assert np.array_equal(quantised.unpack(again[3]), quantised.unpack(packed)[3])


def test_groups_that_do_not_fit_are_refused() -> None:
    packed, tokens = experts_and_tokens("int8")
    with pytest.raises(LapidistError, match="b: must have a matrix for each of the 4 groups"):
        lapidist.grouped(tokens, packed, ENDS[1:], device="machine")
    with pytest.raises(LapidistError, match="offsets: of group 2 must lie from 3 to 70; got 1"):
        lapidist.grouped(tokens, packed, np.int32([3, 3, 1, 50, 61]), device="machine")
    with pytest.raises(LapidistError, match="trans_a: is not for weights of few bits"):
        lapidist.grouped(tokens, packed, ENDS, trans_a=True)
    with pytest.raises(LapidistError, match="weight: must be that of one product; got PackedExperts"):
        lapidist.matmul(tokens, packed)
    with pytest.raises(LapidistError, match="b: must be weights of all groups, PackedExperts; got PackedW"):
        lapidist.grouped(tokens, packed[0], ENDS)
    with pytest.raises(LapidistError, match="weights: must be a list of one PackedWeight or more"):
        quantised.stack([packed[0], quantised.pack(np.ones((64, N)), "int8")])
