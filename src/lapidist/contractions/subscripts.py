"""Which dimensions of two operands are one: einsum's letters and tensordot's axes, checked, and sorted into a
GEMM's batch, rows, columns and k.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lapidist.errors import ArgumentError, ShapeError, shown

Label = int | str  # a letter, or a number; those of "..." are negative, -1 is its last dimension
EXAMPLE = "for example 'ij,jk->ik'"


class Subscripts(NamedTuple):
    """The labels of each dimension. None: a dimension of one element, which is broadcast."""

    a: tuple[Label | None, ...]
    b: tuple[Label | None, ...]
    out: tuple[Label, ...]

    @property
    def batch(self) -> tuple[Label, ...]:
        return tuple(label for label in self.out if label in self.a and label in self.b)

    @property
    def rows(self) -> tuple[Label, ...]:
        return tuple(label for label in self.out if label not in self.b)

    @property
    def columns(self) -> tuple[Label, ...]:
        return tuple(label for label in self.out if label not in self.a)

    @property
    def summed(self) -> tuple[Label, ...]:
        return tuple(label for label in self.a if label is not None and label not in self.out)


# ---- einsum ----


@lru_cache(maxsize=1024)
def parsed(spec: str, a_dimensions: int, b_dimensions: int) -> Subscripts:
    """The labels of numpy.einsum's notation, with or without an output."""
    require_notation(spec)
    inputs, arrow, output = "".join(spec.split()).partition("->")
    terms = inputs.split(",")
    a = labels_of(spec, terms[0], "a", a_dimensions)
    b = labels_of(spec, terms[1], "b", b_dimensions)
    spread = tuple(sorted({label for label in a + b if isinstance(label, int)}))
    if not arrow:
        once = (set(terms[0]) ^ set(terms[1])) - {"."}
        return Subscripts(a, b, (*spread, *sorted(once)))
    subscripts = Subscripts(a, b, output_labels(spec, output, terms, spread))
    require_no_lone_sum(subscripts)
    return subscripts


def require_spec(spec: object, further_operands: int) -> None:
    """Check, before there are arrays, that a spec is a string and that it names two operands."""
    if not isinstance(spec, str):
        raise ArgumentError(
            f"spec: must be a string, {EXAMPLE}; got {type(spec).__name__}. Name each dimension with a letter"
        )
    if further_operands:
        require_two(spec, 2 + further_operands)
    require_two(spec, 1 + spec.partition("->")[0].count(","))


def require_notation(spec: str) -> None:
    unknown = re.sub(r"\.\.\.|->|,|[A-Za-z]|\s", "", spec)
    if unknown:
        raise ArgumentError(
            f"spec: must be of letters a to z and A to Z, ',', '->' and '...'; got {unknown[0]!r} in"
            f" {spec!r}. Name each dimension with a letter, {EXAMPLE}"
        )
    if spec.count("->") > 1 or "," in spec.partition("->")[2]:
        raise ArgumentError(
            f"spec: must have one output, behind the one '->'; got {spec!r}. Write it so, {EXAMPLE}"
        )


def require_two(spec: str, operands: int) -> None:
    instead = (
        "Contract them two by two"
        if operands > 2
        else "Sums, diagonals and transposes of one array are its framework's"
    )
    if operands != 2:
        raise ArgumentError(f"spec: must name two operands, {EXAMPLE}; got {operands} in {spec!r}. {instead}")


def labels_of(spec: str, term: str, name: str, dimensions: int) -> tuple[Label, ...]:
    """One label for each dimension of an operand."""
    before, dots, after = split_at_dots(spec, term)
    letters = before + after
    missing = dimensions - len(letters)
    if missing < 0 or (missing and not dots):
        raise ShapeError(
            f"{name}: must have the dimensions that spec {spec!r} names, {term!r}; it has {dimensions}. "
            "Name each with a letter, or leading ones with '...'"
        )
    twice = sorted({letter for letter in letters if letters.count(letter) > 1})
    if twice:
        raise ArgumentError(
            f"spec: must name each dimension of {name} differently; got {twice[0]!r} twice in {term!r}, which"
            f" asks for a diagonal. Take it first: {name}.diagonal() puts it last"
        )
    return (*before, *range(-missing, 0), *after)


def split_at_dots(spec: str, term: str) -> tuple[str, str, str]:
    before, dots, after = term.partition("...")
    if "." in after:
        raise ArgumentError(
            f"spec: must have '...' at most once for each array; got {term!r} in {spec!r}. Leave one of them"
            " out"
        )
    return before, dots, after


def output_labels(spec: str, output: str, terms: list[str], spread: tuple[Label, ...]) -> tuple[Label, ...]:
    before, dots, after = split_at_dots(spec, output)
    for letter in before + after:
        if letter not in "".join(terms):
            raise ArgumentError(
                f"spec: must name in the output what operands have; got {letter!r} in {spec!r}. Leave it out"
            )
        if output.count(letter) > 1:
            raise ArgumentError(
                f"spec: must name each dimension of the output once; got {letter!r} twice in {spec!r}."
                " Leave one"
            )
    if spread and not dots:
        raise ArgumentError(
            f"spec: must have '...' in the output too, where it stands for dimensions; got {spec!r}. "
            "Add it, or name the dimensions that are summed with letters"
        )
    return (*before, *spread, *after)


def require_no_lone_sum(subscripts: Subscripts) -> None:
    """A label of one operand alone must be in the output: summing a single operand is no matrix multiply."""
    for name, labels, other in (("a", subscripts.a, subscripts.b), ("b", subscripts.b, subscripts.a)):
        for axis, label in enumerate(labels):
            if label not in other and label not in subscripts.out:
                raise ArgumentError(
                    f"spec: must name each dimension in both operands or in the output; {label!r} is in"
                    f" {name} alone, which asks for a sum of {name}. Sum it first, {name}.sum({axis}), and"
                    f" leave {label!r} out"
                )


# ---- tensordot ----


def paired(axes: Any, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> Subscripts:
    """The labels of numpy.tensordot's axes: how many of a's last and b's first dimensions, or two lists."""
    of_a, of_b = axes_of(axes, len(a_shape), len(b_shape))
    first = normal(of_a, "a", len(a_shape))
    second = normal(of_b, "b", len(b_shape))
    if len(first) != len(second):
        raise ArgumentError(
            f"axes: must name as many of a's as of b's; got {of_a} and {of_b}. Pair each with the one it"
            " meets"
        )
    for one, other in zip(first, second, strict=True):
        if a_shape[one] != b_shape[other]:
            raise ShapeError(
                f"axes: dimensions that are summed must have one size; a is {a_shape}, {a_shape[one]} along"
                f" {one}, b is {b_shape}, {b_shape[other]} along {other}. Pair each with the one it meets"
            )
    met = dict(zip(second, first, strict=True))
    b = tuple(met.get(axis, len(a_shape) + axis) for axis in range(len(b_shape)))
    a = tuple(range(len(a_shape)))
    return Subscripts(
        a, b, (*(label for label in a if label not in b), *(label for label in b if label not in a))
    )


def axes_of(axes: Any, a_dimensions: int, b_dimensions: int) -> tuple[list[Any], list[Any]]:
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(a_dimensions, b_dimensions):
            raise ArgumentError(
                f"axes: must be from 0 to the dimensions of a and b, {a_dimensions} and {b_dimensions}; got"
                f" {axes}. Pass how many of a's last meet b's first, or two lists"
            )
        return list(range(a_dimensions - int(axes), a_dimensions)), list(range(int(axes)))
    try:
        of_a, of_b = axes
    except (TypeError, ValueError):
        raise ArgumentError(
            f"axes: must be a number or two lists, of a's and of b's; got {shown(axes)}. Pass ([1], [0]), say"
        ) from None
    return listed(of_a), listed(of_b)


def listed(axes: Any) -> list[Any]:
    single = getattr(axes, "shape", None) == ()  # an array of one number, which torch calls iterable
    return list(axes) if isinstance(axes, Iterable) and not single else [axes]


def normal(axes: list[Any], name: str, dimensions: int) -> list[int]:
    """Axes counted from the front."""
    for axis in axes:
        if not isinstance(axis, (int, np.integer)) or not -dimensions <= axis < dimensions:
            raise ArgumentError(
                f"axes: must be dimensions of {name}, which has {dimensions}; got"
                f" {shown(axis)}. Count from 0, or"
                " from -1 backwards"
            )
    from_front = [int(axis) % dimensions for axis in axes]
    if len(set(from_front)) < len(from_front):
        raise ArgumentError(
            f"axes: must name each dimension of {name} once; got {axes}. Take the diagonal first if that is"
            " meant"
        )
    return from_front


# ---- sizes ----


def fitted(
    subscripts: Subscripts, a_shape: tuple[int, ...], b_shape: tuple[int, ...]
) -> tuple[Subscripts, dict[Label, int]]:
    """The labels, and the size of each. Dimensions of "..." broadcast: one of a single element then loses its
    label.
    """
    in_a: dict[Any, int] = dict(zip(subscripts.a, a_shape, strict=True))
    in_b: dict[Any, int] = dict(zip(subscripts.b, b_shape, strict=True))
    sizes = {**in_b, **in_a}
    for label in (label for label in in_a if label in in_b and in_a[label] != in_b[label]):
        spread = isinstance(label, int)
        if not spread or 1 not in (in_a[label], in_b[label]):
            which = f"the dimension {-label} from the last of '...'" if spread else repr(label)
            rule = "sizes that broadcast" if spread else "one size"
            way_out = (
                "Make them equal or one of them 1"
                if spread
                else "Give it two letters if it is two dimensions"
            )
            raise ShapeError(
                f"b: {which} must have {rule} in a and b; a is {a_shape}, {in_a[label]} there, b is"
                f" {b_shape}, {in_b[label]} there. {way_out}"
            )
        sizes[label] = in_b[label] if in_a[label] == 1 else in_a[label]
    a = tuple(label if in_a[label] == sizes[label] else None for label in subscripts.a)  # type: ignore[index]
    b = tuple(label if in_b[label] == sizes[label] else None for label in subscripts.b)  # type: ignore[index]
    return Subscripts(a, b, subscripts.out), sizes
