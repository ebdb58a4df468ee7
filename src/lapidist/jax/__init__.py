"""lapidist in JAX: products under jit, grad, jvp, vmap and shard_map, by XLA's foreign functions.

Importing this package registers the operation lapidist_product and what runs it on a CPU and on a GPU."""

from __future__ import annotations

from jax.interpreters import ad, batching

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
