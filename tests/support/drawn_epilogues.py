"""Epilogues drawn by hypothesis: text of Python. Expressions are over `acc`, `row` and `one`; functions have
several results, reductions among them, and may take pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

import lapidist
from lapidist.epilogues.passes import REDUCTIONS
from lapidist.epilogues.tracing import Epilogue

LEAVES = st.sampled_from(("acc", "row", "one", "0.5", "-2.0", "3.0"))
UNARY = (
    *("exp", "tanh", "erf", "sigmoid", "silu", "gelu", "gelu_slope", "relu", "absolute", "floor", "rint"),
    *("sqrt", "log"),
)
BINARY = ("+", "-", "*", "minimum", "maximum")


def combined(children: Any) -> Any:
    one = st.builds("lapidist.{}({} + 0 * acc)".format, st.sampled_from(UNARY), children)
    two = st.builds("({1} {0} {2})".format, st.sampled_from(BINARY[:3]), children, children)
    # Python itself divides numbers, and refuses to divide by 0
    quotient = st.builds("({} / ({} + 0 * acc))".format, children, children)
    joined = st.builds(
        "lapidist.{}({}, {} + 0 * acc)".format, st.sampled_from(BINARY[3:]), children, children
    )
    chosen = st.builds("lapidist.where({0} < {1} + 0 * acc, {0}, {1} * 0.5)".format, children, children)
    return one | two | quotient | joined | chosen


TEXTS = st.recursive(LEAVES, combined, max_leaves=8)


# ---- functions of several results ----


class Drawn(NamedTuple):
    """`results` behind D; `pairs`: it takes two columns, of which the second is in every other expression."""

    d: str
    results: tuple[str, ...]
    pairs: bool

    @property
    def text(self) -> str:
        first = ["def f(pair: lapidist.Pair,", "acc, other = pair"] if self.pairs else ["def f(acc,", "pass"]
        returned = ", ".join([self.d, *self.results])
        return "\n".join(
            [
                f"{first[0]} row: lapidist.Row, one: lapidist.Scalar):",
                f"    {first[1]}",
                f"    return {returned},",
            ]
        )

    def traced(self) -> Epilogue:
        names: dict[str, Any] = {"lapidist": lapidist, "__name__": "drawn"}
        exec(self.text, names)
        return lapidist.epilogue(names["f"])


def functions(pairs: bool) -> Any:
    own = TEXTS.map(lambda text: f"({text} + 0 * acc)")
    others = own.map(lambda text: text.replace("acc", "other"))
    values = own | others | st.builds("lapidist.Pair({}, {})".format, own, others) if pairs else own
    reduced = st.builds("lapidist.{}({})".format, st.sampled_from(sorted(REDUCTIONS)), values)
    typed = st.builds('lapidist.Output({}, "float32")'.format, values)
    further = st.lists(values | reduced | reduced | typed, min_size=1, max_size=4).map(tuple)
    return st.builds(Drawn, values, further, st.just(pairs))


FUNCTIONS = st.booleans().flatmap(functions)
