"""On a GPU, with torch: tensor-core kernels in every type, every type in every layout, mixes, results and
sums in other types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.dtypes import FP8, MATHS, TF32, element_of, outputs_of
from lapidist.kernels.kernel import Kernel
from lapidist.verify.sum_bound import judge
from on_gpu import fresh, laid_out, poisoned, rows_on_16_bytes, whole
from typed import TYPED, output_of, precision_of, takes

pytestmark = pytest.mark.gpu

SIZES = [(33, 35, 37), (257, 511, 129), (16, 16, 0), (384, 640, 1024)]
# test_gpu.py has the others
ON_TENSOR_CORES = [(kernel, math) for kernel, math in TYPED if kernel.unit != "fma"]
PRODUCTION = [pair for pair in TYPED if pair[0].kind == "production" and takes(pair[0], 384, 640, 1024)]
WRITING = [(kernel, math) for kernel, math in PRODUCTION if kernel.types.outputs]
IDS = [f"{kernel.name}-{math}" for kernel, math in ON_TENSOR_CORES]


def fitting(kernel: Kernel, matrix: Any, is_b: bool = False) -> Any:
    """The same numbers, as Hopper's rungs take them: lines on 16 bytes, and k touching in all but the 16-bit
    types.
    """
    if kernel.capability < (9, 0) or kernel.kind != "rung":
        return matrix
    return rows_on_16_bytes(matrix.T).T if is_b and matrix.element_size() != 2 else rows_on_16_bytes(matrix)


# ---- every kernel in every type ----


@pytest.mark.parametrize(("kernel", "math"), ON_TENSOR_CORES, ids=IDS)
def test_every_kernel_at_awkward_sizes(torch: Any, kernel: Kernel, math: str) -> None:
    precision, output = precision_of(math), output_of(math, own=not kernel.types.outputs)
    for m, n, k in SIZES:
        a, b = fitting(kernel, fresh(torch, math, m, k)), fitting(kernel, fresh(torch, math, k, n), is_b=True)
        out = fitting(kernel, poisoned(torch, m, n, dtype=output))
        assert lapidist.gemm(a, b, out=out, kernel=kernel.name, precision=precision) is out
        assert judge(out, a, b, precision=precision, unit=kernel.unit).ok, (m, n, k)


@pytest.mark.parametrize(("kernel", "math"), ON_TENSOR_CORES, ids=IDS)
def test_every_kernel_scales(torch: Any, kernel: Kernel, math: str) -> None:
    precision, output = precision_of(math), output_of(math, own=not kernel.types.outputs)
    a, b = (
        fitting(kernel, fresh(torch, math, 150, 84)),
        fitting(kernel, fresh(torch, math, 84, 196), is_b=True),
    )
    c = whole(torch, math, 150, 196).to(getattr(torch, output))
    for alpha, beta in ((1, 0), (-3, 2), (0, 2), (2, 1)):
        out = fitting(kernel, c.clone() if beta else poisoned(torch, 150, 196, dtype=output))
        lapidist.gemm(a, b, out, alpha=alpha, beta=beta, out=out, kernel=kernel.name, precision=precision)
        assert judge(out, a, b, c, alpha, beta, precision=precision, unit=kernel.unit).ok, (alpha, beta)


@pytest.mark.parametrize(("kernel", "math"), ON_TENSOR_CORES, ids=IDS)
def test_integers_are_exact(torch: Any, kernel: Kernel, math: str) -> None:
    """Sums of at most 60 products of at most 16; bfloat16 holds whole numbers up to 256 only, so there B is
    zeros and ones.
    """
    a, b = whole(torch, math, 300, 60), whole(torch, math, 60, 260)
    a, b = fitting(kernel, a), fitting(kernel, b.clamp(0, 1) if b.dtype is torch.bfloat16 else b, is_b=True)
    out = fitting(kernel, poisoned(torch, 300, 260, dtype=output_of(math, own=not kernel.types.outputs)))
    lapidist.gemm(a, b, out=out, kernel=kernel.name, precision=precision_of(math))
    assert judge(out, a, b, exact=True, precision=precision_of(math)).ok


# ---- the library's own choice: every type in every layout ----

LAYOUTS = [
    ("row", "row", "col"),
    ("row", "col", "row"),
    ("col", "row", "offset"),
    ("col", "col", "row"),
    ("strided", "offset", "row"),
    ("offset", "strided", "col"),
]


@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("math", MATHS)
def test_layouts(torch: Any, math: str, layouts: tuple[str, str, str]) -> None:
    precision, output = precision_of(math), element_of(math).outputs[0]
    a = laid_out(fresh(torch, math, 3, 70, 45), layouts[0])
    b = laid_out(fresh(torch, math, 3, 45, 90), layouts[1])
    out = laid_out(poisoned(torch, 3, 70, 90, dtype=output), layouts[2])
    assert lapidist.gemm(a, b, out=out, precision=precision) is out
    assert judge(out, a, b, precision=precision).ok
    lapidist.gemm(a[0], b[1], out=out[2], precision=precision)
    assert judge(out[2], a[0], b[1], precision=precision).ok


@pytest.mark.parametrize("math", MATHS)
def test_nothing_that_blas_takes_is_refused(torch: Any, math: str) -> None:
    """Odd strides, single rows and columns, vectors, broadcast and stacked batches."""
    shapes = [
        ((1, 77), (77, 1)),
        ((1, 77), (77, 33)),
        ((33, 77), (77, 1)),
        ((33, 1), (1, 31)),
        ((5, 33, 17), (17, 9)),
        ((2, 1, 33, 17), (3, 17, 9)),
        ((7,), (7, 5)),
        ((5, 7), (7,)),
        ((300, 1, 8), (300, 8, 1)),
    ]
    for left, right in shapes:
        a, b = fresh(torch, math, *left), fresh(torch, math, *right)
        result = lapidist.matmul(a, b, precision=precision_of(math))
        rows, cols = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
        shape = (*torch.broadcast_shapes(rows.shape[:-2], cols.shape[:-2]), rows.shape[-2], cols.shape[-1])
        assert judge(result.reshape(shape), rows, cols, precision=precision_of(math)).ok, (left, right)


# ---- results, sums and mixes ----


@pytest.mark.parametrize("math", MATHS)
def test_results_in_every_type_that_is_offered(torch: Any, math: str) -> None:
    a, b, precision = fresh(torch, math, 90, 72), fresh(torch, math, 72, 112), precision_of(math)
    dtype = element_of(math).name
    for output in outputs_of(dtype, dtype):
        result = lapidist.matmul(a, b, out_dtype=output, precision=precision)
        assert result.dtype is getattr(torch, output)
        assert judge(result, a, b, precision=precision).ok, output
        again = lapidist.matmul(a, b, out_dtype=getattr(torch, output), precision=precision)
        assert torch.equal(result.view(torch.uint8), again.view(torch.uint8))


@pytest.mark.parametrize(
    ("kernel", "math"), WRITING, ids=[f"{kernel.name}-{math}" for kernel, math in WRITING]
)
def test_families_write_every_type(torch: Any, kernel: Kernel, math: str) -> None:
    """With C, by rows that start on vectors and others."""
    precision, dtype = precision_of(math), element_of(math).name
    for output in outputs_of(dtype, dtype):
        for m, n, k in ((300, 272, 160), (131, 77, 93)):
            a, b, c = (
                fresh(torch, math, m, k),
                fresh(torch, math, k, n),
                whole(torch, math, m, n).to(getattr(torch, output)),
            )
            out = poisoned(torch, m, n, dtype=output)
            lapidist.gemm(a, b, c, alpha=-3, beta=2, out=out, kernel=kernel, precision=precision)
            assert judge(out, a, b, c, -3, 2, precision=precision, unit=kernel.unit).ok, (output, m)


@pytest.mark.parametrize("output", ["float16", "float32", "bfloat16"])
def test_sums_in_half(torch: Any, output: str) -> None:
    a, b = fresh(torch, "float16", 200, 300), fresh(torch, "float16", 300, 100)
    result = lapidist.matmul(a, b, acc_dtype="float16", out_dtype=output)
    assert judge(result, a, b, accumulator="float16").ok
    assert not judge(result, a, b).ok  # they are not those of float sums


@pytest.mark.parametrize(("left", "right"), [("int8", "uint8"), ("uint8", "int8"), FP8, FP8[::-1]])
def test_two_types_at_once(torch: Any, left: str, right: str) -> None:
    a, b = fresh(torch, left, 90, 70), fresh(torch, right, 70, 110)
    assert judge(lapidist.matmul(a, b), a, b).ok
    out = poisoned(torch, 110, 90, dtype=outputs_of(left, right)[0]).T
    assert judge(lapidist.gemm(a, b, out=out), a, b).ok


def test_two_types_that_no_chip_multiplies(torch: Any) -> None:
    a, b = fresh(torch, "float16", 8, 8), fresh(torch, "bfloat16", 8, 8)
    with pytest.raises(
        lapidist.DTypeError,
        match=r"b: element type must be that of a, float16; got bfloat16.*both to float32",
    ):
        lapidist.matmul(a, b)


def test_tf32_is_asked_for_and_rounds(torch: Any) -> None:
    a, b = fresh(torch, "float32", 256, 512), fresh(torch, "float32", 512, 256)
    exact, rough = lapidist.matmul(a, b), lapidist.matmul(a, b, precision=TF32)
    assert judge(exact, a, b).ok
    assert judge(rough, a, b, precision=TF32).ok
    assert not judge(rough, a, b).ok


def test_a_plan_of_another_output_runs_again(torch: Any) -> None:
    a, b = fresh(torch, "bfloat16", 64, 64), fresh(torch, "bfloat16", 64, 64)
    plan = lapidist.plan(a, b, out_dtype="float32")
    for _ in range(3):
        a, b = fresh(torch, "bfloat16", 64, 64), fresh(torch, "bfloat16", 64, 64)
        result = plan.execute(a, b)
        assert result.dtype is torch.float32
        assert judge(result, a, b).ok
    with pytest.raises(lapidist.LapidistError):
        plan.execute(a, b, None, poisoned(torch, 64, 64, dtype="bfloat16"))


def test_integers_wrap_and_saturate(torch: Any) -> None:
    a, b = (torch.full((64, 64), 127, device="cuda", dtype=torch.int8) for _ in range(2))
    assert (lapidist.matmul(a, b) == 64 * 127 * 127).all()
    assert (lapidist.matmul(a, b, out_dtype="int8") == 127).all()
    assert (lapidist.gemm(a, b, alpha=-1, out_dtype="int8") == -128).all()
    wrapped = (4000 * 64 * 127 * 127 + 2**31) % 2**32 - 2**31
    assert (lapidist.gemm(a, b, alpha=4000) == wrapped).all()


# ---- other frameworks ----


@pytest.mark.parametrize("math", MATHS)
def test_host_arrays_on_the_gpu(rng: np.random.Generator, math: str) -> None:
    import typed

    a, b = typed.fresh(rng, (90, 70), math), typed.fresh(rng, (70, 110), math)
    result = lapidist.matmul(a, b, precision=precision_of(math), device="gpu")
    assert judge(result, a, b, precision=precision_of(math)).ok


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_cupy(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    a, b = (cupy.random.randint(0, 100, shape).astype(dtype) for shape in ((90, 70), (70, 110)))
    result = lapidist.matmul(a, b)
    assert isinstance(result, cupy.ndarray)
    assert result.dtype == "int32"
    assert judge(result.get(), a.get(), b.get()).ok


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"])
def test_jax(dtype: str) -> None:
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    import typed

    a, b = (
        jax.numpy.asarray(typed.fresh(rng, (90, 70), dtype)),
        jax.numpy.asarray(typed.fresh(rng, (70, 110), dtype)),
    )
    result = lapidist.matmul(a, b)
    assert isinstance(result, jax.Array)
    assert judge(np.asarray(result), np.asarray(a), np.asarray(b)).ok
