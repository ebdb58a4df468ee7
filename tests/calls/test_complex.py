"""Products of complex numbers: on the host by NumPy, and in the machine by the kernels of real ones."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

import lapidist
from complex_numbers import PLACES, Numbers, same, whole
from in_turns import in_turns
from lapidist.backends.machine_backend import sanitized
from lapidist.calls import complex_product
from lapidist.device import chip
from lapidist.planning.complex_tiles import Square, tile_for

TYPES = [np.complex64, np.complex128]
SMALL = Square(32, 4, 2, 32)
OPS: dict[Any, Any] = {False: lambda x: x, True: lambda x: x.mT, "C": lambda x: x.mT.conj()}


@pytest.fixture(params=[True, False], ids=["tiles", "widened"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices by the kernel of their own, and by those of real numbers."""
    monkeypatch.setattr(complex_product, "tile_for", lambda *_: SMALL if request.param else None)


# numbers of alpha and beta: of the product of real numbers, or multiplied before
SCALARS = [(1.0, 0.0), (2.0, 1.0), (1j, 1 - 2j), (1 - 1j, 2.0), (3.0, 1j)]


# How A, B and D lie, and whether by tiles of complex numbers: each pair of them, and the others.
PAIRS = [("CCC", True), ("CFF", False), ("FCF", False), ("FFC", False), ("FFF", True)]
OTHERS = [each for each in product(map("".join, product("CF", repeat=3)), [True, False]) if each not in PAIRS]
LYING = [pytest.param(PAIRS, id="pairs"), pytest.param(OTHERS, id="others", marks=pytest.mark.census)]


@pytest.mark.often(2)
@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(("trans_a", "trans_b", "dtype"), in_turns(OPS, [*OPS][::-1], TYPES))
def test_every_op_of_every_layout(
    device: str,
    dtype: Any,
    trans_a: Any,
    trans_b: Any,
    lying: list[tuple[str, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m, n, k = 33, 7, 35  # squares of numbers have 32 rows: whole ones and parts of them
    c = whole(m, n, dtype=dtype, seed=2)
    for number, ((of_a, of_b, of_d), in_tiles) in enumerate(lying):
        square = SMALL if in_tiles else None
        monkeypatch.setattr(complex_product, "tile_for", lambda *_, square=square: square)
        a = np.array(whole(*((k, m) if trans_a else (m, k)), dtype=dtype), order=of_a)
        b = np.array(whole(*((n, k) if trans_b else (k, n)), dtype=dtype, seed=1), order=of_b)
        alpha, beta = SCALARS[number % len(SCALARS)]
        right = alpha * (OPS[trans_a](a) @ OPS[trans_b](b)) + beta * c
        out = np.full((m, n), np.nan, dtype, order=of_d)
        how: Any = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b, "device": device}
        with sanitized(number):
            result = lapidist.gemm(a, b, c if beta else None, out=out, **how)
        assert result is out
        same(result, right, dtype)


@pytest.mark.parametrize("device", PLACES)
def test_real_with_complex_as_numpy_has_it(device: str) -> None:
    a, b = whole(5, 9), whole(9, 33)
    for x, y in (
        (a.real, b),
        (a, b.imag),
        (a.real.copy(), b.conj()),
        (a.real, b[:, ::2]),
        (a.imag, b.T.copy().T),
    ):
        same(lapidist.matmul(x, y, device=device), x @ y)
        same(lapidist.gemm(x, y.T, trans_b="C", device=device), x @ y.conj())
    wide = b.astype(np.complex128)
    same(lapidist.matmul(a, wide, device=device), a @ wide, np.complex128)
    same(lapidist.matmul(a.real, wide, device=device), a @ wide - 1j * (a.imag @ wide), np.complex128)
    same(lapidist.matmul(a, np.ones((9, 2), np.int16), device=device), a @ np.ones((9, 2), np.int16))


@pytest.mark.parametrize("device", PLACES)
def test_a_real_operand_that_is_transposed_or_a_vector(device: str) -> None:
    a, b = whole(5, 5).real.copy(), whole(5, 5, seed=1)
    same(lapidist.gemm(a, b, trans_a=True, device=device), a.T @ b)
    same(lapidist.gemm(b, a, trans_a="C", trans_b="C", device=device), b.conj().T @ a.T)
    same(lapidist.matmul(a[0], b, device=device), a[0] @ b)
    out = np.empty((2, 5, 5), np.complex64).mT
    same(
        lapidist.matmul(b, np.broadcast_to(a[:, ::-1], (2, 5, 5)), out=out, device=device),
        [b @ a[:, ::-1]] * 2,
    )


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.usefixtures("way")
def test_batches_and_vectors(device: str) -> None:
    a, b = whole(2, 3, 5, 9), whole(3, 9, 4)
    cases: list[tuple[Numbers, Numbers]] = [
        (a, b),
        (a, b[0]),
        (a[0, 0], b),
        (a[:, ::2], whole(2, 1, 9, 4)),
        (np.broadcast_to(a[0, 0], (3, 5, 9)), b),
        (np.broadcast_to(a[0, 0], (2, 3, 5, 9)), np.broadcast_to(b[0], (3, 9, 4))),
        (a[0, 0, 0], b),
        (a, b[0, :, 0]),
        (a.transpose(1, 0, 2, 3), whole(2, 9, 4)),
        (a[..., :0], b[:, :0]),
        (a[:, :, :0], b),
    ]
    for x, y in cases:
        with sanitized(1):
            same(lapidist.matmul(x, y, device=device), x @ y)


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.usefixtures("way")
def test_what_is_zero_is_not_read(device: str) -> None:
    a, b, c = whole(5, 9), whole(9, 7), whole(5, 7, seed=2)
    nothing = np.full_like(a, np.nan)
    same(lapidist.gemm(nothing, b, c, alpha=0.0, beta=1j, device=device), 1j * c)
    same(lapidist.gemm(nothing, b, alpha=0j, device=device), 0 * c)
    same(lapidist.gemm(a, b, np.full_like(c, np.nan), beta=0j, device=device), a @ b)
    out = c.copy()
    same(lapidist.gemm(a, b, out, beta=1j, out=out, device=device), a @ b + 1j * c)


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.usefixtures("way")
def test_c_of_any_layout(device: str) -> None:
    a, b, c = whole(6, 9), whole(9, 7), whole(7, 6, seed=2)
    for addend in (c.T, c.T.conj(), c[:1, 0], c[0, :, None], c.T[:, :1]):
        for beta in (2.0, 1 - 1j):
            same(lapidist.gemm(a, b, addend, beta=beta, device=device), a @ b + beta * addend)


def test_infinite_parts_stay_where_they_are() -> None:
    """A factor of one multiplies nothing: inf times its imaginary part would be NaN."""
    a = np.array([[1.0]], np.complex64)
    b = np.array([[complex(np.inf, 1.0)]], np.complex64)
    assert lapidist.matmul(a.real, b, device="machine")[0, 0] == b[0, 0]


@pytest.mark.parametrize("precision", ["tf32", "emulated"])
def test_other_precisions(precision: Any) -> None:
    a, b = whole(20, 300), whole(300, 9)
    for device in PLACES:
        same(lapidist.gemm(a, b.conj(), precision=precision, device=device), a @ b.conj())


@pytest.mark.parametrize("device", PLACES)
def test_lists(device: str) -> None:
    a, b = [whole(5, 9), whole(3, 4)], [whole(9, 7), whole(4, 2)]
    results = lapidist.gemm_lists(a, b, alpha=1j, device=device)
    for result, x, y in zip(results, a, b, strict=True):
        same(result, 1j * (x @ y))


@pytest.mark.parametrize("device", PLACES)
def test_a_plan(device: str) -> None:
    a, b, c = whole(5, 9), whole(9, 7), whole(5, 7, seed=2)
    plan = lapidist.plan(a, b, c, alpha=1j, beta=2.0, device=device)
    assert "complex64" in str(plan)
    assert "complex64" in repr(plan)
    for seed in (3, 4):
        other = whole(5, 9, seed=seed)
        same(plan.execute(other, b, c), 1j * (other @ b) + 2 * c)
    with pytest.raises(lapidist.ArgumentError, match="geometry that was planned"):
        plan.execute(a, np.array(b, order="F"), c)


def test_the_plan_says_which_launches_come_before() -> None:
    a, b = whole(80, 9), whole(9, 16)
    for x, y, of in ((a, b, ["b"]), (np.array(a, order="F"), b, ["a", "b"]), (a.real.copy(), b, [])):
        words = str(lapidist.plan(x, y, device="machine"))
        before = re.findall(r"before it: widen of (\w)", words)
        assert before == of
    assert "by complex_tile of a, 1 blocks" in str(lapidist.plan(a[:20], whole(9, 20), device="machine"))


@pytest.mark.parametrize("b", [whole(9, 17), whole(17, 9).T], ids=["rows", "columns"])
def test_no_kernel_packs_again_what_a_launch_has_widened(b: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complex_product, "tile_for", lambda *_: None)
    plan = lapidist.plan(whole(80, 9), b, device="machine")
    assert plan.plan is not None
    assert plan.plan.problem.b.alignment == 16


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(("n", "dtype"), in_turns([65, 32, 1], TYPES))
def test_gram_equals_its_conjugated_transpose(device: str, dtype: Any, n: int) -> None:
    a = (np.random.default_rng(n).standard_normal((n, 80)).view(complex)).astype(dtype)
    with sanitized(n):
        result = lapidist.gram(a, device=device)
    assert np.array_equal(result, result.conj().T)
    np.testing.assert_allclose(result, a @ a.conj().T, atol=1e-4)
    same(lapidist.gram(a.T, trans=True, device=device), result.conj(), dtype)
    for triangle, of in (("lower", np.tril), ("upper", np.triu)):
        out = np.full((n, n), 7, dtype)
        half = lapidist.gram(a, triangle=triangle, out=out, device=device)  # type: ignore[arg-type]
        np.testing.assert_allclose(of(half), of(result), atol=1e-4)
        assert (half[of(np.ones((n, n))) == 0] == 7).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("triangle", [None, "lower", "upper"])
def test_gram_into_memory_with_steps(device: str, triangle: Any) -> None:
    a, c, room = whole(9, 5), whole(9, 9, seed=1), whole(18, 18, seed=2)
    c, before, right = c + c.conj().T, room.copy(), np.array(a @ a.conj().T)
    here = {None: np.ones((9, 9)), "lower": np.tri(9), "upper": np.tri(9).T}[triangle] == 1
    out = room[1::2, ::2].T
    for beta in (0, -3):
        assert lapidist.gram(a, c, beta=beta, out=out, triangle=triangle, device=device) is out
        same(out[here], (right + beta * c)[here])
    before[1::2, ::2].T[here] = out[here]
    assert room.tobytes() == before.tobytes()


def test_refusals_of_gram() -> None:
    a = whole(4, 5)
    with pytest.raises(lapidist.ArgumentError, match="alpha: must be real, as the result of gram"):
        lapidist.gram(a, alpha=1j)
    with pytest.raises(lapidist.ArgumentError, match="symmetric: is for real numbers; got complex64"):
        lapidist.matmul(a, a.conj().T, symmetric=True)


@lapidist.epilogue
def shifted(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return acc * scale + base - 1


@pytest.mark.parametrize("device", PLACES)
def test_functions_of_gram_keep_conjugates(device: str) -> None:
    """Real numbers, and matrices that equal their conjugated transpose."""
    a, base = whole(2, 6, 4), whole(6, 6, seed=1)
    base += base.conj().T
    right = (a @ a.mT.conj()) * 2 + base - 1
    how: Any = {"symmetric": ("base",), "device": device}
    result = lapidist.gram(a, epilogue=shifted(scale=2.0, base=base), **how)
    same(result, right)
    half = lapidist.gram(a[0], epilogue=shifted(scale=2.0, base=base), triangle="upper", **how)
    same(half, np.triu(right[0]))
    out = np.full((6, 6), 7, np.complex64)
    for scale in (2j, np.array([2.0], np.complex64)):
        with pytest.raises(lapidist.ArgumentError, match="scale: must be real, as the result of gram equals"):
            lapidist.gram(a[0], out=out, epilogue=shifted(scale=scale, base=base), **how)
    assert (out == 7).all()


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "op": (
        {"trans_a": "H"},
        lapidist.ArgumentError,
        'trans_a: must be True, False or "C"; got \'H\'.*"C" conjugates',
    ),
    "op of an array": (
        {"trans_a": np.array([True, False])},
        lapidist.ArgumentError,
        r"trans_a: must be True, False or \"C\"; got ndarray of shape \(2,\)",
    ),
    "real out": ({"out": np.empty((5, 7), "f4")}, lapidist.DTypeError, "out: element type must be complex64"),
    "real out_dtype": ({"out_dtype": "float32"}, lapidist.DTypeError, "out_dtype: must be complex64"),
    "accumulator": ({"acc_dtype": "float32"}, lapidist.DTypeError, "acc_dtype: must be complex64"),
    "factors": ({"scale_a": 2.0}, lapidist.DTypeError, "scale_a: is for 8-bit floats; a is complex64"),
    "large alpha": ({"alpha": 1e300j}, lapidist.ArgumentError, "alpha: must fit float32"),
    "epilogue": (
        {"epilogue": lapidist.epilogues.relu},
        lapidist.ArgumentError,
        "of complex numbers must add",
    ),
    "real c": (
        {"c": np.ones((5, 7), "f4"), "beta": 1.0},
        lapidist.DTypeError,
        "c: element type must be that of",
    ),
}


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, device: str) -> None:
    how, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        lapidist.gemm(whole(5, 9), whole(9, 7), device=device, **how)


def test_refusals_of_kernels() -> None:
    a, b = whole(5, 9), whole(9, 7)
    with pytest.raises(lapidist.DTypeError, match="a: element type must be real here; got complex64"):
        lapidist.grouped(a, whole(2, 9, 7), np.array([2, 5]), device="machine")
    with pytest.raises(lapidist.ArgumentError, match="alpha: must be a real number; got complex"):
        lapidist.gemm(a.real, b.real, alpha=1j)
    wide = a.astype(np.complex128), b.astype(np.complex128)
    with pytest.raises(lapidist.DTypeError, match='precision: "emulated" is a way to multiply float32'):
        lapidist.gemm(*wide, precision="emulated", device="machine")


SQUARES = [Square(32, 4, 4, 16), Square(32, 4, 2, 16, 4), Square(64, 4, 4, 16), Square(64, 4, 4, 16, 8)]


@pytest.mark.often(1)
@pytest.mark.parametrize(("square", "dtype", "k"), in_turns(SQUARES, TYPES, [150, 35]))
def test_every_square(square: Square, dtype: Any, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole ones and parts, and k that leaves some blocks without a step."""
    if square.side == 64 and square.parts > 1 and dtype == np.complex128:
        square = square._replace(side=32, columns=2)  # sums of 64 x 64 fill more than shared memory
    monkeypatch.setattr(complex_product, "tile_for", lambda *_: square)
    a, b, c = whole(34, k, dtype=dtype), whole(k, 37, dtype=dtype), whole(34, 37, dtype=dtype)
    with sanitized(3):
        same(lapidist.gemm(a, b, c, alpha=1j, beta=2.0, device="machine"), 1j * (a @ b) + 2 * c, dtype)


def test_squares_are_for_few_numbers() -> None:
    """Parts of k fill the chip, where it has clusters. Thin and large products are of real numbers."""
    h200, a100 = (chip(name) for name in ("h200", "a100"))
    chosen = tile_for("float32", 168, 133, 455, 1, h200)
    assert chosen is not None
    assert chosen.parts == 8
    assert tile_for("float32", 168, 133, 455, 1, a100) == chosen._replace(parts=1)
    assert tile_for("float32", 168, 133, 455, 8, h200) is None
    assert tile_for("float64", 168, 133, 455, 1, a100) is None
    assert tile_for("float32", 16, 133, 455, 1, h200) is None
