"""What goes wrong behind calls leaves them working: they go on with what is there, and one
warning says why."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends.gpu import driver, launched_products
from lapidist.build import background_compile
from lapidist.build.cache import encode, entry_path
from lapidist.build.compiler import Order, key_of
from lapidist.build.folder import VARIABLE, warn_once
from lapidist.build.workers import Answer
from lapidist.calls import prepared, repeat
from lapidist.device import chip
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Binary
from lapidist.planning import background_thread, binaries
from lapidist.planning.fallback_kernels import planned_at_once, plans_ranked, same_sums
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.problem import dense_problem

A, B = np.zeros((512, 256), np.float16), np.zeros((256, 1024), np.float16)


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plan]]:
    """Plans that a card ran which is not there; compilers and a cache of this test alone."""
    found: list[Plan] = []

    class Kernel:
        def __init__(self, plan: Plan, own: object) -> None:
            self.plan = plan

        def start(self, *_: object) -> None:
            found.append(self.plan)

    @contextmanager
    def upload(ordinal: int, operands: list[Operand]) -> Iterator[list[int]]:
        yield [operand.pointer for operand in operands]

    own = background_compile.Behind()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(launched_products.GpuBackend, "loaded", Kernel)
    monkeypatch.setattr(launched_products, "query_device", lambda ordinal: chip("h200"))
    monkeypatch.setattr(driver, "require_gpu", lambda ordinal: None)
    monkeypatch.setattr(launched_products, "choose_stream", lambda *_: 0)
    monkeypatch.setattr(launched_products, "upload", upload)
    monkeypatch.setattr(repeat, "PREPARED", {})
    monkeypatch.setattr(prepared, "CALLS_BETWEEN", 1)
    monkeypatch.setattr(background_compile, "_behind", own)
    # a thread that weighs would ask for kernels in the next test
    monkeypatch.setattr(prepared.background_thread, "ask", lambda work: None)
    warn_once.cache_clear()
    binaries.forget()
    yield found
    own.stop()
    binaries.forget()


def at_hand_and_another() -> tuple[Plan, Plan]:
    """The plan of the first call, and one of its order."""
    first = planned_at_once(dense_problem(512, 1024, 256, "float16"), chip("h200"))
    assert first is not None
    return first, list(plans_ranked(first, same_sums(first)))[-1]


def best_and_another() -> tuple[Plan, Plan]:
    """The plan that all configs were weighed for, and one of its order."""
    best = make_plan(dense_problem(512, 1024, 256, "float16"), chip("h200"))
    return best, at_hand_and_another()[1]


def binary_of(plan: Plan) -> Binary:
    entry, architecture = plan.kernel.entry, plan.device.architecture
    return Binary(entry, architecture, f".target {architecture}\n.entry {entry}(", b"", "")


def call(times: int = 3) -> None:
    for _ in range(times):
        lapidist.matmul(A, B, device=0)


def wait_for(plan: Plan) -> None:
    order = binaries.order_of(*plan.build)
    while background_compile.is_under_way(order):
        os.sched_yield()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def dying(connection: object) -> None:
    raise SystemExit(7)


def kept(worker: object, order: Order) -> Answer:
    """A compiler that finds no room for what it made."""
    return Answer(0.1, None)


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [("make_calls", dying, "process ended (7)"), ("compile_in", kept, "could not be kept in")],
    ids=["compilers that die", "a full disk"],
)
def test_calls_go_on_with_what_stands_in(
    ran: list[Plan],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    fault: Any,
    words: str,
) -> None:
    monkeypatch.setattr(background_compile, name, fault)
    monkeypatch.setattr(prepared.background_thread, "ask", lambda work: work())
    best, other = best_and_another()
    binaries.remember(binary_of(other), *other.build)
    call()
    wait_for(best)
    call()
    assert [plan.config for plan in ran] == [other.config] * 6
    (line,) = warnings(caplog)
    assert words in line
    assert background_compile.GO_ON in line


def test_a_corrupt_binary_is_as_good_as_none(ran: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one of its order runs, and it is compiled behind."""
    orders: list[Order] = []
    monkeypatch.setattr(
        background_compile, "compile_in", lambda worker, order: orders.append(order) or Answer(0.0, "no")
    )
    monkeypatch.setattr(prepared.background_thread, "ask", lambda work: work())
    best, other = best_and_another()
    order = binaries.order_of(*best.build)
    path = entry_path(key_of(*order))
    path.write_bytes(encode(key_of(*order), binary_of(best))[:-3] + b"...")
    binaries.remember(binary_of(other), *other.build)
    call()
    wait_for(best)
    assert [plan.config for plan in ran] == [other.config] * 3
    assert orders == [order]


def test_a_misspelt_way_is_told_once_and_calls_go_on(
    ran: list[Plan], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAPIDIST_COMPILE", "nevr")
    first, _ = at_hand_and_another()
    binaries.remember(binary_of(first), *first.build)
    call()
    assert [plan.config for plan in ran] == [first.config] * 3
    (line,) = warnings(caplog)
    assert "LAPIDIST_COMPILE" in line
    assert "'nevr'" in line


def test_weighing_that_fails_is_told_once_and_calls_go_on(
    ran: list[Plan], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(plan: Plan) -> None:
        raise MemoryError("no room to weigh them")

    first, _ = at_hand_and_another()
    binaries.remember(binary_of(first), *first.build)
    monkeypatch.setattr(prepared, "better_than", fails)
    work: list[Any] = []
    monkeypatch.setattr(prepared.background_thread, "ask", work.append)
    call()
    thread = background_thread.BackgroundThread()
    thread.ask(work[0])
    while not warnings(caplog):
        os.sched_yield()
    call()
    assert len(work) == 1
    assert all(ready.settled for ready in repeat.PREPARED.values())
    assert {plan.config for plan in ran} == {first.config}
    (line,) = warnings(caplog)
    assert "no room to weigh them" in line


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_in_between_leaves_both_calling(ran: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_compile, "compile_in", lambda worker, order: Answer(0.0, "not here"))
    _, other = at_hand_and_another()
    binaries.remember(binary_of(other), *other.build)
    call()
    child = os.fork()
    call()
    right = [plan.config for plan in ran] == [other.config] * 6
    if child == 0:
        os._exit(0 if right else 1)
    assert right
    assert os.waitpid(child, 0)[1] == 0
