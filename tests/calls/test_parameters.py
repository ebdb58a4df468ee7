"""gemm's signature is the one declaration of its parameters: what repeats some of them has the same
defaults.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from inspect import Parameter, signature
from types import SimpleNamespace
from typing import Any

import pytest

import lapidist
from lapidist import api

GEMM = signature(lapidist.gemm).parameters


def same(mine: Parameter, other: Parameter) -> bool:
    return (mine.kind, mine.default) == (other.kind, other.default)


def test_a_plan_takes_what_gemm_takes() -> None:
    """In the same order, but for the stream, which each execution has. It keeps its kernel."""
    plan = signature(lapidist.plan).parameters
    assert list(plan) == [name for name in GEMM if name != "stream"]
    assert [name for name in plan if not same(plan[name], GEMM[name])] == []
    assert [name for name in plan if plan[name].annotation != GEMM[name].annotation] == ["a", "compile"]


def test_all_that_was_said_reaches_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value by its own name, whichever place it takes."""
    marks = {name: f"<{name}>" for name in GEMM}
    monkeypatch.setattr(api, "checked", lambda choices: choices)
    monkeypatch.setattr(api, "Sharing", SimpleNamespace)
    monkeypatch.setattr(api, "types_named", lambda **types: types)
    monkeypatch.setattr(api, "given_epilogue", lambda epilogue: epilogue)
    call = api.call_of(marks)
    operation, choices = call.operation, call.choices
    found = {
        **{"a": call.a, "b": call.b, "c": call.c, "out": call.out, "stream": call.stream, "mode": call.mode},
        **vars(choices.sharing),
        **operation.types,
        **{"scale_a": operation.factors.a, "scale_b": operation.factors.b, "epilogue": operation.epilogue},
        **{name: getattr(operation, name) for name in ("trans_a", "trans_b", "alpha", "beta")},
        **operation.routing._asdict(),
        **{name: getattr(choices, name) for name in ("device", "kernel", "config", "workspace", "compile")},
    }
    assert found == marks


@pytest.mark.frameworks
@pytest.mark.parametrize("module", ["lapidist.torch", "lapidist.jax"])
@pytest.mark.parametrize("name", ["matmul", "gemm"])
def test_frameworks_spell_them_alike(module: str, name: str) -> None:
    function: Callable[..., Any] | None = getattr(importlib.import_module(module), name, None)
    ours = signature(getattr(lapidist, name)).parameters
    if function is None:
        assert module == "lapidist.jax"
        return
    theirs = signature(function).parameters
    assert [each for each in theirs if each in ours and theirs[each].default != ours[each].default] == []
