"""Operands: arrays of any framework as pointer, shape, strides, type and place, without a copy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lapidist
from lapidist.backends.gpu import driver, launched_products
from lapidist.calls import repeat
from lapidist.device import chip
from lapidist.errors import DTypeError, LapidistError
from lapidist.frameworks.arrays import (
    HOST,
    Operand,
    contiguous_strides,
    evenly,
    framework_of,
    operand_of,
    readable,
)
from lapidist.frameworks.host_arrays import on_host
from lapidist.frameworks.new_arrays import empty


def of(array: Any) -> Operand:
    return operand_of(array, "a")


def test_a_numpy_array_is_seen_as_it_lies() -> None:
    base = np.zeros((6, 8), np.float32)
    seen = of(base[1::2, ::-1])
    assert seen.pointer == base.ctypes.data + (8 + 7) * 4
    assert (seen.shape, seen.strides) == ((3, 8), (16, -1))
    assert (seen.dtype, seen.device, seen.framework, seen.name) == ("float32", HOST, "numpy", "a")
    assert seen.place == "host memory"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_strides_count_elements(dtype: str) -> None:
    assert of(np.zeros((3, 5), dtype)).strides == (5, 1)


def test_the_span_covers_every_element_and_no_more() -> None:
    base = np.zeros((4, 10), np.float64)
    seen = of(base[1:3, 2:5])
    start = base.ctypes.data
    assert seen.span == (start + 12 * 8, start + (24 + 1) * 8)


def test_the_span_of_reversed_rows_starts_at_their_last() -> None:
    base = np.zeros((4, 10), np.float32)
    seen = of(base[::-1])
    assert seen.span == (base.ctypes.data, base.ctypes.data + 160)
    assert seen.pointer == base.ctypes.data + 120


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_an_empty_array_spans_nothing_and_overlaps_nothing(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)
    seen = of(array)
    assert seen.span[0] == seen.span[1]
    assert not seen.overlaps(seen)


@given(st.data())
def test_overlap_means_that_the_byte_ranges_meet(data: st.DataObject) -> None:
    base = np.zeros(40, np.float32)
    low, high = sorted(data.draw(st.tuples(st.integers(0, 39), st.integers(0, 39))))
    other_low, other_high = sorted(data.draw(st.tuples(st.integers(0, 39), st.integers(0, 39))))
    first, second = of(base[low : high + 1]), of(base[other_low : other_high + 1])
    assert first.overlaps(second) == bool({*range(low, high + 1)} & {*range(other_low, other_high + 1)})
    assert first.overlaps(second) == second.overlaps(first)


def test_arrays_in_different_places_never_overlap() -> None:
    here = of(np.zeros(4, np.float32))
    there = Operand("b", here.pointer, (4,), (1,), "float32", 0, "torch", None)
    assert not here.overlaps(there)
    assert there.place == "GPU 0"


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple))
def test_transposed_swaps_the_last_two_dimensions(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(on_host(of(array).transposed()), array.swapaxes(-1, -2))


def test_on_host_is_the_callers_own_memory() -> None:
    array = np.zeros((4, 6), np.float32)
    view = on_host(of(array[::2, ::-1]))
    view[1, 0] = 7
    assert array[2, 5] == 7


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 3), (4, 1, 3)])
def test_contiguous_strides(shape: tuple[int, ...]) -> None:
    assert (
        contiguous_strides(shape) == tuple(s // 4 for s in np.empty(shape, np.float32).strides) or 0 in shape
    )


@pytest.mark.parametrize(
    ("shape", "strides", "step"),
    [
        ((4,), (3,), 3),
        ((3, 4), (4, 1), 1),
        ((3, 4), (8, 2), 2),
        ((3, 4), (-4, -1), -1),
        ((3, 4), (8, 1), None),
        ((3, 4), (1, 3), None),
        ((2, 3, 4), (12, 4, 1), 1),
        ((2, 3, 4), (24, 4, 1), None),
        ((3, 1, 4), (4, 77, 1), 1),
        ((1, 4, 1), (99, 5, 77), 5),
        ((1, 1), (99, 77), 0),
        ((), (), 0),
    ],
)
def test_elements_that_are_equally_far_apart(
    shape: tuple[int, ...], strides: tuple[int, ...], step: int | None
) -> None:
    """Strides of single dimensions are never stepped by."""
    assert evenly(shape, strides) == step


def test_a_new_array_is_like_the_old_one() -> None:
    new = empty((2, 3), of(np.zeros((5, 5), np.float16)), "float16")
    assert isinstance(new, np.ndarray)
    assert (new.shape, new.dtype) == ((2, 3), np.float16)
    assert new.flags.c_contiguous


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        *((number, r"A factor is alpha= of gemm") for number in (1, 2.0, 1j)),
        *((numbers, r"numpy\.asarray") for numbers in ([1.0, 2.0], (1.0,), np.float32(3))),
        (None, "leave the argument out"),
    ],
    ids=repr,
)
def test_what_is_no_array_is_refused(value: object, way_out: str) -> None:
    with pytest.raises(DTypeError, match=f"a: must be an array; got .*{way_out}"):
        of(value)


def test_what_speaks_no_protocol_is_refused() -> None:
    class Stranger:
        shape = (2, 2)

    with pytest.raises(DTypeError, match=r"a: must be a NumPy, torch, CuPy or JAX array .*got Stranger"):
        of(Stranger())


def test_bytes_in_another_order_are_refused() -> None:
    """Kernels read the bytes as they lie."""
    with pytest.raises(DTypeError, match=r"a: .*byte order.*astype"):
        of(np.zeros((2, 2), np.dtype(np.float32).newbyteorder()))


def test_strides_of_broken_elements_are_refused() -> None:
    records = np.zeros(4, np.dtype([("x", "f4"), ("y", "i2")]))
    with pytest.raises(
        DTypeError, match=r"a: strides must be whole elements of 4 bytes; got \(6,\) bytes.*ascontiguousarray"
    ):
        of(records["x"])


@pytest.mark.parametrize(
    ("module", "framework"),
    [
        ("torch", "torch"),
        ("cupy", "cupy"),
        ("cupy._core.core", "cupy"),
        ("jaxlib._jax", "jax"),
        ("dask.array", "other"),
    ],
)
def test_frameworks_are_told_by_their_type(module: str, framework: str) -> None:
    assert framework_of(type("Array", (), {"__module__": module})()) == framework


class Speaker:
    """It speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("device", [None, "machine"])
def test_what_speaks_dlpack_is_multiplied(device: str | None) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(lapidist.matmul(Speaker(a), Speaker(a.T.copy()), device=device), a @ a.T)


class OnGpu(Speaker):
    """It says that its memory is a GPU's."""

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_what_speaks_dlpack_on_a_gpu_needs_out_and_runs_on_the_legacy_default_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launches: list[Any] = []
    kernel = SimpleNamespace(
        launch=SimpleNamespace(scratch=(0, 0)), start=lambda *inputs: launches.append(inputs)
    )
    monkeypatch.setattr(launched_products.GpuBackend, "loaded", lambda *_: kernel)
    monkeypatch.setattr(launched_products, "query_device", lambda _: chip("h200"))
    monkeypatch.setattr(driver, "require_gpu", lambda _: None)
    monkeypatch.setattr(repeat, "PREPARED", {})
    a, b, out = (np.ones((8, 8), np.float32) for _ in range(3))
    with pytest.raises(DTypeError, match=r"^out: cannot make a new OnGpu; pass out= with the array to write"):
        lapidist.matmul(OnGpu(a), OnGpu(b), compile="wait")
    assert not launches
    given_out = OnGpu(out)
    assert lapidist.matmul(OnGpu(a), OnGpu(b), given_out, compile="wait") is given_out
    ((pointers, _, stream),) = launches
    assert {a.ctypes.data, b.ctypes.data} == set(pointers[:2])
    assert (pointers[-1], stream) == (out.ctypes.data, 0)


def test_an_array_that_speaks_dlpack_on_the_host() -> None:
    array = np.zeros((3, 4), np.float32)
    seen = of(Speaker(array))
    assert (seen.pointer, seen.shape, seen.strides) == (array.ctypes.data, (3, 4), (4, 1))
    assert (seen.dtype, seen.device, seen.framework) == ("float32", HOST, "other")


class OldSpeaker(Speaker):
    """Of a DLPack without versions, through which NumPy only reads."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class Described:
    def __init__(self, **changed: Any) -> None:
        described = {"shape": (2, 2), "typestr": "<f4", "data": (4096, False), "version": 3, **changed}
        self.__cuda_array_interface__ = {key: value for key, value in described.items() if value is not ...}


class Breaking(Speaker):
    def __dlpack__(self, **options: Any) -> Any:
        raise KeyError("broken")


WRONG = {
    "no version": Described(version=...),
    "no shape": Described(shape=...),
    "a negative size": Described(shape=(-2, 2)),
    "a type of nothing": Described(typestr="x"),
    "steps between elements": Described(strides=(1, 2)),
    "a method that raises": Breaking(np.ones((2, 2), np.float32)),
    "a size alone": Speaker(np.ones((2, 2), np.dtype("S3"))),
}


class GivingOne(Speaker):
    """The same capsule again and again, which the first reader empties."""

    capsule: Any = None

    def __dlpack__(self, **options: Any) -> Any:
        self.capsule = self.capsule or super().__dlpack__(**options)
        return self.capsule


def test_a_capsule_that_was_read_before_is_named() -> None:
    one, other = GivingOne(np.ones((2, 2), np.float32)), np.ones((2, 2), np.float32)
    with pytest.raises(DTypeError, match=r"^a: must .*, with a new capsule each time; got GivingOne \("):
        lapidist.matmul(one, other)
    with pytest.raises(DTypeError, match=r"^b: must .* speak DLPack .*; got GivingOne \(\w+"):
        lapidist.gemm(other, one)


def raising(attribute: str) -> Any:
    """An object with an attribute that cannot be read."""

    def broken(_: Any) -> Any:
        raise RuntimeError("out of order")

    return type("Broken", (), {"__dlpack__": None, attribute: property(broken)})()


class Rows(np.ndarray):
    @property  # type: ignore[override]
    def shape(self) -> Any:
        raise RuntimeError("out of order")


ATTRIBUTES = ("shape", "dtype", "__array_interface__", "__cuda_array_interface__", "__array_ufunc__")


def test_attributes_that_raise_are_in_words_that_name_the_argument() -> None:
    plain, of_8_bits = np.ones((2, 2), np.float32), np.ones((2, 2), "float8_e4m3fn")
    calls: dict[str, Callable[[Any], Any]] = {
        "a": lambda x: lapidist.matmul(x, plain),
        "b": lambda x: lapidist.matmul(plain, x, device="machine"),
        "c": lambda x: lapidist.gemm(plain, plain, x, beta=1),
        "out": lambda x: lapidist.gemm(plain, plain, out=x),
        "alpha": lambda x: lapidist.gemm(plain, plain, alpha=x),
        "gather_a": lambda x: lapidist.gemm(plain, plain, gather_a=x),
        "scale_a": lambda x: lapidist.matmul(of_8_bits, of_8_bits, scale_a=x),
        "bias": lambda x: lapidist.matmul(plain, plain, epilogue=lapidist.epilogues.bias(bias=x)),
    }
    for name, call in calls.items():
        for wrong in (*map(raising, ATTRIBUTES), plain.view(Rows)):
            if name in "ab" and isinstance(wrong, Rows):
                continue  # NumPy multiplies a subclass of its own, and asks no attribute
            with pytest.raises(LapidistError, match=f"^{name}: must be a"):
                call(wrong)


def test_an_array_that_cannot_be_made_is_named() -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise KeyError("out of order")

    with pytest.raises(DTypeError, match=r"^b: must be .* read; got Broken, which raised KeyError \('out of"):
        lapidist.matmul(np.ones((2, 2)), Broken())


@pytest.mark.parametrize("name", ["a", "b", "out"])
@pytest.mark.parametrize("what", WRONG)
def test_what_describes_itself_wrongly_is_named(what: str, name: str) -> None:
    given: dict[str, Any] = dict.fromkeys(("a", "b"), np.ones((2, 2), np.float32))
    with pytest.raises(DTypeError, match=f"^{name}: must be .* got .* Make it an array of one of them"):
        lapidist.gemm(**{**given, name: WRONG[what]})


@pytest.mark.skipif(np.__version__.startswith("2.0."), reason="NumPy 2.0 only reads what speaks DLPack")
@pytest.mark.parametrize("device", [None, "machine"])
def test_an_output_over_an_operand_may_speak_dlpack(device: str | None) -> None:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    expected, out = a @ a, Speaker(a)
    assert lapidist.matmul(a, a, out, device=device) is out
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_a_masked_output_is_refused_in_any_byte_order(dtype: str) -> None:
    """What is not native is computed in another array and copied, which would pass over the mask."""
    a = np.ones((2, 2), np.float32)
    out = np.ma.masked_array(np.zeros((2, 2), dtype), mask=[[True, False], [False, False]])
    with pytest.raises(DTypeError, match=r"^out: must be a plain array; a masked one"):
        lapidist.matmul(a, a, out)
    assert not out.data.any()


@pytest.mark.parametrize("device", [None, "machine"])
def test_an_output_that_numpy_only_reads_is_refused(device: str | None) -> None:
    a, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    with pytest.raises(lapidist.ArgumentError, match="out: must be writable"):
        lapidist.gemm(a, a, out=OldSpeaker(out), device=device)
    assert not out.any()


def test_looking_at_an_array_imports_no_framework() -> None:
    program = (
        "import sys, numpy as np\n"
        "from lapidist.frameworks.arrays import operand_of\n"
        "operand_of(np.zeros((2, 2), np.float32), 'a')\n"
        "print(*{'torch', 'cupy', 'jax'} & set(sys.modules))"
    )
    looked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert looked.stdout.split() == []


@pytest.mark.parametrize("device", [None, "machine"])
@pytest.mark.parametrize("name", ["a", "b", "out"])
def test_types_of_no_size_are_refused(name: str, device: str | None) -> None:
    given = {
        "a": np.ones((3, 3), np.float32),
        "b": np.ones((3, 3), np.float32),
        "out": np.ones((3, 3), np.float32),
    }
    for dtype in ("V0", "S0", "U0"):
        with pytest.raises(DTypeError, match=f"{name}: "):
            lapidist.gemm(**{**given, name: np.empty((3, 3), dtype)}, device=device)


@pytest.mark.parametrize("array", [np.zeros(3), SimpleNamespace()], ids=["numpy", "of another library"])
def test_a_timeout_of_a_signals_handler_stays_one(array: Any) -> None:
    """A handler may raise while an array is read. Arrays of other libraries raise anything themselves."""

    def interrupted(array: Any, name: str) -> Any:
        raise TimeoutError("of signal.alarm")

    kind = TimeoutError if isinstance(array, np.ndarray) else DTypeError
    with pytest.raises(kind, match=r"of signal.alarm"):
        readable(interrupted)(array, "a")
