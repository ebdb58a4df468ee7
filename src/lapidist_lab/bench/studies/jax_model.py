"""An MLP in JAX under jit, forward and with gradients, beside the same by jax.numpy.dot.

`python -m lapidist_lab.bench.studies.jax_model FILE` writes its Records to FILE."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist_lab.bench.protocol.conditions import gather, version_of
from lapidist_lab.bench.protocol.record import Record, write_run
from lapidist_lab.bench.studies.turns import ROUNDS, TURN_SECONDS, compare, pair

LAYERS, WIDTH, HIDDEN = 4, 4096, 14336
ROWS = (16, 77, 1000, 8192)
PROTOCOL = (
    f"{LAYERS} blocks of {WIDTH} to {HIDDEN} and back with a ReLU between, bf16; median of {ROUNDS} turns of"
    f" {TURN_SECONDS} s, turn by turn, ending with block_until_ready; ratio: time of jax.numpy.dot over ours;"
    " worst: the difference from float32 over twice that of jax.numpy.dot"
)
INPUTS = "standard normal, weights over the square root of their inputs"
Layer = Callable[[Any, Any], Any]


def unfused(layer: Layer) -> Layer:
    """The layer, then JAX's ReLU."""
    import jax

    return lambda x, weight: jax.nn.relu(layer(x, weight))


def mlp(active: Layer, layer: Layer, weights: Any, x: Any) -> Any:
    for up, down in weights:
        x = layer(active(x, up), down)
    return x


def loss(active: Layer, layer: Layer, weights: Any, x: Any) -> Any:
    return (mlp(active, layer, weights, x).astype("float32") ** 2).mean()


def forms(active: Layer, layer: Layer) -> dict[str, Callable[[Any, Any], Any]]:
    import jax

    return {
        "forward": jax.jit(partial(mlp, active, layer)),
        "gradients": jax.jit(jax.grad(partial(loss, active, layer), argnums=(0, 1))),
    }


def in_bfloat16(x: Any, weight: Any) -> Any:
    import jax

    return jax.numpy.dot(x, weight.T)


def in_float32(x: Any, weight: Any) -> Any:
    import jax

    return jax.numpy.dot(x.astype("float32"), weight.T.astype("float32"), precision="highest")


def worst_of(results: Any, exact: Any) -> float:
    """The largest difference over the largest number."""
    import jax

    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(exact), strict=True)
    wide = ((mine.astype("float32"), other.astype("float32")) for mine, other in pairs)
    return max(float(abs(mine - other).max() / abs(other).max()) for mine, other in wide)


def rows_of(rows: int, device: str) -> list[Record]:
    import jax

    import lapidist.jax

    keys = jax.random.split(jax.random.key(rows), 2 * LAYERS + 1)
    shapes = [(HIDDEN, WIDTH), (WIDTH, HIDDEN)] * LAYERS
    matrices = [
        jax.random.normal(key, shape, "bfloat16") / shape[1] ** 0.5
        for key, shape in zip(keys[1:], shapes, strict=True)
    ]
    weights, x = (
        list(zip(matrices[::2], matrices[1::2], strict=True)),
        jax.random.normal(keys[0], (rows, WIDTH), "bfloat16"),
    )
    stock, exact = (forms(unfused(layer), layer) for layer in (in_bfloat16, in_float32))
    layer = lapidist.jax.linear
    ours = {"": forms(unfused(layer), layer), ", fused": forms(partial(layer, activation="relu"), layer)}
    records: list[Record] = []
    for name in stock:
        expected = exact[name](weights, x)
        flops = 2.0 * rows * WIDTH * HIDDEN * len(shapes) * (3 if name == "gradients" else 1)
        for suffix, variant in ours.items():
            calls = [partial(variant[name], weights, x), partial(stock[name], weights, x)]
            mine, theirs = (worst_of(call(), expected) for call in calls)
            worst = mine / (2 * theirs)  # a ReLU that rounding switches moves gradients by more than an ulp
            names = f"lapidist.jax, {name}{suffix}", f"jax.numpy.dot, {name}{suffix}"
            times = compare(calls, jax.block_until_ready)
            records += pair(names, times, (rows, HIDDEN, WIDTH), flops, worst, device)
    return records


def main(path: str) -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    device = query_device(0)
    vendor = f"jax.numpy.dot (JAX {version_of('jax')})"
    gathered = gather(device, device.name, "model", PROTOCOL, vendor=vendor)
    conditions = replace(gathered, command="python -m lapidist_lab.bench.studies.jax_model", inputs=INPUTS)
    records: list[Record] = []
    for rows in ROWS:
        records += rows_of(rows, device.name)
        write_run(Path(path), conditions, records)


if __name__ == "__main__":
    main(*sys.argv[1:])
