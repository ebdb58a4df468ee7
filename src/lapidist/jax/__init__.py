"""lapidist in JAX: products under jit, grad, jvp, vmap and shard_map, by XLA's foreign functions.

Importing this package registers the operation lapidist_product and what runs it on a CPU and on a GPU."""

from __future__ import annotations

from typing import Any

from jax.interpreters import ad, batching

from lapidist.errors import no_attribute
from lapidist.jax import batches, gradients, lowering
from lapidist.jax.grouped_products import ragged_dot
from lapidist.jax.operators import product_p
from lapidist.jax.public_calls import gemm, linear, matmul
from lapidist.jax.symmetric import gram

__all__ = ["gemm", "gram", "linear", "matmul", "ragged_dot"]

lowering.register()
ad.primitive_jvps[product_p] = gradients.forth
ad.primitive_transposes[product_p] = gradients.back
batching.primitive_batchers[product_p] = batches.mapped


# what is written otherwise here
WAYS_OUT = {
    **dict.fromkeys(("dot", "bmm"), "Write lapidist.jax.matmul, which takes vectors and batches"),
    **dict.fromkeys(
        ("dot_general", "einsum", "tensordot"),
        "Move the summed dimension with jax.numpy, and write lapidist.jax.matmul",
    ),
    **dict.fromkeys(
        ("grouped", "grouped_matmul", "gmm"), "Write lapidist.jax.ragged_dot(rows, weights, sizes)"
    ),
    **dict.fromkeys(("Dense", "Linear"), "Write lapidist.jax.linear(x, weight, bias) in a layer's place"),
    **dict.fromkeys(
        ("quantised", "quantized"),
        "JAX has no products of packed weights here; lapidist.quantised has, for other arrays",
    ),
}


def __getattr__(name: str) -> Any:
    raise no_attribute("lapidist.jax", name, __all__, WAYS_OUT)
