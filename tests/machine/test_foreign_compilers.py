"""Kernels that nvcc, Triton and Numba compiled (their sources lie beside the PTX in `foreign`), run as they
came.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from lapidist.machine import run_ptx
from lapidist.machine.faults import MachineFault

FOREIGN = Path(__file__).parent / "foreign"
Modes = dict[str, object]


@pytest.fixture(params=[None, 0, 1, 2], ids=["plain", "seed 0", "seed 1", "seed 2"])
def mode(request: pytest.FixtureRequest) -> Modes:
    return {"sanitize": request.param is not None, "seed": request.param}


def text_of(name: str) -> tuple[str, str]:
    """The PTX, and its only kernel."""
    text = (FOREIGN / f"{name}.ptx").read_text()
    (entry,) = re.findall(r"\.entry\s+([\w$]+)", text)
    return text, entry


def run_file(
    name: str,
    grid: tuple[int, int],
    block: tuple[int, int],
    arguments: list[object],
    shared: int,
    mode: Modes,
) -> None:
    text, entry = text_of(name)
    numbered = dict(enumerate(arguments))
    run_ptx(text, entry, (*grid, 1), (*block, 1), numbered, shared_bytes=shared, **mode)  # type: ignore[arg-type]


# Triton appends two pointers to scratch memory, which these kernels leave alone.
SCRATCH = [0, 0]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("name", "height", "shared"), [("triton_product_80", 32, 8192), ("triton_product_90", 64, 18432)]
)
def test_triton_multiplies(name: str, height: int, shared: int, mode: Modes) -> None:
    """mma.sync behind cp.async on Ampere, wgmma on Hopper."""
    m, n, k = 70, 48, 80
    random = np.random.default_rng(0)
    a, b = random.integers(-4, 5, (m, k)).astype("f2"), random.integers(-4, 5, (k, n)).astype("f2")
    c = np.full((m, n), np.nan, "f4")
    run_file(name, (-(-m // height), -(-n // 32)), (128, 1), [a, b, c, m, n, k, *SCRATCH], shared, mode)
    assert (c == a.astype("f4") @ b.astype("f4")).all()


def test_a_wait_taken_out_of_triton_s_pipeline_is_found() -> None:
    text, entry = text_of("triton_product_80")
    broken = re.sub(r"cp\.async\.wait_group\s+\d+;", "", text)
    assert broken != text
    a, b, c = np.ones((32, 96), "f2"), np.ones((96, 32), "f2"), np.zeros((32, 32), "f4")
    arguments = dict(enumerate([a, b, c, 32, 32, 96, *SCRATCH]))
    with pytest.raises(MachineFault, match="not waited for"):
        run_ptx(broken, entry, (1, 1, 1), (128, 1, 1), arguments, shared_bytes=8192, sanitize=True, seed=0)  # type: ignore[arg-type]


def test_triton_s_softmax(mode: Modes) -> None:
    x = np.random.default_rng(1).standard_normal((5, 400)).astype("f4")
    y = np.zeros_like(x)
    run_file("triton_softmax_90", (5, 1), (128, 1), [x, y, 400, *SCRATCH], 16, mode)
    powers = np.exp(x.astype("f8") - x.max(axis=1, keepdims=True))
    assert np.abs(y - powers / powers.sum(axis=1, keepdims=True)).max() < 1e-7


def numba_array(array: np.ndarray) -> list[object]:
    """Numba's arrays: two pointers of its own, size, element size, data, extents, strides."""
    return [0, 0, array.size, array.itemsize, array, *array.shape, *array.strides]


def test_numba_transposes(mode: Modes) -> None:
    a = np.random.default_rng(2).standard_normal((37, 50)).astype("f4")
    out = np.zeros((50, 37), "f4")
    run_file("numba_transpose", (4, 3), (16, 16), [*numba_array(a), *numba_array(out)], 0, mode)
    assert (out == np.clip(a.T, -1, 1) / np.float32(3)).all()


def test_numba_counts(mode: Modes) -> None:
    x, counts = np.random.default_rng(3).random(1000, "f4"), np.zeros(8, "i4")
    run_file("numba_histogram", (3, 1), (64, 1), [*numba_array(x), *numba_array(counts), 0.0, 0.125], 0, mode)
    assert (counts == np.histogram(x, 8, (0, 1))[0]).all()


@pytest.mark.parametrize("kind", range(6))
def test_nvcc_weighs(kind: int, mode: Modes) -> None:
    """A jump table, constant memory, a device variable and dynamic shared memory."""
    rows, out = np.random.default_rng(4).integers(0, 256, (6, 100), "u1"), np.zeros(6, "f4")
    run_file("nvcc_weigh", (6, 1), (64, 1), [rows, out, 100, kind], 256, mode)
    wide = rows.astype("f8")
    bits = np.unpackbits(rows, axis=1).sum(axis=1)
    wanted = [wide.sum(1), wide.max(1), np.sqrt(wide).sum(1), bits, (wide % 7).sum(1), -wide.sum(1)][kind]
    assert np.allclose(out, wanted * np.array([1, 0.5, 0.25, 2])[np.arange(6) & 3], rtol=1e-6)
