"""LAPIDIST_SHAPES: calls list what they ask of a GPU, once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lapidist
from counted_card import Card, stand_in
from lapidist.backends.gpu import second_pass_launches
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of
from lapidist.calls.emulated_launches import Emulated, Multiplied, Room
from lapidist.calls.kernel_choice import OPEN
from lapidist.calls.operation import Operation
from lapidist.commands.logged_products import read_shapes
from lapidist.device import chip
from lapidist.launch import Binary
from lapidist.planning import binaries, emulated_passes, fallback_kernels, shape_log
from lapidist.planning.logged_shapes import LoggedParts, LoggedPass, LoggedShape, line_of, of_line

Array = np.ndarray[Any, Any]

card = pytest.fixture(stand_in)


def operands(m: int) -> tuple[Array, Array]:
    return np.zeros((m, 256), np.float16), np.zeros((256, 1024), np.float16)


def shapes_in(path: Path) -> list[LoggedShape]:
    return [logged for logged in read_shapes(path) if isinstance(logged, LoggedShape)]


def test_a_shape_is_a_line_for_all_its_calls_and_kernels(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin with another kernel and go on with their own, which the log leads to."""
    wanted = lapidist.plan(*operands(512), device=0, compile="wait").plan
    assert wanted is not None
    *_, other = fallback_kernels.plans_ranked(wanted, fallback_kernels.same_sums(wanted))
    binaries.remember(Binary("", "", "", b"", ""), *other.build)
    shape_log.append.cache_clear()
    monkeypatch.setenv(shape_log.VARIABLE, str(tmp_path / "shapes.jsonl"))
    for _ in range(2):
        lapidist.matmul(*operands(512), device=0, compile="background")
    card.comes()
    for m in (512, 512, 640):
        lapidist.matmul(*operands(m), device=0, compile="background")
    first, second = shapes_in(tmp_path / "shapes.jsonl")
    assert first.plan().build == wanted.build
    assert [plan.build for plan in card.ran[:3]] == [other.build] * 2 + [wanted.build]
    assert second.problem.m == 640


def test_lists_are_logged(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape_log.append.cache_clear()
    monkeypatch.setenv(shape_log.VARIABLE, str(tmp_path / "shapes.jsonl"))
    a, b = operands(64)
    for _ in range(2):
        lapidist.gemm([a, a], [b, b], device=0, compile="wait")
    (shape,) = shapes_in(tmp_path / "shapes.jsonl")
    assert shape.plan().build == card.ran[0].build


def test_second_passes_are_logged(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(second_pass_launches, "kernels_of", lambda second_pass, _: loaded.append(second_pass))
    shape_log.append.cache_clear()
    monkeypatch.setenv(shape_log.VARIABLE, str(tmp_path / "shapes.jsonl"))
    rows = lapidist.epilogue(lambda acc: (acc, lapidist.row_sum(acc)))
    for _ in range(2):
        lapidist.plan(*operands(64), device=0, compile="wait", epilogue=rows())
    logged = read_shapes(tmp_path / "shapes.jsonl")
    passes = [line.second_pass for line in logged if isinstance(line, LoggedPass)]
    assert {*passes} == {*loaded} != set()
    assert len(passes) == len({*passes})


def test_what_emulated_products_launch_is_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes of every kind of parts, and products behind a guard."""
    orders: list[tuple[Any, ...]] = []

    def compile_kernel(source: str, entry: str, defines: Any, architecture: str, **_: object) -> Binary:
        orders.append((source, entry, *defines.items(), architecture))
        return Binary("", "", "", b"", "")

    monkeypatch.setattr(emulated_passes, "compile_kernel", compile_kernel)
    monkeypatch.setenv(shape_log.VARIABLE, str(tmp_path / "shapes.jsonl"))
    for cache in (shape_log.append, emulated_passes.slicing, emulated_passes.joining):
        cache.cache_clear()
    bound = Bound(*(np.zeros((512, 512), np.float32) for _ in "ab"), None, None, Operation())
    _, d = output_of(bound)
    card: Any = SimpleNamespace(chip=chip("h200"), compiles=True)
    launches = [*Emulated(bound, d, card, OPEN, emulated_passes.HALVES, Room(bound.like)).launches()]
    for cache in (emulated_passes.slicing, emulated_passes.joining):
        cache.cache_clear()
    asked = set(orders)
    orders.clear()
    for logged in read_shapes(tmp_path / "shapes.jsonl"):
        assert isinstance(logged, LoggedParts)
        logged.compile()
    assert asked == {order for order in orders if order[1] != "take_columns"}  # of weights cut before
    products = [launch.bound.problem() for launch in launches if isinstance(launch, Multiplied)]
    assert {problem.modes.guarded for problem in products} == {True}
    for problem in products:
        shape = LoggedShape(card.chip, problem)
        assert of_line(line_of(shape)) == shape
