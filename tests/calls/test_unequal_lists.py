"""Lists of products of any shapes: those of one geometry go together, results come in the caller's order."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends import machine_backend
from lapidist.calls import bound_lists, followed_lists, full_path
from lapidist.calls.bound_lists import batch_of
from lapidist.calls.call import Call
from lapidist.calls.operation import Operation
from lapidist.calls.repeat import ARRAY_PATHS
from lapidist.calls.repeat.list_repeat import address_order
from lapidist.errors import LapidistError, StrideError

Array = np.ndarray[Any, Any]
PLACES = pytest.mark.parametrize("device", [None, "machine"])
SHAPES = [(3, 4, 5), (17, 9, 40), (3, 4, 5), (1, 33, 2), (17, 9, 40), (3, 4, 5)]  # m, n, k
EMPTY = [(0, 4, 5), (3, 0, 5), (2, 6, 0), (0, 0, 0)]


def lists(rng: np.random.Generator, shapes: Any = SHAPES, dtype: str = "float32") -> Any:
    """Lists of a, b and c, of whole numbers, whose sums are exact."""
    every = [((m, k), (k, n), (m, n)) for m, n, k in shapes]
    whole = partial(rng.integers, -3, 4)
    return tuple([whole(shape).astype(dtype) for shape in column] for column in zip(*every, strict=True))


def expected(a: list[Array], b: list[Array], c: list[Array], alpha: float, beta: float) -> list[Array]:
    return [alpha * (x @ y) + beta * z for x, y, z in zip(a, b, c, strict=True)]


def same(results: list[Array], others: list[Array]) -> None:
    for one, other in zip(results, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The products of each launch in the machine: m, n, k and how many."""
    begun: list[tuple[int, ...]] = []
    run = machine_backend.run_lists

    def counted(plan: Any, calls: Any, *rest: Any) -> None:
        problem = plan.callers_problem
        begun.append((problem.m, problem.n, problem.k, len(calls)))
        run(plan, calls, *rest)

    monkeypatch.setattr(machine_backend, "run_lists", counted)
    return begun


# ---- results ----


@PLACES
def test_any_shapes_in_the_callers_order(
    rng: np.random.Generator, device: str | None, launches: list[Any]
) -> None:
    a, b, c = lists(rng)
    results = lapidist.gemm(a, b, c, alpha=-2.0, beta=3.0, device=device)
    same(results, expected(a, b, c, -2, 3))
    if device:
        assert launches == [(3, 4, 5, 3), (17, 9, 40, 2), (1, 33, 2, 1)]


@PLACES
def test_empty_matrices_among_others(rng: np.random.Generator, device: str | None) -> None:
    a, b, c = lists(rng, [*EMPTY, *SHAPES, *EMPTY])
    same(lapidist.gemm(a, b, c, beta=1.0, device=device), expected(a, b, c, 1, 1))
    same(lapidist.gemm(a, b, device=device), expected(a, b, c, 1, 0))


@PLACES
def test_outputs_are_written_and_returned(rng: np.random.Generator, device: str | None) -> None:
    """Also over c, by one of two products of a shape; and into a column-major output."""
    a, b, c = lists(rng)
    out = [np.full_like(x, np.nan) for x in c]
    out[1], out[4] = c[1], np.full_like(c[4], np.nan, order="F")
    wanted = expected(a, b, c, 1, 1)
    results = lapidist.gemm(a, b, c, beta=1.0, out=out, device=device)
    assert all(one is other for one, other in zip(results, out, strict=True))
    same(results, wanted)


@PLACES
def test_layouts_and_transpositions(
    rng: np.random.Generator, device: str | None, launches: list[Any]
) -> None:
    """Matrices of one shape that lie differently have launches of their own."""
    a, b, c = lists(rng, SHAPES[:3] * 2, "float16")
    a = [x.T for x in a]
    a[2] = np.ascontiguousarray(a[2])
    b[3] = np.repeat(b[3], 2, axis=1)[:, ::2]
    same(lapidist.gemm(a, b, trans_a=True, device=device), expected([x.T for x in a], b, c, 1, 0))
    if device:
        assert sorted(launches) == sorted([(3, 4, 5, 2), (3, 4, 5, 1), (3, 4, 5, 1), (17, 9, 40, 2)])


def test_more_products_of_a_shape_than_a_launch_takes(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, launches: list[Any]
) -> None:
    monkeypatch.setattr(bound_lists.Listed, "at_once", 2)
    a, b, c = lists(rng)
    batch = batch_of(a, b, None, None, Operation())
    assert [list(launch.numbers) for launch in batch.launches] == [[0, 2], [5], [1, 4], [3]]
    monkeypatch.undo()
    shapes = [(2, 3, 4)] * 70 + [(3, 2, 4)]
    a, b, c = lists(rng, shapes)
    same(lapidist.gemm(a, b, device="machine", kernel="simt"), expected(a, b, c, 1, 0))


def test_the_alignment_is_that_of_the_products_of_a_launch(rng: np.random.Generator) -> None:
    room = [np.zeros(64, np.float32) for _ in range(4)]
    aligned, shifted = ([x[start:][:16].reshape(4, 4) for x in room] for start in (0, 1))
    a = [*aligned[:2], aligned[2][:3], shifted[3][:3]]
    b = [np.ascontiguousarray(aligned[0])] * 4
    bundles = batch_of(a, b, None, None, Operation()).bundles
    assert [list(bundle.numbers) for bundle in bundles] == [[0, 1], [2, 3]]
    first, second = (bundle.problem.a.alignment for bundle in bundles)
    assert (first, second) == (16, 4)


@PLACES
def test_epilogues(rng: np.random.Generator, device: str | None) -> None:
    @lapidist.epilogue
    def shifted(acc: Any, row: lapidist.Row) -> Any:
        return acc + row, lapidist.Output(acc > 0, "bool")

    a, b, c = lists(rng, [*SHAPES, *EMPTY])
    rows = [np.arange(x.shape[1], dtype="f4") for x in c]
    sums, positive = lapidist.gemm(a, b, epilogue=shifted(row=rows), device=device)
    products = expected(a, b, c, 1, 0)
    same(sums, [x + row for x, row in zip(products, rows, strict=True)])
    same(positive, [x > 0 for x in products])
    plan = lapidist.plan(a, b, epilogue=shifted(row=rows), device=device)
    for results, others in zip(plan.execute(a, b), (sums, positive), strict=True):
        same(results, others)
    with pytest.raises(LapidistError, match=r"b\[1\]: must have as many rows as a has columns"):
        plan.execute(a, [b[0], b[0], *b[2:]])


# ---- plans ----


@PLACES
def test_a_plan_takes_lists_of_its_geometries(rng: np.random.Generator, device: str | None) -> None:
    a, b, c = lists(rng)
    plan = lapidist.plan(a, b, c, beta=1.0, device=device)
    assert "3 geometries; the first one is\n3 x 4 x 5" in str(plan)
    for numbers in ([0, 1, 2, 3, 4, 5], [5, 3, 1], [0] * 9):
        chosen = [[x[number] for number in numbers] for x in lists(rng)]
        same(plan.execute(*chosen), expected(*chosen, 1, 1))
    with pytest.raises(
        LapidistError,
        match=r"geometry that was planned, 3 x 4 x 5 .* or one of 2 others; got 2 x 4 x 5 .*"
        r"for product 2\. Make a new plan",
    ):
        plan.execute([*a[:2], a[2][:2]], b[:3], [*c[:2], c[2][:2]])


def test_shared_tiles_of_several_shapes_and_one_workspace(rng: np.random.Generator) -> None:
    a, b, c = lists(rng, [(12, 10, 70), (20, 8, 90), (12, 10, 70)])
    form: dict[str, Any] = {"device": "machine", "kernel": "simt", "split_k": 2}
    plan = lapidist.plan(a, b, **form)
    room = np.zeros(plan.workspace_bytes + 256, np.uint8)
    room = room[-room.ctypes.data % 256 :][: plan.workspace_bytes]
    for more in ({}, {"workspace": room}):
        same(lapidist.gemm(a, b, **form, **more), expected(a, b, c, 1, 0))


# ---- rules ----


def changed(values: list[Array], number: int, value: Array) -> list[Array]:
    return [*values[:number], value, *values[number + 1 :]]


WRONG: dict[str, tuple[str, int, Any, str]] = {
    "inner extent": ("b", 4, lambda x: x[:-1], r"b\[4\]: must have as many rows as a has columns"),
    "a vector": ("a", 2, lambda x: x[0], r"a\[2\]: must have at least two dimensions|a\[2\]: "),
    "a batch": (
        "b",
        3,
        lambda x: np.stack([x, x]),
        r"a\[3\], b\[3\]: lists are of matrices; got batches of \(2,\)",
    ),
    "c": ("c", 1, lambda x: x[:, :-1], r"c\[1\]: must "),
    "an output": ("out", 5, lambda x: x[:-1], r"out\[5\]: must have shape \(3, 4\); got \(2, 4\)"),
    "text": ("b", 1, lambda x: "text", r"b\[1\]: must be a NumPy, torch"),
    "types": (
        "a",
        1,
        lambda x: x.astype("f8"),
        r"a\[1\], b\[1\], out\[1\]: must have the types of product 0",
    ),
}


@PLACES
@pytest.mark.parametrize("case", WRONG)
def test_errors_say_which_product_is_wrong(
    rng: np.random.Generator, device: str | None, launches: list[Any], case: str
) -> None:
    name, number, change, message = WRONG[case]
    a, b, c = lists(rng)
    outputs = [np.full_like(x, 7) for x in c]
    given: dict[str, Any] = {"a": a, "b": b, "c": c, "out": outputs, "beta": 1.0}
    if case in ("a batch", "types"):
        given = {"a": a, "b": b}
    given[name] = changed(given[name], number, change(given[name][number]))
    if case == "types":
        given["b"] = changed(b, number, b[number].astype("f8"))
    with pytest.raises(LapidistError, match=message):
        lapidist.gemm(**given, device=device)
    assert not launches
    assert all(np.all(x == 7) for x in outputs)


@PLACES
def test_an_output_that_a_product_of_another_shape_reads(
    rng: np.random.Generator, device: str | None
) -> None:
    a, b, c = lists(rng)
    a[1][:, :4] = 7
    c[0] = a[1][:3, :4]
    with pytest.raises(StrideError, match=r"out\[0\] overlaps a\[1\]"):
        lapidist.gemm(a, b, out=c, device=device)
    assert np.all(a[1][:3, :4] == 7)


def test_a_kernel_that_refuses_one_shape_runs_for_none(rng: np.random.Generator, launches: list[Any]) -> None:
    a, b, c = lists(rng, [(8, 8, 8), (8, 8, 7)], "float16")
    out = [np.full_like(x, 7) for x in c]
    with pytest.raises(LapidistError, match="wgmma"):
        lapidist.gemm(a, b, out=out, kernel="wgmma_tma", device="machine")
    assert not launches
    assert all(np.all(x == 7) for x in out)


# ---- repeated calls ----


@pytest.mark.parametrize("reads_c", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_fast_path_passes_the_addresses_of_the_full_path(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, reads_c: bool, order: Any
) -> None:
    monkeypatch.setattr(bound_lists.Listed, "at_once", 2)
    a, b, c = lists(rng)
    out = [np.zeros_like(x, order=order) for x in c]
    batch = batch_of(a, b, c, out, Operation(beta=float(reads_c)))
    pointers = [x.ctypes.data for x in (*a, *b, *out, *(c if reads_c else ()))]
    for launch in batch.launches:
        places = address_order(launch, len(a), 2, reads_c)
        assert itemgetter(*places)([*pointers, 0]) == launch.addresses


def test_lists_that_begin_alike_have_fast_paths_of_their_own(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """One for lists of equal shapes, by what is cheap to read, and one for each list of other shapes."""
    monkeypatch.setattr(full_path, "LISTS", {})
    monkeypatch.setattr("lapidist.calls.repeat.shape.shape_of", lambda *_: "as the first")
    made: list[Any] = []

    def path_of(call: Call, batch: Any, launched: Any) -> Any:
        shapes = [x.shape for x in call.a]
        made.append(shapes)
        return lambda call: "repeated" if [x.shape for x in call.a] == shapes else None

    monkeypatch.setattr("lapidist.calls.repeat.list_repeat.fast_path_of_lists", path_of)
    equal, unequal, others = (
        lists(rng, [SHAPES[int(number)] for number in x])[:2] for x in ("000", "010", "013")
    )
    for a, b in (equal, unequal, others):
        same(lapidist.gemm(a, b), [x @ y for x, y in zip(a, b, strict=True)])
    for a, b in (equal, unequal, others, unequal, equal):
        assert lapidist.gemm(a, b) == "repeated"
    assert len(made) == 3


def test_products_with_an_epilogue_repeat_by_the_path_of_their_shape(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    a, b, _ = lists(rng)
    tried: list[Any] = []

    def path(shape: Any) -> Any:
        def repeated(a: Any, *rest: Any) -> Any:
            tried.append((shape, a.shape))
            return shape if a.shape == shape else None

        return repeated

    monkeypatch.setattr(followed_lists, "key_with_arrays", lambda call: call.a.shape)
    for x in a:
        monkeypatch.setitem(ARRAY_PATHS, x.shape, path(x.shape))
    results = lapidist.gemm(a, b, epilogue=lapidist.epilogue(lambda acc: acc + 1))
    assert results == [x.shape for x in a]
    assert len(tried) == len(a) + 5  # the path of the product before refuses five of them
    wide = [a[0], a[1].astype("f8")], [b[0], b[1].astype("f8")]
    with pytest.raises(LapidistError, match="must have the types of product 0"):
        lapidist.gemm(*wide, epilogue=lapidist.epilogue(lambda acc: acc + 1))
