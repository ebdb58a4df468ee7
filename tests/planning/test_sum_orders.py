"""Plans of one SumOrder give equal bits, and different orders are told apart."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lapidist
from lapidist import Config, SumOrder
from lapidist.device import chip
from lapidist.errors import RefusalError
from lapidist.kernels.config_table import Columns
from lapidist.kernels.mma.configs import mma_tiles
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.kernels.wgmma.configs import tile
from lapidist.planning.plans import make_plan
from lapidist.planning.same_sum_order import sums_within_tile
from lapidist.problems.problem import dense_problem
from lapidist.problems.scaling import PROMOTED
from lapidist.schedule import TileGrid, stream_k
from lapidist.schedule.sharing_choice import Sharing
from same_sums import Choice, Product

H200 = chip("h200")
WHOLE, HALVES = Sharing(schedule="data_parallel"), Sharing(split_k=2, reduction="turnstile")
SIMT_LARGE, SIMT_SMALL = Config(64, 128, 16, 32, 64, 8, 8), Config(32, 32, 32, 16, 32, 4, 4)
SGEMM = Config(256, 128, 32, 64, 64, 16, 8, stages=4, producers=128)
SLICED_ROWS, SLICED_COLUMNS = (
    Config(bm, bn, 32, 64, 64, 16, 8, stages=5, producers=128, slices=4) for bm, bn in ((128, 64), (64, 128))
)
SLICED_SIMT = Config(32, 32, 32, 16, 32, 4, 4, stages=3, slices=4)
SLICED_MOVED = Config(64, 64, 32, 32, 32, 8, 4, slices=4)


def wgmma(math: str) -> list[Config]:
    """One of each kind of tile, and what shares, exchanges, turns or leaves by turns."""
    small = tile(math, 64, 64, 4)
    return [
        small,
        replace(small, exchanged=True),
        tile(math, 128, 96, 4, (2, 1)),
        tile(math, 64, 32, 3, (1, 2), exchanged=True),
        tile(math, 128, 64, 4, ping_pong=True),
        tile(math, 192, 80, 3),
    ]


def choices(math: str) -> list[Choice]:
    if math == "float32":
        kernels = [("simt", SIMT_LARGE), ("simt", SIMT_SMALL)]
        kernels += [("simt", config) for config in (SLICED_SIMT, replace(SLICED_SIMT, bm=64), SLICED_MOVED)]
        kernels += [("sgemm", each) for each in (SGEMM, SLICED_ROWS, SLICED_COLUMNS)]
        ladder = [
            Choice(kernel.name, kernel.config)
            for kernel in KERNELS
            if kernel.unit == "fma" and kernel.kind != "production" and kernel.name != "tma_streamk"
        ]
    elif math == "bfloat16":
        kernels = [("wgmma", config) for config in wgmma(math)]
        kernels += [("mma", config) for config in mma_tiles(math).values()]
        ladder = []
    else:
        kernels, ladder = [("wgmma", config) for config in wgmma(math)[:5]], []
    return [Choice(*kernel, sharing) for kernel in kernels for sharing in (WHOLE, HALVES)] + ladder


def by_order(product: Product, drawn: list[Choice]) -> dict[SumOrder, list[lapidist.Gemm]]:
    found: dict[SumOrder, list[lapidist.Gemm]] = {}
    for choice in drawn:
        try:
            gemm = product.planned(choice)
        except RefusalError:
            continue
        assert isinstance(gemm.sum_order, SumOrder)
        found.setdefault(gemm.sum_order, []).append(gemm)
    return found


# ---- equal orders, equal bits ----


@pytest.mark.survey
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    st.sampled_from(("float32", "bfloat16", "float8_e4m3fn")),
    st.sampled_from(((65, 72, 96), (130, 40, 160), (33, 136, 272))),
    st.sampled_from((0.0, 0.75)),
    st.randoms(use_true_random=False),
)
def test_plans_of_one_order_give_equal_bits(
    math: str, shape: tuple[int, int, int], beta: float, draw: random.Random
) -> None:
    product = Product.of(np.random.default_rng(draw.getrandbits(32)), math, shape, "rc", beta)
    alike = [gemms for gemms in by_order(product, choices(math)).values() if len(gemms) > 1]
    first, second = draw.sample(draw.choice(alike), 2)
    np.testing.assert_array_equal(product.bits(first), product.bits(second), f"{first!r}\n{second!r}")


def test_the_same_shared_tiles_with_a_and_b_exchanged(rng: np.random.Generator) -> None:
    product, streamed = Product.of(rng, "bfloat16", (130, 136, 192), "rc"), Sharing("stream_k", avail_sms=5)
    config = tile("bfloat16", 64, 128, 4)
    turned = tile("bfloat16", 128, 64, 4, exchanged=True, along_m=True)
    first, second = (product.planned(Choice("wgmma", each, streamed)) for each in (config, turned))
    assert first.sum_order == second.sum_order
    np.testing.assert_array_equal(product.bits(first), product.bits(second))


# ---- different orders, different bits ----


def underflowing(k: int) -> Product:
    """Sums that are -0: no product is as large as the smallest number."""
    return Product("float32", np.full((4, k), 1e-30, np.float32), np.full((k, 4), -1e-30, np.float32))


E4M3 = "float8_e4m3fn"
DEEP = mma_tiles(E4M3)["mma, promoted"]
LESS_DEEP = replace(DEEP, bk=64)
GRID = TileGrid.of(65, 72, 272, 32, 32, 32)
STREAMED = [Sharing(stream_k(GRID, sms=4, sk_tiles=5, sk_blocks=count)) for count in (3, 4)]
# of a SumOrder, the field that tells two plans apart, and what makes that visible
APART = {
    "unit": (E4M3, Choice("wgmma", tile(E4M3, 64, 64, 4), WHOLE), Choice("mma", LESS_DEEP, WHOLE)),
    "promoted": (E4M3, Choice("mma", LESS_DEEP, WHOLE), Choice("mma", DEEP, WHOLE)),
    "cuts": ("float32", Choice("simt", SIMT_SMALL, WHOLE), Choice("simt", SIMT_SMALL, HALVES)),
    "cuts, places": (
        "float32",
        Choice("simt", SIMT_SMALL, HALVES),
        Choice("simt", SIMT_SMALL, Sharing(split_k=3, reduction="turnstile")),
    ),
    "slices": ("float32", Choice("sgemm", SGEMM, WHOLE), Choice("sgemm", SLICED_ROWS, WHOLE)),
    "slices, the short step": (
        "float32",
        Choice("simt", SLICED_SIMT, WHOLE),
        Choice("sgemm", SLICED_ROWS, WHOLE),
    ),
    "slices, the short tile": (
        "float32",
        Choice("simt", SLICED_SIMT, WHOLE),
        Choice("simt", SLICED_MOVED, WHOLE),
    ),
    "cuts, tiles": ("float32", *(Choice("simt", SIMT_SMALL, each) for each in STREAMED)),
    "epilogue": (
        "float32",
        *(Choice(name, kernel_named(name).config) for name in ("coalesced", "large_tile")),
    ),
    "zeros": ("", Choice("simt", SIMT_SMALL, WHOLE), Choice("simt", SIMT_LARGE, WHOLE)),
    "cuts, reduction": (
        "",
        Choice("simt", SIMT_LARGE, HALVES),
        Choice("simt", SIMT_LARGE, Sharing(split_k=2, reduction="separate")),
    ),
}


@pytest.mark.often(1)
@pytest.mark.parametrize("name", APART)
def test_different_orders_are_told_apart(name: str, rng: np.random.Generator) -> None:
    math, *pair = APART[name]
    product = (
        Product.of(rng, math, (65, 72, 272), "rc" if math == E4M3 else "rr") if math else underflowing(48)
    )
    product = product._replace(promote=name == "promoted" or None)
    if name == "epilogue":
        product = Product.of(rng, math, (65, 72, 40), beta=0.75)
    first, second = (product.planned(choice) for choice in pair)
    assert (product.bits(first) != product.bits(second)).any()
    orders = [gemm.sum_order for gemm in (first, second)]
    assert {key for key in vars(orders[0]) if len({getattr(order, key) for order in orders}) > 1} >= {
        name.partition(",")[0]
    }
    assert orders[0] != orders[1]


def test_a_column_of_configs_is_told_apart_by_promotion() -> None:
    problem, mma = replace(dense_problem(65, 72, 272, E4M3, "rc"), scaling=PROMOTED), kernel_named("mma")
    for config, expected in ((LESS_DEEP, [True, False]), (DEEP, [False, True])):
        order = make_plan(problem, H200, mma, config, WHOLE).sum_order
        assert isinstance(order, SumOrder)
        assert sums_within_tile(mma, Columns.of((LESS_DEEP, DEEP)), problem, order).tolist() == expected


# ---- the value ----


def test_an_order_that_changes_from_run_to_run_is_like_no_other(rng: np.random.Generator) -> None:
    product = Product.of(rng, "float32", (40, 40, 128))
    atomic = Sharing(split_k=4, reduction="atomic", deterministic=False)
    order = product.planned(Choice("simt", SIMT_SMALL, atomic)).sum_order
    assert isinstance(order, SumOrder)
    assert not order.fixed
    assert order != order
    assert "added in any order" in str(order)


@pytest.mark.parametrize(
    ("math", "extents", "words"),
    [
        ("bfloat16", (4096, 4096, 4096), "wgmma bf16, steps of 16, whole tiles"),
        ("float8_e4m3fn", (64, 8192, 8192), "wgmma e4m3, steps of 32, k cut at 4096, added in a cluster"),
        ("int8", (3000, 3000, 3000), "int8, exact in any order"),
        (
            "float32",
            (4096, 4096, 4096),
            "fma fp32, one after another, tiles of 256 x 128 along n in bands of 1, 16 x 32 tiles, 128"
            " iterations each of 32: 248 from number 0 on cut into 132 stretches, added in turn",
        ),
    ],
)
def test_an_order_says_what_decides(math: str, extents: tuple[int, int, int], words: str) -> None:
    plan = make_plan(dense_problem(*extents, math), H200)
    assert str(plan.sum_order) == words
    assert words in str(plan)


@pytest.mark.parametrize("exchanged", [False, True])
def test_an_order_tells_types_as_the_caller_has_them(exchanged: bool) -> None:
    problem = replace(dense_problem(130, 136, 192, E4M3, "rc"), b_dtype="float8_e5m2")
    plan = make_plan(problem, H200, kernel_named("wgmma"), tile(E4M3, 64, 64, 4, exchanged=exchanged), WHOLE)
    assert plan.problem.transposed == exchanged
    assert plan.sum_order.types == "e4m3 x e5m2"


def test_the_same_on_a_chip_with_as_many_multiprocessors() -> None:
    first, second = (make_plan(dense_problem(3000, 3000, 3000, "float32"), chip(x)) for x in ("h100", "h200"))
    assert first.sum_order == second.sum_order
    assert hash(first.sum_order) == hash(second.sum_order)


def test_tensor_cores_of_other_generations_sum_in_another_way() -> None:
    problem = dense_problem(512, 512, 512, "bfloat16")
    mma = kernel_named("mma")
    first, second = (make_plan(problem, chip(x), mma, mma.config, WHOLE).sum_order for x in ("a100", "h100"))
    assert first != second
    assert replace(first, chip="") == replace(second, chip="")


def test_half_sums_are_told(rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in "ab")
    gemm = lapidist.plan(a, b, acc_dtype="float16", device="machine")
    assert "sums in float16" in str(gemm.sum_order)


def test_numpy_has_no_order_of_ours(rng: np.random.Generator) -> None:
    assert lapidist.plan(rng.standard_normal((4, 4)), rng.standard_normal((4, 4))).sum_order is None
