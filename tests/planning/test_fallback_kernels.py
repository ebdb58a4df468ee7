"""What runs while a plan's own kernel is not compiled: something of the same bits, or nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lapidist.build import background_compile
from lapidist.build.cache import encode, entry_path
from lapidist.build.compile_policy import BACKGROUND, NEVER, WAIT
from lapidist.build.compiler import Order, key_of
from lapidist.build.folder import VARIABLE
from lapidist.device import chip
from lapidist.epilogues.ready_made import READY
from lapidist.errors import CompileError
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Binary
from lapidist.planning import binaries, fallback_kernels
from lapidist.planning.fallback_kernels import is_under_way, plans_ranked, running, same_sums
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.problem import dense_problem
from lapidist.problems.scaling import PROMOTED
from lapidist.schedule.sharing_choice import Sharing
from planned import with_bias

H200 = chip("h200")
Done = Callable[[Binary], None]


@pytest.fixture(autouse=True)
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Order, Done]]]:
    """Nothing is there, and what is asked for is written down."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    asked: list[tuple[Order, Done]] = []
    monkeypatch.setattr(background_compile, "ask", lambda order, done: asked.append((order, done)))
    monkeypatch.setattr(
        background_compile, "is_under_way", lambda order: order in [each for each, _ in asked]
    )
    monkeypatch.setattr(background_compile, "be_ready", lambda: None)
    binaries.forget()
    yield asked
    binaries.forget()


def plan_of(*extents: int, math: str = "bfloat16") -> Plan:
    return make_plan(dense_problem(*extents, math), H200)


def binary_of(plan: Plan) -> Binary:
    entry, architecture = plan.kernel.entry, plan.device.architecture
    return Binary(entry, architecture, f".target {architecture}\n.entry {entry}(", b"", "")


def others_of(plan: Plan) -> list[Plan]:
    return list(plans_ranked(plan, same_sums(plan)))


def compile_it(plan: Plan) -> None:
    binaries.remember(binary_of(plan), *plan.build)


def test_others_of_the_same_order_are_many() -> None:
    plan = plan_of(4096, 4096, 4096)
    others = list(others_of(plan))
    assert len(others) > 20
    assert {other.sum_order for other in others} == {plan.sum_order}
    assert {other.kernel.kind for other in others} == {"production"}
    assert all(other.callers_problem == plan.callers_problem for other in others)


SHARED: list[dict[str, Any]] = [{}, {"schedule": "stream_k"}, {"split_k": 2, "reduction": "turnstile"}]
SHARED += [{"split_k": 3, "reduction": "separate"}, {"split_k": 2, "reduction": "cluster"}]


@pytest.mark.often(3)
@pytest.mark.parametrize("math", ["bfloat16", "float32", "tf32", "float64", "float8_e4m3fn"])
@pytest.mark.parametrize("choices", SHARED, ids=str)
def test_all_of_them_are_of_the_same_order(math: str, choices: dict[str, Any]) -> None:
    """Wherever k is cut, and whatever its last tile is padded with."""
    for extents in ((200, 1000, 1100), (48, 272, 4096), (65, 72, 272), (300, 300, 1160), (4096, 4096, 4100)):
        for promote in (False, True)[: 1 + math.startswith("float8")]:
            problem = dense_problem(*extents, math, "rc")
            problem = replace(problem, scaling=PROMOTED) if promote else problem
            plan = make_plan(problem, H200, sharing=Sharing(**choices))
            assert {other.sum_order for other in others_of(plan)} == {plan.sum_order}, str(plan)


def test_those_of_a_bias_are_as_many() -> None:
    """Other functions have their own bits in each config."""
    problem = dense_problem(4096, 4096, 4096, "bfloat16")
    plan = make_plan(with_bias(problem), H200)
    others = list(others_of(plan))
    assert len(others) > 20
    assert {other.sum_order for other in others} == {plan.sum_order} == {make_plan(problem, H200).sum_order}
    assert plan.problem.fused is not None
    longer = replace(plan.problem.fused, function=READY["bias_relu"].function)
    alone = make_plan(replace(with_bias(problem), fused=longer), H200)
    assert {other.build for other in others_of(alone)} <= {alone.build}


def test_configs_that_would_rather_share_tiles_are_among_them() -> None:
    plan = plan_of(200, 5000, 4096)
    assert plan.sum_order.cuts is None
    shared = {each.config for each in plan.considered if each.shares_tiles and each.refusal is None}
    assert shared & {other.config for other in others_of(plan)}


def test_what_is_there_runs_itself(orders: list[tuple[Order, Done]]) -> None:
    plan = plan_of(4096, 4096, 4096)
    compile_it(plan)
    assert all(running(plan, way) is plan for way in (BACKGROUND, WAIT, NEVER))
    assert orders == []


def test_the_fastest_that_is_there_stands_in(orders: list[tuple[Order, Done]]) -> None:
    plan = plan_of(4096, 4096, 4096)
    first, *_, last = others_of(plan)
    assert first.build == plan.build
    compile_it(last)
    assert running(plan, BACKGROUND).build == last.build
    (order, done), *more = orders
    assert order == binaries.order_of(*plan.build)
    assert more == []
    assert is_under_way(plan.build)
    assert not binaries.in_memory(*plan.build)
    done(binary_of(plan))
    assert binaries.in_memory(*plan.build)
    assert running(plan, BACKGROUND) is plan


def test_nothing_is_asked_for_where_nothing_shall_be_compiled(orders: list[tuple[Order, Done]]) -> None:
    plan = plan_of(4096, 4096, 4096)
    *_, last = others_of(plan)
    compile_it(last)
    assert running(plan, NEVER).build == last.build
    assert orders == []


def test_it_waits_where_nothing_sums_alike(
    orders: list[tuple[Order, Done]], caplog: pytest.LogCaptureFixture
) -> None:
    """Not for what is there but sums in another order."""
    caplog.set_level(logging.INFO, "lapidist")
    plan = plan_of(4096, 4096, 4096)
    shared = make_plan(
        dense_problem(4096, 4096, 4096, "bfloat16"), H200, kernel_named("wgmma"), None, Sharing(split_k=4)
    )
    assert shared.sum_order != plan.sum_order
    compile_it(shared)
    assert running(plan, BACKGROUND) is plan
    (line,) = [record.message for record in caplog.records]
    assert "waiting for wgmma" in line
    assert orders == []


def test_a_call_that_waits_starts_a_compiler_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless its caller wants no kernels but those it waits for."""
    started: list[str] = []
    monkeypatch.setattr(background_compile, "be_ready", lambda: started.append("compiler"))
    running(plan_of(4096, 4096, 4096), WAIT)
    assert not started
    running(plan_of(4096, 4096, 4096), BACKGROUND)
    assert started == ["compiler"]


def test_an_empty_cache_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """To weigh what might lie there takes a first call as long as a tenth of its compiling."""
    looked: list[Plan] = []
    monkeypatch.setattr(fallback_kernels, "fallback_of", lambda plan, way: looked.append(plan))
    plan = plan_of(4096, 4096, 4096)
    assert running(plan, BACKGROUND) is plan
    assert looked == []
    *_, last = others_of(plan)
    key = key_of(*binaries.order_of(*last.build))
    entry_path(key).write_bytes(encode(key, binary_of(last)))
    running(plan, BACKGROUND)
    assert looked == [plan]


def test_never_says_what_is_missing() -> None:
    plan = plan_of(4096, 4096, 4096)
    with pytest.raises(CompileError) as raised:
        running(plan, NEVER)
    for word in ("compile:", "wgmma bf16, steps of 16, whole tiles", "LAPIDIST_COMPILE", "lapidist warm"):
        assert word in str(raised.value)


def test_what_lies_on_disk_is_there_and_what_is_damaged_is_not() -> None:
    plan = plan_of(4096, 4096, 4096)
    key = key_of(*binaries.order_of(*plan.build))
    path = entry_path(key)
    content = encode(key, binary_of(plan))
    path.write_bytes(content[:-3] + b"...")
    with pytest.raises(CompileError):
        running(plan, NEVER)
    path.write_bytes(content)
    assert running(plan, NEVER) is plan


def test_integers_take_any_kernel_that_is_there() -> None:
    plan = plan_of(64, 8192, 8192, math="int8")
    mma = next(each for each in others_of(plan) if each.kernel.name == "mma")
    compile_it(mma)
    assert running(plan, BACKGROUND).build == mma.build


def test_of_nothing_there_is_nothing_to_compile(orders: list[tuple[Order, Done]]) -> None:
    plan = plan_of(0, 64, 64)
    assert running(plan, NEVER) is plan
    assert orders == []
