"""Facts of chips: architectures, peaks, occupancy, names."""

from __future__ import annotations

import pytest

from lapidist.device import CHIPS, chip
from lapidist.kernels.blocks.time import reached_at, relative_pace
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from planned import A100, H200, V100


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("a100", "sm_80"),
        ("rtx3090", "sm_86"),
        ("rtx4090", "sm_89"),
        ("h100", "sm_90a"),
        ("h200", "sm_90a"),
        ("rtx5090", "sm_120a"),
    ],
)
def test_architectures(name: str, architecture: str) -> None:
    assert CHIPS[name].architecture == architecture


def test_peaks() -> None:
    """132 SMs, 128 lanes, 2 flops, 1.98 GHz."""
    assert H200.peak_tflops("float32") == pytest.approx(66.9, abs=0.05)
    assert H200.peak_tflops("float64") == pytest.approx(33.5, abs=0.05)
    assert H200.limit_tflops("float32") == pytest.approx(66, abs=0.5)
    assert A100.limit_tflops("float32") == pytest.approx(19.5, abs=0.05)


def test_an_h100_has_the_power_of_an_h200_not_that_of_its_peak() -> None:
    """Without limits of its own its epilogues were given tiles that move more bytes, and take 4 % longer."""
    for unit, math in H200.limits:
        assert CHIPS["h100"].unit_limit(unit, math) == pytest.approx(H200.unit_limit(unit, math), rel=0.04)
    assert CHIPS["h100"].limit_tflops("bfloat16") < 0.9 * CHIPS["h100"].peak_tflops("bfloat16", "wgmma")


def test_limits_are_those_of_the_best_unit() -> None:
    assert (
        H200.limit_tflops("float16")
        == H200.unit_limit("wgmma", "float16")
        > H200.unit_limit("mma", "float16")
    )
    assert (
        H200.limit_tflops("float64") == H200.unit_limit("mma", "float64") > H200.unit_limit("fma", "float64")
    )
    assert H200.unit_limit("mma", "uint8") == H200.unit_limit("mma", "int8")  # one rate for both
    assert H200.unit_limit("fma", "bfloat16") == H200.unit_limit("fma", "float32")
    assert (H200.unit_limit("fma", "int8"), H200.unit_limit("wgmma", "float64")) == (0.0, 0.0)
    assert A100.limit_tflops("float16") == pytest.approx(312, abs=1)
    assert A100.limit_tflops("float8_e4m3fn") == 0.0
    assert V100.units == ("fma",)
    assert CHIPS["rtx4090"].limit_tflops("tf32") == pytest.approx(82.6, abs=0.1)
    assert CHIPS["rtx3090"].limit_tflops("float16") == pytest.approx(71.2, abs=0.1)
    assert CHIPS["rtx5090"].limit_tflops("float16") == pytest.approx(209.5, abs=0.1)
    assert CHIPS["rtx5090"].limit_tflops("float32") == pytest.approx(104.8, abs=0.1)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 128, 0, 2),
        (256, 64, 0, 4),
        (1024, 32, 0, 2),
        (32, 16, 0, 32),
        (128, 255, 0, 2),
        (128, 32, 100 * 1024, 2),
        (128, 32, 114 * 1024, 1),  # each block takes a KiB more
        (64, 33, 0, 25),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, blocks: int) -> None:
    """33 registers take 40 a thread (units of 256 a warp): 65536 / (1280 * 2) = 25 blocks of two warps."""
    assert H200.blocks_resident(threads, registers, shared) == blocks


@pytest.mark.parametrize(
    ("product", "chip"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA B200", None),
    ],
)
def test_products_are_recognised(product: str, chip: str | None) -> None:
    from lapidist.device import known_as

    assert known_as(product) == (CHIPS[chip] if chip else None)


@pytest.mark.parametrize(("name", "pace"), [("h100", 1), ("h200", 1), ("rtx4090", 0.217), ("a100", 0.867)])
def test_a_config_loses_as_many_cycles_of_an_sm_on_each_chip(name: str, pace: float) -> None:
    assert relative_pace(chip(name), "mma", "float16") == pytest.approx(pace, abs=0.001)
    lost_there, lost_here = 1 / 0.65 - 1, 1 / reached_at(pace, 0.65) - 1  # over the unit's own cycles
    assert lost_here == pytest.approx(lost_there * pace)


def test_slow_tensor_cores_are_nearly_busy() -> None:
    """Those of an RTX 4090 take 832 us for this product; an H200's mma reaches 65 % of its limit."""
    found = make_plan(dense_problem(4096, 4096, 4096, "float16"), chip("rtx4090")).predicted_seconds
    assert 832e-6 < found < 980e-6
