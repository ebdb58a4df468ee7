"""The errors as Python classes, and what newcomers tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist import errors
from lapidist.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    LapidistError,
    RefusalError,
    ShapeError,
    StrideError,
)
from lapidist.kernels.wgmma.family import tile

F32 = np.float32


def test_every_error_is_a_lapidist_error_and_one_that_python_knows() -> None:
    assert issubclass(ShapeError, ValueError)
    assert issubclass(StrideError, ValueError)
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(RefusalError, ValueError)
    assert issubclass(DTypeError, TypeError)
    assert issubclass(DeviceError, RuntimeError)
    assert issubclass(errors.CompileError, RuntimeError)
    assert issubclass(errors.LaunchError, RuntimeError)


def test_the_tree_is_drawn_in_full() -> None:
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, LapidistError):
            assert name in (errors.__doc__ or ""), name
            if value is not LapidistError:
                assert f"{name}({value.__bases__[1].__name__})" in (errors.__doc__ or "")


def test_a_long_log_is_cut_in_the_message_only() -> None:
    log = "\n".join(f"line {i}" for i in range(100))
    error = errors.CompileError("source 'x.cu': refused", log)
    assert error.log == log
    assert "line 29" in str(error)
    assert "line 30" not in str(error)
    assert "70 more lines in .log" in str(error)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_scalar_beyond_the_accumulator(name: str) -> None:
    a = np.ones((2, 2), np.float32)
    with pytest.raises(
        lapidist.ArgumentError, match=rf"{name}: must fit float32, at most 3\.403e\+38 in size; got 1e\+300"
    ):
        lapidist.gemm(a, a, a, **{name: 1e300})
    assert lapidist.gemm(a.astype(np.float64), a.astype(np.float64), alpha=1e300)[0, 0] == 2e300


# ---- found by trying ----


A, B = np.ones((6, 4), np.float32), np.ones((4, 5), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lapidist.gemm(A, B, trans_a="N"), r"trans_a: must be True, False or \"C\"; got 'N'"),  # type: ignore[arg-type]
        (lambda: lapidist.gemm(A, B, alpha=10**400), r"alpha: must fit a float64"),
        (lambda: lapidist.matmul(A, B, device=[1]), r"device: must be .*; got \[1\]"),  # type: ignore[arg-type]
        (lambda: lapidist.plan(A, B, config="128"), r"config: must be a lapidist.Config; got '128'"),  # type: ignore[arg-type]
        (lambda: lapidist.Config(0, 64), r"config: bm must be at least 1; got 0"),
        (lambda: lapidist.Config(64, 2**63), r"config: bn must be at most 2147483647; got 92233"),
        (lambda: lapidist.Config(64.0, 64), r"config: bm must be a whole number; got 64.0"),  # type: ignore[arg-type]
        (lambda: lapidist.Config(64, 64, ping_pong=1), r"config: ping_pong must be True or False; got 1"),  # type: ignore[arg-type]
        (lambda: tile("bf16", 128, 80, 4, (2,)), r"cluster: must be a pair, .*; got \(2,\)"),  # type: ignore[arg-type]
        (lambda: tile("bf16", 128, 80, "4"), r"config: stages must be a whole number; got '4'"),  # type: ignore[arg-type]
        (
            lambda: lapidist.plan(A, B, kernel="padded_tile"),
            r"kernel: host arrays are multiplied by NumPy; got padded_tile",
        ),
        (lambda: lapidist.plan(A, B, kernel="nothing"), r"kernel: must be a kernel's name"),
        (lambda: lapidist.matmul(np.float32(1), B), r"a: must be an array; got float32"),
        (lambda: lapidist.matmul(np.array(1, np.float32), B), r"a: must have at least 1 dimension"),
        (lambda: lapidist.matmul(A[0], B[:, 0][:3]), r"a is \(4,\) \(k = 4\), b is \(3,\)"),
        (lambda: lapidist.matmul(np.ma.masked_array(A, A > 0), B), r"a: must be a plain array; a masked one"),
        (lambda: lapidist.plan(A, B).execute(A[:3], B), r"must have the geometry that was planned"),
    ],
)
def test_what_a_newcomer_tried(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(LapidistError, match=message):
        call()


def test_arrays_that_start_between_elements_are_refused_before_a_kernel_sees_them() -> None:
    shifted = (
        np.frombuffer(b"x" + np.ones(24, np.float32).tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 4)
    )
    with pytest.raises(
        StrideError, match=r"a: must start on a multiple of its element's 4 bytes; it starts 1 beyond one"
    ):
        lapidist.matmul(shifted, B, device="machine")
    assert np.array_equal(lapidist.matmul(shifted, B), shifted @ B)


@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize("alpha", [np.inf, np.nan])
def test_nothing_is_multiplied_when_k_is_zero(alpha: float, device: str | None) -> None:
    empty = np.ones((3, 0), np.float32), np.ones((0, 2), np.float32)
    assert np.array_equal(lapidist.gemm(*empty, alpha=alpha, device=device), np.zeros((3, 2)))


def test_a_kernel_may_be_its_name_its_number_or_itself() -> None:
    for kernel in ("padded_tile", 5, "5", lapidist.kernel_named(5)):
        assert np.array_equal(lapidist.gemm(A, B, kernel=kernel, device="machine"), A @ B)
