"""Epilogues of complex products in kernels of real numbers: the same function, of real and imaginary parts in
turn. Operands that are added lie so, too; factors are those of both parts. Functions that treat the two parts
otherwise are functions of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lapidist.calls.bound import Bound
from lapidist.calls.complex_operands import RealForms, as_complex
from lapidist.dtypes import PART_OF
from lapidist.epilogues.complex_arithmetic import ADDEND, DependsOnBoth, InParts, in_parts
from lapidist.epilogues.complex_pairs import in_pairs
from lapidist.epilogues.expressions import Scalar
from lapidist.epilogues.steps import COLUMN, ROW, SCALAR, TILE, Parameter
from lapidist.epilogues.tracing import BoundEpilogue, epilogue
from lapidist.frameworks.arrays import Operand
from lapidist.frameworks.real_views import real_view
from lapidist.planning.widening_pass import Widening

Value = float | complex | Operand
TRANSPOSED_KINDS = {ROW: COLUMN, COLUMN: ROW}  # kinds, where the transposed product is computed
BOTH_PARTS = 1 + 1j  # times a real number


def function_in_parts(bound: Bound) -> InParts | None:
    """The function of real and imaginary parts in turn; None: it is one of pairs."""
    assert bound.epilogue is not None
    try:
        return in_parts(bound.epilogue.function, complex_values(bound.epilogue.values))
    except DependsOnBoth:
        return None


def complex_values(values: Mapping[str, Value]) -> set[str]:
    return {name for name, value in values.items() if is_complex(value)}


def is_complex(value: Value) -> bool:
    return value.dtype in PART_OF if isinstance(value, Operand) else isinstance(value, complex)


def of_parts(forms: RealForms, columns: int, transposed: bool) -> BoundEpilogue:
    """The function of real sums. `transposed`: of the transposed product, which has so many columns."""
    assert forms.bound.epilogue is not None
    treated_alike = function_in_parts(forms.bound)
    if treated_alike is None:
        return of_pairs(forms.bound, transposed)
    function, roles, constants = treated_alike
    values = {**forms.bound.epilogue.values, **{name: forms.number(x) for name, x in constants.items()}}
    parameters, real = [], dict[str, Any]()
    for name, kind in function.parameters:
        value = values[name]
        if transposed and isinstance(value, Operand) and kind != SCALAR:
            kind, value = TRANSPOSED_KINDS.get(kind, kind), value.transposed()
        if roles[name] == ADDEND:
            kind, real[name] = addend(forms, kind, value, columns)
        else:
            real[name] = factor(forms, kind, value)
        parameters.append(Parameter(name, kind))
    return BoundEpilogue(replace(function, parameters=tuple(parameters)), real)


def of_pairs(bound: Bound, transposed: bool) -> BoundEpilogue:
    """The function of pairs, which reads both parts where they lie."""
    assert bound.epilogue is not None
    function, values, real = bound.epilogue.function, dict(bound.epilogue.values), dict[str, Any]()
    kinds = dict(function.parameters)
    for name, value in values.items():
        if transposed and isinstance(value, Operand) and kinds[name] != SCALAR:
            kinds[name], values[name] = TRANSPOSED_KINDS.get(kinds[name], kinds[name]), value.transposed()
    conjugated = {name for name, value in values.items() if isinstance(value, Operand) and value.conjugated}
    function = replace(function, parameters=tuple(Parameter(*kind) for kind in kinds.items()))
    paired, names = in_pairs(function, complex_values(values), conjugated)
    for name, value in values.items():
        if isinstance(value, Operand):
            value = lines_of(value, kinds[name])
        if name not in names:
            is_array = isinstance(value, Operand)
            real[name] = real_view(value, value.shape, value.strides).owner if is_array else value
        elif isinstance(value, Operand):
            steps = (2 * step for step in value.strides)
            both = real_view(value, (*value.shape, 2), (*steps, 1)).owner
            real |= dict(zip(names[name], (both[..., 0], both[..., 1]), strict=True))
        else:
            real |= dict(zip(names[name], (value.real, value.imag), strict=True))
    return BoundEpilogue(paired, real)


def lines_of(operand: Operand, kind: str) -> Operand:
    """An operand with D's shape as what it has: a row, a column or all."""
    *around, rows, cols = operand.shape
    shape = 1 if kind == ROW else rows, 1 if kind in (COLUMN, SCALAR) else cols
    return operand.viewed((*around, *shape), operand.strides)


def addend(forms: RealForms, kind: str, value: Value, columns: int) -> tuple[str, Any]:
    """A row, or all elements, with parts in turn, and which of the two. A column has two different values in
    each of its rows.
    """
    if not isinstance(value, Operand):
        value = number_in_memory(forms, value)
    if kind == SCALAR:
        kind, value = ROW, value.viewed((1, columns), (0, 0))
    elif kind == ROW:
        value = lines_of(value, ROW)
    kind = TILE if kind == COLUMN else kind
    widening = Widening(part_of(value), value.dtype not in PART_OF, value.conjugated)
    return kind, forms.interleaved(value, widening).owner


def factor(forms: RealForms, kind: str, value: Value) -> Any:
    """A number, or what is there once for each row; else each value twice."""
    if not isinstance(value, Operand):
        return value
    lines = lines_of(value, kind)
    if kind in (SCALAR, COLUMN):
        return real_view(lines, lines.shape, lines.strides).owner
    return forms.launched(lines, Widening(lines.dtype, of_real=True, factor=BOTH_PARTS)).owner


def part_of(operand: Operand) -> str:
    return PART_OF.get(operand.dtype, operand.dtype)


def number_in_memory(forms: RealForms, number: complex) -> Operand:
    """A number as an array of one, by launches that store its parts."""
    target = forms.room.new((1, 2), PART_OF[forms.bound.accumulator])
    for place, part in enumerate((number.real, number.imag)):
        forms.store(target.owner[:, place : place + 1], constant(number=part))
    return as_complex(target, forms.bound.accumulator)


@epilogue
def constant(acc: Any, number: Scalar) -> Any:
    """The number."""
    return number
