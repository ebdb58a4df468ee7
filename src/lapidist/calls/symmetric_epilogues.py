"""Epilogues of symmetric products: functions that treat (i, j) and (j, i) alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lapidist.dtypes import PART_OF
from lapidist.epilogues.steps import COLUMN, ROW, SCALAR, TILE
from lapidist.errors import ArgumentError, shown
from lapidist.frameworks.arrays import Operand

if TYPE_CHECKING:
    from lapidist.calls.epilogue_operands import EpilogueOperands
    from lapidist.epilogues.steps import Function

WAY_OUT = "Apply it to the result, or leave symmetric out"


def require_names(symmetric: object) -> tuple[str, ...]:
    """The Tile operands that a caller says are symmetric matrices, by their names."""
    if isinstance(symmetric, bool):
        return ()
    if not isinstance(symmetric, (tuple, list)) or not all(isinstance(name, str) for name in symmetric):
        raise ArgumentError(
            "symmetric: must be True or False, or the names of the epilogue's Tile operands that are"
            f" symmetric matrices; got {shown(symmetric)}. Leave it out"
        )
    return tuple(symmetric)


def require_declared(declared: tuple[str, ...]) -> None:
    """The rule for a product without an epilogue."""
    if declared:
        raise ArgumentError(
            f"symmetric: names Tile operands of an epilogue; got {shown(declared)} and no epilogue. Leave the"
            " names out"
        )


def require_symmetric_epilogue(function: Function, declared: tuple[str, ...]) -> None:
    """A kernel computes half of D's elements: the function must give both of a pair the same value."""
    name, got = function.name, f"got symmetric={declared or True!r}"
    if len(function.results) > 1 or function.results[0].then or function.paired:
        raise ArgumentError(
            f"epilogue: {name} reduces, pairs or stores more than D, and a symmetric product computes half of"
            f" its sums; {got}. {WAY_OUT}"
        )
    if function.is_positioned:
        raise ArgumentError(f"epilogue: {name} drops by place, so (i, j) and (j, i) differ; {got}. {WAY_OUT}")
    kinds = {parameter.name: parameter.kind for parameter in function.parameters}
    lines = [operand for operand, kind in kinds.items() if kind in (ROW, COLUMN)]
    if lines:
        raise ArgumentError(
            f"epilogue: {name} has the {kinds[lines[0]]} {lines[0]}, by which (i, j) and (j, i) differ;"
            f" {got}. {WAY_OUT}"
        )
    tiles = [operand for operand, kind in kinds.items() if kind == TILE and operand not in declared]
    if tiles:
        raise ArgumentError(
            f"epilogue: {name} has the Tile {tiles[0]}, which may differ at (i, j) and (j, i); {got}. If it"
            f" is a symmetric matrix, name it: symmetric=({tiles[0]!r},)"
        )
    unknown = [operand for operand in declared if kinds.get(operand) != TILE]
    if unknown:
        raise ArgumentError(
            f"symmetric: names Tile operands of {name}; got {unknown[0]!r}. It has"
            f" {', '.join(operand for operand, kind in kinds.items() if kind == TILE) or 'none'}"
        )


def require_hermitian_epilogue(epilogue: EpilogueOperands | None) -> None:
    """A function with real numbers turns conjugated sums into conjugated results. With complex ones it does
    not. A declared Tile is a matrix that equals its conjugated transpose.
    """
    if epilogue is None:
        return
    values = epilogue.values
    for name, kind in epilogue.function.parameters:
        if kind == SCALAR:
            require_real(name, values[name])


def require_real(name: str, value: Any) -> None:
    got = value.dtype if isinstance(value, Operand) else value
    if isinstance(got, complex) or got in PART_OF:
        raise ArgumentError(
            f"{name}: must be real, as the result of gram equals its conjugated transpose; got {got}."
            " Apply it to the result"
        )


def has_tiles(epilogue: Any) -> bool:
    """Whether a function reads matrices, of which nobody knows that both halves are equal bit by bit."""
    return epilogue is not None and any(parameter.kind == TILE for parameter in epilogue.function.parameters)
