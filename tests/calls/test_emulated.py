"""precision="emulated" and "emulated_any_range" in the machine: how near results are, where slices and pieces
do not reach, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist.backends.machine_backend import MachineBackend
from lapidist.calls import emulated_launches
from lapidist.config import Config
from lapidist.device import chip
from lapidist.errors import ArgumentError, DeviceError, DTypeError, LapidistError, ShapeError
from lapidist.planning.emulated_passes import MOST_SPAN, PARTS_OF, PIECES

BOUND = 2.0**-21  # of |A||B|, for random numbers
BOTH = pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])


STEP, WORD = 2.0**-23 + 2.0**-25, 2.0**-24


def proven_of_pieces(k: int) -> float:
    """Of |A||B|: sums of 64 leave the tensor core, which takes 16 products at once. Those behind are a 256th
    and a 65536th.
    """
    return (4 + k / 8 * 2**-8 + 3 * k / 16 * 3 * 2**-18) * STEP + (k / 64 + 5) * WORD


def proven(k: int) -> float:
    """Halves have more: 4 of what two of them leave, 4 of products that are left out, 4 of small numbers."""
    halves = (4 + k / 8 * 2**-9.5) * STEP + (k / 64 + 5 + 12) * WORD
    return max(halves, proven_of_pieces(k))


def product_bound(precision: str, k: int) -> float:
    return BOUND if precision == "emulated" else proven(k)


def parts(a: Any, b: Any) -> tuple[Any, Any]:
    """The product, and that of magnitudes, in float64."""
    return a.astype("f8") @ b.astype("f8"), np.abs(a).astype("f8") @ np.abs(b).astype("f8")


def emulated(a: Any, b: Any, c: Any = None, precision: str = "emulated", **more: Any) -> Any:
    return lapidist.gemm(a, b, c, precision=precision, device="machine", **more)  # type: ignore[arg-type]


def any_range(a: Any, b: Any, c: Any = None, **more: Any) -> Any:
    return emulated(a, b, c, "emulated_any_range", **more)


EXTENTS = [(40, 48, 300), (33, 65, 257), (1, 1, 512), (128, 5, 256)]


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("extents", "trans_a", "trans_b"), in_turns(EXTENTS, [False, False, True, True], [False, True])
)
@BOTH
def test_every_layout(
    rng: np.random.Generator, precision: str, extents: tuple[int, int, int], trans_a: bool, trans_b: bool
) -> None:
    m, n, k = extents
    a = rng.standard_normal((k, m) if trans_a else (m, k)).astype(np.float32)
    b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(np.float32)
    exact, magnitudes = parts(a.T if trans_a else a, b.T if trans_b else b)
    found = emulated(a, b, None, precision, trans_a=trans_a, trans_b=trans_b)
    assert found.dtype == np.float32
    assert np.all(np.abs(found - exact) <= product_bound(precision, k) * magnitudes)


@pytest.mark.often(1)
@BOTH
def test_one_line_with_steps_between_its_elements(rng: np.random.Generator, precision: str) -> None:
    a, b = rng.uniform(-1, 1, (300, 7)).astype(np.float32), rng.uniform(-1, 1, (300, 9)).astype(np.float32)
    row, column = a[:, 3:4].T, b[:, 5:6]
    exact, magnitudes = parts(row, column)
    found = emulated(row, column, None, precision)
    assert np.all(np.abs(found - exact) <= product_bound(precision, 300) * magnitudes)


@pytest.mark.often(1)
@BOTH
def test_alpha_beta_and_c(rng: np.random.Generator, precision: str) -> None:
    a, b, c = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((30, 300), (300, 50), (30, 50)))
    exact, magnitudes = parts(a, b)
    error = product_bound(precision, 300)
    expected, bound = 2 * exact - 3 * c, error * (2 * magnitudes + 3 * np.abs(c))
    assert np.all(np.abs(emulated(a, b, c, precision, alpha=2.0, beta=-3.0) - expected) <= bound)
    out = c.copy()
    assert emulated(a, b, out, precision, alpha=2.0, beta=-3.0, out=out) is out
    assert np.all(np.abs(out - expected) <= bound)
    columns = np.full((50, 30), 7, np.float32).T
    emulated(a, b, None, precision, out=columns)
    assert np.all(np.abs(columns - exact) <= error * magnitudes)


@pytest.mark.parametrize("with_c", [False, True])
def test_spans_that_slices_do_not_hold(rng: np.random.Generator, with_c: bool) -> None:
    """The product of float32 replaces the result: bit for bit that of the kernel itself."""
    a = (rng.uniform(-0.5, 0.5, (30, 300)) * np.exp(4 * rng.standard_normal((30, 300)))).astype(np.float32)
    b, c = rng.uniform(-1, 1, (300, 50)).astype(np.float32), rng.uniform(-1, 1, (30, 50)).astype(np.float32)
    spans = [(np.abs(x).max(axis) / np.abs(x).mean(axis)).max() for x, axis in ((a, 1), (b, 0))]
    assert spans[0] * spans[1] > MOST_SPAN * 300**0.5
    more: dict[str, Any] = {"c": c, "beta": -2.0, "alpha": 0.5} if with_c else {}
    plain = lapidist.gemm(a, b, device="machine", kernel="simt", **more)
    assert np.array_equal(emulated(a, b, **more), plain)


@pytest.mark.often(2)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-38, 1e-44])
def test_values_beyond_slices(rng: np.random.Generator, value: float) -> None:
    a, b = rng.uniform(-1, 1, (20, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 24)).astype(np.float32)
    a[3] = value
    with np.errstate(invalid="ignore", over="ignore"):
        expected = lapidist.gemm(a, b, device="machine", kernel="simt")
        assert np.array_equal(emulated(a, b), expected, equal_nan=True)


def test_errors_of_positive_numbers_do_not_add_up(rng: np.random.Generator) -> None:
    """Neither by scales that are not the inverse of the factor, nor by halves that all go up."""
    a, b = rng.uniform(0, 1, (64, 1000)).astype(np.float32), rng.uniform(0, 1, (1000, 48)).astype(np.float32)
    exact, _ = parts(a, b)
    assert np.all(np.abs(emulated(a, b) - exact) <= 2.0**-23.4 * exact)


@pytest.mark.parametrize("number", [30, 60, 120])
def test_what_is_proven_for_any_numbers(number: int) -> None:
    """What slices leave has one sign all along k, as far as it can be."""
    k = 300
    a, b = (np.full(shape, number + 127 / 256 + 127.4 / 65536, np.float32) for shape in ((4, k), (k, 4)))
    a[:, 0] = b[0] = 127
    exact, magnitudes = parts(a, b)
    found = emulated(a, b)
    assert not np.array_equal(found, lapidist.gemm(a, b, device="machine", kernel="simt"))
    error = np.abs(found - exact)
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    assert np.all(error <= (2.0**-23 + 2.0**-24) * magnitudes + 2.0**-20.9 * k**0.5 * norms)
    assert number > 30 or np.all(error > BOUND * magnitudes)  # no bound for chosen numbers


IN_TURN = Config(32, 64, 16, 16, 32, 4, 4, stages=4)  # no slices of k


def drawn(rng: np.random.Generator, phi: float, *shape: int) -> Any:
    return ((rng.uniform(-0.5, 0.5, shape)) * np.exp(phi * rng.standard_normal(shape))).astype(np.float32)


@pytest.mark.often(1)
@pytest.mark.parametrize("phi", [0.0, 1.0, 2.0, 4.0])
def test_pieces_hold_what_slices_do_not(rng: np.random.Generator, phi: float) -> None:
    """As near as the float32 sum of one element after the other is, which has other bits."""
    a, b = drawn(rng, phi, 48, 1000), drawn(rng, phi, 1000, 40)
    exact, magnitudes = parts(a, b)
    plain = lapidist.gemm(a, b, device="machine", kernel="simt", config=IN_TURN, schedule="data_parallel")
    found = any_range(a, b)
    error, of_plain = (np.abs(d - exact) / magnitudes for d in (found, plain))
    assert not np.array_equal(found, plain)
    assert error.max() <= max(of_plain.max(), 2.0**-23)
    assert np.all(error <= proven(1000))


def by_pieces_alone(monkeypatch: pytest.MonkeyPatch, a: Any, b: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setitem(PARTS_OF, "emulated_any_range", PIECES)
        return any_range(a, b)


@pytest.mark.often(1)
@pytest.mark.parametrize("side", ["a", "b", "neither"])
def test_halves_hold_lines_six_binades_below_their_largest(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """In the mean of a line; one that has less sends all to pieces."""
    k = 288
    a, b = (rng.choice([-1.0, 1.0], shape).astype("f4") for shape in ((40, k), (k, 40)))
    a *= rng.uniform(1, 2, a.shape).astype("f4")
    b *= rng.uniform(1, 2, b.shape).astype("f4")
    for line in (a[37], b[:, 33]):  # in blocks that come late
        line[: k // 2] *= np.float32(2.0**-12)
    assert not np.array_equal(any_range(a, b), by_pieces_alone(monkeypatch, a, b))
    if side == "a":
        a[37, 0] /= 2
    elif side == "b":
        b[0, 33] /= 2
    exact, magnitudes = parts(a, b)
    found = any_range(a, b)
    assert np.array_equal(found, by_pieces_alone(monkeypatch, a, b)) == (side != "neither")
    assert np.all(np.abs(found - exact) <= proven(k) * magnitudes)


@pytest.mark.often(2)
@pytest.mark.parametrize("below", [13, 28, 29, 33, 60, 140])
def test_small_numbers_of_lines_that_halves_hold(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, below: int
) -> None:
    """As many as there can be, which meet the largest numbers of the other side, and the largest meet small
    ones: what they lose is the most of |A||B|."""
    k = 29 * 13 * 2
    few = k * 6 // below
    a, b = rng.uniform(1, 2, (8, k)), rng.uniform(1, 2, (k, 8))
    a[:, :few] *= 2.0**-below
    b[-few:] *= 2.0**-below
    a, b = (x.astype(np.float32) for x in (a, b))
    found = any_range(a, b)
    assert not np.array_equal(found, by_pieces_alone(monkeypatch, a, b))
    exact, magnitudes = parts(a, b)
    assert np.all(np.abs(found - exact) <= proven(k) * magnitudes)


def test_what_halves_leave_of_one_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """An odd last bit, which is rounded down, and the product of second parts: eight units, all along k."""
    number = np.float32(1 + 4093 * 2.0**-23)
    a, b = np.full((4, 300), number), np.full((300, 4), number)
    found, exact = any_range(a, b), parts(a, b)[0]
    assert not np.array_equal(found, by_pieces_alone(monkeypatch, a, b))
    assert np.all((exact - found >= 7 * WORD * exact) & (exact - found <= proven(300) * exact))


def test_copies_are_exact(rng: np.random.Generator) -> None:
    """Of columns, scaled: halves would lose last bits, and do not hold lines that are mostly zeros."""
    a, b = drawn(rng, 1.0, 24, 300), np.zeros((300, 300), np.float32)
    order = rng.permutation(300)
    b[order, np.arange(300)] = 2.0 ** rng.integers(-20, 21, 300)
    assert np.array_equal(any_range(a, b), a[:, order] * b.max(0))
    assert np.array_equal(any_range(b.T, a.T).T, a[:, order] * b.max(0))


def test_graded_lines_and_steps(rng: np.random.Generator) -> None:
    """Rows and columns of many sizes, and steps of k whose sizes cancel: an error relative to the largest
    number would show in each element."""
    a, b = rng.uniform(0.5, 1, (24, 300)), rng.uniform(0.5, 1, (300, 20))
    steps = 2.0 ** np.linspace(-50, 50, 300)
    rows, columns = 2.0 ** np.linspace(-70, 20, 24), 2.0 ** np.linspace(20, -40, 20)
    a, b = (a * steps * rows[:, None]).astype("f4"), (b / steps[:, None] * columns).astype("f4")
    exact, magnitudes = parts(a, b)
    found = any_range(a, b)
    assert not np.array_equal(found, lapidist.gemm(a, b, device="machine", kernel="simt"))
    assert np.all(np.abs(found - exact) <= proven(300) * magnitudes)


@pytest.mark.often(2)
@pytest.mark.parametrize("value", [3e38, 1e-38, 1e-44])
def test_pieces_of_the_largest_and_least_numbers(rng: np.random.Generator, value: float) -> None:
    a, b = rng.uniform(-1, 1, (20, 300)), rng.uniform(-1, 1, (300, 24)).astype(np.float32)
    a[3] = value
    a[4] *= value
    a = a.astype(np.float32)
    exact, magnitudes = parts(a, b)
    with np.errstate(over="ignore"):
        found, rounded = any_range(a, b), exact.astype(np.float32)
    finite = np.isfinite(rounded)
    assert np.array_equal(found[~finite], rounded[~finite])
    within = np.abs(found.astype("f8") - exact) <= proven(300) * magnitudes + 2.0**-149
    assert np.all(within[finite])


@pytest.mark.often(2)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-35])
def test_what_pieces_do_not_hold_either(rng: np.random.Generator, value: float) -> None:
    """The product of float32 takes the place of the result, bit for bit."""
    a, b = rng.uniform(0.5, 1, (20, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 24)).astype(np.float32)
    a[3, 7] = value
    a[3, ::2] *= 2.0**-20  # beyond halves
    with np.errstate(invalid="ignore"):
        expected = lapidist.gemm(a, b, device="machine", kernel="simt")
        assert np.array_equal(any_range(a, b), expected, equal_nan=True)
        assert np.array_equal(any_range(b.T, a.T), expected.T, equal_nan=True)


@BOTH
def test_lines_of_zeros(rng: np.random.Generator, precision: str) -> None:
    a, b = rng.uniform(-1, 1, (20, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 24)).astype(np.float32)
    a[3], b[:, 5] = 0, 0
    found = emulated(a, b, None, precision)
    exact, magnitudes = parts(a, b)
    assert not found[3].any()
    assert not found[:, 5].any()
    assert np.all(np.abs(found - exact) <= product_bound(precision, 300) * magnitudes)


@BOTH
def test_whole_numbers_are_exact(rng: np.random.Generator, precision: str) -> None:
    """Sums of slices have no rounding, whatever the order; these sums fit into float32 besides."""
    a, b = (rng.integers(-127, 128, shape).astype(np.float32) for shape in ((20, 600), (600, 24)))
    a[:, 0], b[0] = 127, 127
    assert np.array_equal(emulated(a, b, None, precision), a.astype("f8") @ b.astype("f8"))


@BOTH
def test_short_sums_and_nothing_are_those_of_float32(rng: np.random.Generator, precision: str) -> None:
    a, b = rng.uniform(-1, 1, (20, 100)).astype(np.float32), rng.uniform(-1, 1, (100, 24)).astype(np.float32)
    assert np.array_equal(emulated(a, b, None, precision), lapidist.gemm(a, b, device="machine"))
    assert emulated(a[:0], b, None, precision).shape == (0, 24)
    nans, ones = np.full((3, 300), np.nan, np.float32), np.ones((300, 2), np.float32)
    assert not emulated(nans, ones, None, precision, alpha=0.0).any()


@BOTH
def test_vectors_and_the_host(rng: np.random.Generator, precision: Any) -> None:
    a, b = rng.uniform(-1, 1, 400).astype(np.float32), rng.uniform(-1, 1, (400, 24)).astype(np.float32)
    exact, magnitudes = parts(a, b)
    for device in ("machine", "host"):
        found = lapidist.matmul(a, b, precision=precision, device=device)
        assert found.shape == (24,)
        assert np.all(np.abs(found - exact) <= product_bound(precision, 400) * magnitudes)


@pytest.mark.often(2)
@pytest.mark.parametrize("shared", [False, True])
@BOTH
def test_batches(rng: np.random.Generator, precision: str, shared: bool) -> None:
    a = rng.uniform(-1, 1, (2, 3, 20, 300)).astype(np.float32)
    b = rng.uniform(-1, 1, (300, 24) if shared else (3, 300, 24)).astype(np.float32)
    c = rng.uniform(-1, 1, (24,)).astype(np.float32)
    exact, magnitudes = parts(a, b)
    found = emulated(a, b, c, precision, beta=2.0)
    assert found.shape == (2, 3, 20, 24)
    bound = product_bound(precision, 300) * (magnitudes + 2 * np.abs(c))
    assert np.all(np.abs(found - (exact + 2 * c)) <= bound)


def test_arrays_without_bfloat16_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CuPy's were."""
    out = np.full((4, 4), 7, np.float32)

    def empty(shape: Any, like: Any, dtype: str) -> Any:
        if dtype == "bfloat16":
            raise TypeError("unsupported dtype")
        return np.empty(shape, dtype)

    monkeypatch.setattr(emulated_launches, "empty", empty)
    with pytest.raises(
        DTypeError, match="leaves arrays of bfloat16 between its launches, and numpy makes none"
    ):
        any_range(A, B, out=out)
    assert (out == 7).all()
    assert (emulated(A, B) == 300).all()


@lapidist.epilogue
def biased_relu(acc: Any, bias: lapidist.Row) -> Any:
    return lapidist.maximum(acc + bias, 0)


@lapidist.epilogue
def gated(acc: lapidist.Pair) -> Any:
    return acc.first * acc.second


@BOTH
def test_an_epilogue_follows(rng: np.random.Generator, precision: str) -> None:
    a, b = rng.uniform(-1, 1, (30, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 48)).astype(np.float32)
    bias, c = rng.uniform(-1, 1, 48).astype(np.float32), rng.uniform(-1, 1, (30, 48)).astype(np.float32)
    sums = emulated(a, b, c, precision, alpha=2.0, beta=0.5)
    found = emulated(a, b, c, precision, alpha=2.0, beta=0.5, epilogue=biased_relu(bias=bias))
    assert np.array_equal(found, np.maximum(sums + bias, 0))
    pairs = emulated(a, b, None, precision)
    pairs = pairs[:, ::2] * pairs[:, 1::2]
    assert np.array_equal(emulated(a, b, None, precision, epilogue=gated()), pairs)
    assert np.array_equal(emulated(a[None], b, None, precision, epilogue=gated())[0], pairs)
    row = lapidist.matmul(a[3], b, precision=precision, device="machine", epilogue=biased_relu(bias=bias))  # type: ignore[arg-type]
    assert np.array_equal(row, np.maximum(emulated(a, b, None, precision)[3] + bias, 0))


@lapidist.epilogue
def with_row_sums(acc: Any, other: lapidist.Tile) -> Any:
    d = acc * other
    return d, lapidist.row_sum(d)


@BOTH
def test_further_results_of_an_epilogue(rng: np.random.Generator, precision: str) -> None:
    a, b = rng.uniform(-1, 1, (30, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 48)).astype(np.float32)
    other = rng.uniform(0.5, 1, (30, 48)).astype(np.float32)
    out = np.empty((30, 48), np.float32), np.empty(30, np.float32)
    d, sums = emulated(a, b, None, precision, epilogue=with_row_sums(other=other), out=out)
    assert d is out[0]
    assert sums is out[1]
    assert np.array_equal(d, emulated(a, b, None, precision) * other)
    assert np.allclose(sums, d.sum(1, dtype="f8"), rtol=1e-5, atol=1e-4)


@BOTH
def test_an_epilogue_that_does_not_fit_changes_nothing(precision: str) -> None:
    out, wrong = np.full((4, 4), 7, np.float32), biased_relu(bias=np.ones(5, np.float32))
    with pytest.raises(ShapeError, match="bias"):
        emulated(A, B, None, precision, out=out, epilogue=wrong)
    assert (out == 7).all()


A, B = np.ones((4, 300), np.float32), np.ones((300, 4), np.float32)


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("name", "precision"), in_turns(["a100", "rtx4090"], ["emulated_any_range", "emulated"], share=1)
)
def test_chips_without_wgmma_multiply_parts_by_mma(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, precision: str, name: str
) -> None:
    monkeypatch.setattr(MachineBackend, "chip", chip(name))
    a, b = rng.uniform(-1, 1, (33, 300)).astype(np.float32), rng.uniform(-1, 1, (300, 24)).astype(np.float32)
    exact, magnitudes = parts(a, b)
    found = emulated(a, b, None, precision)
    assert np.all(np.abs(found - exact) <= product_bound(precision, 300) * magnitudes)


@BOTH
def test_chips_without_such_tensor_cores_are_refused(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    monkeypatch.setattr(MachineBackend, "chip", chip("v100"))
    out = np.full((4, 4), 7, np.float32)
    with pytest.raises(DeviceError, match=r"capability 8\.0 or more; .*V100.* has 7\.0\. Leave it out"):
        emulated(A, B, None, precision, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    "choice",
    [{"kernel": "simt"}, {"kernel": "sgemm"}, {"split_k": 1000}, {"workspace": "short", "split_k": 2}],
)
@BOTH
def test_choices_that_parts_do_not_take_launch_nothing(
    monkeypatch: pytest.MonkeyPatch, precision: str, choice: dict[str, Any]
) -> None:
    launched: list[str] = []
    for name in ("launch_alone", "multiply"):
        monkeypatch.setattr(MachineBackend, name, lambda *_, name=name: launched.append(name))
    out, memory = np.full((4, 4), 7, np.float32), np.zeros(512, np.uint8)
    if "workspace" in choice:
        choice = choice | {"workspace": memory[-memory.ctypes.data % 256 :][:256]}
    words = r"(?s)parts of a and b, .* refused:.* does not take|no kernel takes|workspace: must hold"
    with pytest.raises(LapidistError, match=words):
        emulated(A, B, None, precision, out=out, **choice)
    assert not launched
    assert (out == 7).all()


@BOTH
def test_what_is_refused(precision: Any) -> None:
    halves = A.astype(np.float16), B.astype(np.float16)
    with pytest.raises(DTypeError, match=f'"{precision}" is a way to multiply float32; a is float16'):
        lapidist.matmul(*halves, precision=precision)
    with pytest.raises(ArgumentError, match="takes matrices and numbers alone"):
        emulated(A, B, None, precision, gather_a=np.zeros(4, np.int32))
    with pytest.raises(ArgumentError, match="products run on the current stream"):
        emulated(A, B, None, precision, stream=1)
    with pytest.raises(ArgumentError, match="got a plan, a list, groups or arrays that JAX traces"):
        lapidist.plan(A, B, precision=precision)
    with pytest.raises(
        ArgumentError, match=r'precision: must be "ieee", "tf32", "emulated", .*, "3m" or a lapidist.Accuracy'
    ):
        lapidist.matmul(A, B, precision="fp64")  # type: ignore[arg-type]
