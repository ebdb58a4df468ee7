"""Contractions of two arrays as hypothesis draws them: any letters, orders, sizes and layouts, in small whole
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]
KINDS = {"batch": "abo", "row": "ao", "column": "bo", "summed": "ab"}  # which arrays have such a letter


class Case(NamedTuple):
    spec: str
    a: Array
    b: Array
    shape: tuple[int, ...]  # of the output


def lying(draw: st.DrawFn, values: Array, steps_allowed: Sequence[int] = (1, 1, 1, 2, -1)) -> Array:
    """The same numbers, in any order in memory, with gaps and backwards."""
    order = draw(st.permutations(range(values.ndim)))
    steps = [draw(st.sampled_from(steps_allowed)) for _ in order]
    base = np.full(
        [values.shape[at] * abs(step) for at, step in zip(order, steps, strict=True)], -99, values.dtype
    )
    view = base[(*(slice(None, None, step) for step in steps), ...)].transpose(np.argsort(order))
    view[...] = values
    return view


def numbers(shape: tuple[int, ...], first: int) -> Array:
    return ((np.arange(prod(shape)) * 7 + first) % 11 - 5).astype(np.float64).reshape(shape)


@st.composite
def cases(draw: st.DrawFn, backwards: bool = True) -> Case:
    """`backwards`: with negative strides too, which torch has not."""
    allowed = (1, 1, 1, 2, -1) if backwards else (1, 1, 2)
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=6))
    letters = dict(zip("pqxYbc", kinds, strict=False))
    sizes = {
        letter: draw(st.integers(0, 5)) if draw(st.booleans()) else draw(st.integers(1, 3))
        for letter in letters
    }
    terms = {which: [letter for letter, kind in letters.items() if which in KINDS[kind]] for which in "abo"}
    a, b, out = ("".join(draw(st.permutations(terms[which]))) for which in "abo")
    arrays = [
        lying(draw, numbers(tuple(sizes[letter] for letter in term), at), allowed)
        for at, term in enumerate((a, b))
    ]
    return Case(f"{a},{b}->{out}", arrays[0], arrays[1], tuple(sizes[letter] for letter in out))
