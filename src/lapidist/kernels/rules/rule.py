"""A rule: what must hold of a config's knobs, and the words of a refusal. It holds of one config, or of
columns of many at once.

So that a predicate takes both, it is made of arithmetic and comparisons joined by & and |. Both sides of
these are always
computed: what divides by a knob stands behind the rule that the knob is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.kernels.rules.facts import Facts

Predicate = Callable[[Any, Facts], Any]  # of a Config or of Columns: a truth value, or an array of them
Words = Callable[[Config, Facts], str]


class Rule(NamedTuple):
    holds: Predicate
    words: Words  # of a config that breaks it


class Columns(Knobs):
    """Many configs at once: an array for each knob, or one value for all of them."""

    def __init__(self, **knobs: Any) -> None:
        for each in fields(Config):
            setattr(self, each.name, np.asarray(knobs.get(each.name, each.default)))


def refusal(rules: Iterable[Rule], config: Config, facts: Facts) -> str | None:
    """What the first rule that the config breaks says of it."""
    for rule in rules:
        if not rule.holds(config, facts):
            return rule.words(config, facts)
    return None


def allowed(rules: Iterable[Rule], columns: Columns, facts: Facts) -> Any:
    """Which of the configs break no rule. One that divides by zero has broken a rule before that."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.logical_and.reduce(
            np.broadcast_arrays(True, *(rule.holds(columns, facts) for rule in rules))
        )


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
