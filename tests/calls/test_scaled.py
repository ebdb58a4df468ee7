"""8-bit floats with factors and promoted sums, on the host and in the machine: one meaning in both; and what
is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import in_turns, surveyed
from lapidist import machine
from lapidist.dtypes import FP8, numpy_dtype
from lapidist.errors import ArgumentError, DTypeError, LapidistError, RefusalError, ShapeError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.wgmma.family import tile
from lapidist.launch import Launch
from lapidist.machine.faults import Race
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.problems.modes import ExtraPointers
from lapidist.verify.sum_bound import judge
from lapidist_lab.machine_studies.equivalents import source_lines
from lapidist_lab.machine_studies.mutants import mutants
from scale_cases import FORMS, PAIRS, factors
from typed import fresh, poisoned, whole

Array = np.ndarray[Any, Any]
E4M3, E5M2 = FP8
M, N, K = 140, 272, 400  # two blocks of rows and three of columns, the last of each a short one


def along_k(*forms: str) -> bool:
    return bool({"strips", "squares"} & set(forms))


# ---- what they mean ----


OTHER_PAIRS = [each for each in product(FORMS, FORMS) if each not in PAIRS]


@pytest.mark.parametrize(("a_form", "b_form"), [*PAIRS, *surveyed(OTHER_PAIRS)])
def test_every_pair_of_forms_on_the_host(rng: np.random.Generator, a_form: str, b_form: str) -> None:
    a, b = fresh(rng, (M, K), E4M3), fresh(rng, (K, N), E4M3)
    scale_a, scale_b = factors(rng, a_form, M, K), factors(rng, b_form, N, K, of_b=True)
    d = lapidist.matmul(a, b, scale_a=scale_a, scale_b=scale_b)
    assert judge(d, a, b, scale_a=scale_a, scale_b=scale_b, unit="fma").ok


# D by columns is the product of B' and A', factors and all
@pytest.mark.often(2)
@pytest.mark.parametrize(("forms", "order"), in_turns(PAIRS, ["C", "F"]))
def test_every_form_in_the_machine(rng: np.random.Generator, forms: tuple[str, str], order: Any) -> None:
    """Whole numbers and powers of two: nothing is rounded, whatever the order of multiplication."""
    a_form, b_form = forms
    left, right = FP8 if order == "C" else FP8[::-1]
    a, b = whole(rng, (M, K), left), whole(rng, (K, N), right)
    scale_a, scale_b = (
        factors(rng, a_form, M, K, whole=True),
        factors(rng, b_form, N, K, of_b=True, whole=True),
    )
    out = np.asarray(poisoned((M, N), "float32"), order=order)
    lapidist.gemm(a, b, scale_a=scale_a, scale_b=scale_b, out=out, kernel="wgmma", device="machine")
    assert judge(out, a, b, scale_a=scale_a, scale_b=scale_b, exact=True).ok


@pytest.mark.parametrize(("a_form", "b_form"), PAIRS)
@pytest.mark.parametrize("output", ["float32", "bfloat16"])
def test_a_plan_is_found_where_a_bias_follows(a_form: str, b_form: str, output: str) -> None:
    """The planner is free: such products have no binary of their class whose sums others would have."""
    rng = np.random.default_rng(0)
    a, b = fresh(rng, (512, 256), E4M3), fresh(rng, (256, 768), E4M3)
    scales = {"scale_a": factors(rng, a_form, 512, 256), "scale_b": factors(rng, b_form, 768, 256, of_b=True)}
    added = lapidist.epilogues.bias(bias=np.ones(768, output))
    plan = lapidist.plan(a, b, out_dtype=output, epilogue=added, device="machine", **scales)
    assert plan.plan is not None
    assert plan.plan.kernel.name == "wgmma"


@pytest.mark.often(2)
@pytest.mark.parametrize("output", ["float32", "bfloat16", "float16"])
def test_random_factors_with_alpha_beta_and_other_results(rng: np.random.Generator, output: str) -> None:
    a, b = fresh(rng, (70, 300), E4M3), fresh(rng, (300, 96), E5M2)
    c = fresh(rng, (70, 96), output)
    scales = {
        "scale_a": factors(rng, "strips", 70, 300),
        "scale_b": factors(rng, "squares", 96, 300, of_b=True),
    }
    for device in ("host", "machine"):
        d = lapidist.gemm(a, b, c, alpha=-1.5, beta=0.5, out_dtype=output, device=device, **scales)
        assert judge(d, a, b, c, -1.5, 0.5, promoted=True, **scales).ok, device


@pytest.mark.often(2)
@pytest.mark.parametrize("layouts", ["rr", "cr", "cc"])
def test_factors_in_any_layout_and_with_any_strides(rng: np.random.Generator, layouts: str) -> None:
    """Operands that are packed first, and factors that step backwards and over others."""
    a, b = whole(rng, (33, 150), E4M3), whole(rng, (150, 40), E4M3)
    scale_a, scale_b = (
        factors(rng, "strips", 66, 150, whole=True)[::-2],
        factors(rng, "strips", 40, 150, True, True),
    )
    lying = [
        np.asarray(array, order="C" if letter == "r" else "F")
        for array, letter in zip((a, b), layouts, strict=True)
    ]
    d = lapidist.gemm(
        *lying, scale_a=scale_a, scale_b=np.asfortranarray(scale_b), kernel="wgmma", device="machine"
    )
    assert judge(d, a, b, scale_a=scale_a.copy(), scale_b=scale_b, exact=True).ok


# ---- promotion ----


def test_promotion_keeps_what_the_tensor_core_loses(rng: np.random.Generator) -> None:
    """Positive numbers: a sum grows, and what its 14 bits leave of each new product shrinks."""
    a, b = abs(fresh(rng, (64, 2000), E4M3)), abs(fresh(rng, (2000, 32), E4M3))
    a, b = a.astype(numpy_dtype(E4M3)), b.astype(numpy_dtype(E4M3))
    judged = {}
    for promote in (True, False):
        gemm = lapidist.plan(
            a, b, promote=promote, kernel="wgmma", schedule="data_parallel", device="machine"
        )
        d = poisoned((64, 32), "float32")
        assert gemm.plan is not None
        launch = gemm.plan.launch(
            operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0
        )
        machine.run(launch, chip_sums=True)
        judged[promote] = judge(d, a, b, unit="wgmma", promoted=True)
    assert judged[True].ok
    assert judged[False].worst > 2


def test_sums_of_bfloat16_are_not_cut_off_as_often(rng: np.random.Generator) -> None:
    """Positive numbers: what wgmma cuts off has one sign all along k."""
    a, b = (rng.uniform(0, 1, shape).astype(numpy_dtype("bfloat16")) for shape in ((64, 2000), (2000, 32)))
    exact = a.astype("f8") @ b.astype("f8")
    errors = {}
    for promote in (True, False):
        gemm = lapidist.plan(
            a,
            b,
            out_dtype="float32",
            promote=promote,
            kernel="wgmma",
            schedule="data_parallel",
            device="machine",
        )
        assert gemm.plan is not None
        assert gemm.plan.sum_order.promoted == 64 * promote
        d = poisoned((64, 32), "float32")
        launch = gemm.plan.launch(
            operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0
        )
        machine.run(launch, chip_sums=True)
        errors[promote] = (np.abs(d - exact) / exact).max()
    assert errors[True] <= errors[False] / 4


@pytest.mark.often(2)
@pytest.mark.parametrize("dtype", [E4M3, "bfloat16", "float16"])
def test_every_kernel_that_sums_in_floats_takes_promotion(rng: np.random.Generator, dtype: str) -> None:
    a, b = fresh(rng, (40, 150), dtype), fresh(rng, (150, 40), dtype)
    for device, kernel in (("host", None), ("machine", "mma"), ("machine", "wgmma")):
        d = lapidist.gemm(a, b, promote=True, device=device, kernel=kernel)
        assert judge(d, a, b, promoted=True).ok, kernel


# ---- schedules ----


RACED = [
    (tile(E4M3, 128, 48, 2), ("none", "none")),
    (tile(E4M3, 64, 32, 3), ("strips", "squares")),
    (tile(E4M3, 128, 32, 2, (2, 1)), ("squares", "strips")),
    (tile(E4M3, 256, 32, 2), ("lines", "line")),
    (tile(E4M3, 64, 256, 3), ("strips", "squares")),  # by parts
    (tile(E4M3, 64, 160, 2), ("strips", "strips")),
    (tile(E4M3, 256, 64, 2), ("strips", "squares")),
]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("raced", "seed"), in_turns(RACED, range(3), often=[*zip(RACED[:3], range(3), strict=True)])
)
def test_no_race_in_any_order(rng: np.random.Generator, raced: tuple[Any, Any], seed: int) -> None:
    """Sanitized, products as late as their waits allow; factors have not a row more than they need."""
    config, forms = raced
    launch, d, inputs = launched(rng, config, forms)
    machine.run(launch, sanitize=True, seed=seed, counting=False)
    assert judge(d, exact=True, **inputs).ok


@pytest.mark.parametrize(
    ("words", "orders", "found"),
    [
        ("all lanes have read the stage", 2, 2),
        *surveyed([("lanes with more copies arrive together with the others", 1, 0)]),
    ],
)
def test_whose_reads_an_arrival_covers(rng: np.random.Generator, words: str, orders: int, found: int) -> None:
    """One lane gives a stage back: that its products are done does not say that other lanes have read their
    factors. A lane that brings factors arrives for itself, wherever the others are."""
    launch, _, _ = launched(rng, tile(E4M3, 64, 32, 2), ("strips", "squares"))
    kernel = parse_kernel(launch.binary.ptx, launch.binary.entry)
    lines = {i.site.line for i in kernel.instructions if any(words in text for _, text in source_lines(i))}
    broken = [
        mutant.ptx for mutant in mutants(launch.binary.ptx, launch.binary.entry) if mutant.line in lines
    ]
    assert broken
    for ptx in broken:
        assert (
            sum(
                races(replace(launch, binary=replace(launch.binary, ptx=ptx)), seed) for seed in range(orders)
            )
            == found
        )


def races(launch: Launch, seed: int) -> bool:
    try:
        machine.run(launch, sanitize=True, seed=seed, counting=False)
    except Race:
        return True
    return False


def launched(
    rng: np.random.Generator, config: Any, forms: tuple[str, str]
) -> tuple[Launch, Array, dict[str, Any]]:
    """More than a tile in both directions: the launch, D, and what it is judged by."""
    m, n, k = config.bm + 9, 2 * config.bn + 16, 272
    a, b = whole(rng, (m, k), E4M3), whole(rng, (n, k), E4M3).T
    scales: dict[str, Any] = {}
    if forms[0] != "none":
        scales = {
            "scale_a": factors(rng, forms[0], m, k, whole=True),
            "scale_b": factors(rng, forms[1], n, k, True, True),
        }
    gemm = lapidist.plan(
        a, b, promote=along_k(*forms) or None, kernel="wgmma", config=config, device="machine", **scales
    )
    d = poisoned((m, n), "float32")
    extras = tuple(operand_of(array, name) for name, array in scales.items())
    operands = operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out")
    assert gemm.plan is not None
    extra = ExtraPointers(**{each.name: each.pointer for each in extras})
    launch = gemm.plan.launch(*operands, 1.0, 0.0, extra_pointers=extra, extras=extras)
    return launch, d, {"a": a, "b": b, **scales}


@pytest.mark.often(2)
@pytest.mark.parametrize(
    "sharing", [{"split_k": 2}, {"split_k": 2, "reduction": "cluster"}, {"schedule": "stream_k"}], ids=str
)
def test_blocks_that_share_a_tile(rng: np.random.Generator, sharing: dict[str, Any]) -> None:
    """Each promotes its part of k with that part's factors; who finishes the tile takes those of lines,
    once.
    """
    a, b = whole(rng, (140, 1100), E4M3), whole(rng, (1100, 70), E4M3)
    for form, of_b in (("strips", "squares"), ("lines", "line")):
        scales = {
            "scale_a": factors(rng, form, 140, 1100, whole=True),
            "scale_b": factors(rng, of_b, 70, 1100, True, True),
        }
        d = lapidist.gemm(
            a,
            b,
            kernel="wgmma",
            config=tile(E4M3, 128, 64, 3),
            device="machine",
            promote=True,
            **sharing,
            **scales,
        )
        assert judge(d, a, b, exact=True, **scales).ok, form


# ---- what is read, and when ----


def test_factors_are_read_when_the_kernel_runs(rng: np.random.Generator) -> None:
    a, b = whole(rng, (20, 130), E4M3), whole(rng, (130, 16), E4M3)
    scale_a = np.ones((20, 2), np.float32)
    gemm = lapidist.plan(a, b, scale_a=scale_a, device="machine")
    assert judge(gemm.execute(a, b), a, b, exact=True).ok
    scale_a[:, 1] = 0.5
    assert judge(gemm.execute(a, b), a, b, scale_a=scale_a, exact=True).ok


@pytest.mark.parametrize("device", ["host", "machine"])
def test_a_prepared_product_takes_other_factors(rng: np.random.Generator, device: str) -> None:
    """Arrays of the same shape at another place; and numbers, which are not mistaken for each other."""
    a, b = whole(rng, (20, 130), E4M3), whole(rng, (130, 16), E4M3)
    for scale_a in [factors(rng, "strips", 20, 130, whole=True) for _ in range(3)] + [2.0, 4.0]:
        for multiply in (lapidist.matmul, lapidist.gemm):
            assert judge(multiply(a, b, scale_a=scale_a, device=device), a, b, scale_a=scale_a, exact=True).ok


@pytest.mark.parametrize("device", ["host", "machine"])
@pytest.mark.parametrize(("alpha", "k"), [(0.0, 130), (1.0, 0)])
def test_factors_are_not_read_where_a_and_b_are_not(
    rng: np.random.Generator, device: str, alpha: float, k: int
) -> None:
    a, b = whole(rng, (20, k), E4M3), whole(rng, (k, 16), E4M3)
    nothing = np.full(20, np.nan, np.float32)
    assert (lapidist.gemm(a, b, alpha=alpha, scale_a=nothing, device=device) == 0).all()


@pytest.mark.parametrize("device", ["host", "machine"])
def test_a_batch_takes_one_factor(rng: np.random.Generator, device: str) -> None:
    a, b = whole(rng, (3, 20, 48), E4M3), whole(rng, (3, 16, 48), E4M3).swapaxes(1, 2)
    d = lapidist.matmul(a, b, scale_a=np.float32([[0.5]]), scale_b=4, promote=True, device=device)
    assert judge(d, a, b, 2 * np.zeros_like(d), 2.0, exact=True).ok


# ---- what is refused ----


def eights(*shape: int) -> Array:
    return np.ones(shape, numpy_dtype(E4M3))


def ones(*shape: int, dtype: str = "float32") -> Array:
    return np.ones(shape, dtype)


A, B = eights(200, 300), eights(300, 500)
REFUSED: dict[str, tuple[Callable[[], Any], type[LapidistError], str]] = {
    "shape of scale_a": (
        lambda: lapidist.matmul(A, B, scale_a=ones(3, 200)),
        ShapeError,
        r"scale_a: must be one factor, one a row, shape \(200,\) or \(200, 1\), .* \(200, 3\), .* \(2, 3\),"
        r" for 200 rows of a and "
        r"k = 300; got \(3, 200\)\. Reshape it",
    ),
    "shape of scale_b": (
        lambda: lapidist.matmul(A, B, scale_b=ones(4, 3)),
        ShapeError,
        (
            r"scale_b: must be one factor, one a column, .* \(1, 500\), .* \(3, 500\), .* \(3, 4\), for 500"
            r" columns of b .*\(4, 3\)"
        ),
    ),
    "k for m": (
        lambda: lapidist.matmul(A, B, scale_a=ones(300)),
        ShapeError,
        (
            r"scale_a: must be one factor, one a row, .* for 200 rows of a and k = 300; got"
            r" \(300,\)\. Reshape it"
        ),
    ),
    "one dimension too many": (
        lambda: lapidist.matmul(A, B, scale_b=ones(1, 3, 500)),
        ShapeError,
        (
            r"scale_b: must be one factor, one a column, .* for 500 columns of b and k = 300; got \(1, 3,"
            r" 500\)\. Reshape it"
        ),
    ),
    "a list": (
        lambda: lapidist.matmul(A, B, scale_a=[1.0, 2.0]),
        ArgumentError,
        r"scale_a: must be a real number or a float32 array beside the operands; got list\. Make it an array",
    ),
    "type of factors": (
        lambda: lapidist.matmul(A, B, scale_a=ones(200, dtype="float64")),
        DTypeError,
        r"scale_a: factors must be float32; got float64\. Convert them first",
    ),
    "factors that straddle": (
        lambda: lapidist.matmul(A, B, scale_a=np.ones(801, np.uint8)[1:].view(np.float32)),
        LapidistError,
        r"scale_a: must start on a multiple of its element's 4 bytes; it starts . beyond one\. Pass a copy",
    ),
    "a word": (
        lambda: lapidist.matmul(A, B, scale_a="row"),
        ArgumentError,
        r"scale_a: must be a real number or a float32 array beside the operands; got str",
    ),
    "factors of halves": (
        lambda: lapidist.matmul(ones(4, 4, dtype="float16"), ones(4, 4, dtype="float16"), scale_b=2.0),
        DTypeError,
        r"scale_b: is for 8-bit floats; b is float16\. Multiply with alpha",
    ),
    "promotion of halves": (
        lambda: lapidist.matmul(
            ones(4, 4, dtype="float16"), ones(4, 4, dtype="float16"), acc_dtype="float16", promote=True
        ),
        DTypeError,
        r"promote: is for floats of 8 and 16 bits .*a is float16, summed in float16\. Leave it out",
    ),
    "promote that is no flag": (
        lambda: lapidist.matmul(A, B, promote=2),
        ArgumentError,
        r"promote: must be True or False; got 2\. Call bool\(\) on it, or leave it out",
    ),  # type: ignore[arg-type]
    "blocks without promotion": (
        lambda: lapidist.matmul(A, B, scale_a=ones(200, 3), promote=False),
        ArgumentError,
        r"promote: factors that change along k multiply promoted sums; got False\. Leave it out",
    ),
    "blocks of b alone without promotion": (
        lambda: lapidist.matmul(A, B, scale_a=ones(200), scale_b=ones(3, 500), promote=False),
        ArgumentError,
        r"promote: factors that change along k multiply promoted sums; got False\. Leave it out",
    ),
    "rows of a batch": (
        lambda: lapidist.matmul(eights(2, 4, 8), eights(2, 8, 4), scale_a=ones(4)),
        ShapeError,
        (
            r"scale_a: of a batch, all matrices have one factor, .* got shape \(4,\) for a product of shape"
            r" \(2, 4, 4\)"
        ),
    ),
    "factors and gathered rows": (
        lambda: lapidist.gemm(A, B, scale_a=2.0, gather_a=np.zeros(3, np.int32)),
        ArgumentError,
        r"scale_a, scale_b: matrices with factors are neither gathered, .*Leave one out",
    ),
    "too large a factor": (
        lambda: lapidist.matmul(A, B, scale_a=1e39),
        ArgumentError,
        r"scale_a: must fit float32, at most .*; got 1e\+39",
    ),
    "factors on a rung": (
        lambda: lapidist.gemm(A, B, scale_a=ones(200), kernel="mma_multistage", device="machine"),
        RefusalError,
        r"it multiplies A and B without factors; here A with a factor a line",
    ),
    "promotion on a rung": (
        lambda: lapidist.gemm(A, eights(512, 300).T, promote=True, kernel="wgmma_tma", device="machine"),
        RefusalError,
        r"it keeps sums of float8_e4m3fn in the tensor core; these shall be promoted",
    ),
    "too large a tile": (
        lambda: lapidist.gemm(
            A, B, promote=True, kernel="wgmma", config=tile(E4M3, 128, 240, 4), device="machine"
        ),
        RefusalError,
        (
            r"promoted sums have the products of a part beside them, and a factor a column: a thread has room"
            r" for 200; this tile gives it 240"
        ),
    ),
    "a tile across three blocks": (
        lambda: lapidist.gemm(
            A, B, scale_b=ones(3, 4), kernel="wgmma", config=tile(E4M3, 128, 176, 4), device="machine"
        ),
        RefusalError,
        r"a tile meets at most two factors along its columns, 128 columns each; one of 176 may meet three",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_say_what_was_expected(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()
