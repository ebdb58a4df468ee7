"""The knob page says what each function of an epilogue costs, as plans reckon with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import lapidist
from lapidist.epilogues.operations import OPERATIONS
from pages import ROOT

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lapidist.sigmoid,
    "silu": lapidist.silu,
    "rsqrt": lapidist.rsqrt,
    "exp": lapidist.exp,
    "gelu` by tanh": lambda acc: lapidist.gelu(acc, approximate="tanh"),
    "gelu`": lapidist.gelu,
    "gelu_slope` by tanh": lambda acc: lapidist.gelu_slope(acc, approximate="tanh"),
    "gelu_slope`": lapidist.gelu_slope,
    "log": lapidist.log,
    "tanh": lapidist.tanh,
    "erf": lapidist.erf,
    "dropout": lambda acc: lapidist.dropout(acc, 0.5, 7),
    "sqrt": lapidist.sqrt,
    "relu": lapidist.relu,
    "absolute": lapidist.absolute,
    "minimum": lambda acc: lapidist.minimum(acc, 1),
    "maximum": lambda acc: lapidist.maximum(acc, 1),
    "clamp": lambda acc: lapidist.clamp(acc, 0, 1),
}


def reckoned(function: Callable[[Any], Any]) -> int:
    steps = lapidist.epilogue(lambda acc: function(acc)).function.steps
    return sum(OPERATIONS[step.operation].instructions for step in steps if step.operation in OPERATIONS)


def test_each_function_costs_what_the_page_says() -> None:
    page = (ROOT / "docs" / "knobs.md").read_text()
    rows = dict(re.findall(r"^\| (.*`.*) \| (\d+)(?: each)? \|$", page, re.M))
    for name, function in FUNCTIONS.items():
        (said,) = [
            int(count)
            for names, count in rows.items()
            if f"`{name}" in names and ("by" in name or "by tanh" not in names)
        ]
        assert reckoned(function) == said, name
