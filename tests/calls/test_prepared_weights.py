"""Weights whose parts stay between products: the bits of products that cut them, and parts cut anew when the
weight changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed
from lapidist.backends.machine_backend import MachineBackend
from lapidist.errors import ArgumentError, DTypeError, ShapeError

PRECISIONS = ["emulated", "emulated_any_range"]
BOTH = pytest.mark.parametrize("precision", PRECISIONS)
EXTENTS = [(1, 48, 300), (70, 65, 257), (300, 5, 256)]
OFTEN = [(EXTENTS[0], False, "emulated"), (EXTENTS[1], True, "emulated_any_range")]


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are no products, in the order of their launches."""
    names: list[str] = []
    launch_alone = MachineBackend.launch_alone

    def noted(self: Any, launch: Any, *more: Any) -> Any:
        names.append(launch.binary.entry)
        return launch_alone(self, launch, *more)

    monkeypatch.setattr(MachineBackend, "launch_alone", noted)
    return names


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("extents", "trans_b", "precision"), in_turns(EXTENTS, [False, True], PRECISIONS, often=OFTEN, share=1)
)
def test_the_bits_of_products_that_cut_it(
    rng: np.random.Generator, extents: tuple[int, int, int], trans_b: bool, precision: Any
) -> None:
    m, n, k = extents
    a, b, bias = drawn(rng, m, k), drawn(rng, *((n, k) if trans_b else (k, n))), drawn(rng, n)
    weight = lapidist.PreparedWeight(b, precision, trans_b=trans_b, device="machine")
    options: dict[str, Any] = {"precision": precision, "device": "machine"}
    how = {"trans_b": trans_b, **options}
    assert np.array_equal(weight.matmul(a), lapidist.gemm(a, b, **how))
    assert np.array_equal(weight.matmul(a, bias), lapidist.gemm(a, b, bias, beta=1.0, **how))
    assert np.array_equal(weight.matmul(a[0]), lapidist.matmul(a[0], b.T if trans_b else b, **options))
    out = np.empty((m, n), np.float32)
    assert weight.matmul(a, out=out) is out
    assert np.array_equal(out, weight.matmul(a.reshape(1, m, k))[0])


@pytest.mark.parametrize("k", [100, 300])
def test_by_bits(rng: np.random.Generator, k: int) -> None:
    """Parts of few terms are bfloat16, as in products that cut it each time."""
    a, b, bits = drawn(rng, 20, k), drawn(rng, k, 24), lapidist.Accuracy(21)
    weight = lapidist.PreparedWeight(b, bits, device="machine")
    expected = lapidist.matmul(a, b, precision=bits, device="machine")
    for _ in range(2):
        assert np.array_equal(weight.matmul(a), expected)
    assert not np.array_equal(expected, lapidist.matmul(a, b, device="machine"))
    with pytest.raises(ArgumentError, match=r"Accuracy\(21\) here; got '8 bits'"):
        lapidist.PreparedWeight(b, lapidist.Accuracy(8), device="machine")


@BOTH
def test_it_is_cut_once(rng: np.random.Generator, precision: Any, launched: list[str]) -> None:
    weight = lapidist.PreparedWeight(drawn(rng, 300, 24), precision, device="machine")
    assert launched == ["slice_columns"]
    for _ in range(2):
        launched.clear()
        weight.matmul(drawn(rng, 20, 300))
        wider = ["slice_rows", "slice_columns", "join"] if precision == "emulated_any_range" else []
        assert launched == ["slice_rows", "take_columns", "join", *wider]


@pytest.mark.parametrize("precision", [PRECISIONS[0], *surveyed(PRECISIONS[1:])])
def test_the_device_falls_back_for_spans_of_either_side(rng: np.random.Generator, precision: Any) -> None:
    """Of rows in the last block's place, too: one block looks at the spans of all."""
    a, b = drawn(rng, 400, 300), drawn(rng, 300, 40)
    for wide in ("none", "a", "b"):
        left, right = a.copy(), b.copy()
        number = 1e30 if precision == "emulated" else 1e-36
        if wide == "a":
            left[399, ::2] *= 2.0**-16  # beyond halves
            left[399, 7] = number
        if wide == "b":
            right[::2, 39] *= 2.0**-16
            right[7, 39] = number
        weight = lapidist.PreparedWeight(right, precision, device="machine")
        plain = lapidist.gemm(left, right, device="machine", kernel="simt")
        assert np.array_equal(weight.matmul(left), plain) == (wide != "none"), wide


def test_parts_of_a_weight_that_do_not_hold_are_made_anew(rng: np.random.Generator) -> None:
    """Halves stay; rows of many sizes take pieces."""
    a, b = drawn(rng, 40, 300), drawn(rng, 300, 24)
    weight = lapidist.PreparedWeight(b, "emulated_any_range", device="machine")
    for of_row in (1.0, 2.0**-16, 1.0):
        left = a.copy()
        left[39, ::2] *= np.float32(of_row)
        expected = lapidist.matmul(left, b, precision="emulated_any_range", device="machine")
        assert np.array_equal(weight.matmul(left), expected)


def test_a_weight_that_was_written_to(rng: np.random.Generator) -> None:
    a, b = drawn(rng, 20, 300), drawn(rng, 300, 24)
    weight = lapidist.PreparedWeight(b, device="machine")
    weight.matmul(a)
    b *= 3
    weight.renew()
    assert np.array_equal(weight.matmul(a), lapidist.matmul(a, b, precision="emulated", device="machine"))


@BOTH
def test_short_sums_and_the_host_cut_nothing(
    rng: np.random.Generator, precision: Any, launched: list[str]
) -> None:
    a, b = drawn(rng, 20, 100), drawn(rng, 100, 24)
    weight = lapidist.PreparedWeight(b, precision, device="machine")
    assert np.array_equal(weight.matmul(a), lapidist.gemm(a, b, device="machine"))
    assert np.array_equal(lapidist.PreparedWeight(b, precision).matmul(a), a @ b)
    assert launched == []


def test_what_is_refused(rng: np.random.Generator) -> None:
    b = drawn(rng, 300, 4)
    with pytest.raises(ArgumentError, match=r'must be "emulated", .* here; got \'ieee\''):
        lapidist.PreparedWeight(b, "ieee")
    with pytest.raises(DTypeError, match="weight: emulated precisions multiply float32; got float16"):
        lapidist.PreparedWeight(b.astype(np.float16))
    with pytest.raises(ShapeError, match="weight: must have two dimensions"):
        lapidist.PreparedWeight(b[None])
    weight = lapidist.PreparedWeight(b, device="machine")
    with pytest.raises(ShapeError, match="k"):
        weight.matmul(np.ones((2, 299), np.float32))
    with lapidist.invariant(), pytest.raises(ArgumentError, match="invariant"):
        weight.matmul(np.ones((2, 300), np.float32))
