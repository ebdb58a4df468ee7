"""Every kernel, run in the machine on small awkward problems, against the float64 product; outputs start as
NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist.config import Config
from lapidist.dtypes import numpy_dtype
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.mma.family import Mma
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.kernels.simt import Simt
from lapidist.verify.sum_bound import judge
from offenders import each_holds
from typed import (
    PLAIN_SURVEYED,
    SURVEYED,
    TYPED,
    TYPED_IDS,
    aligned,
    fresh,
    laid_for,
    output_of,
    plain,
    poisoned,
    precision_of,
    rows_on_16_bytes,
    takes,
    whole,
)

Array = np.ndarray[Any, Any]
WITH_C = 30, 20, 40  # one size: kernels that follow the alignment of their operands are compiled once
# Several tiles with ragged ends, and rows on 16 bytes; then what is shorter than a tile.
SIZES, SHORT = [(33, 35, 37), (130, 132, 36)], [(1, 1, 1), (5, 200, 3), (40, 3, 65), (16, 16, 0)]


def operands(
    kernel: Kernel, m: int, n: int, k: int, math: str, rng: np.random.Generator
) -> tuple[Array, Array]:
    """A and B of a kind that the kernel takes."""
    return laid_for(kernel, fresh(rng, (m, k), math), fresh(rng, (k, n), math))


def named(value: Kernel | int) -> str:
    return value.name if isinstance(value, Kernel) else str(value)


def sizes_of(kernel: Kernel, place: int, stays: bool) -> list[tuple[int, int, int]]:
    """Production kernels stay with all in `make test`; rungs with one of the short ones, in turns."""
    short = SHORT if kernel.kind == "production" else [SHORT[place % len(SHORT)]]
    sizes = [*SIZES, *short] if stays else [size for size in SHORT if size not in short]
    return [size for size in sizes if takes(kernel, *size)]


def some_sizes(stays: bool) -> list[Any]:
    cases = [(kernel, sizes_of(kernel, place, stays)) for place, kernel in enumerate(KERNELS)]
    return [pytest.param(kernel, sizes, id=kernel.name) for kernel, sizes in cases if sizes]


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "sizes"), some_sizes(stays=False))
def test_other_awkward_sizes(
    rng: np.random.Generator, kernel: Kernel, sizes: list[tuple[int, int, int]]
) -> None:
    are_right(rng, kernel, sizes)


@pytest.mark.often(23)
@pytest.mark.parametrize(("kernel", "sizes"), some_sizes(stays=True), scope="module")
def test_awkward_sizes(rng: np.random.Generator, kernel: Kernel, sizes: list[tuple[int, int, int]]) -> None:
    are_right(rng, kernel, sizes)


def are_right(rng: np.random.Generator, kernel: Kernel, sizes: list[tuple[int, int, int]]) -> None:
    def is_right(m: int, n: int, k: int) -> None:
        a, b = operands(kernel, m, n, k, plain(kernel), rng)
        out = poisoned((m, n), plain(kernel))
        lapidist.gemm(a, b, out=out, kernel=kernel.name, device="machine")
        assert judge(out, a, b, unit=kernel.unit).ok

    each_holds(is_right, sizes)


@pytest.mark.survey
@pytest.mark.parametrize(("kernel", "math"), TYPED, ids=TYPED_IDS)
def test_every_type(rng: np.random.Generator, kernel: Kernel, math: str) -> None:
    """Ragged, and with rows on 16 bytes. Rungs take turns, and so do their types."""
    shapes, turn = [(37, 45, 41), (32, 48, 64)], TYPED.index((kernel, math)) % 2
    for m, n, k in shapes if kernel.kind == "production" else shapes[turn : turn + 1]:
        a, b = operands(kernel, m, n, k, math, rng)
        out = aligned(poisoned((m, n), output_of(math, own=not kernel.types.outputs)))
        lapidist.gemm(a, b, out=out, kernel=kernel.name, precision=precision_of(math), device="machine")
        assert judge(out, a, b, precision=precision_of(math), unit=kernel.unit).ok


@pytest.mark.often(2)
@pytest.mark.parametrize(("kernel", "math"), PLAIN_SURVEYED, scope="module")
def test_alpha_and_beta(rng: np.random.Generator, kernel: Kernel, math: str) -> None:
    m, n, k = WITH_C
    a, b = operands(kernel, m, n, k, math, rng)
    c = aligned(
        whole(rng, (m, n), math).astype(poisoned((0, 0), output_of(math, own=not kernel.types.outputs)).dtype)
    )
    alpha, beta = (-3, 2) if math in ("int8", "uint8") else (-0.5, 1.25)
    out = c.copy()
    lapidist.gemm(
        a,
        b,
        out,
        alpha=alpha,
        beta=beta,
        out=out,
        kernel=kernel.name,
        precision=precision_of(math),
        device="machine",
    )
    assert judge(out, a, b, c, alpha, beta, precision=precision_of(math), unit=kernel.unit).ok


@pytest.mark.often(2)
@pytest.mark.parametrize(("kernel", "math"), SURVEYED, scope="module")
def test_integers_are_exact_and_nan_in_c_is_not_read(
    rng: np.random.Generator, kernel: Kernel, math: str
) -> None:
    m, n, k = WITH_C
    a, b = laid_for(kernel, whole(rng, (m, k), math), whole(rng, (k, n), math))
    out = aligned(poisoned((m, n), output_of(math, own=not kernel.types.outputs)))
    lapidist.gemm(
        a, b, out, beta=0, out=out, kernel=kernel.name, precision=precision_of(math), device="machine"
    )
    assert judge(out, a, b, exact=True, precision=precision_of(math)).ok == (
        math != "bfloat16" or abs(out).max() <= 256
    )


# By kernel, as the sizes before: what a kernel is compiled to is read once.
@pytest.mark.often(5)
@pytest.mark.parametrize("kernel", KERNELS, ids=named, scope="module")
def test_nothing_outside_the_output_is_written(rng: np.random.Generator, kernel: Kernel) -> None:
    a, b = operands(kernel, 18, 21, 24, plain(kernel), rng)
    base = poisoned((24, 32), plain(kernel))
    lapidist.gemm(a, b, out=base[3:21, 4:25], kernel=kernel.name, device="machine")
    assert judge(base[3:21, 4:25], a, b).ok
    base[3:21, 4:25] = np.nan
    assert np.isnan(base).all()


# ---- what only the production family takes ----

RUNGS_WITH_MAPS = ("mma_tma", "wgmma_tma", "wgmma_clusters")

LAYOUTS = ["row", "col", "strided"]


def laid_out(array: Array, layout: str) -> Array:
    if layout == "row":
        return array
    if layout == "col":
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(array, -1, -2)), -1, -2)
    spread = np.zeros((*array.shape[:-2], 2 * array.shape[-2], 3 * array.shape[-1]), array.dtype)
    spread[..., ::2, ::3] = array
    return spread[..., ::2, ::3]


@pytest.mark.parametrize(
    ("a_layout", "b_layout", "out_layout"), in_turns(LAYOUTS, LAYOUTS[::-1], ["row", "col"])
)
def test_layouts(rng: np.random.Generator, a_layout: str, b_layout: str, out_layout: str) -> None:
    assert isinstance(kernel_named("simt").family, Simt)
    assert isinstance(kernel_named("mma").family, Mma)
    a = laid_out(rng.standard_normal((21, 13)).astype(np.float32), a_layout)
    b = laid_out(rng.standard_normal((13, 18)).astype(np.float32), b_layout)
    out = laid_out(np.full((21, 18), np.nan, np.float32), out_layout)
    lapidist.gemm(a, b, out=out, kernel="simt", device="machine")
    assert judge(out, a, b).ok


@pytest.mark.often(2)
@pytest.mark.parametrize("extent", [35, 36])
@pytest.mark.parametrize(("name", "math"), [("simt", "float32"), ("mma", "tf32")])
def test_rows_that_end_inside_of_a_vector(
    rng: np.random.Generator, name: str, math: str, extent: int
) -> None:
    """Rows start on 16 bytes, and k has whole steps: vectors everywhere. Memory ends where the last row
    does.
    """
    a, b = fresh(rng, (extent, 64), math), fresh(rng, (64, extent), math)
    how: dict[str, str] = {"precision": precision_of(math), "unit": kernel_named(name).unit}
    for left, right in ((aligned(a), rows_on_16_bytes(b)), (rows_on_16_bytes(a.T).T, aligned(b))):
        result = lapidist.gemm(left, right, kernel=name, device="machine", precision=how["precision"])
        assert judge(result, left, right, **how).ok


def production_configs() -> Iterator[Any]:
    """All are a survey, but one of each type, in turns. One type stands for those that differ in nothing but
    the instruction's name.
    """
    alike = "bfloat16", "float8_e5m2", "uint8"
    for name in ("simt", "mma"):
        for number, math in enumerate(kernel_named(name).types.maths):
            configs = [config for config, _ in kernel_named(name).configs_for(math)]
            for place, config in enumerate(configs):
                often = place == number % len(configs) and not (name == "mma" and math in alike)
                marks = [] if often else [pytest.mark.survey]
                yield pytest.param(name, math, config, marks=marks, id=f"{name}-{math}-{config}")


@pytest.mark.often(2)
@pytest.mark.parametrize(("name", "math", "chosen"), [*production_configs()])
def test_every_config_of_the_production_kernels(
    rng: np.random.Generator, name: str, math: str, chosen: Config
) -> None:
    a, b = fresh(rng, (70, 33), math), fresh(rng, (33, 66), math)
    plan = lapidist.plan(a, b, kernel=name, config=chosen, precision=precision_of(math), device="machine")
    assert plan.config == chosen
    assert judge(plan.execute(a, b), a, b, precision=precision_of(math), unit=kernel_named(name).unit).ok


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 9, 7), (3, 7, 8)),
        ((3, 9, 7), (7, 8)),
        ((9, 7), (3, 7, 8)),
        ((2, 3, 9, 7), (2, 3, 7, 8)),
        ((2, 1, 9, 7), (3, 7, 8)),
        ((2, 3, 9, 7), (3, 7, 8)),
        ((4, 1, 5), (4, 5, 1)),
    ],
)
def test_batches(rng: np.random.Generator, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = rng.standard_normal(a).astype(np.float32), rng.standard_normal(b).astype(np.float32)
    result = lapidist.matmul(left, right, device="machine")
    assert result.shape == np.matmul(left, right).shape
    assert judge(result, left, right).ok


def test_c_that_broadcasts(rng: np.random.Generator) -> None:
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 9, 7), (2, 7, 8), (8,)))
    result = lapidist.gemm(a, b, c, beta=2.0, device="machine")
    assert judge(result, a, b, np.broadcast_to(c, (2, 9, 8)), 1.0, 2.0).ok


@pytest.mark.parametrize(("a", "b"), [((6,), (6, 5)), ((4, 6), (6,)), ((6,), (6,)), ((2, 4, 6), (6,))])
def test_vectors(rng: np.random.Generator, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = rng.integers(-9, 9, a).astype(np.float32), rng.integers(-9, 9, b).astype(np.float32)
    assert np.array_equal(lapidist.matmul(left, right, device="machine"), np.matmul(left, right))


def test_reversed_and_repeated_rows(rng: np.random.Generator) -> None:
    base = rng.standard_normal((20, 16)).astype(np.float32)
    a, b = base[::-1], np.broadcast_to(base[:1].copy(), (16, 16))
    assert judge(lapidist.matmul(a, b, device="machine"), a, b).ok
    windows = np.lib.stride_tricks.sliding_window_view(base.reshape(-1)[:79], 16)
    assert judge(lapidist.matmul(windows, b, device="machine"), windows, b).ok


def test_inputs_that_overlap(rng: np.random.Generator) -> None:
    x = rng.standard_normal((20, 16)).astype(np.float32)
    assert judge(lapidist.matmul(x, x[:16], device="machine"), x, x[:16]).ok


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0)])
def test_empty_outputs_launch_nothing(m: int, n: int) -> None:
    result = lapidist.matmul(np.ones((m, 4), np.float32), np.ones((4, n), np.float32), device="machine")
    assert result.shape == (m, n)


def test_alpha_zero_never_reads_a_and_b() -> None:
    nan, c = np.full((8, 8), np.nan, np.float32), np.ones((8, 8), np.float32)
    assert (lapidist.gemm(nan, nan, c, alpha=0, beta=3, device="machine") == 3).all()
    assert (lapidist.gemm(nan, nan, alpha=0, device="machine") == 0).all()


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", [*RUNGS_WITH_MAPS, "wgmma", "sgemm"])
def test_alpha_zero_takes_operands_anywhere(kernel: str) -> None:
    """Where TMA could not read them: no map of theirs reaches the driver, which would refuse it."""
    math = kernel_named(kernel).types.maths[0]
    a, b = (np.ones((9, 10), numpy_dtype(math))[:8, 1:9] for _ in range(2))
    for left, right in ((a, b), (a, b.T)):
        assert (lapidist.gemm(left, right, alpha=0, kernel=kernel, device="machine") == 0).all()


def test_the_machine_and_the_host_agree_on_semantics(rng: np.random.Generator) -> None:
    a, b, c = (rng.integers(-5, 6, shape).astype(np.float32) for shape in ((3, 9, 7), (7, 8), (9, 1)))
    there, here = (lapidist.gemm(a, b, c, alpha=2, beta=-1, device=device) for device in ("machine", "host"))
    assert np.array_equal(there, here)


def test_the_same_bits_again(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((65, 40)).astype(np.float32), rng.standard_normal((40, 33)).astype(np.float32)
    assert np.array_equal(lapidist.matmul(a, b, device="machine"), lapidist.matmul(a, b, device="machine"))
