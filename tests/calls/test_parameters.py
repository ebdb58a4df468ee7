"""gemm's signature is the one declaration of its parameters: what repeats some of them has the same
defaults.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from inspect import Parameter, cleandoc, signature
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

import lapidist
from lapidist.calls import named_arguments
from lapidist.schedule import sharing_choice

UNKNOWN = "unknown"  # keywords that are refused
GEMM = {name: each for name, each in signature(lapidist.gemm).parameters.items() if name != UNKNOWN}


def same(mine: Parameter, other: Parameter) -> bool:
    return (mine.kind, mine.default) == (other.kind, other.default)


GROUPS = "offsets", "counts", "expected_rows", "check_offsets"


def test_a_plan_takes_what_gemm_takes() -> None:
    """In the same order, but for the stream, which each execution has. It keeps its kernel. It also takes
    groups, as grouped does.
    """
    plan = dict(signature(lapidist.plan).parameters)
    grouped = signature(lapidist.grouped).parameters
    of_groups = {name: plan.pop(name) for name in GROUPS}
    assert [name for name, found in of_groups.items() if found.default is not grouped[name].default] == []
    assert plan.pop(UNKNOWN).kind is Parameter.VAR_KEYWORD
    assert list(plan) == [name for name in GEMM if name != "stream"]
    assert [name for name in plan if not same(plan[name], GEMM[name])] == []
    assert [name for name in plan if plan[name].annotation != GEMM[name].annotation] == ["a", "compile"]


def test_all_that_was_said_reaches_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value by its own name, whichever place it takes."""
    marks = {name: f"<{name}>" for name in GEMM}
    monkeypatch.setattr(named_arguments, "checked", lambda choices: choices)
    monkeypatch.setattr(sharing_choice, "Sharing", SimpleNamespace)
    monkeypatch.setattr(named_arguments, "types_named", lambda **types: types)
    monkeypatch.setattr(named_arguments, "epilogue_checked", lambda epilogue: epilogue)
    monkeypatch.setattr(named_arguments, "is_invariant", lambda invariant: invariant)
    monkeypatch.setattr(named_arguments, "require_no_schedule", lambda *_: None)
    call = named_arguments.call_of(marks)
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


# ---- torch's operators: schema, what runs, and the fake tensors' outlines ----

OPERATORS = {"matmul": "matmul", "gemm": "gemm", "linear": "linear", "scaled": "scaled", "gemm_": "update"}
# What a schema has beside gemm's own: parameters of layers, and a default that in-place products have.
OF_LAYERS, IN_PLACE = {"input", "weight", "bias"}, {"gemm_": {"beta": 1.0}}


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters with their defaults, in order."""
    return {name: each.default for name, each in signature(function).parameters.items()}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", OPERATORS)
def test_schemas_and_fake_tensors_have_the_parameters_that_run(name: str) -> None:
    operators = importlib.import_module("lapidist.torch.operators")
    fake_tensors = importlib.import_module("lapidist.calls.fake_tensors")
    operator = getattr(operators, OPERATORS[name])
    schema = {
        each.name: each.default_value if each.has_default_value() else Parameter.empty
        for each in operator.op._schema.arguments
    }
    runs = {key: value for key, value in defaults_of(operator.run).items() if key != "out" or name == "gemm_"}
    fakes = defaults_of(getattr(fake_tensors, f"of_{OPERATORS[name]}"))
    fakes = {key: value for key, value in fakes.items() if key not in ("epilogue", "names")}
    assert list(schema.items()) == list(runs.items()) == list(fakes.items())
    expected = {key: each.default for key, each in GEMM.items()} | IN_PLACE.get(name, {})
    own = {key: value for key, value in schema.items() if value is not Parameter.empty}
    assert set(schema) <= {*GEMM, *OF_LAYERS}
    assert {key: value for key, value in own.items() if key not in OF_LAYERS} == {
        key: expected[key] for key in own if key not in OF_LAYERS
    }


# ---- the reference pages, which are made of docstrings ----


def documented(function: Callable[..., Any]) -> list[str]:
    """The names in the section of parameters."""
    section = cleandoc(function.__doc__ or "").partition("Parameters\n----------\n")[2]
    names = re.split(r"\n\n\w+\n-+\n", section)[0].splitlines()
    heads = [line.partition(" : ")[0] for line in names if line and not line.startswith(" ")]
    return [name for head in heads for name in head.split(", ")]


@pytest.mark.parametrize("name", ["matmul", "gemm", "plan"])
def test_the_reference_names_the_parameters(name: str) -> None:
    function = getattr(lapidist, name)
    named, parameters = documented(function), list(signature(function).parameters)
    if "..." in named:  # those of gemm, as its page has them
        assert documented(lapidist.gemm)[: named.index("...")] == [*named[: named.index("...")]]
        named = [each for each in (*documented(lapidist.gemm), *named) if each != "..." and each != "stream"]
    assert sorted(set(named)) == sorted({*parameters} - {UNKNOWN})


@pytest.mark.frameworks
@pytest.mark.parametrize("module", ["lapidist.torch", "lapidist.jax"])
def test_the_reference_of_frameworks_names_no_others(module: str) -> None:
    home = importlib.import_module(module)
    for name in home.__all__:
        function = getattr(home, name)
        if isinstance(function, FunctionType) and "Parameters\n" in (function.__doc__ or ""):
            named, parameters = documented(function), signature(function).parameters
            assert [each for each in named if each.strip("*") not in parameters and each != "..."] == [], name
