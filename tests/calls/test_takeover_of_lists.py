"""Lists whose launches begin with another kernel of the same bits, and go on with their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from counted_card import Card, stand_in
from lapidist.backends.gpu import launched_products, list_kernels
from lapidist.launch import ARRAYS_AT_ONCE, Binary
from lapidist.planning import binaries, fallback_kernels
from lapidist.planning.plans import Plan

Array = np.ndarray[Any, Any]

card = pytest.fixture(stand_in)


def lists_of(count: int = 3) -> tuple[list[Array], list[Array]]:
    return [np.zeros((192, 256), np.float16)] * count, [np.zeros((256, 320), np.float16)] * count


def wanted_for_lists_and_another(count: int) -> tuple[Plan, Plan]:
    wanted = lapidist.plan(*lists_of(count), device=0, compile="wait").plan
    assert wanted is not None
    *_, other = fallback_kernels.plans_ranked(wanted, fallback_kernels.same_sums(wanted))
    assert other.build != wanted.build
    binaries.remember(Binary("", "", "", b"", ""), *other.build)
    return wanted, other


def test_a_better_kernel_takes_over_for_lists(card: Card) -> None:
    """Of two launches, one of which is for the rest."""
    lists = lists_of(ARRAYS_AT_ONCE + 3)
    wanted, other = wanted_for_lists_and_another(ARRAYS_AT_ONCE)
    rest, another = wanted_for_lists_and_another(3)
    for _ in range(2):
        lapidist.gemm(*lists, device=0, compile="background")
    card.comes()
    for _ in range(2):
        lapidist.gemm(*lists, device=0, compile="background")
    stands_in, own = [other.config, another.config], [wanted.config, rest.config]
    assert [plan.config for plan in card.ran] == stands_in * 2 + own * 2
    assert {plan.sum_order for plan in card.ran} == {wanted.sum_order, rest.sum_order}
    assert len(card.asked) == 2


def test_lists_do_not_wait_for_what_does_not_come(card: Card) -> None:
    _, other = wanted_for_lists_and_another(3)
    lapidist.gemm(*lists_of(), device=0, compile="background")
    (part,) = list_kernels.KERNELS.values()
    assert not part.settled
    card.under_way = False
    lapidist.gemm(*lists_of(), device=0, compile="background")
    assert part.settled
    assert [plan.config for plan in card.ran] == [other.config] * 2


def test_graphs_of_lists_keep_the_kernel_that_is_wanted(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, other = wanted_for_lists_and_another(3)
    lapidist.gemm(*lists_of(), device=0, compile="background")
    monkeypatch.setattr(launched_products.GpuBackend, "is_captured", lambda *_: True)
    lapidist.gemm(*lists_of(), device=0, compile="background")
    list_kernels.KERNELS.clear()
    lapidist.gemm(*lists_of(), device=0, compile="background")  # the first one
    assert [plan.config for plan in card.ran] == [other.config] + [wanted.config] * 2


def test_a_plan_of_lists_keeps_its_kernel(card: Card) -> None:
    lists = lists_of()
    wanted, other = wanted_for_lists_and_another(3)
    waits, takes = (lapidist.plan(*lists, device=0, compile=way) for way in ("wait", "never"))
    for gemm in (waits, takes):
        gemm.execute(*lists)
    binaries.remember(Binary("", "", "", b"", ""), *wanted.build)
    for gemm in (waits, takes):
        gemm.execute(*lists)
    assert [plan.config for plan in card.ran] == [wanted.config, other.config] * 2
