"""ragged_dot: products of groups of rows, as jax.lax has them."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
from jax import numpy as jnp

from lapidist.calls.keywords import unexpected
from lapidist.dtypes import IEEE, TF32
from lapidist.errors import ArgumentError, DTypeError, ShapeError, shown
from lapidist.jax.operators import bind
from lapidist.jax.product import OFFSETS, Product
from lapidist.jax.public_calls import array_of, checked, naming_types, place, types_of

# by JAX's names: what the default and "high" are on its GPUs, too
PRECISIONS = {
    "none": IEEE,
    "ieee": IEEE,
    "highest": IEEE,
    "float32": IEEE,
    "tf32": TF32,
    "tensorfloat32": TF32,
    "high": TF32,
    "default": TF32,
}


@naming_types
def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: None = None,
    out_sharding: None = None,
    *,
    invariant: bool | None = None,
    device: str | None = None,
    **unknown: NoReturn,
) -> Any:
    """jax.lax.ragged_dot: rows of lhs (m, k), one group behind another, times the matrix of their group in
    rhs (groups, k, n). Rows behind the last group are zeros.

    `group_sizes` says how many rows each group has; it is read when the program runs. `precision`: None and
    "highest" multiply float32 as it is, "high", "default" and "tf32" round it to 10 bits. `group_offset` and
    `out_sharding` must be None: rhs has all groups, and XLA's partitioning says where the result lies.
    device="machine" runs arrays on the CPU in the machine."""
    if unknown:
        raise unexpected(ragged_dot, unknown)
    for name, value in (("group_offset", group_offset), ("out_sharding", out_sharding)):
        if value is not None:
            raise ArgumentError(
                f"{name}: must be None: rhs has all groups, and XLA says where results lie; got"
                f" {shown(value)}."
                " Leave it out"
            )
    lhs, rhs = array_of("lhs", lhs), array_of("rhs", rhs)
    sizes = array_of("group_sizes", group_sizes)
    require_groups(lhs, rhs, sizes)
    chosen = precision_of(precision) if lhs.dtype == jnp.float32 else IEEE
    types = types_of(None, preferred_element_type, None, chosen, None, invariant)
    # As jax.lax has it, a group ends with the rows, however large its size: no sum of sizes overflows.
    rows = lhs.shape[0]
    most = min(rows, jnp.iinfo(sizes.dtype).max)
    ends = jnp.minimum(jnp.cumsum(jnp.minimum(sizes, most), dtype=jnp.int32), rows)
    arrays = {"a": lhs, "b": rhs, OFFSETS: ends}
    product = Product(tuple(arrays), **types, device=place(device))
    checked(product, arrays, ("lhs", "rhs", OFFSETS), False)
    return bind(*arrays.values(), product=product)


def require_groups(lhs: Any, rhs: Any, sizes: Any) -> None:
    for name, array, rank, words in (
        ("lhs", lhs, 2, "(m, k)"),
        ("rhs", rhs, 3, "(groups, k, n)"),
        ("group_sizes", sizes, 1, "(groups,)"),
    ):
        if array.ndim != rank:
            raise ShapeError(f"{name}: must have shape {words}; got {array.shape}. Reshape it")
    if not jnp.issubdtype(sizes.dtype, jnp.integer):
        raise DTypeError(
            f"group_sizes: must be whole numbers; got {sizes.dtype}. Convert them with .astype first"
        )
    if rhs.shape[1] != lhs.shape[1]:
        raise ShapeError(
            f"rhs: must have as many rows in each matrix as lhs has columns, {lhs.shape[1]}; got {rhs.shape}."
            " Swap its axes with jax.numpy.swapaxes"
        )
    if sizes.shape[0] != rhs.shape[0]:
        raise ShapeError(
            f"group_sizes: must have a size for each matrix of rhs, {rhs.shape[0]}; got {sizes.shape[0]}."
            " Pass zero for a group without rows"
        )


def precision_of(precision: Any) -> str:
    """lapidist's name of one of JAX's precisions, or of a pair of equal ones."""
    pair = precision if isinstance(precision, tuple) else (precision,)
    names = {x.name if isinstance(x, jax.lax.Precision) else str(x) for x in pair}
    name = names.pop().lower()
    if names or name not in PRECISIONS:
        raise ArgumentError(
            f"precision: must be None or one of {', '.join(list(PRECISIONS)[1:])}, for both operands; got"
            f" {precision!r}. Leave it out to multiply float32 as it is"
        )
    return PRECISIONS[name]
