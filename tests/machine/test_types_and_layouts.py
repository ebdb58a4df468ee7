"""The tensor-core family in the machine: types by layouts and awkward shapes, by the public calls; sanitized
in fuzzed order.

Each pair compiles a kernel, so each meets one shape here; `test_tensor_cores.py` has every vector width.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed
from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import FP8, MATHS, TF32, element_of, numpy_dtype, outputs_of
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.machine import run
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import Problem
from lapidist.verify.sum_bound import judge
from typed import fresh, poisoned, precision_of, whole

Array = np.ndarray[Any, Any]
MMA = kernel_named("mma")
TENSOR_MATHS = [math for math in MATHS if math in MMA.types.maths]
LAYOUTS = {
    ("row", "col", "row"): (33, 65, 47),
    ("col", "row", "col"): (5, 40, 1),
    ("strided", "offset", "row"): (40, 1, 70),
}


def small(math: str) -> Config:
    """A quarter of the usual tile: the machine's time goes by lanes."""
    return Config(64, 64, 128 // element_of(math).nbytes, 32, 32, 0, 0, stages=3)


def laid_out(array: Array, layout: str) -> Array:
    if layout == "col":
        return np.ascontiguousarray(array.T).T
    if layout == "row":
        return array
    rows, cols = array.shape
    spread = np.zeros((2 * rows, 3 * cols) if layout == "strided" else (rows + 1, cols + 3)).astype(
        array.dtype
    )
    spread = spread[::2, ::3] if layout == "strided" else spread[1:, 3:]
    spread[...] = array
    return spread


@pytest.mark.often(2)
@pytest.mark.parametrize(("math", "layouts"), in_turns(TENSOR_MATHS, LAYOUTS))
def test_every_type_in_every_layout(
    rng: np.random.Generator, math: str, layouts: tuple[str, str, str]
) -> None:
    m, n, k = LAYOUTS[layouts]
    a, b = laid_out(fresh(rng, (m, k), math), layouts[0]), laid_out(fresh(rng, (k, n), math), layouts[1])
    out = laid_out(poisoned((m, n), element_of(math).outputs[0]), layouts[2])
    lapidist.gemm(
        a, b, out=out, kernel=MMA, config=small(math), precision=precision_of(math), device="machine"
    )
    assert judge(out, a, b, precision=precision_of(math), unit="mma").ok


WITH_LAYOUTS = list(zip(TENSOR_MATHS, cycle(list(LAYOUTS)[::-1]), strict=False))


@pytest.mark.often(1)
@pytest.mark.parametrize(("math", "layouts"), [*WITH_LAYOUTS[::2], *surveyed(WITH_LAYOUTS[1::2])])
def test_no_race_and_nothing_read_outside(
    rng: np.random.Generator, math: str, layouts: tuple[str, str, str]
) -> None:
    a, b = laid_out(whole(rng, (40, 70), math), layouts[0]), laid_out(whole(rng, (70, 33), math), layouts[1])
    out = poisoned(
        (40, 33),
        "float64" if math == "float64" else outputs_of(element_of(math).name, element_of(math).name)[0],
    )
    operands = [operand_of(array, name) for array, name in ((a, "a"), (b, "b"), (out, "out"))]
    problem = Problem.of(operands[0], operands[1], None, operands[2], precision=precision_of(math))
    plan = make_plan(problem, chip("h200"), MMA, small(math))
    for seed in (3, 4):
        run(
            plan.launch(operands[0], operands[1], None, operands[2], 1.0, 0.0),
            sanitize=True,
            seed=seed,
            counting=False,
        )
    assert judge(out, a, b, exact=math != "bfloat16", precision=precision_of(math), unit="mma").ok


@pytest.mark.often(1)
@pytest.mark.parametrize("math", ["float16", "uint8", *surveyed(["float8_e5m2", "bfloat16", TF32])])
def test_results_in_every_type_that_is_offered(rng: np.random.Generator, math: str) -> None:
    a, b, precision = fresh(rng, (33, 47), math), fresh(rng, (47, 35), math), precision_of(math)
    for output in outputs_of(a.dtype.name, b.dtype.name):
        c = whole(rng, (33, 35), math).astype(numpy_dtype(output))
        more = {"alpha": -2, "beta": 3, "out_dtype": output, "precision": precision, "device": "machine"}
        result = lapidist.gemm(a, b, c, kernel=MMA, config=small(math), **more)
        assert judge(result, a, b, c, -2, 3, precision=precision, unit="mma").ok, output


@pytest.mark.parametrize(("dtype", "columns"), in_turns(["float16", "float32"], [36, 35]))
def test_cuda_cores_write_every_type_too(rng: np.random.Generator, dtype: str, columns: int) -> None:
    """D's rows start on the width of a vector, or do not."""
    a, b = fresh(rng, (33, 47), dtype), fresh(rng, (47, columns), dtype)
    for output in outputs_of(dtype, dtype):
        c = whole(rng, (33, columns), dtype).astype(numpy_dtype(output))
        result = lapidist.gemm(a, b, c, alpha=-2, beta=3, out_dtype=output, kernel="simt", device="machine")
        assert judge(result, a, b, c, -2, 3, unit="fma").ok, output


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("kernel", "output"), [("mma", "float32"), ("mma_multistage", "float16"), ("wmma_shared", "float32")]
)
def test_sums_in_half(rng: np.random.Generator, kernel: str, output: str) -> None:
    a, b = fresh(rng, (33, 200), "float16"), fresh(rng, (200, 35), "float16")
    result = lapidist.gemm(a, b, acc_dtype="float16", out_dtype=output, kernel=kernel, device="machine")
    assert judge(result, a, b, accumulator="float16").ok
    assert not judge(result.astype("f4"), a, b).ok  # they are not those of float sums


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("left", "right"), [("int8", "uint8"), FP8, *surveyed([("uint8", "int8"), FP8[::-1]])]
)
def test_two_types_at_once(rng: np.random.Generator, left: str, right: str) -> None:
    a, b = fresh(rng, (33, 70), left), fresh(rng, (70, 35), right)
    out = np.asfortranarray(poisoned((33, 35), outputs_of(left, right)[0]))
    assert judge(lapidist.gemm(a, b, kernel=MMA, config=small(left), device="machine"), a, b, unit="mma").ok
    lapidist.gemm(a, b, out=out, kernel=MMA, config=small(left), device="machine")  # as D' = B' A'
    assert judge(out, a, b, unit="mma").ok


@pytest.mark.parametrize("layout", ["col", "strided"])
def test_a_separate_c_in_any_layout(rng: np.random.Generator, layout: str) -> None:
    a, b = fresh(rng, (33, 20), "int8"), fresh(rng, (20, 35), "int8")
    c = laid_out(whole(rng, (33, 35), "int8").astype(np.int32), layout)
    result = lapidist.gemm(a, b, c, beta=2, kernel=MMA, config=small("int8"), device="machine")
    assert judge(result, a, b, c, 1, 2, unit="mma").ok
