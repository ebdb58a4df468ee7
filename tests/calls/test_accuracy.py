"""precision=lapidist.Accuracy(bits): the way it takes, what that holds in the machine, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls.operation import types_named
from lapidist.errors import ArgumentError, DTypeError, ShapeError


@pytest.mark.parametrize(
    ("bits", "precision"), [(1, "tf32"), (8, "tf32"), (9, "emulated"), (20, "emulated"), (21, "emulated")]
)
def test_the_cheapest_way_is_taken(bits: int, precision: str) -> None:
    types = types_named(None, None, lapidist.Accuracy(bits))
    assert (types.precision, types.bits) == (precision, bits)
    assert types_named(None, None, f"{bits} bits") == types  # as torch's operators pass it on


@pytest.mark.often(1)
@pytest.mark.parametrize("bits", [8, 21])
@pytest.mark.parametrize("k", [1, 16, 255, 300])
@pytest.mark.parametrize("positive", [True, False])
def test_it_holds(rng: np.random.Generator, bits: int, k: int, positive: bool) -> None:
    a, b = (rng.random(shape) - 0.5 * (not positive) for shape in ((70, k), (k, 50)))
    a, b = a.astype(np.float32), b.astype(np.float32)
    found = lapidist.matmul(a, b, precision=lapidist.Accuracy(bits), device="machine")
    exact, magnitudes = a.astype("f8") @ b.astype("f8"), np.abs(a).astype("f8") @ np.abs(b).astype("f8")
    assert np.all(np.abs(found - exact) <= 2.0**-bits * magnitudes + 2.0**-24 * np.abs(exact))


def test_sums_of_few_terms_are_no_float32_sums(rng: np.random.Generator) -> None:
    a, b = rng.random((8, 200)).astype(np.float32), rng.random((200, 8)).astype(np.float32)
    asked: list[Any] = [lapidist.Accuracy(21), "emulated"]
    by_bits, by_name = (lapidist.matmul(a, b, precision=each, device="machine") for each in asked)
    assert not np.array_equal(by_bits, by_name)


@pytest.mark.parametrize(
    ("bits", "words"),
    [(22, "hold 21 at most; got 22. Convert a and b to float64"), (0, "whole number"), (2.5, "whole number")],
)
def test_bits_that_nothing_holds(bits: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        lapidist.Accuracy(bits)


def test_what_is_refused() -> None:
    bits = lapidist.Accuracy(21)
    half, a = np.ones((2, 300), np.float16), np.ones((2, 1 << 16), np.float32)
    with pytest.raises(DTypeError, match="float16"):
        lapidist.matmul(half, half.T, precision=bits, device="machine")
    with pytest.raises(ShapeError, match="21 bits hold up to k = 32768; got k = 65536"):
        lapidist.matmul(a, a.T, precision=bits, device="machine")
    with pytest.raises(ArgumentError, match="invariant=True"):
        lapidist.matmul(a, a.T, precision=bits, invariant=True, device="machine")
    with pytest.raises(ArgumentError, match=r"Accuracy; got 21. Write lapidist.Accuracy\(21\)"):
        lapidist.matmul(a, a.T, precision=21, device="machine")  # type: ignore[arg-type]
