"""Plans of products over several ranks: which way, what it is predicted to take, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from lapidist.device import chip
from lapidist.distributed import plan
from lapidist.distributed.exchange_plans import NO_OWNERS, ON_THE_HOST, UNEVEN, WAYS, exchange_of, plan_of
from lapidist.distributed.exchange_steps import Way
from lapidist.distributed.exchange_times import NETWORK, NVLINK, Product, Reach, Times
from lapidist.errors import ArgumentError

CARDS = Reach(2, chip("h200"), NVLINK)
LARGE = exchange_of("all_gather_matmul", 8192, 4096, 8192, "bfloat16", 2)


# Microseconds on two H200 of one host, by product and rows; few rows in CUDA graphs.
SHAPES = {
    "all_gather_matmul": (4096, 8192),
    "matmul_reduce_scatter": (8192, 4096),
    "matmul_all_reduce": (8192, 4096),
}
MEASURED = [
    ("all_gather_matmul", 16, {"collective": 32, "push": 50, "waiting": 37}),
    ("all_gather_matmul", 64, {"collective": 38, "push": 52, "waiting": 40}),
    ("all_gather_matmul", 512, {"collective": 89, "push": 81, "waiting": 75}),
    ("all_gather_matmul", 4096, {"collective": 503, "push": 360, "waiting": 372}),
    ("all_gather_matmul", 8192, {"collective": 968, "push": 703, "waiting": 732}),
    ("matmul_reduce_scatter", 64, {"collective": 45, "slots": 78, "one_shot": 27}),
    ("matmul_reduce_scatter", 512, {"collective": 93, "slots": 93, "one_shot": 66}),
    ("matmul_reduce_scatter", 4096, {"collective": 520, "slots": 413, "one_shot": 480}),
    ("matmul_reduce_scatter", 8192, {"collective": 1026, "slots": 799, "one_shot": 943}),
    ("matmul_all_reduce", 64, {"collective": 44, "slots": 84, "one_shot": 29}),
    ("matmul_all_reduce", 512, {"collective": 138, "slots": 134, "one_shot": 78}),
    ("matmul_all_reduce", 4096, {"collective": 684, "slots": 499, "one_shot": 577}),
    ("matmul_all_reduce", 8192, {"collective": 1336, "slots": 931, "one_shot": 1162}),
]


@pytest.mark.parametrize(("product", "rows", "measured"), MEASURED)
def test_times_are_those_that_two_cards_took(product: Product, rows: int, measured: dict[Way, int]) -> None:
    exchange = exchange_of(product, rows, *SHAPES[product], "bfloat16", 2)
    times = Times(exchange, chip("h200"), NVLINK)
    predicted = {way: 1e6 * times.of(way) for way in measured}
    assert predicted == pytest.approx(measured, rel=0.25)
    # the way that is chosen took at most a tenth longer than the fastest
    assert measured[min(predicted, key=lambda way: predicted[way])] <= 1.1 * min(measured.values())


# Of products whose tiles go to their owners, those of a row in the same run
STORED = [
    (512, 28672, 4096, {"collective": 252, "slots": 231, "tiles": 209, "one_shot": 229}),
    (4096, 28672, 4096, {"collective": 1740, "slots": 1328, "tiles": 1430, "one_shot": 1606}),
    (8192, 28672, 4096, {"collective": 3451, "slots": 2719, "tiles": 2810, "one_shot": 3149}),
    (64, 8192, 14336, {"collective": 91, "slots": 153, "one_shot": 81}),
    (512, 8192, 14336, {"collective": 206, "slots": 207, "tiles": 197, "one_shot": 196}),
]


@pytest.mark.parametrize(("rows", "n", "k", "measured"), STORED)
def test_times_of_stored_tiles(rows: int, n: int, k: int, measured: dict[Way, int]) -> None:
    times = Times(exchange_of("matmul_reduce_scatter", rows, n, k, "bfloat16", 2), chip("h200"), NVLINK)
    predicted = {way: 1e6 * times.of(way) for way in measured}
    assert predicted == pytest.approx(measured, rel=0.15)
    assert measured[min(predicted, key=lambda way: predicted[way])] <= 1.01 * min(measured.values())


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_large_products_hide_their_exchange(ranks: int) -> None:
    """By peers' memory a large product takes little more than alone; nothing is faster than alone."""
    for product, way in (("all_gather_matmul", "push"), ("matmul_reduce_scatter", "slots")):
        exchange = exchange_of(product, 65536, 8192, 8192, "bfloat16", ranks)  # type: ignore[arg-type]
        reach = replace(CARDS, ranks=ranks)
        assert plan_of(exchange, reach).seconds[0][0] == way
        times = Times(exchange, chip("h200"), NVLINK)
        alone = times.product(65536)
        assert 0.99 * alone < times.of(way) < 1.12 * alone
        assert all(times.of(other) > times.of(way) for other in WAYS[exchange.product] if other != way)


def test_without_access_to_peers_there_are_collectives() -> None:
    for product in WAYS:
        chosen = plan(product, 8192, 8192, 8192, peers=False)
        assert chosen.way in ("collective", "chunks")
        assert {reason for _, reason in chosen.refused} == {"peers=False"}
    several_hosts = Reach(2, chip("h200"), NETWORK, "the ranks run on several hosts")
    chosen = plan_of(LARGE, several_hosts)
    assert ("push", "the ranks run on several hosts") in chosen.refused


def test_calls_that_cannot_be_cut_take_the_collective() -> None:
    few = exchange_of("all_gather_matmul", 16, 18, 24, "bfloat16", 2)
    assert plan_of(few, CARDS).way == "one_shot"
    why = "the epilogue has operands, results or positions of all rows"
    for exchange in (LARGE, few):  # results that are no whole matrix lie in no buffer that was made before
        assert dict(plan_of(exchange, CARDS, why).refused)["one_shot"] == why
    barred = plan_of(LARGE, CARDS, why)
    assert barred.way == "collective"
    assert [way for way, _ in barred.refused] == ["chunks", "push", "waiting", "one_shot"]
    uneven = plan_of(replace(LARGE, product="matmul_all_reduce", rows=8191), CARDS)
    assert dict(uneven.refused) == {"chunks": UNEVEN, "slots": UNEVEN}
    assert plan_of(LARGE, Reach(2, None, NETWORK)).reason == ON_THE_HOST
    assert plan_of(replace(LARGE, ranks=1), Reach(1, chip("h200"), NVLINK)).way == "collective"


def test_tiles_go_to_owners_of_whole_patches() -> None:
    """Their rows are a multiple of 16, and lines start on 16 bytes, on Hopper; others take other ways."""
    exchange = replace(LARGE, product="matmul_reduce_scatter", rows=512)
    assert plan_of(exchange, CARDS).way == "tiles"
    for other in (
        replace(exchange, rows=2 * 24),
        replace(exchange, n=4100),
        replace(exchange, dtype="float32"),
    ):
        assert dict(plan_of(other, CARDS).refused) == {"tiles": NO_OWNERS}
    assert ("tiles", NO_OWNERS) in plan_of(exchange, replace(CARDS, device=chip("a100"))).refused


def test_a_plan_prints_each_way() -> None:
    text = str(plan("matmul_all_reduce", 63, 8192, 4096, ranks=4))
    assert text.startswith("matmul_all_reduce 63 x 8192 x 4096 bfloat16, 4 ranks: one_shot, predicted to be")
    assert "  collective" in text
    assert "  slots       refused  the rows do not divide by the number of ranks" in text


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="product: must be one of all_gather_matmul, "):
        plan("gather", 1, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="rows: must be a whole number from 1 on; got 0"):
        plan("all_gather_matmul", 0, 1, 1)


def test_a_plan_needs_no_torch() -> None:
    code = """
import sys, lapidist.distributed
lapidist.distributed.plan("all_gather_matmul", 64, 64, 64)
print("torch" in sys.modules, dir(lapidist.distributed))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("False ['all_gather_matmul', 'column_parallel_linear'")
