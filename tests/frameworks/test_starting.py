"""Repeated calls that go straight into a kernel's parameters: byte for byte those of the long way."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import lapidist
from beside_cases import FORMS, M, N, Ready, asks, call_of, matrices, scaled
from lapidist import api
from lapidist.calls import full_path
from lapidist.calls.call import Call
from lapidist.calls.operation import Operation
from lapidist.calls.repeat.fast_path import fast_path
from lapidist.calls.repeat.shape import key_with_arrays
from lapidist.calls.repeat.with_arrays import fast_path_with_arrays
from stand_in_card import Straight

pytestmark = pytest.mark.frameworks


@lapidist.epilogue
def by_shares(acc: Any, share: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, share, seed)


@lapidist.epilogue
def of_pairs(acc: lapidist.Pair, gain: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.silu(acc.first * gain) * acc.second * s


def straight(
    torch: Any, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> tuple[Straight, Callable[[dict[str, Any]], Any]]:
    """What is launched, and what asks for it again by the short way alone."""
    call = call_of(monkeypatch, lambda: lapidist.gemm(**given))
    ready, bound = Straight(call), call.bound()
    result = full_path.run(None, bound, call.choices, None)
    again = fast_path_with_arrays(ready, bound, call, result)  # type: ignore[arg-type]
    assert again is not None
    monkeypatch.setattr(full_path, "ARRAY_PATHS", known := {key_with_arrays(call): again})
    monkeypatch.setattr(api, "ARRAY_PATHS", known)

    def ask(given: dict[str, Any]) -> Any:
        """None: the long way was taken."""
        with monkeypatch.context() as patch:
            patch.setattr(full_path, "multiplied_with_arrays", lambda _: None)
            return lapidist.gemm(**given)

    return ready, ask


@pytest.mark.parametrize("form", [*FORMS, "factors", "a factor that is a number", "pairs", "D' = B' A'"])
def test_the_parameters_are_those_of_the_long_way(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str
) -> None:
    """Of calls in turns: all new, the same, one address new at a time, what was there before."""

    def given(number: float) -> dict[str, Any]:
        if form == "pairs":
            a, b, _ = matrices(torch)
            function = of_pairs(gain=torch.rand(N // 2), s=number)
            return {"a": a, "b": b, "out": torch.empty(M, N // 2), "epilogue": function}
        if form != "D' = B' A'":
            return asks(torch, form, number)
        asked = {
            **asks(torch, "epilogue", number),
            "scatter_d": torch.randperm(M),
            "gather_b": torch.arange(N),
        }
        return {**asked, **{name: asked[name].T.contiguous().T for name in ("c", "out")}}

    first = given(0.75)
    card, ask = straight(torch, monkeypatch, first)
    if form == "D' = B' A'":
        assert card.parts[0].plan.problem.transposed
    second, third = given(0.25), given(1.5)
    mixed = [{**second, name: third[name]} for name in first if name not in ("a", "b", "c", "out")]
    for asked in (first, first, second, second, third, *mixed, first, third):
        if form == "c is out":
            asked = {**asked, "c": asked["out"]}
        assert ask(asked) is not None
        call = call_of(monkeypatch, lambda asked=asked: lapidist.gemm(**asked))  # type: ignore[misc]
        assert card.kernel.given.pop() == card.expected(call)
    assert card.kernel.given == []


def test_each_thread_has_parameters_of_its_own(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    """Another thread begins where this one left off, and this one goes on."""
    given, other = asks(torch, "epilogue", 0.75), asks(torch, "epilogue", 0.25)
    card, ask = straight(torch, monkeypatch, given)
    for asked in (given, other, other, given):
        for in_thread in (False, True):
            if in_thread:
                thread = threading.Thread(target=ask, args=(asked,))
                thread.start()
                thread.join()
            else:
                ask(asked)
            call = call_of(monkeypatch, lambda asked=asked: lapidist.gemm(**asked))  # type: ignore[misc]
            assert card.kernel.given.pop() == card.expected(call)


def test_a_share_beyond_one_is_refused_again(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    given = {**asks(torch, "gather", 1.0), "gather_a": None}
    card, ask = straight(torch, monkeypatch, {**given, "epilogue": by_shares(share=0.5, seed=1)})
    assert ask({**given, "epilogue": by_shares(share=0.25, seed=2)}) is not None
    assert len(card.kernel.given) == 1
    for share in (1.0, 1.5, -0.25, float("nan")):
        assert ask({**given, "epilogue": by_shares(share=share, seed=1)}) is None
    assert len(card.kernel.given) == 1


def test_what_the_short_way_must_not_take(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    """Each beside what it takes."""
    given = asks(torch, "factors", 1.0)
    card, ask = straight(torch, monkeypatch, given)
    out, one, room = given["out"], torch.tensor(0.5), torch.empty(M * N + M)
    assert ask(given) is out
    launched = len(card.kernel.given)
    for change in (
        {"scale_a": out.view(-1)[:M].view(M, 1)},  # a factor that is written
        {"scale_a": room[:M].view(M, 1), "out": room[M // 2 :][: M * N].view(M, N)},
        {"scale_a": one},
        {"scale_a": one, "scale_b": one},
        {"scale_b": None},
        {"scale_b": given["scale_b"].tolist()[0][0]},
        {"scale_b": given["scale_b"].clone().requires_grad_()},
        {"scale_a": torch.rand(2 * M, 1)[::2]},
        {"alpha": torch.tensor(1.0)},
        {"alpha": 0.5},
        {"c": torch.randn(M, N), "beta": 0.5},
        {"c": torch.randn(M + 1, N)},
        {"gather_a": torch.randperm(M)},
        {"check_indices": True},
        {"trans_a": 1},
        {"permuted": True},
        {"out_dtype": torch.bfloat16},
        {"device": "host"},
        {"epilogue": scaled(bias=torch.randn(N), s=1.0)},
        {"out": (out,)},
        {"out": [out]},
        {"out": torch.empty(M, N).T.contiguous().T},
    ):
        with suppress(lapidist.LapidistError):
            assert ask({**given, **change}) is None, change
        assert len(card.kernel.given) == launched, change
    beyond = room[M:][: M * N].view(M, N)
    assert ask({**given, "out": beyond}) is beyond


def test_nothing_of_the_arrays_is_kept(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    for form in (*FORMS, "factors"):
        given = asks(torch, form, 0.75)
        _, ask = straight(torch, monkeypatch, given)
        ask(given)
        values = given.pop("epilogue").values.values() if "epilogue" in given else ()
        arrays = [*given.values(), *values]
        del given, values
        watched = [weakref.ref(x) for x in arrays if isinstance(x, torch.Tensor)]
        arrays.clear()
        gc.collect()
        assert [x() for x in watched] == [None] * len(watched), form


def test_alpha_and_beta_may_be_of_any_type_the_short_way(torch: Any, ready: Ready) -> None:
    a, b, out = matrices(torch)
    call = Call(a, b, None, out, Operation(alpha=2.0))
    card: Any = Straight(call)
    card.direct, card.settled, card.out_dtype = True, True, "float32"
    again = fast_path(card, call.bound())
    assert again is not None
    for scalars in ((2.0, 0.0), (2, 0), (3, 0)):
        assert again(a, b, None, out, scalars, None) is out


def test_the_short_way_of_matrices_alone_ends_for_good(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    """Once something better runs: who asks again must not be served by the kernel from before."""
    a, b, out = matrices(torch)
    call = Call(a, b, None, out, Operation())
    card: Any = Straight(call)
    answers = [2, 0]
    card.direct, card.settled, card.countdown, card.out_dtype = True, False, 3, "float32"
    card.look_for_upgrade, card.is_captured = lambda kernel: answers.pop(0), lambda stream: False
    again = fast_path(card, call.bound())
    assert again is not None
    found = [again(a, b, None, out, (1.0, 0.0), None) for _ in range(7)]
    assert [each is out for each in found] == [True] * 4 + [False] * 3
    assert found[4:] == [None] * 3
    assert len(card.kernel.given) == 4
