"""The shapes of a linear layer, as its caller names them."""

from __future__ import annotations

from collections.abc import Sequence

from lapidist.errors import ShapeError


def require_features(
    input: tuple[int, ...],
    weight: tuple[int, ...],
    trans_weight: bool = True,
    names: Sequence[str] = ("input", "weight"),
) -> None:
    """Check the shapes of a linear layer: rows of input times one matrix of weights."""
    of_input, of_weight = names[:2]
    if not input:
        raise ShapeError(
            f"{of_input}: must have at least 1 dimension; got an array without any. Multiply by a scalar with"
            " *"
        )
    if len(weight) not in (1, 2):
        raise ShapeError(
            f"{of_weight}: must have 1 or 2 dimensions; got shape {weight}. Call matmul, which takes a batch"
            " of them"
        )
    if input[-1] != weight[-1 if trans_weight else 0]:
        lines = "columns" if trans_weight else "rows"
        raise ShapeError(
            f"{of_weight}: must have as many {lines} as {of_input} has columns; {of_input} is {input},"
            f" {of_weight} is {weight}. Transpose it if it lies the other way"
        )
