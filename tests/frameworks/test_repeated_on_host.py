"""Products of the same geometry on the CPU, again: few Python calls, and the same bits as the first time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls.repeat import MATRIX_PATHS
from lapidist.dtypes import numpy_dtype

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def forgotten() -> None:
    MATRIX_PATHS.clear()


def python_calls(call: Callable[[], Any]) -> int:
    """Of the third time."""
    call(), call()
    count = 0

    def seen(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def drawn(torch: Any, *shape: int, dtype: str = "float32") -> Any:
    whole, dtype = torch.randint(-3, 4, shape), "float8_e5m2" if dtype == "e5m2" else dtype
    return (whole.abs() if dtype == "uint8" else whole).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_calls_of_numpy(dtype: str) -> None:
    a = np.ones((64, 64), numpy_dtype(dtype))
    assert python_calls(lambda: lapidist.matmul(a, a)) <= 8
    assert python_calls(lambda: lapidist.gemm(a, a, trans_b=True)) <= 10


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "float8_e4m3fn"])
def test_calls_of_torch(torch: Any, dtype: str) -> None:
    a = drawn(torch, 64, 64, dtype=dtype)
    out = [lapidist.matmul(a, a) for _ in range(2)][-1]  # the second finds out how such tensors are compared
    assert python_calls(lambda: lapidist.matmul(a, a)) <= 32
    assert python_calls(lambda: lapidist.matmul(a, a, out)) <= 32
    assert python_calls(lambda: lapidist.gemm(a, a, out, alpha=2, beta=1, out=out)) <= 48


def test_calls_of_operators(torch: Any) -> None:
    lt, a = importlib.import_module("lapidist.torch"), drawn(torch, 64, 64)
    assert python_calls(lambda: lt.matmul(a, a)) <= 48
    assert python_calls(lambda: lt.linear(a, a, a[0])) <= 72


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda each: each,
    "columns": lambda each: each.mT.contiguous().mT,
    "steps": lambda each: each.repeat_interleave(2, -1)[..., ::2],
}


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "float8_e5m2"]
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_same_bits(torch: Any, dtype: str, layout: str, batch: tuple[int, ...]) -> None:
    for _ in range(3):
        a, b = drawn(torch, *batch, 5, 7, dtype=dtype), drawn(torch, 7, 4, dtype=dtype)
        lie = LAYOUTS[layout]
        exact = a.double() @ b.double()
        found = lapidist.matmul(lie(a), lie(b))
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=0)
        c = found.clone()
        again = lapidist.gemm(lie(a), lie(b).mT, c, alpha=2, beta=-1, trans_b=True, out=c)
        assert again is c
        torch.testing.assert_close(c.double(), exact, rtol=0, atol=0)
        row = lapidist.gemm(lie(a), lie(b), found[..., :1, :], beta=1)
        torch.testing.assert_close(row.double(), exact + exact[..., :1, :], rtol=0, atol=0)


@pytest.mark.parametrize("left", [(7,), (5, 7)])
@pytest.mark.parametrize("right", [(7,), (7, 4)])
def test_vectors(torch: Any, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    for _ in range(3):
        a, b = drawn(torch, *left), drawn(torch, *right)
        torch.testing.assert_close(lapidist.matmul(a, b), a @ b)


def test_other_strides_under_the_same_shapes(torch: Any) -> None:
    a, b = drawn(torch, 6, 6), drawn(torch, 6, 6)
    wide = drawn(torch, 6, 12)
    for left in (a, a.mT, wide[:, ::2], wide[:, :6], a.mT, a, a.flip(0)):
        torch.testing.assert_close(lapidist.matmul(left, b), left @ b)


def test_calls_that_differ_in_what_they_ask_alone(torch: Any) -> None:
    """Of the same tensors, in turns: what one call is answered by does not answer another."""
    a, b, c = (drawn(torch, 6, 6, dtype="float16") for _ in range(3))
    exact = a.double() @ b.double()
    asked: dict[str, tuple[dict[str, Any], Any]] = {
        "halves": ({}, exact.half()),
        "floats": ({"out_dtype": torch.float32}, exact.float()),
        "sums of halves": ({"acc_dtype": torch.float16}, exact.half()),
        "a transposed": ({"trans_a": True}, (a.double().T @ b.double()).half()),
        "b transposed": ({"trans_b": True}, (a.double() @ b.double().T).half()),
        "half of it": ({"alpha": 0.5}, (exact / 2).half()),
        "nothing of it": ({"alpha": 0.0}, torch.zeros(6, 6).half()),
        "with C": ({"c": c, "beta": 2.0}, (exact + 2 * c.double()).half()),
    }
    for _ in range(3):
        for words, (more, expected) in asked.items():
            found = lapidist.gemm(a, b, **more)
            assert found.dtype is expected.dtype, words
            torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=words)
        lapidist.matmul(a, b)
        assert lapidist.matmul(a, b, out_dtype=torch.float32).dtype is torch.float32


def test_an_output_that_is_read_too(torch: Any) -> None:
    a, b = drawn(torch, 6, 6), drawn(torch, 6, 6)
    for out in (torch.empty(6, 6), torch.empty(6, 6), a):
        expected = a @ b
        torch.testing.assert_close(lapidist.matmul(a, b, out), expected)


def test_what_is_refused_the_first_time_is_refused_again(torch: Any) -> None:
    a, c = drawn(torch, 6, 6), drawn(torch, 6, 6)
    for _ in range(3):
        lapidist.matmul(a, a)
        lapidist.gemm(a, a, c, beta=1)
    refused: dict[str, Callable[[], Any]] = {
        "a: .*gradient": lambda: lapidist.matmul(drawn(torch, 6, 6).requires_grad_(), a),
        "b: element type": lambda: lapidist.matmul(a, a.double()),
        "c: element type": lambda: lapidist.gemm(a, a, c.double(), beta=1),
        "c: must broadcast": lambda: lapidist.gemm(a, a, c[:5], beta=1),
        "stream: ": lambda: lapidist.matmul(a, a, stream="no"),
        "alpha: ": lambda: lapidist.gemm(a, a, alpha=1e300),
    }
    for words, call in refused.items():
        with pytest.raises(lapidist.LapidistError, match=words):
            call()


def test_writes_are_counted(torch: Any) -> None:
    a, out = drawn(torch, 6, 6), torch.empty(6, 6)
    for _ in range(3):
        before = out._version
        lapidist.matmul(a, a, out)
        assert out._version > before


def test_memory_may_be_resized_afterwards(torch: Any) -> None:
    """As FSDP does: nothing of ours holds on to it."""
    a = drawn(torch, 6, 6)
    for _ in range(3):
        lapidist.matmul(a, a)
    a.untyped_storage().resize_(0)


def test_halves_overflow_as_the_long_way_has_it() -> None:
    values = np.array([[60000.0, -50.0], [30.0, 1e-7]], np.float16)
    for dtype in ("float16", "bfloat16"):
        a = values.astype(numpy_dtype(dtype))
        expected = lapidist.matmul(a, a, device="host", out_dtype=dtype)
        np.testing.assert_array_equal(lapidist.matmul(a, a), expected)
    assert isinstance(lapidist.matmul(values[0], values[1]), np.float16)


def test_halves_are_scaled_before_they_are_rounded() -> None:
    a = np.full((1, 1), 300, np.float16)
    assert lapidist.gemm(a, a, alpha=0.5) == 45000


def test_an_output_that_is_given_as_c_too_is_no_reason_to_check_again(torch: Any) -> None:
    """As BLAS is called, with beta = 0."""
    a, out = drawn(torch, 64, 64), torch.empty(64, 64)
    assert python_calls(lambda: lapidist.gemm(a, a, out, alpha=2, out=out)) <= 32
    torch.testing.assert_close(out, 2 * a @ a)


@pytest.mark.parametrize("other", ["bfloat16", "float64"])
def test_memory_of_another_type_between_calls(torch: Any, other: str) -> None:
    """What is wrong then, and what to do, is a matter of types alone."""
    a, b, dtype = torch.randn(4, 6), torch.randn(6, 5), getattr(torch, other)
    for _ in range(3):
        lapidist.matmul(a, b)
    b.data = b.data.to(dtype)
    converted = "a to float64" if other == "float64" else "b to float32"
    words = f"^b: element type must be that of a, float32; got {other}\\. Convert {converted}, which keeps"
    with pytest.raises(lapidist.DTypeError, match=words):
        lapidist.matmul(a, b)
    a.data = a.data.to(dtype)
    assert torch.equal(lapidist.matmul(a, b), lapidist.matmul(a.clone(), b.clone()))
    assert lapidist.matmul(a, b).dtype is dtype
