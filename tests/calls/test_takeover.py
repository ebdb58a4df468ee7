"""Calls that begin with another kernel of the same bits, and go on with their own once it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lapidist
from counted_card import Card, stand_in
from lapidist.backends.gpu import launched_products
from lapidist.calls import planned_products, prepared, repeat
from lapidist.calls.call import Call
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation
from lapidist.calls.prepared import Prepared
from lapidist.calls.repeat import upgrade
from lapidist.calls.repeat.upgrade import FINAL, Upgrade, upgrade_of, upgrade_of_lists
from lapidist.calls.repeat.write import CallLayout, written_out
from lapidist.device import chip
from lapidist.errors import ArgumentError, CompileError
from lapidist.launch import Binary
from lapidist.planning import binaries, fallback_kernels
from lapidist.planning.plans import Plan, make_plan

Array = np.ndarray[Any, Any]


card = pytest.fixture(stand_in)


def operands(m: int = 512) -> tuple[Array, Array]:
    return np.zeros((m, 256), np.float16), np.zeros((256, 1024), np.float16)


def wanted_and_another(a: Array, b: Array) -> tuple[Plan, Plan]:
    """The plan that the planner chooses, and one of the same order whose kernel is there."""
    wanted = planned_products.prepared(
        Call(a, b, None, None, Operation()).bound(), Choices(0, compile="wait")
    ).plan
    assert wanted is not None
    *_, other = fallback_kernels.plans_ranked(wanted, fallback_kernels.same_sums(wanted))
    binaries.remember(Binary("", "", "", b"", ""), *other.build)
    return wanted, other


@pytest.mark.parametrize("call", [lapidist.matmul, lapidist.gemm], ids=lambda call: call.__name__)
def test_a_better_kernel_takes_over(card: Card, call: Any) -> None:
    a, b = operands()
    wanted, other = wanted_and_another(a, b)
    for _ in range(2):
        call(a, b, device=0, compile="background")
    card.comes()
    for _ in range(2):
        call(a, b, device=0, compile="background")
    assert [plan.config for plan in card.ran] == [other.config] * 2 + [wanted.config] * 2
    assert {plan.sum_order for plan in card.ran} == {wanted.sum_order}
    assert len(card.asked) == 1


def test_the_environment_says_so_where_nobody_does(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands()
    _, other = wanted_and_another(a, b)
    monkeypatch.setenv("LAPIDIST_COMPILE", "never")
    lapidist.matmul(a, b, device=0)
    assert card.ran[-1].config == other.config
    assert card.asked == []
    monkeypatch.delenv("LAPIDIST_COMPILE")
    lapidist.matmul(*operands(640), device=0)
    assert len(card.asked) == 1


def test_what_does_not_come_is_not_waited_for(card: Card) -> None:
    """Then calls stay with what stands in, and go the short way."""
    a, b = operands()
    _, other = wanted_and_another(a, b)
    lapidist.matmul(a, b, device=0, compile="background")
    (ready,) = (each for each in repeat.PREPARED.values() if each.parts[0].plan.config == other.config)
    assert not ready.settled
    card.under_way = False
    lapidist.matmul(a, b, device=0, compile="background")
    assert ready.settled
    assert [plan.config for plan in card.ran] == [other.config] * 2


def test_a_graph_after_warm_up_keeps_the_kernel_that_is_wanted(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is not compiled yet: a graph would keep the other one for good."""
    a, b = operands()
    wanted, other = wanted_and_another(a, b)
    for _ in range(3):
        lapidist.matmul(a, b, device=0, compile="background")
    monkeypatch.setattr(launched_products.GpuBackend, "is_captured", lambda *_: True)
    lapidist.matmul(a, b, device=0, compile="background")
    assert [plan.config for plan in card.ran] == [other.config] * 3 + [wanted.config]
    assert {plan.sum_order for plan in card.ran} == {wanted.sum_order}


def test_nothing_is_compiled_for_a_graph_that_shall_not_be(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operands()
    _, other = wanted_and_another(a, b)
    lapidist.matmul(a, b, device=0, compile="never")
    monkeypatch.setattr(launched_products.GpuBackend, "is_captured", lambda *_: True)
    lapidist.matmul(a, b, device=0, compile="never")
    assert [plan.config for plan in card.ran] == [other.config] * 2


def test_a_first_call_in_a_capture_waits(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands()
    wanted, _ = wanted_and_another(a, b)
    monkeypatch.setattr(launched_products.GpuBackend, "is_captured", lambda *_: True)
    lapidist.matmul(a, b, device=0, compile="background")
    assert [plan.config for plan in card.ran] == [wanted.config]
    assert card.asked == []


# ---- shapes that are planned at once, by one of the few binaries that serve all ----


@pytest.fixture
def at_once(card: Card, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is to be decided later."""
    later: list[Any] = []
    monkeypatch.setattr(prepared, "planned_at_once", fallback_kernels.planned_at_once)
    monkeypatch.setattr(prepared.background_thread, "ask", later.append)
    return later


def chosen_plans(a: Array, b: Array) -> tuple[Plan, Plan]:
    """At hand, and of all."""
    problem = Call(a, b, None, None, Operation()).bound().problem()
    first, free = fallback_kernels.planned_at_once(problem, chip("h200")), make_plan(problem, chip("h200"))
    assert first is not None
    return first, free


def shape_with_a_better() -> tuple[Array, Array]:
    """Whose best kernel is not among the few."""
    for m in range(512, 4096, 64):
        a, b = operands(m)
        first, _ = chosen_plans(a, b)
        if fallback_kernels.better_than(first) is not None:
            return a, b
    raise AssertionError("the few are the best of all")


def test_all_are_weighed_from_the_second_call_on(card: Card, at_once: list[Any]) -> None:
    a, b = shape_with_a_better()
    first, free = chosen_plans(a, b)
    binaries.remember(Binary("", "", "", b"", ""), *first.build)
    lapidist.matmul(a, b, device=0, compile="background")
    (ready,) = repeat.PREPARED.values()
    assert at_once == []
    lapidist.matmul(a, b, device=0, compile="background")
    (work,) = at_once
    assert not ready.settled
    assert {plan.config for plan in card.ran} == {first.config}
    work()
    assert len(card.asked) == 1
    lapidist.matmul(a, b, device=0, compile="background")
    card.comes()
    for _ in range(2):
        lapidist.matmul(a, b, device=0, compile="background")
    assert ready.settled
    assert [plan.build for plan in card.ran[-2:]] == [free.build, free.build]
    assert {plan.sum_order for plan in card.ran} == {free.sum_order}


@pytest.mark.parametrize("warm_ups", [1, 2, 3])
def test_a_graph_keeps_what_wait_would_take(
    card: Card, at_once: list[Any], monkeypatch: pytest.MonkeyPatch, warm_ups: int
) -> None:
    """Even if not all configs have been weighed yet, or are being weighed."""
    a, b = shape_with_a_better()
    first, free = chosen_plans(a, b)
    binaries.remember(Binary("", "", "", b"", ""), *first.build)
    for _ in range(warm_ups):
        lapidist.matmul(a, b, device=0, compile="background")
    monkeypatch.setattr(launched_products.GpuBackend, "is_captured", lambda *_: True)
    lapidist.matmul(a, b, device=0, compile="background")
    assert [plan.build for plan in card.ran] == [first.build] * warm_ups + [free.build]
    assert {plan.sum_order for plan in card.ran} == {free.sum_order}
    for work in at_once:
        work()
    (ready,) = repeat.PREPARED.values()
    assert ready.parts[0].plan.build == free.build
    assert card.asked == []


def test_what_is_the_best_already_stays(card: Card, at_once: list[Any], monkeypatch: Any) -> None:
    a, b = operands()
    first, _ = chosen_plans(a, b)
    monkeypatch.setattr(prepared, "better_than", lambda plan: None)
    binaries.remember(Binary("", "", "", b"", ""), *first.build)
    lapidist.matmul(a, b, device=0, compile="background")
    (ready,) = repeat.PREPARED.values()
    ready.countdown = 0
    lapidist.matmul(a, b, device=0, compile="background")
    at_once[0]()
    assert ready.settled
    assert card.asked == []


def test_where_it_is_not_compiled_another_of_its_order_runs(card: Card, at_once: list[Any]) -> None:
    """And what is compiled is the best of all, once: the first call does not know it yet."""
    a, b = shape_with_a_better()
    first, free = chosen_plans(a, b)
    *_, other = fallback_kernels.plans_ranked(first, fallback_kernels.same_sums(first))
    binaries.remember(Binary("", "", "", b"", ""), *other.build)
    for _ in range(2):
        lapidist.matmul(a, b, device=0, compile="background")
    assert card.asked == []
    at_once[0]()
    assert len(card.asked) == 1
    lapidist.matmul(a, b, device=0, compile="background")
    assert {plan.build for plan in card.ran} == {other.build}
    card.comes()
    lapidist.matmul(a, b, device=0, compile="background")
    assert card.ran[-1].build == free.build


def test_a_first_call_that_must_wait_waits_for_the_best(card: Card, at_once: list[Any]) -> None:
    a, b = shape_with_a_better()
    _, free = chosen_plans(a, b)
    lapidist.matmul(a, b, device=0, compile="background")
    assert [plan.build for plan in card.ran] == [free.build]


def test_the_log_says_once_that_calls_run_on_fallbacks(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    fallback_kernels.tell_of_fallbacks.cache_clear()
    caplog.set_level("INFO", "lapidist")
    for m in (512, 640):
        wanted_and_another(*operands(m))
        lapidist.matmul(*operands(m), device=0, compile="background")
    told = [record.getMessage() for record in caplog.records if "Run lapidist warm" in record.getMessage()]
    assert len(told) == 1
    assert (
        "Set LAPIDIST_SHAPES to a file, and it lists what to compile: lapidist warm --shapes FILE" in told[0]
    )


STREAM = 7


class Looking:
    """What was prepared, and what it says when it is looked at again."""

    kernel, settled = "kernel", False

    def __init__(self, countdown: int, *answers: int) -> None:
        self.countdown, self.answers, self.captured = countdown, list(answers), False

    def look_for_upgrade(self, kernel: object) -> int:
        assert kernel == self.kernel
        return self.answers.pop(0)

    def is_captured(self, stream: object) -> bool:
        assert stream == STREAM
        return self.captured


class Lying:
    """In place of a tensor."""

    def data_ptr(self) -> int:
        return 16


def path_with(upgrade: Upgrade) -> Callable[[Any], Any]:
    """A fast path that takes any call; it is asked with a stream."""
    checks = (lambda *_: True,) * 2
    results = Lying, None, (16 & 15,) * 3, ((0, 0),) * 2
    numbers = lambda values: (values, [])  # noqa: E731
    launch = None, lambda *_: None, lambda: False, lambda: 0, lambda stream: stream, lambda _: None
    known = (), (1.0, 0.0), (), (1.0, 0.0), None, []
    layout = CallLayout(2, (), (0, 1), counts=upgrade.calls > 0)
    again = written_out(layout)(
        *checks, *results, numbers, *launch, (AttributeError,), *upgrade[1:], upgrade.calls, known
    )
    a, b = Lying(), Lying()
    return lambda stream: again(a, b, None, None, (1.0, 0.0), stream)


def test_calls_are_counted_until_it_is_looked_at() -> None:
    """Where nothing changed they go on the short way; else it answers None, and the long way goes on."""
    ready: Any = Looking(3, 2, 0)
    again = path_with(upgrade_of(ready))
    assert [again(STREAM) is not None for _ in range(6)] == [True] * 4 + [False] * 2


def test_a_graph_ends_the_short_way_of_what_is_not_settled() -> None:
    """The long way takes the final kernel, and later calls must not go back to the other one."""
    ready: Any = Looking(3)
    again = path_with(upgrade_of(ready))
    assert again(STREAM) is not None
    ready.captured = True
    assert again(STREAM) is None
    ready.captured = False
    assert again(STREAM) is None


def test_what_is_settled_is_not_counted() -> None:
    ready: Any = Looking(3)
    ready.settled = True
    assert upgrade_of(ready) is FINAL
    again = path_with(FINAL)
    assert all(again(STREAM) is not None for _ in range(6))


def waiting(card: Card) -> Prepared:
    """For a kernel that is under way."""
    a, b = operands()
    wanted_and_another(a, b)
    lapidist.matmul(a, b, device=0, compile="background")
    (ready,) = (each for each in repeat.PREPARED.values() if not each.settled)
    return ready


def test_a_look_finds_what_has_come(card: Card) -> None:
    ready = waiting(card)
    first = ready.kernel
    assert ready.look_for_upgrade(first) == prepared.CALLS_BETWEEN
    card.comes()
    assert ready.look_for_upgrade(first) == 0
    assert ready.kernel is not first
    assert ready.settled


def test_a_look_finds_what_another_call_has_taken(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = waiting(card)
    monkeypatch.setattr(ready, "improve", lambda: None)
    assert ready.look_for_upgrade(object()) == 0  # type: ignore[arg-type]


def test_a_plan_keeps_its_kernel(card: Card) -> None:
    a, b = operands()
    wanted, other = wanted_and_another(a, b)
    waits, takes = (lapidist.plan(a, b, device=0, compile=way) for way in ("wait", "never"))
    card.comes()
    for gemm in (waits, takes):
        gemm.execute(a, b)
    assert [plan.config for plan in card.ran] == [wanted.config, other.config]
    assert waits.sum_order == takes.sum_order


def test_never_is_refused_in_words_where_nothing_fits(card: Card) -> None:
    with pytest.raises(CompileError, match="nothing is compiled that sums as"):
        lapidist.matmul(*operands(), device=0, compile="never")
    assert card.ran == []


@pytest.mark.parametrize("device", [None, "machine"])
def test_a_wrong_word_is_named(device: str | None) -> None:
    a = np.eye(4, dtype=np.float32)
    for call in (lapidist.matmul, lapidist.gemm):
        with pytest.raises(
            ArgumentError, match="compile: must be one of background, wait, never; got 'late'"
        ):
            call(a, a, device=device, compile="late")
    with pytest.raises(ArgumentError, match="compile: must be one of wait, never; got 'background'"):
        lapidist.plan(a, a, device=device, compile="background")  # type: ignore[arg-type]


class Unsettled:
    settled, countdown = False, 5
    backend = SimpleNamespace(is_captured=lambda stream, framework: False)


def test_the_short_way_of_lists_ends_when_it_is_looked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "CALLS_BETWEEN", 3)
    part: Any = Unsettled()
    again = path_with(upgrade_of_lists([part]))
    assert [again(STREAM) is not None for _ in range(3)] == [True, True, False]
    assert part.countdown == 0
    part.settled = True
    assert upgrade_of_lists([part]) is FINAL
