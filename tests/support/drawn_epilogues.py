"""Expressions for epilogues, drawn by hypothesis: text of Python over `acc`, `row` and `one`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

LEAVES = st.sampled_from(("acc", "row", "one", "0.5", "-2.0", "3.0"))
UNARY = ("exp", "tanh", "erf", "sigmoid", "silu", "gelu", "relu", "absolute", "floor", "rint", "sqrt", "log")
BINARY = ("+", "-", "*", "/", "minimum", "maximum")


def combined(children: Any) -> Any:
    one = st.builds("lapidist.{}({} + 0 * acc)".format, st.sampled_from(UNARY), children)
    two = st.builds("({1} {0} {2})".format, st.sampled_from(BINARY[:4]), children, children)
    joined = st.builds(
        "lapidist.{}({}, {} + 0 * acc)".format, st.sampled_from(BINARY[4:]), children, children
    )
    chosen = st.builds("lapidist.where({0} < {1} + 0 * acc, {0}, {1} * 0.5)".format, children, children)
    return one | two | joined | chosen


TEXTS = st.recursive(LEAVES, combined, max_leaves=8)
