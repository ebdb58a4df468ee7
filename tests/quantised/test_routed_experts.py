"""Packed experts whose rows are gathered on the way in and scattered on the way out, beside NumPy."""

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
from lapidist.quantised import ways

K, N, EXPERTS, TOKENS, PAIRS, LINES = 192, 24, 4, 7, 16, 20
ENDS = np.array([3, 3, 12, 14], np.int32)  # one is empty, one begins and ends inside of a block
E4M3 = "float8_e4m3fn"


def routed(rng: np.random.Generator, index: str = "int32") -> dict[str, Any]:
    """Rows by their indices; those behind the last group lie nowhere, as nobody reads them."""
    rows, to = rng.integers(0, TOKENS, PAIRS).astype(index), rng.permutation(LINES)[:PAIRS].astype(index)
    rows[ENDS[-1] :], to[ENDS[-1] :] = 2**30, -5
    return {"gather_a": rows, "scatter_d": to}


def exact_rows(x: Any, packed: Any, how: dict[str, Any], factors: Any) -> Any:
    """What belongs in the result, in float64, and 7 where nothing is stored."""
    result, weights, begin = np.full((LINES, N), 7.0), quantised.unpack(packed, "float64"), 0
    for number, end in enumerate(ENDS):
        to, rows = how["scatter_d"][begin:end], how["gather_a"][begin:end]
        result[to] = factors[to, None] * (x[rows].astype("f8") @ weights[number])
        begin = end
    return result


# the chip, x, the weight, and the rows from which on it is decoded
CASES = [
    ("h200", "bfloat16", "int4", {"group": 64, "zero_points": True}, 512),
    ("a100", "bfloat16", "mxfp4", {}, 1),
    ("a100", "float16", "nvfp4", {}, 512),
    ("h200", E4M3, "mxfp4", {}, 512),
    ("a100", "int8", "int4", {}, 512),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "dtype", "format", "more", "few_rows"), CASES)
def test_rows_are_gathered_scattered_and_weighed(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    name: str,
    dtype: str,
    format: str,
    more: Any,
    few_rows: int,
) -> None:
    monkeypatch.setattr(MachineBackend, "chip", chip_named(name))
    monkeypatch.setattr(ways, "few_rows", lambda _: few_rows)
    packed = quantised.pack(rng.standard_normal((EXPERTS, K, N)).astype(np.float32) / 8, format, **more)
    x = rng.standard_normal((TOKENS, K)) * (40 if dtype == "int8" else 1)
    x = np.rint(x).astype(dtype) if dtype == "int8" else x.astype(numpy_dtype(dtype))
    of_rows = rng.uniform(0.5, 2, (TOKENS, 1)).astype(np.float32) if dtype in (E4M3, "int8") else None
    how = routed(rng, "int64" if few_rows == 1 else "int32")
    shares = rng.uniform(0.1, 1, LINES).astype(np.float32)
    out = np.full((LINES, N), 7, x.dtype if of_rows is None else np.float32)
    on_host, ends = out.copy(), ENDS.astype(how["gather_a"].dtype)
    how |= {"epilogue": epilogues.scaled_rows(factors=shares), "scale_a": of_rows, "expected_rows": 6}
    with sanitized(52):
        lapidist.grouped(x, packed, ends, **how, out=out, device="machine")
    lapidist.grouped(x, packed, ends, **how, out=on_host)
    left = x.astype("f8") * (1 if of_rows is None else of_rows)
    near = exact_rows(left, packed, how, shares)
    rounded = 2.0**-5 if few_rows == 1 else 2.0**-8  # decoded weights are rounded
    allowed = rounded * (np.abs(near) + np.abs(left).max() / 4)
    for result in (out, on_host):
        assert np.all(np.abs(result.astype("f8") - near) <= allowed)
        assert np.array_equal(result == 7, near == 7)


@pytest.mark.parametrize(("side", "expected"), [("scatter_d", 2), ("gather_a", 6)])
def test_each_side_alone_has_the_bits_of_copies(rng: np.random.Generator, side: str, expected: int) -> None:
    """By either kernel: one takes up to 4 rows of a group, and the last block of k is half a stage."""
    packed = quantised.pack(rng.standard_normal((EXPERTS, K, N)).astype(np.float32), "int4", group=64)
    x, indices = rng.standard_normal((TOKENS, K)).astype(np.float16), routed(rng)
    used, more = slice(ENDS[-1]), {"expected_rows": expected, "device": "machine"}
    copies = x[np.minimum(indices["gather_a"], TOKENS - 1)]
    plain = lapidist.grouped(copies, packed, ENDS, **more)
    how: dict[str, Any] = {side: indices[side]}
    if side == "scatter_d":
        x, how["out"] = copies, np.full((LINES, N), 7, np.float16)
    with sanitized(expected):
        found = lapidist.grouped(x, packed, ENDS, **how, **more)
    if side == "gather_a":
        assert np.array_equal(found[used], plain[used])
        return
    assert np.array_equal(found[how[side][used]], plain[used])
    assert np.all(np.delete(found, how[side][used], 0) == 7)


def test_no_pairs_and_no_rows(rng: np.random.Generator) -> None:
    packed = quantised.pack(np.ones((EXPERTS, 64, 8)), "mxfp4")
    none, ends = np.zeros(0, np.int32), np.zeros(EXPERTS, np.int32)
    x, out = np.ones((3, 64), np.float16), np.full((5, 8), 7, np.float16)
    lapidist.grouped(x, packed, ends, gather_a=none, scatter_d=none, out=out, device="machine")
    assert np.all(out == 7)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gather_a": np.int64([0, 1])}, "gather_a: must have the type of offsets, int32; got int64"),
        ({"gather_a": np.int32([0, 3])}, "gather_a: indices must lie between 0 and 2; got 3"),
        ({"gather_a": [0, 1]}, "gather_a: must be an array of int32 or int64; got list"),
        ({"scatter_d": np.int32([0, 1, 1])}, "out: must be given where the output is permuted or scattered"),
        ({"scatter_d": np.int32([0, 1])}, "scatter_d: must name a row of out for each of the 3 rows; got 2"),
        ({"c": np.ones((3, 8), np.float16), "beta": 1.0}, "c: is not for weights of few bits"),
        (
            {"scatter_d": np.int32([0, 1, 1]), "out": np.ones((3, 8), np.float16), "check_offsets": True},
            "scatter_d: must name a row of out once where check_offsets is True; got row 1 twice",
        ),
    ],
)
def test_routes_that_do_not_fit_are_refused(more: Any, words: str) -> None:
    packed, x = quantised.pack(np.ones((1, 64, 8)), "int8"), np.ones((3, 64), np.float16)
    ends = np.int32([len(more["gather_a"]) if "gather_a" in more else 3])
    with pytest.raises(LapidistError, match=words):
        lapidist.grouped(x, packed, ends, **more)
    if "out" in more:
        assert np.all(more["out"] == 1)
