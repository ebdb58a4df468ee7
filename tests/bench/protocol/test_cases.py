"""Cases, and in which turns contenders are measured on them. test_gpu_bench.py measures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ladder_records import FLOAT_RUNGS
from lapidist.commands.products import product_of
from lapidist.config import Config
from lapidist.dtypes import MATHS
from lapidist.errors import ArgumentError
from lapidist_lab.bench.protocol.cases import LISTS, MULTIPLES, Case, Part, named
from lapidist_lab.bench.protocol.contenders import bytes_per_flop, choose, problem_of
from lapidist_lab.bench.protocol.timing import BURST, SUSTAINED, turn_order
from lapidist_lab.bench.studies.ladder_runs import poisoned_matrix, random_matrix

# ---- cases ----


def test_the_sweep_runs_from_128_to_16384_at_k_1024() -> None:
    sizes = [m for m, n, k in LISTS["sweep"] if m == n and k == 1024]
    assert len(sizes) == len(LISTS["sweep"]) == 15
    assert (sizes[0], sizes[-1]) == (128, 16384)


def test_cases_come_from_lists() -> None:
    assert len(named(("ladder", "squares"), "float32")) == len(LISTS["ladder"]) + len(LISTS["squares"])


def test_flops_and_bytes_of_a_case() -> None:
    case = Case(2, 3, 5, "float64")
    assert case.flops == 60
    assert case.set_bytes == (10 + 15 + 6) * 8


def test_a_batch_is_so_many_products() -> None:
    one, many = Case(2, 3, 5, "float64"), Case(2, 3, 5, "float64", batch=7)
    assert many.flops == 7 * one.flops
    assert many.set_bytes == 7 * one.set_bytes
    assert (one.shape, many.shape) == ("2x3x5", "7 of 2x3x5")
    assert Case(8, 8, 8, batch=7).neighbour == Case(8, 8, 8, batch=7)
    problem = problem_of(replace(many, layout="cr"), False)
    assert (problem.batch, problem.layouts) == ((7,), "crr")


def test_an_aligned_corpus_has_the_ragged_ones_extents_rounded() -> None:
    ragged, aligned = (
        named(["corpus"], "bf16", Part(count=50, seed=5, multiple=multiple)) for multiple in (1, 16)
    )
    for own, other in zip(ragged, aligned, strict=True):
        for extent, rounded in zip(own.extents, other.extents, strict=True):
            assert rounded % 16 == 0
            assert abs(rounded - extent) <= 9
    assert "multiples of 16, seed 5" in Part(count=50, seed=5, multiple=16).words
    assert MULTIPLES not in Part(count=50, seed=5).words
    assert {case.layout for case in named(["squares"], "fp64", Part(layout="cc"))} == {"cc"}


def test_a_tile_decides_the_bytes_for_each_flop() -> None:
    assert bytes_per_flop(Config(128, 128, 8, tm=8, tn=8), "float32") == 1 / 32
    assert bytes_per_flop(Config(32, 32), "float32") == 4


# ---- protocol ----


def test_the_vendor_takes_a_turn_before_every_fourth_contender() -> None:
    assert turn_order(["peer", *["rung"] * 5], 1) == [0, 1, 2, 3, 4, 0, 5]
    assert turn_order(["peer", "peer", "rung"], 2) == [0, 1, 2, 0, 2, 1]
    assert turn_order(["rung", "rung"], 1) == [0, 1]
    assert turn_order(["peer"], 3) == [0, 0, 0]


def test_a_sustained_turn_lasts_half_a_second_and_its_second_half_counts() -> None:
    lead, timed = SUSTAINED.replays(0.01)
    assert (lead + timed) * 0.01 > 0.5
    assert timed >= lead
    assert SUSTAINED.replays(2.0) == (0, 1)
    assert BURST.replays(0.01) == (1, 1)


def test_inputs_follow_the_type() -> None:
    values = random_matrix(64, 64, "int8")
    assert (values.min(), values.max()) == (-128, 127), "integers fill their range"
    assert 0.5 < random_matrix(64, 64, "float8_e4m3fn").astype("f4").std() < 1.5
    assert (poisoned_matrix(2, 2, "int32") == np.iinfo("int32").min).all()
    assert np.isnan(poisoned_matrix(2, 2, "bfloat16").astype("f4")).all()


def test_a_case_knows_its_types() -> None:
    assert (Case(1, 1, 1, "tf32").dtype, Case(1, 1, 1, "tf32").precision) == ("float32", "tf32")
    assert Case(2, 3, 5, "int8").out_dtype == "int32"
    assert Case(2, 3, 5, "int8").set_bytes == 10 + 15 + 6 * 4
    assert Case(*product_of(1, 1, 1, "e4m3", "--size")) == Case(1, 1, 1, "float8_e4m3fn")


def test_choosing_contenders() -> None:
    assert [each.name for each in choose(None, False, "float32", production=False)] == [
        kernel.name for kernel in FLOAT_RUNGS
    ]
    assert [each.name for each in choose("2, lapidist", False, "float32")] == ["coalesced", "lapidist"]
    assert any(each.kind == "detour" for each in choose(None, True, "float32"))
    with pytest.raises(
        ArgumentError, match=r"--kernel: must be a kernel's name.*got 'nonsense'\. Name .*lapidist"
    ):
        choose("nonsense", False, "float32")
    with pytest.raises(
        ArgumentError, match=r"--kernel: names our kernels; got 'cublas'.*measured beside them.*Leave it out"
    ):
        choose("2,cublas", False, "float32")


def test_b_lies_as_a_kernel_takes_it() -> None:
    def columns(name: str, math: str) -> bool:
        return choose(name, False, math)[0].columns

    assert columns("b_transposed", "float32")
    assert not columns("mma_multistage", "int8"), "this rung takes B by rows only"
    assert columns("mma", "int8"), "8-bit types as the vendor has them, where both are taken"
    assert columns("lapidist", "float8_e4m3fn")
    assert not columns("mma", "float16")
    assert columns("wgmma_tma", "tf32"), "wgmma wants k to touch"


@pytest.mark.parametrize("math", MATHS)
def test_a_climb_takes_the_rungs_that_take_the_type(math: str) -> None:
    names = [each.name for each in choose(None, False, math, production=False)]
    assert ("mma_multistage" in names) == (math != "float32")
    assert ("transposed_a" in names) == (math in ("float16", "float32", "float64"))
    assert ("wmma_shared" in names) == (math not in ("float32", "float8_e4m3fn", "float8_e5m2"))
