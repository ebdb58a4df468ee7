"""Kernels as authors write them, plainly and on schedules: right, and nothing found; and with one thing left
out, found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapidist.launch import TensorMap
from lapidist.machine import Findings, check

SOURCES = Path(__file__).parents[1] / "support" / "sources"
SEEDS = 2
SOUND = {"BARRIER": "__syncthreads()", "GRID_BARRIER": "cooperative_groups::this_grid().sync()"}
random = np.random.default_rng(0)


def idea(name: str, grid: int, block: int, *args: Any, **options: Any) -> Findings:
    """A kernel; `without` names a barrier that is left out."""
    define = SOUND | {options.pop("without", ""): ""}
    define.pop("", None)
    source = SOURCES / ("grid_sync.cu" if name == "heat" else "ideas.cu")
    seeds = options.pop("seeds", SEEDS)
    return check(
        source, (grid, 1, 1), (block, 1, 1), *args, entry=name, define=define, seeds=seeds, **options
    )


def softmax(**options: Any) -> tuple[Findings, bool]:
    x, y = random.standard_normal((3, 150)).astype("f4"), np.zeros((3, 150), "f4")
    found = idea("softmax", 3, 64, x, y, 150, **options)
    powers = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    return found, np.allclose(y, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)


def layer_norm(**options: Any) -> tuple[Findings, bool]:
    x, y = random.standard_normal((3, 100)).astype("f4"), np.zeros((3, 100), "f4")
    gain, bias = random.standard_normal((2, 100)).astype("f4")
    found = idea("layer_norm", 3, 64, x, gain, bias, y, 100, **options)
    wide = x.astype("f8")
    centred = wide - wide.mean(axis=1, keepdims=True)
    wanted = centred / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5) * gain + bias
    return found, np.allclose(y, wanted, rtol=1e-4, atol=1e-5)


def histogram(**options: Any) -> tuple[Findings, bool]:
    x, counts = random.integers(0, 256, 1000).astype("u1"), np.zeros(256, "u4")
    found = idea("histogram", 2, 128, x, 1000, counts, **options)
    return found, bool((counts == np.bincount(x, minlength=256)).all())


def scan(**options: Any) -> tuple[Findings, bool]:
    x, y, status = random.integers(0, 9, 300).astype("i4"), np.zeros(300, "i4"), np.zeros(6, "u4")
    found = idea("scan", 5, 64, x, y, 300, status, **options)
    return found, bool((y == np.cumsum(x)).all())


def bitonic_sort(**options: Any) -> tuple[Findings, bool]:
    x = random.integers(0, 1000, 128).astype("i4")
    wanted = np.sort(x)
    return idea("bitonic_sort", 1, 128, x, shared_bytes=512, **options), bool((x == wanted).all())


def heat(**options: Any) -> tuple[Findings, bool]:
    now, after = random.integers(0, 256, 200).astype("f4"), np.zeros(200, "f4")
    wanted = now.copy()
    for _ in range(4):
        wanted = 0.25 * np.roll(wanted, 1) + 0.5 * wanted + 0.25 * np.roll(wanted, -1)
    found = idea("heat", 4, 64, now, after, 200, 4, **options)
    return found, bool((now == wanted).all())


IDEAS = [softmax, layer_norm, histogram, scan, bitonic_sort, heat]


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", IDEAS, ids=lambda kernel: kernel.__name__)
def test_a_kernel_is_right_and_sound(kernel: Callable[..., tuple[Findings, bool]]) -> None:
    found, right = kernel()
    assert list(found) == []
    assert right


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", IDEAS, ids=lambda kernel: kernel.__name__)
def test_a_barrier_left_out_is_found(kernel: Callable[..., tuple[Findings, bool]]) -> None:
    found, _ = kernel(without="GRID_BARRIER" if kernel is heat else "BARRIER", seeds=4)
    assert {finding.rule for finding in found} & {"race", "uninitialised"}


def attention(rows: int, **waits: str) -> tuple[Findings, bool]:
    q, k, v = random.standard_normal((3, rows, 32)).astype("f4")
    out = np.zeros_like(q)
    maps = [TensorMap(m.ctypes.data, "float32", (32, rows), (128,), (32, 32)) for m in (k, v)]
    found = check(
        SOURCES / "attention.cu",
        (-(-rows // 64), 1, 1),
        (96, 1, 1),
        *maps,
        q,
        out,
        rows,
        define={"WAIT_FULL(b, p)": "wait(b, p)", "WAIT_EMPTY(b, p)": "wait(b, p)", **waits},
        memory=[k, v],
        seeds=SEEDS,
    )
    scores = q.astype("f8") @ k.T.astype("f8")
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    wanted = weights @ v / weights.sum(axis=1, keepdims=True)
    return found, np.allclose(out, wanted, rtol=1e-4, atol=1e-5)


def test_flash_attention_by_tma_is_right_and_sound() -> None:
    found, right = attention(100)
    assert list(found) == []
    assert right


@pytest.mark.parametrize(
    ("wait", "rules"),
    [("WAIT_FULL(b, p)", {"uninitialised", "race"}), ("WAIT_EMPTY(b, p)", {"race", "barrier"})],
)
def test_a_wait_left_out_of_flash_attention_is_found(wait: str, rules: set[str]) -> None:
    found, _ = attention(100, **{wait: ""})
    assert {finding.rule for finding in found} & rules
