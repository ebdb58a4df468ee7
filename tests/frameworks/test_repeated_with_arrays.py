"""What is launched for repeated calls with arrays beside their matrices: as if all rules were checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import lapidist
from beside_cases import FORMS, K, Like, M, N, Ready, asked_again, asks, call_of, path_of, scaled
from lapidist.backends.host_backend import HostBackend
from lapidist.calls.operation import OF_MATMUL, types_named
from lapidist.calls.repeat.shape import key_with_arrays
from lapidist.calls.repeat.with_arrays import ArrayPath, repeated_with_arrays

pytestmark = pytest.mark.frameworks


class Planned(HostBackend):
    """NumPy's products, of which plans are told that they are launched."""

    plans = True


@pytest.mark.parametrize("form", [*FORMS, "factors", "a factor that is a number"])
def test_it_launches_what_the_long_way_would(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str
) -> None:
    call, again = path_of(monkeypatch, ready, asks(torch, form, 0.75))
    assert again is not None
    for number in (0.25, 1.5):
        other = call_of(monkeypatch, lambda number=number: lapidist.gemm(**asks(torch, form, number)))  # type: ignore[misc]
        assert key_with_arrays(other) == key_with_arrays(call)
        results, expected = asked_again(again, other), other.out
        assert (
            all(x is y for x, y in zip(results, expected, strict=True))
            if form == "further results"
            else (results is expected)
        )
        at = other.bound()
        assert at.out is not None
        matrices = at.a.pointer, at.b.pointer, (at.c or at.out).pointer, at.out.pointer
        assert ready.launched.pop() == (*matrices, at.alpha_beta, 7, at.extra_pointers)


@pytest.mark.parametrize("form", ["gather", "epilogue", "further results", "factors"])
def test_a_plan_is_executed_again_without_the_rules(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str
) -> None:
    """Its second execution only launches, on the arrays that it is given and those of the plan."""
    given = asks(torch, form, 1.0)
    gemm = lapidist.plan(**given)
    monkeypatch.setattr(gemm, "like", Like())
    monkeypatch.setattr(gemm, "backend", Planned())
    monkeypatch.setattr(gemm, "start", ready.start)
    monkeypatch.setattr(gemm, "is_routed", True)
    assert gemm.kernel is None
    c, out = given.get("c"), given["out"]
    gemm.execute(given["a"], given["b"], c, out)
    a, b = given["a"].clone(), given["b"].clone(memory_format=torch.preserve_format)
    monkeypatch.setattr(gemm, "run_checked", None)
    assert gemm.execute(a, b, c, out) is not None
    d = out[0] if isinstance(out, tuple) else out
    launched = ready.launched.pop()
    expected = call_of(monkeypatch, lambda: lapidist.gemm(**{**given, "a": a, "b": b})).bound()
    assert launched[:4] == (a.data_ptr(), b.data_ptr(), (d if c is None else c).data_ptr(), d.data_ptr())
    assert launched[4:] == (expected.alpha_beta, 7, expected.extra_pointers)


def test_a_plan_that_checks_indices_checks_them_each_time(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    given = asks(torch, "scatter", 1.0)
    gemm = lapidist.plan(**given, check_indices=True)
    monkeypatch.setattr(gemm, "like", Like())
    monkeypatch.setattr(gemm, "start", ready.start)
    monkeypatch.setattr(gemm, "is_routed", True)
    matrices, to = (given["a"], given["b"], given.get("c"), given["out"]), given["scatter_d"]
    gemm.execute(*matrices)
    gemm.execute(*matrices)
    for wrong, words in ((int(to[1]), "a row of out once"), (-1, "indices must lie between 0")):
        to[0] = wrong
        with pytest.raises(lapidist.ArgumentError, match=f"scatter_d: .*{words}"):
            gemm.execute(*matrices)


@pytest.mark.parametrize("form", sorted({*FORMS, "factors"} - {"scatter", "c is out"}))
def test_results_may_be_new(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str) -> None:
    given = {**asks(torch, form, 0.75), "out": None}
    call, again = path_of(monkeypatch, ready, given)
    results = asked_again(again, call)
    first = results[0] if isinstance(results, tuple) else results
    assert first.shape == (M, N)
    assert ready.launched.pop()[3] == first.data_ptr()


def test_what_is_not_alike_goes_the_long_way(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    given = asks(torch, "epilogue", 0.75)
    _, again = path_of(monkeypatch, ready, given)
    a, out, c = given["a"], given["out"], given["c"]
    whole = torch.randn(M * K + 1)
    for change in (
        {"epilogue": scaled(bias=torch.randn(N + 1), s=1.0)},
        {"epilogue": scaled(bias=torch.randn(2 * N)[::2], s=1.0)},
        {"epilogue": scaled(bias=torch.randn(N).double(), s=1.0)},
        {"epilogue": scaled(bias=torch.randn(N, requires_grad=True), s=1.0)},
        {"epilogue": scaled(bias=out[0], s=1.0)},
        {"epilogue": scaled(bias=torch.randn(N), s="1")},
        {"epilogue": scaled(bias=torch.randn(N), s=1e300)},
        {"a": torch.randn(M + 1, K)},
        {"a": whole[1:].view(M, K)},
        {"out": c[:, :N]},
        {"out": a[:, :N]},
        {"alpha": 1e-60},
        {"alpha": 2.0},
        {"beta": 0.0},
    ):
        call = call_of(monkeypatch, lambda change=change: lapidist.gemm(**{**given, **change}))  # type: ignore[misc]
        assert asked_again(again, call) is None, change
    assert ready.launched == []


def test_factors_may_be_one_tensor_and_then_two(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    one, two = torch.tensor(0.5), torch.tensor(0.25)
    given = {**asks(torch, "factors", 1.0), "scale_a": one, "scale_b": one}
    _, again = path_of(monkeypatch, ready, given)
    for scale_a, scale_b in ((one, one), (one, two), (two, two)):
        changed = {**given, "scale_a": scale_a, "scale_b": scale_b}
        asked_again(again, call_of(monkeypatch, lambda changed=changed: lapidist.gemm(**changed)))  # type: ignore[misc]
        pointers = ready.launched.pop()[-1]
        assert (pointers.scale_a, pointers.scale_b) == (scale_a.data_ptr(), scale_b.data_ptr())
    other = call_of(monkeypatch, lambda: lapidist.gemm(**{**given, "scale_b": one.double()}))
    assert asked_again(again, other) is None


def test_another_c_is_not_taken_for_out(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    """A plan has no key that tells them apart."""
    call, again = path_of(monkeypatch, ready, asks(torch, "c is out", 0.75))
    assert again is not None
    assert asked_again(again, call) is call.out
    assert asked_again(again, replace(call, c=call.out.clone())) is None


def test_an_epilogue_alone_makes_no_call(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    """matmul finds the short way by the same key as the long way remembers it."""
    given = asks(torch, "factors", 1.0)
    del given["alpha"]
    a, b = given.pop("a"), given.pop("b")
    call = call_of(monkeypatch, lambda: lapidist.matmul(a, b, **given))
    usual = types_named(None, None, "ieee")
    known = {key_with_arrays(call): ArrayPath(lambda *given: given, OF_MATMUL, usual, None)}
    values = None, None, None, 1.0, 0.0, given["scale_a"], given["scale_b"], None
    asked = known, a, b, None, given["out"], values, None, OF_MATMUL
    for _ in range(2):  # found by its key, and as what is likely
        assert repeated_with_arrays(*asked, usual, None) is not None
        assert repeated_with_arrays(*asked, types_named("float32", None, "ieee"), None) is None


@pytest.mark.parametrize("flag", [{"trans_b": []}, {"trans_a": 1}, {"permuted": 1}])
def test_flags_that_are_no_bools_have_no_key(
    torch: Any, monkeypatch: pytest.MonkeyPatch, flag: dict[str, Any]
) -> None:
    """A list is no part of a key, and 1 would have that of True, which was checked."""
    given = {**asks(torch, "gather", 1.0), **flag}
    assert key_with_arrays(call_of(monkeypatch, lambda: lapidist.gemm(**given))) is None
    if "trans_a" not in flag:
        with pytest.raises(lapidist.LapidistError, match=f"{next(iter(flag))}: must be"):
            lapidist.gemm(**given)
