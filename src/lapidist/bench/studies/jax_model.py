"""An MLP in JAX under jit, forward and with gradients, beside the same by jax.numpy.dot.

`python -m lapidist.bench.studies.jax_model FILE` writes its Records to FILE."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist.bench.protocol.conditions import gather, version_of
from lapidist.bench.protocol.record import Record, write_run

LAYERS, WIDTH, HIDDEN = 4, 4096, 14336
ROWS = (16, 77, 1000, 8192)
ROUNDS, TURN_SECONDS = 9, 0.1
PROTOCOL = (
    f"{LAYERS} blocks of {WIDTH} to {HIDDEN} and back with a ReLU between, bf16; median of {ROUNDS} turns of"
    f" {TURN_SECONDS} s, turn by turn, ending with block_until_ready; ratio: time of jax.numpy.dot over ours"
)
INPUTS = "standard normal, weights over the square root of their inputs"
Layer = Callable[[Any, Any], Any]


def mlp(layer: Layer, weights: Any, x: Any) -> Any:
    import jax

    for up, down in weights:
        x = layer(jax.nn.relu(layer(x, up)), down)
    return x


def loss(layer: Layer, weights: Any, x: Any) -> Any:
    return (mlp(layer, weights, x).astype("float32") ** 2).mean()


def forms(layer: Layer) -> dict[str, Callable[[Any, Any], Any]]:
    import jax

    return {
        "forward": jax.jit(partial(mlp, layer)),
        "gradients": jax.jit(jax.grad(partial(loss, layer), argnums=(0, 1))),
    }


def turn(call: Callable[[], Any], calls: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(calls):
        result = call()
    import jax

    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls


def compare(contestants: Sequence[Callable[[], Any]]) -> list[list[float]]:
    """Of each, after as many calls as XLA needs to capture its graphs."""
    for call in contestants:
        turn(call, 5)
    calls = max(1, int(TURN_SECONDS / turn(contestants[0], 3)))
    rounds = [[turn(call, calls) for call in contestants] for _ in range(ROUNDS)]
    return [list(each) for each in zip(*rounds, strict=True)]


def worst_of(found: Any, expected: Any) -> float:
    """Largest difference over the largest number, as a share of a twentieth."""
    import jax

    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    wide = ((mine.astype("float32"), theirs.astype("float32")) for mine, theirs in pairs)
    return max(float(abs(mine - theirs).max() / abs(theirs).max()) for mine, theirs in wide) / 0.05


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
    ours, stock = forms(lapidist.jax.linear), forms(lambda x, w: jax.numpy.dot(x, w.T))
    records = []
    for name in ours:
        calls = [partial(ours[name], weights, x), partial(stock[name], weights, x)]
        worst = worst_of(calls[0](), calls[1]())
        mine, theirs = compare(calls)
        flops = 2.0 * rows * WIDTH * HIDDEN * len(shapes) * (3 if name == "gradients" else 1)
        for kernel, seconds in ((f"lapidist.jax, {name}", mine), (f"jax.numpy.dot, {name}", theirs)):
            middle = median(seconds)
            kind = "production" if seconds is mine else "peer"
            size, speed = (rows, HIDDEN, WIDTH), flops / middle / 1e12
            found = Record(
                kernel,
                kind,
                device,
                "bfloat16",
                "rcr",
                *size,
                middle,
                speed,
                median(theirs) / middle,
                None,
                worst,
                worst <= 1.0,
                "model",
                min(seconds),
                max(seconds),
            )
            records.append(found)
            print(f"{kernel:28} {rows:6} rows {middle * 1e3:9.3f} ms {speed:7.1f} TFLOP/s  {found.ratio:.3f}")
    return records


def main(path: str) -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    device = query_device(0)
    vendor = f"jax.numpy.dot (JAX {version_of('jax')})"
    found = gather(device, device.name, "model", PROTOCOL, vendor=vendor)
    conditions = replace(found, command="python -m lapidist.bench.studies.jax_model", inputs=INPUTS)
    records: list[Record] = []
    for rows in ROWS:
        records += rows_of(rows, device.name)
        write_run(Path(path), conditions, records)


if __name__ == "__main__":
    main(*sys.argv[1:])
