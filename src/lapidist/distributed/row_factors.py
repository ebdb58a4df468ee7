"""scale_a of rows that are exchanged: a line of factors for each row, so that parts of rows have theirs."""

from __future__ import annotations

from typing import Any

from lapidist.errors import DTypeError, ShapeError
from lapidist.problems.scaling import K_BLOCK

MATRIX = 2  # dimensions


def row_factors(scale: Any, rows: Any) -> Any:
    """Factors of these rows in any shape that gemm takes, as (rows, 1) or (rows, k / 128). A factor of all of
    them is repeated: other ranks have another one.
    """
    if scale is None:
        return None
    import torch

    count, k = rows.shape
    if not isinstance(scale, torch.Tensor):
        return rows.new_full((count, 1), scale, dtype=torch.float32)
    if scale.dtype != torch.float32:
        raise DTypeError(f"scale_a: factors must be float32; got {scale.dtype}. Convert them first")
    blocks, squares = -(-k // K_BLOCK), -(-count // K_BLOCK)
    if scale.numel() == 1:
        return scale.detach().reshape(1, 1).expand(count, 1).contiguous()
    if scale.shape in ((count,), (count, 1)):
        return scale.detach().reshape(count, 1).contiguous()
    if scale.ndim == MATRIX and scale.shape[1] == blocks and scale.shape[0] in (count, squares):
        lines = scale.detach()
        spread = lines if len(lines) == count else lines.repeat_interleave(K_BLOCK, 0)[:count]
        return spread.contiguous()
    raise ShapeError(
        f"scale_a: must be one factor, or of shape ({count},), ({count}, 1), ({count}, {blocks}) or"
        f" ({squares}, {blocks}) for {count} rows here and k = {k}; got {tuple(scale.shape)}. Reshape it"
    )


def of_rows(scale: Any, rows: slice) -> Any:
    """The factors of some rows."""
    return None if scale is None else scale[rows]
