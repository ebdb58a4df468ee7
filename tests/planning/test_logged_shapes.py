"""The file of shapes that calls log: what a line says, and which lines are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import of_all_kinds, operands
from group_products import group_product
from lapidist.build.folder import warn_once
from lapidist.calls.bound import Bound
from lapidist.calls.operation import Groups, Operation
from lapidist.commands.logged_products import read_shapes
from lapidist.device import chip
from lapidist.errors import ArgumentError
from lapidist.kernels.registry import kernel_named
from lapidist.planning import shape_log
from lapidist.planning.emulated_passes import HALVES
from lapidist.planning.logged_shapes import LoggedParts, LoggedPass, LoggedShape, line_of
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.second_passes import Pass, RowsOfGroups, Target
from lapidist.planning.shape_log import VARIABLE, log_parts, log_pass, log_shape
from lapidist.problems.problem import dense_problem
from lapidist.schedule.sharing_choice import Sharing

H100, H200 = chip("h100"), chip("h200")
PLAN = make_plan(dense_problem(16, 4096, 4096, "bfloat16", "rc"), H100)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shape_log.append.cache_clear()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "shapes.jsonl"))
    return tmp_path / "shapes.jsonl"


def plan_in_machine(*arrays: Any, **more: Any) -> Plan:
    plan = lapidist.plan(*arrays, device="machine", **more).plan
    assert plan is not None
    return plan


def grouped_plan(extent: str) -> Plan:
    product = group_product(np.random.default_rng(5), extent, (40, 0, 24), (80, 48))
    bound = Bound(product.a, product.b, None, None, Operation(groups=Groups(product.ends)))
    return make_plan(bound.problem(), H200)


def plans() -> list[Plan]:
    """Of each kind of product, and with each choice that a caller has."""
    rng = np.random.default_rng(5)
    a, b = np.ones((3, 64, 48), "float32"), np.ones((3, 48, 80), "float32")
    quantised = lapidist.epilogue(lambda acc: lapidist.Quantised(lapidist.relu(acc), "float8_e4m3fn"))
    problem, simt = dense_problem(300, 520, 200, "float32"), kernel_named("simt")
    (config, _), *_ = simt.configs_for("float32")
    return [
        PLAN,
        make_plan(problem, H200, simt),
        make_plan(problem, H200, simt, config),
        make_plan(problem, H200, sharing=Sharing(split_k=4, reduction="separate")),
        make_plan(problem, H200, sharing=Sharing("stream_k", avail_sms=20)),
        plan_in_machine(a, b),
        plan_in_machine(a[0], b[0], np.ones((64, 80), "float32"), beta=0.5),
        plan_in_machine(a[0], b[0], gather_a=np.array([1, 1, 0])),
        plan_in_machine([a[0], a[1]], [b[0], b[1]], mode="array"),
        plan_in_machine(a[0], b[0], epilogue=of_all_kinds(**operands(rng, 64, 80))),
        plan_in_machine(a[0], b[0], epilogue=quantised()),
        *map(grouped_plan, "mnk"),
    ]


def test_each_shape_is_a_line_and_comes_back(log: Path) -> None:
    logged = plans()
    for plan in [*logged, PLAN]:
        log_shape(plan)
    assert len(log.read_text().splitlines()) == len(logged)
    for shape, plan in zip(read_shapes(log), logged, strict=True):
        assert isinstance(shape, LoggedShape)
        assert shape.chip == plan.device
        assert shape.problem == plan.callers_problem
        assert shape.plan().build == plan.build
        assert shape.plan().sum_order == plan.sum_order


PASSES = [
    Pass("row_sum", "float32", (1, 64, 80), Target("bfloat16", 80, 1)),
    Pass("quantised", "float32", (1, 64, 256), Target("float8_e4m3fn", 256, 1), Target("float32", 2, 1)),
    Pass(
        "quantised",
        "float32",
        (1, 64, 256),
        Target("float8_e4m3fn", 256, 1),
        Target("float32", 2, 1),
        groups=RowsOfGroups(5, 64, 0, "int64"),
    ),
]


def test_each_second_pass_is_a_line_and_comes_back(log: Path) -> None:
    for second_pass in [*PASSES, PASSES[0]]:
        log_pass(second_pass, H100)
    assert read_shapes(log) == [LoggedPass(H100, second_pass) for second_pass in PASSES]


def test_each_kind_of_parts_is_a_line_and_comes_back(log: Path) -> None:
    for parts in (*HALVES.every, HALVES):
        log_parts(parts, H100)
    assert read_shapes(log) == [LoggedParts(H100, parts.macro) for parts in HALVES.every]


def test_a_plan_that_stands_in_logs_what_it_stands_in_for(log: Path) -> None:
    from lapidist.planning.fallback_kernels import plans_ranked, same_sums

    *_, other = plans_ranked(PLAN, same_sums(PLAN))
    assert other.build != PLAN.build
    assert LoggedShape.of(other) == LoggedShape.of(PLAN)


def test_lines_of_several_processes_count_once(log: Path) -> None:
    log_shape(PLAN)
    log.write_text(log.read_text() * 3 + "\n")
    assert len(read_shapes(log)) == 1


def test_nothing_is_logged_unless_it_is_asked_for(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    log_shape(PLAN)
    assert not log.exists()


def test_a_product_without_a_launch_is_not_logged(log: Path) -> None:
    log_shape(make_plan(dense_problem(0, 64, 64, "float32"), H100))
    assert not log.exists()


def test_a_log_that_cannot_be_written_stops_no_call(
    log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    monkeypatch.setenv(VARIABLE, str(log / "in" / "no" / "folder"))
    log_shape(PLAN)
    assert VARIABLE in caplog.text


def changed(**more: Any) -> str:
    """PLAN's line with other fields of its problem."""
    content = json.loads(line_of(LoggedShape.of(PLAN)))
    return json.dumps(content | {"problem": content["problem"] | more})


def with_step(**more: Any) -> str:
    """A line whose epilogue has one step changed."""
    a = np.ones((64, 64), "float32")
    halved = lapidist.epilogue(lambda acc: lapidist.relu(acc) * 0.5)
    content = json.loads(line_of(LoggedShape.of(plan_in_machine(a, a, epilogue=halved()))))
    steps = content["problem"]["fused"]["function"]["steps"]
    steps[1] |= more
    return json.dumps(content)


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        "[" * 100000,
        '{"problem": {}}',
        changed(m="16"),
        changed(m=16.0),
        changed(m=True),
        changed(m=-1),
        changed(batch=3),
        changed(batch=["3"]),
        changed(dtype="float33"),
        changed(precision="ieee\n"),
        changed(a={"rows": 16}),
        changed(modes={"ragged": {"extent": "l", "groups": 2, "total": 16}}),
        changed(further=1),
        with_step(operation="asm"),
        with_step(value='1); asm("'),
        with_step(args=[7]),
        line_of(LoggedParts(H100, 7)),
        line_of(LoggedPass(H100, PASSES[0]._replace(then="row_product"))),
        line_of(LoggedPass(H100, PASSES[0]._replace(dtype="int8"))),
        line_of(LoggedPass(H100, PASSES[0]._replace(shape=(1, -1, 80)))),
        line_of(LoggedPass(H100, PASSES[0]._replace(target=Target("float33", 80, 1)))),
        line_of(LoggedPass(H100, PASSES[2]._replace(groups=RowsOfGroups(5, 64, 0, "int63")))),
    ],
)
def test_other_lines_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f"\n{line}\n")
    with pytest.raises(ArgumentError, match=r"--shapes: line 2 must"):
        read_shapes(tmp_path / "log")


def test_the_unchanged_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{changed()}\n{with_step()}\n")
    assert len(read_shapes(tmp_path / "log")) == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=f"--shapes: must be a file that {VARIABLE} named"):
        read_shapes(tmp_path / "none")
