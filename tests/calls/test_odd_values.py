"""Values that no argument may have: each is refused in words that name the argument, on the host and in the
machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError, DTypeError, LapidistError, ShapeError
from offenders import each_holds

ODD: dict[str, Any] = {
    "list": [],
    "dict": {},
    "set": set(),
    "object": object(),
    "nan": float("nan"),
    "minus": -1,
    "fraction": 1.5,
    "huge": 10**30,
    "empty": "",
    "word": "x",
    "digit": "²",  # isdigit() says yes, int() says no
    "bytes": b"x",
    "array": np.array([1, 2]),
    "true": True,
}
ARGUMENTS = (
    "mode",
    "kernel",
    "config",
    "schedule",
    "split_k",
    "reduction",
    "deterministic",
    "avail_sms",
    "device",
    "precision",
)
ARGUMENTS += ("out_dtype", "acc_dtype", "promote", "workspace", "stream")
OF_MATMUL = ("device", "precision", "out_dtype", "acc_dtype", "promote", "stream")
# the array may be all that a plan needs
SENSIBLE = {("deterministic", "true"), ("avail_sms", "huge"), ("workspace", "array")}
PLACES = (None, "machine")
SIZE = 4


@pytest.fixture
def out() -> np.ndarray[Any, Any]:
    return np.full((SIZE, SIZE), 7, np.float32)


A = np.ones((SIZE, SIZE), np.float32)


def require_refusal(name: str, call: Any, out: np.ndarray[Any, Any], **arguments: Any) -> None:
    with pytest.raises(LapidistError) as caught:
        call(A, A, out=out, **arguments)
    message = str(caught.value)
    # A split that no tile allows is what every kernel refuses for its own reason.
    assert message.startswith((name, "no kernel takes") if name == "split_k" else name), message
    assert np.all(out == 7)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_odd_value_is_named(name: str, device: str | None, out: np.ndarray[Any, Any]) -> None:
    def is_refused(odd: str) -> None:
        arguments = {"device": device, name: ODD[odd]}
        require_refusal(name, lapidist.gemm, out, **arguments)
        if name in OF_MATMUL:
            require_refusal(name, lapidist.matmul, out, **arguments)
        if name != "stream":
            require_refusal(name, lapidist.plan, out, **arguments)

    each_holds(is_refused, [(odd,) for odd in ODD if (name, odd) not in SENSIBLE])


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_stream_of_a_plan(odd: str, device: str | None, out: np.ndarray[Any, Any]) -> None:
    execute = lapidist.plan(A, A, out=out, device=device).execute
    require_refusal("stream", execute, out, stream=ODD[odd])


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("name", ["stream", "workspace"])
def test_lists_of_arrays_refuse_them_too(name: str, device: str | None, out: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"^{name}: must be "):
        lapidist.gemm([A], [A], out=[out], device=device, **{name: "x"})
    assert np.all(out == 7)


@pytest.mark.parametrize("device", PLACES)
def test_an_odd_stream_of_a_plan_of_lists(device: str | None, out: np.ndarray[Any, Any]) -> None:
    planned = lapidist.plan([A], [A], out=[out], device=device)
    with pytest.raises(ArgumentError, match=r"^stream: must be a raw handle"):
        planned.execute([A], [A], out=[out], stream="x")
    assert np.all(out == 7)


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("name", ["trans_a", "trans_b", "check_indices"])
def test_numpys_bools_are_flags(name: str, device: str | None) -> None:
    a, b = np.arange(16, dtype=np.float32).reshape(4, 4), np.eye(4, k=1, dtype=np.float32)
    for flag in (False, True):
        found, expected = (
            lapidist.gemm(a, b, gather_a=np.array([2, 0, 1, 3]), device=device, **{name: value})
            for value in (np.bool_(flag), flag)
        )
        np.testing.assert_array_equal(found, expected)


def test_true_is_not_the_one_that_was_prepared_before(out: np.ndarray[Any, Any]) -> None:
    """True equals 1 and hashes alike, so it would find what was prepared for 1."""
    lapidist.gemm(A, A, kernel=1, device="machine")
    require_refusal("kernel", lapidist.gemm, out, kernel=True, device="machine")


@pytest.mark.parametrize("handle", [-1, 2**64, True, "seven", float("inf")])
def test_a_stream_that_carries_no_handle(handle: object, out: np.ndarray[Any, Any]) -> None:
    stream = type("Stream", (), {"cuda_stream": handle})() if handle is not True else True
    require_refusal("stream: must be a raw handle", lapidist.gemm, out, stream=stream)


def test_a_workspace_of_references(out: np.ndarray[Any, Any]) -> None:
    """What a kernel writes there would be taken for objects."""
    require_refusal(
        "workspace: must be an array", lapidist.gemm, out, workspace=np.zeros(512, object), device="machine"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"shape": (-4, 4)},
        {"shape": (4, -1)},
        {"shape": (True, 4)},
        {"shape": [4, 4]},
        {"shape": (4, 4), "strides": ()},
        {"shape": (4, 4), "strides": (1.5, 1)},
        {"shape": (4, 4), "strides": np.array([4, 1])},
    ],
)
def test_pointers_of_no_matrix(more: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"^(shape|strides): must be "):
        lapidist.Pointers(np.zeros(1, np.int64), dtype="float32", **more)


@pytest.mark.parametrize("alignment", ODD.values(), ids=ODD)
def test_pointers_of_no_alignment(alignment: object) -> None:
    with pytest.raises(ArgumentError, match=r"^alignment: must be a power of two"):
        lapidist.Pointers(np.zeros(1, np.int64), (4, 4), "float32", alignment=alignment)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", [None, "host"])
@pytest.mark.parametrize("wrong", ["word", None, {}], ids=["str", "NoneType", "dict"])
def test_objects_that_do_not_multiply(wrong: object, device: str | None) -> None:
    objects, numbers = np.full((SIZE, SIZE), 2, object), np.full((SIZE, SIZE), 3, object)
    objects[1, 2] = wrong
    calls: dict[str, Any] = {
        "a": lambda out: lapidist.matmul(objects, numbers, out, device=device),
        "b": lambda out: lapidist.gemm(numbers, objects, out=out, device=device),
        "c": lambda out: lapidist.gemm(numbers, numbers, objects, beta=1.5, out=out, device=device),
    }
    for name, call in calls.items():
        out = np.full((SIZE, SIZE), 7, object)
        words = f"^{name}: objects must multiply and add up .*; got {type(wrong).__name__} \\("
        with pytest.raises(DTypeError, match=words):
            call(out)
        assert (out == 7).all()
    assert (lapidist.matmul(numbers, numbers, device=device) == 36).all()


class Silent(np.ndarray[Any, Any]):
    """An array whose numbers lie where reading them launches something."""

    def __repr__(self) -> str:
        raise AssertionError("read")


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name not in ("workspace", "alpha", "beta")])
def test_errors_quote_some_words_of_a_value_and_no_numbers_of_an_array(name: str) -> None:
    a = np.ones((2, 2), np.float32)
    for value in (list(range(9999)), "x" * 9999, np.ones((40, 40)).view(Silent)):
        with pytest.raises(LapidistError) as refusal:
            lapidist.gemm(a, a, **{name: value})
        assert len(str(refusal.value)) < 500
