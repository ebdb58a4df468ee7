"""alpha and beta that change from call to call: values of a launch, neither plans nor binaries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls import prepared, repeat
from lapidist.calls.repeat.scalars import fit_for, scalars_key
from lapidist.planning import binaries, plans
from lapidist.problems.pointers import Pointers
from lapidist.verify.sum_bound import judge
from typed import whole

E4M3 = "float8_e4m3fn"
PAIRS = ((0.5, -0.25), (0.75, 2.0), (1.5, 0.5))  # whole numbers times these are exact
Array = np.ndarray[Any, Any]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what is planned and what is compiled, from nothing on."""
    counted: Counter[str] = Counter()

    def counting(name: str, made: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            counted[name] += 1
            return made(*given, **more)

        return call

    binaries.forget()
    plans.plan_once.cache_clear()
    monkeypatch.setattr(repeat, "PREPARED", {})
    monkeypatch.setattr(binaries, "compile_kernel", counting("compiles", binaries.compile_kernel))
    for module in (prepared, plans):
        monkeypatch.setattr(module, "make_plan", counting("plans", module.make_plan))
    return counted


def operands(rng: np.random.Generator, form: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A, B, C, and what gemm is told beside them."""
    dtype = E4M3 if form == "factors" else "float32"
    a, b, c = whole(rng, (40, 24), dtype), whole(rng, (24, 36), dtype), whole(rng, (40, 36), "float32")
    if form == "batches":
        return np.stack([a, -a]), np.stack([b, b]), np.stack([c, c]), {}
    if form == "gathered":
        return a, b, c, {"gather_a": np.arange(40)[::-1].copy()}
    return a, b, c, {"scale_a": whole(rng, (40,), "float32")} if form == "factors" else {}


@pytest.mark.often(2)
@pytest.mark.parametrize("with_c", [True, False], ids=["C", "no C"])
@pytest.mark.parametrize("form", ["matrices", "batches", "factors", "gathered"])
def test_other_numbers_take_the_plan_and_the_binary(
    rng: np.random.Generator, made: Counter[str], form: str, with_c: bool
) -> None:
    a, b, c, more = operands(rng, form)
    rows = a[more["gather_a"]] if form == "gathered" else a
    scales = {"scale_a": more["scale_a"]} if form == "factors" else {}
    for alpha, beta in PAIRS:
        beta = beta if with_c else 0.0
        d = lapidist.gemm(a, b, c if with_c else None, alpha=alpha, beta=beta, device="machine", **more)
        assert judge(d, rows, b, c, alpha, beta, exact=True, **scales).ok
        assert made == {"plans": 1, "compiles": 1}


@pytest.mark.parametrize("numbers", [(0.5, 0.25), (0.75, -2.0)], ids=str)
def test_factors_that_are_numbers(
    rng: np.random.Generator, made: Counter[str], numbers: tuple[float, float]
) -> None:
    a, b = whole(rng, (40, 24), E4M3), whole(rng, (24, 36), E4M3)
    for scale_a, scale_b in (numbers, (2.0, 1.5)):
        d = lapidist.matmul(a, b, scale_a=scale_a, scale_b=scale_b, device="machine")
        assert judge(d, a, b, None, scale_a * scale_b, 0.0, exact=True).ok
    assert made == {"plans": 1, "compiles": 1}


@pytest.mark.parametrize("pointed", [False, True], ids=["lists", "addresses"])
def test_lists_too(rng: np.random.Generator, made: Counter[str], pointed: bool) -> None:
    a, b, c = ([whole(rng, (16, 16), "float32") for _ in range(3)] for _ in "abc")
    d = [np.empty_like(each) for each in c]
    for alpha, beta in PAIRS:
        given = [addresses(each) for each in (a, b, c, d)] if pointed else [a, b, c, d]
        lapidist.gemm(*given[:3], alpha=alpha, beta=beta, out=given[3], device="machine")
        for number in range(3):
            found = judge(d[number], a[number], b[number], c[number], alpha, beta, exact=True)
            assert found.ok
    assert made == {"plans": 1, "compiles": 1}


def addresses(arrays: list[Array]) -> Pointers:
    return Pointers(np.array([each.ctypes.data for each in arrays]), arrays[0].shape, arrays[0].dtype)


def test_one_zero_and_no_c_are_problems_of_their_own(rng: np.random.Generator, made: Counter[str]) -> None:
    """Without C a product by one is another binary; with C it is a number like others."""
    a, b, c, _ = operands(rng, "matrices")
    for alpha, beta, plans_made in (
        (0.5, 0.5, 1),
        (1.0, 0.75, 1),
        (0.5, 0.0, 2),
        (1.0, 0.0, 3),
        (0.0, 0.0, 4),
    ):
        d = lapidist.gemm(a, b, c, alpha=alpha, beta=beta, device="machine")
        assert judge(d, a, b, c, alpha, beta, exact=True).ok
        assert made["plans"] == plans_made


def test_what_rounds_to_one_is_multiplied_by_one(rng: np.random.Generator, made: Counter[str]) -> None:
    a, b, _, _ = operands(rng, "matrices")
    for alpha in (1 + 1e-12, 0.5, 1 + 1e-12):
        d = lapidist.gemm(a, b, alpha=alpha, device="machine")
        assert judge(d, a, b, None, np.float32(alpha), 0.0, exact=True).ok
    assert made["plans"] == 2


def test_a_plan_keeps_its_own_numbers(rng: np.random.Generator) -> None:
    a, b, c, _ = operands(rng, "matrices")
    first, second = (
        lapidist.plan(a, b, c, alpha=alpha, beta=beta, device="machine") for alpha, beta in PAIRS[:2]
    )
    for ready, (alpha, beta) in ((first, PAIRS[0]), (second, PAIRS[1]), (first, PAIRS[0])):
        assert judge(ready.execute(a, b, c), a, b, c, alpha, beta, exact=True).ok


# ---- what the short way may pass on without a second look ----


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, 1e-29, -1e29, np.float32(0.7), 3])
def test_ordinary_numbers_fit(value: float) -> None:
    assert fit_for("float32")((value, value))


@pytest.mark.parametrize("value", [1e-46, 1e39, float("inf"), float("nan"), 10**400])
def test_what_may_round_to_zero_or_overflow_does_not(value: float) -> None:
    assert not fit_for("float32")((value, 0.0))
    assert not fit_for("float16")((1.0, value))


@pytest.mark.parametrize(("value", "fits"), [(2.0, True), (-7, True), (0.5, False), (2.0**31, False)])
def test_numbers_of_integer_sums_are_whole(value: float, fits: bool) -> None:
    assert fit_for("int32")((value, 0.0)) is fits


def test_what_a_problem_knows_of_them() -> None:
    assert scalars_key(0.5, 0.7) == scalars_key(0.7, -3.0)
    assert len({scalars_key(alpha, beta) for alpha in (0.0, 0.5, 1.0) for beta in (0.0, 0.5)}) == 6
