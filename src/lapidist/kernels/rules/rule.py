"""A rule: what must hold of a config's knobs, and the words of a refusal. It applies to one config, or to
columns of many at once.

To take both, a predicate consists of arithmetic and comparisons joined by & and |. Both sides of these are
always computed. So what divides by a knob must come after the rule that the knob is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.kernels.config_table import Columns
from lapidist.kernels.rules.problem_facts import Facts

Predicate = Callable[[Any, Facts], Any]  # of a Config: a truth value; of Columns: an array of them
Words = Callable[[Config, Facts], str]


class Rule(NamedTuple):
    holds: Predicate
    words: Words  # for a config that breaks it
    of_knobs: bool = False  # it does not depend on the problem


def refusal(rules: Iterable[Rule], config: Config, facts: Facts) -> str | None:
    """The words of the first rule that the config breaks, or None."""
    for rule in rules:
        if not rule.holds(config, facts):
            return rule.words(config, facts)
    return None


def allowed(rules: Iterable[Rule], columns: Columns, facts: Facts) -> Any:
    """Which configs break no rule. A config that divides by zero has broken an earlier rule."""
    with np.errstate(divide="ignore", over="ignore"):
        return obey(rules, columns, facts)


def obey(rules: Iterable[Rule], configs: Knobs, facts: Any) -> Any:
    """The same without switching off NumPy's warnings. For one config, rules after a broken one are not
    asked. Rules of knobs need no facts.
    """
    holds: Any = True
    for rule in rules:
        holds = holds & rule.holds(configs, facts)
        if holds is False:
            break
    return holds


# ---- parts of predicates ----


def one_of(knob: Any, values: Iterable[int]) -> Any:
    equal: Any = False
    for value in values:
        equal = equal | (knob == value)
    return equal


def power_of_two(number: Any) -> Any:
    return (number > 0) & ((number & (number - 1)) == 0)


def either(condition: Any, then: Any, otherwise: Any) -> Any:
    """A conditional expression of numbers or arrays."""
    return then * (condition != 0) + otherwise * (condition == 0)


def parts(extent: Any, size: Any) -> Any:
    """Parts of that size, the last of which may be smaller."""
    return -(-extent // size)
