"""Symmetric products: gram, and matmul(symmetric=True), on the host and by kernels in the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed, surveyed_but
from lapidist import Config
from lapidist.backends.machine_backend import sanitized
from lapidist.calls import symmetric, symmetric_rules
from lapidist.calls.call import Call
from lapidist.calls.full_path import multiplied
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation, Types
from lapidist.device import chip as chip_named
from lapidist.dtypes import numpy_dtype
from lapidist.kernels.wgmma.configs import tile
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from lapidist.schedule.sharing_choice import Sharing

PLACES = "host", "machine"
MIXED = 64  # squares of the mirror pass have 64 rows, so 2 x 64 + 1 rows have all kinds of them
Numbers = np.ndarray[Any, Any]


def whole(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Numbers:
    """Small whole numbers, whose sums every type holds."""
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(dtype)


def product(a: Numbers) -> Numbers:
    return np.asarray(a.astype(np.float64) @ a.astype(np.float64).swapaxes(-1, -2))


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize(
    ("dtype", "n"), in_turns(["bfloat16", "float32", "float64", "int8"], [2 * MIXED + 1, 2 * MIXED, 1])
)
def test_both_halves_and_each_of_them(device: str, dtype: Any, n: int) -> None:
    a = whole(n, 40, dtype=numpy_dtype(dtype))
    right = product(a)
    every = lapidist.gram(a, device=device)
    assert (every.astype(np.float64) == right).all()
    assert (lapidist.gram(np.array(a.T), trans=True, device=device) == every).all()
    for triangle, of in (("lower", np.tril), ("upper", np.triu)):
        how: Any = {"triangle": triangle, "device": device}
        for half in (lapidist.gram(a, **how), lapidist.matmul(a, a.T, symmetric=True, **how)):
            assert (half.astype(np.float64) == of(right)).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("triangle", [None, "lower", "upper"])
def test_no_thread_of_the_mirror_pass_races(triangle: Any) -> None:
    a = whole(2 * MIXED, 16, dtype=np.float16)
    with sanitized(7):
        result = lapidist.gram(a, triangle=triangle, device="machine")
    right = product(a)
    assert (result == {None: right, "lower": np.tril(right), "upper": np.triu(right)}[triangle]).all()


@pytest.mark.parametrize("device", PLACES)
def test_random_numbers_give_a_symmetric_result(device: str) -> None:
    a = np.random.default_rng(1).standard_normal((150, 70)).astype(np.float32)
    result = lapidist.gram(a, device=device)
    assert (result == result.T).all()
    assert np.allclose(result, a.astype(np.float64) @ a.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", PLACES)
def test_c_alpha_and_beta(device: str) -> None:
    a, c = whole(70, 33), whole(70, 70, seed=1)
    c = c + c.T
    right = 2 * product(a) + 3 * c
    assert (lapidist.gram(a, c, alpha=2, beta=3, device=device) == right).all()
    out = c.copy()
    assert lapidist.gram(a, out, alpha=2, beta=3, out=out, device=device) is out
    assert (out == right).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("triangle", ["lower", "upper"])
def test_the_other_half_is_neither_read_nor_written(device: str, triangle: Any) -> None:
    a, keep = whole(70, 33), np.triu(np.ones((70, 70), bool), 1)
    other = keep if triangle == "lower" else keep.T
    out = np.where(other, np.nan, whole(70, 70, seed=2)).astype(np.float32)
    before = out.copy()
    lapidist.gram(a, out, beta=1, out=out, triangle=triangle, device=device)
    assert np.isnan(out[other]).all()
    assert (out[~other] == (product(a) + before)[~other]).all()


@pytest.mark.parametrize("device", PLACES)
def test_batches_and_any_layout_of_the_output(device: str) -> None:
    a = whole(2, 3, 70, 16)
    right = product(a)
    room = np.full((2, 3, 2, 70, 72), 7, np.float32)
    out = room[:, :, 1, :, :70]
    lapidist.gram(a, out=out, device=device)
    assert (out == right).all()
    assert (room[:, :, 0] == 7).all()
    assert (room[..., 70:] == 7).all()
    columns = np.zeros((70, 70), np.float32, order="F")
    lapidist.gram(a[0, 0], out=columns, triangle="lower", device=device)
    assert (columns == np.tril(right[0, 0])).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("triangle", [None, "lower", "upper"])
@pytest.mark.parametrize("n", [70, *surveyed([5])])
def test_outputs_that_no_kernel_writes(device: str, triangle: Any, n: int) -> None:
    """In another byte order, and with a step between elements. `matmul` has a mirror, `gram` need not."""
    a = whole(n, 16)
    here = {None: np.ones((n, n), bool), "lower": np.tri(n, dtype=bool), "upper": np.tri(n, dtype=bool).T}
    right = np.where(here[triangle], product(a), 7)
    for out in (np.full((n, n), 7, ">f4"), np.full((n, 2 * n), 7, np.float32)[:, ::2]):
        assert lapidist.gram(a, out=out, triangle=triangle, device=device) is out
        assert (out == right).all()
        if triangle is None:
            out[...] = 7
            lapidist.matmul(a, a.T, out=out, symmetric=True, device=device)
            assert (out == right).all()
    out, c = np.full((n, 2 * n), 7, np.float16)[:, ::2], np.full((n, n), 7, np.float16)
    lapidist.gram(a, c, beta=1, out=out, triangle=triangle, device=device)
    assert (out == np.where(here[triangle], product(a) + 7, 7)).all()


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.complex64])
@pytest.mark.parametrize("batch", [(), (3,), (0,)])
def test_matrices_without_rows(device: str, dtype: Any, batch: tuple[int, ...]) -> None:
    n = 2 if batch == (0,) else 0
    a, c = np.ones((*batch, n, 5), dtype), np.ones((n, n), dtype)
    results = [lapidist.gram(a, c, beta=2, device=device), lapidist.gram(a, triangle="upper", device=device)]
    if dtype is not np.complex64:
        results.append(lapidist.matmul(a, a.swapaxes(-1, -2), symmetric=True, device=device))
    for result in (lapidist.gram(a, device=device), *results):
        assert result.shape == (*batch, n, n)
        assert result.dtype == dtype


@pytest.mark.parametrize("device", PLACES)
def test_a_product_that_the_caller_knows_to_be_symmetric(device: str) -> None:
    a, s = whole(70, 20), whole(20, 20, seed=3)
    left = a @ (s + s.T)
    result = lapidist.matmul(left, a.T, symmetric=True, device=device)
    assert (result == left.astype(np.float64) @ a.T).all()


def test_halves_are_for_many_rows() -> None:
    """Where a mirror costs more than half of the tiles, a plain product is symmetric, too."""
    chip = chip_named("h200")
    problems = {n: replace(dense_problem(n, n, n, "bfloat16", "rc"), triangle="lower") for n in (256, 8192)}
    assert not symmetric.half_is_faster(problems[256], chip)
    assert symmetric.half_is_faster(problems[8192], chip)
    whole = make_plan(replace(problems[8192], triangle=""), chip).predicted_seconds
    assert make_plan(problems[8192], chip).predicted_seconds < 0.65 * whole


def of_half(a: Numbers, config: Config, half: str, seed: int, precision: Any = "ieee") -> Numbers:
    """What wgmma leaves before the mirror pass."""
    out = np.full((len(a), len(a)), 99, np.int32 if a.dtype == np.int8 else a.dtype)
    operation = Operation(trans_b=True, types=Types(triangle=half, precision=precision))
    choices = Choices("machine", "wgmma", config, Sharing("data_parallel"))
    with sanitized(seed):
        multiplied(Call(a, a, None, out, operation, choices))
    return out


# Squares of one tile, in bands of three; two tiles side by side; two below each other; clusters; D as D'.
CONFIGS = [
    tile("float16", 64, 64, 4, raster=3),
    tile("float16", 128, 64, 4),
    tile("float16", 64, 128, 4, raster=4),
    tile("float16", 64, 64, 4, (2, 1)),
    tile("float16", 64, 64, 4, (1, 2), exchanged=True),
]
OFTEN = [(CONFIGS[0], "lower"), (CONFIGS[3], "upper")]


@pytest.mark.often(1)
@pytest.mark.parametrize(("config", "half"), in_turns(CONFIGS, ["lower", "upper"], often=OFTEN))
def test_tiles_of_the_other_triangle_are_left_out(config: Config, half: str) -> None:
    n, square = 400, max(config.bm * config.cluster_m, config.bn * config.cluster_n)
    a = whole(n, 16, dtype=np.float16)
    out, right = of_half(a, config, half, seed=config.bm), product(a)
    row, column = np.indices((n, n)) // square
    computed = row >= column if half == "lower" else row <= column
    assert (out[computed] == right[computed]).all()
    assert (out[~computed] == 99).all()


def test_results_that_are_not_square_are_refused() -> None:
    a = whole(4, 3)
    with pytest.raises(lapidist.ShapeError, match=r"symmetric: the result must be square.*\(4, 5\)"):
        lapidist.matmul(a, whole(3, 5), symmetric=True)
    with pytest.raises(lapidist.ShapeError, match="square"):
        lapidist.matmul(a[0], a[0], symmetric=True)


def test_words_for_what_is_not_taken() -> None:
    a = whole(4, 3)
    with pytest.raises(lapidist.ArgumentError, match="triangle: must be"):
        lapidist.gram(a, triangle="left")  # type: ignore[arg-type]
    with pytest.raises(lapidist.ArgumentError, match='stream: with triangle="lower"'):
        lapidist.gram(a, triangle="lower", stream=0, device="machine")
    with pytest.raises(lapidist.ArgumentError, match="symmetric: must be"):
        lapidist.matmul(a, a.T, symmetric="yes")  # type: ignore[arg-type]
    with pytest.raises(lapidist.ArgumentError, match=r"triangle: is for .* got 'lower' and symmetric=False"):
        lapidist.matmul(a, a.T, triangle="lower")
    with pytest.raises(lapidist.ArgumentError, match="symmetric: takes matrices and numbers alone"):
        lapidist.gram(a, alpha=np.ones(1, np.float32), device="machine")
    with pytest.raises(TypeError, match="transpose"):
        lapidist.gram(a, transpose=True)
    assert symmetric_rules.HALVES == ("lower", "upper")


# ---- epilogues ----


@lapidist.epilogue
def squashed(acc: Any, scale: lapidist.Scalar, base: lapidist.Tile) -> Any:
    return lapidist.tanh(acc * scale) + base


@pytest.mark.often(2)
@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("n", [2 * MIXED + 1, 70])
def test_epilogues_of_both_halves(device: str, n: int) -> None:
    a, base = np.random.default_rng(3).standard_normal((2, n, n)).astype(np.float32)
    base += base.T
    sums = a.astype(np.float64) @ a.T
    d = lapidist.gram(a, epilogue=lapidist.epilogues.relu, device=device)
    assert (d == d.T).all()
    np.testing.assert_allclose(d, np.maximum(sums, 0), rtol=1e-4, atol=1e-4)
    epilogue = squashed(scale=0.01, base=base)
    both = [
        lapidist.gram(a, epilogue=epilogue, symmetric=("base",), device=device),
        lapidist.matmul(a, a.T, epilogue=epilogue, symmetric=["base"], device=device),
    ]
    for d in both:
        assert (d == d.T).all()
        np.testing.assert_allclose(d, np.tanh(0.01 * sums) + base, rtol=1e-4, atol=1e-4)
    half = lapidist.gram(a, epilogue=epilogue, symmetric=("base",), triangle="upper", device=device)
    assert (np.tril(half, -1) == 0).all()
    np.testing.assert_allclose(half, np.triu(both[0]), rtol=1e-4, atol=1e-6)  # another kernel's order of sums


def test_epilogues_that_are_not_symmetric() -> None:
    @lapidist.epilogue
    def by_row(acc: Any, row: lapidist.Row) -> Any:
        return acc + row

    @lapidist.epilogue
    def by_column(acc: Any, column: lapidist.Column) -> Any:
        return acc + column

    @lapidist.epilogue
    def largest(acc: Any) -> Any:
        return acc, lapidist.amax(acc)

    @lapidist.epilogue
    def dropped(acc: Any) -> Any:
        return lapidist.dropout(acc, 0.5, 7)

    a = whole(6, 3)
    line, square = np.ones(6, np.float32), np.ones((6, 6), np.float32)
    for epilogue, words in (
        (by_row(row=line), r"by_row has the Row row, by which \(i, j\) and \(j, i\) differ"),
        (by_column(column=line), "has the Column column"),
        (largest, "reduces, pairs or stores more than D"),
        (dropped, "drops by place"),
        (squashed(scale=1.0, base=square), r"the Tile base.*name it: symmetric=\('base',\)"),
    ):
        for call in (lapidist.gram, lambda a, **how: lapidist.matmul(a, a.T, symmetric=True, **how)):
            with pytest.raises(lapidist.ArgumentError, match=words):
                call(a, epilogue=epilogue)
    with pytest.raises(lapidist.ArgumentError, match="operands of squashed; got 'bias'"):
        lapidist.gram(a, epilogue=squashed(scale=1.0, base=square), symmetric=("base", "bias"))
    with pytest.raises(lapidist.ArgumentError, match=r"got \('base',\) and no epilogue"):
        lapidist.gram(a, symmetric=("base",))


# ---- both halves by one launch ----

# 64 x 64; a warpgroup with two products of 64 rows; warpgroups by turns; three of them; patches held
BOTH_CONFIGS = [
    (tile("float16", 64, 64, 4, raster=3), 264, 128),
    (tile("float16", 256, 128, 4), 520, 64),
    (tile("float16", 64, 192, 4, ping_pong=True), 392, 448),
    (tile("float16", 192, 192, 4, (2, 1)), 440, 64),
    (tile("float16", 128, 128, 4, (1, 2)), 264, 640),
]
# lines of 32 and of 16 elements; of sums in 4 bytes, of which patches are held, too
OF_NARROW_LINES = [
    (tile("float16", 192, 96, 4, (1, 2)), "float16", 440, 64),
    (tile("float16", 64, 48, 4), "float16", 208, 64),
    (tile("tf32", 64, 64, 4), "float32", 264, 64),
    (tile("tf32", 192, 96, 4, (1, 2)), "float32", 440, 32),
    (tile("tf32", 128, 128, 4, ping_pong=True), "float32", 392, 64),
    (tile("tf32", 64, 16, 4), "float32", 136, 32),
    (tile("int8", 64, 128, 4), "int8", 272, 128),
]


@pytest.mark.often(1)
@pytest.mark.parametrize(("config", "n", "k"), surveyed_but(BOTH_CONFIGS, 0, 3))
def test_tiles_are_stored_twice(config: Config, n: int, k: int) -> None:
    a = whole(n, k, dtype=np.float16)
    assert (of_half(a, config, "both", seed=config.bn) == product(a)).all()


@pytest.mark.often(1)
@pytest.mark.parametrize(("config", "dtype", "n", "k"), surveyed_but(OF_NARROW_LINES, 0, 2))
def test_tiles_are_stored_twice_by_narrow_lines(config: Config, dtype: str, n: int, k: int) -> None:
    a = whole(n, k, dtype=dtype)
    precision = "tf32" if dtype == "float32" else "ieee"
    assert (of_half(a, config, "both", config.bn, precision) == product(a)).all()


@pytest.mark.often(1)
@pytest.mark.parametrize(("config", "n", "k"), surveyed_but(BOTH_CONFIGS, 0))
@pytest.mark.parametrize("adds", [False, True])
def test_what_lies_above_the_diagonal_is_the_mirror_image(config: Config, n: int, k: int, adds: bool) -> None:
    """Also in tiles on the diagonal, of which the kernel stores the lower triangle twice, by elements."""
    a, b, c = (whole(n, width, dtype=np.float16, seed=width) for width in (k, k + 1, n))
    b, c, out = b[:, :k], c + c.T, np.full((n, n), 99, np.float16)
    operation = Operation(trans_b=True, beta=float(adds), types=Types(triangle="copied"))
    choices = Choices("machine", "wgmma", config, Sharing("data_parallel"))
    with sanitized(config.bn):
        multiplied(Call(a, b.copy(), c if adds else None, out, operation, choices))
    sums = a.astype(np.float64) @ b.T + adds * c
    assert (out == np.where(np.tri(n, dtype=bool), sums, sums.T)).all()


def test_when_no_mirror_pass_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored: list[Any] = []
    monkeypatch.setattr(symmetric, "mirror_of", lambda *given: mirrored.append(given))
    monkeypatch.setattr(symmetric, "is_symmetric_anyway", lambda *given: False)
    config = tile("float16", 64, 64, 4)
    choices = Choices("machine", "wgmma", config, Sharing("data_parallel"))
    monkeypatch.setattr(symmetric, "checked", lambda _: choices)
    a, c = whole(136, 64, dtype=np.float16), np.ones((136, 136), np.float16)
    for _ in range(2):
        assert (lapidist.gram(a) == product(a)).all()
    assert (lapidist.gram(a, c, beta=1.0) == product(a) + 1).all()
    assert not mirrored
    lapidist.gram(a, c, beta=1.0, out=c)
    lapidist.gram(a[:135])  # rows of D start anywhere
    assert len(mirrored) == 2
