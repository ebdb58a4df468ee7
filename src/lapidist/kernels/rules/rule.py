"""A rule: what must hold of a config's knobs, and the words of a refusal. It holds of one config, or of
columns of many at once.

So that a predicate takes both, it is made of arithmetic and comparisons joined by & and |. Both sides of
these are always
computed: what divides by a knob stands behind the rule that the knob is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.kernels.columns import Columns
from lapidist.kernels.rules.facts import Facts

Predicate = Callable[[Any, Facts], Any]  # of a Config or of Columns: a truth value, or an array of them
Words = Callable[[Config, Facts], str]


class Rule(NamedTuple):
    holds: Predicate
    words: Words  # of a config that breaks it
    of_knobs: bool = False  # whatever the problem is


def refusal(rules: Iterable[Rule], config: Config, facts: Facts) -> str | None:
    """What the first rule that the config breaks says of it."""
    for rule in rules:
        if not rule.holds(config, facts):
            return rule.words(config, facts)
    return None


def allowed(rules: Iterable[Rule], columns: Columns, facts: Facts) -> Any:
    """Which of the configs break no rule. One that divides by zero has broken a rule before that."""
    with np.errstate(divide="ignore", over="ignore"):
        return obey(rules, columns, facts)


def obey(rules: Iterable[Rule], configs: Knobs, facts: Any) -> Any:
    """The same where NumPy does not warn; of one config, too: then no rule is asked behind a broken one.
    Rules of knobs ask no facts."""
    found: Any = True
    for rule in rules:
        found = found & rule.holds(configs, facts)
        if found is False:
            break
    return found


# ---- what predicates are made of ----


def one_of(knob: Any, values: Iterable[int]) -> Any:
    found: Any = False
    for value in values:
        found = found | (knob == value)
    return found


def power_of_two(number: Any) -> Any:
    return (number > 0) & ((number & (number - 1)) == 0)


def either(condition: Any, then: Any, otherwise: Any) -> Any:
    """The conditional expression, of numbers."""
    return then * (condition != 0) + otherwise * (condition == 0)


def parts(extent: Any, size: Any) -> Any:
    """Of that size, the last one perhaps smaller."""
    return -(-extent // size)
