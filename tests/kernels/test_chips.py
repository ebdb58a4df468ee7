"""What chips other than Hopper have, compiled for each of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from in_turns import in_turns, sampled
from lapidist import machine
from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from lapidist_lab.machine_studies.registered import product_of
from lapidist_lab.sass.analysis import analyse, sample_problem

OTHERS = [chip(name) for name in ("a100", "rtx3090", "rtx4090", "rtx5090")]
LEAST = min(device.capability for device in OTHERS)
CONFIGS = [
    (kernel, config, math)
    for kernel in KERNELS
    if kernel.capability <= LEAST
    for math in kernel.types.maths
    for config, _ in kernel.configs_for(math)
]
# Production kernels in every type. A rung in the first of each config's.
FIRST = {(kernel, config): math for kernel, config, math in reversed(CONFIGS)}
COMPILED = [
    (kernel, config, math)
    for kernel, config, math in CONFIGS
    if kernel.kind == "production" or FIRST[kernel, config] == math
]
SIMT_CONFIGS = [config for config, _ in kernel_named("simt").configs_for("float32")]


@pytest.mark.parametrize(("kernel", "config", "math", "device"), sampled(COMPILED, OTHERS, share=4))
def test_every_config_compiles_for_the_chip_or_is_refused_for_its_room(
    kernel: Kernel, config: Config, math: str, device: Device
) -> None:
    """As the assembler counts shared memory and registers."""
    problem = sample_problem(kernel, math)
    refusal = kernel.refuse(problem, config, device)
    if refusal is not None:
        assert "shared memory" in refusal or "compute capability" in refusal
        return
    found = analyse(kernel, config, math, device.architecture)
    assert kernel.shared_bytes(config, problem) <= device.shared_per_block
    assert found.registers * config.threads <= device.registers_per_sm


@pytest.mark.parametrize("device", OTHERS, ids=lambda device: device.name)
@pytest.mark.parametrize("math", ["float16", "bfloat16", "float32", "tf32", "float64", "int8"])
def test_every_chip_is_given_a_plan(math: str, device: Device) -> None:
    for shape in [(4096, 4096, 4096), (300, 520, 200), (64, 4096, 4096), (4095, 4093, 511)]:
        plan = make_plan(dense_problem(*shape, math), device)
        assert plan.kernel.unit in device.units
        assert 0 < plan.predicted_seconds < 1


EVERY_OTHER = list(zip(SIMT_CONFIGS[::2], cycle(["rr", "cc", "rc", "cr"]), strict=False))


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("config", "layouts"), in_turns(SIMT_CONFIGS, ["rr", "rc", "cr", "cc"], often=EVERY_OTHER)
)
def test_tiles_pass_through_registers_before_ampere(config: Config, layouts: str) -> None:
    """Turing has no cp.async. The same configs are right there, sanitized."""
    turing = replace(chip("rtx3090"), name="Turing", capability=(7, 5))
    shape = config.bm + 3, config.bn - 3, 3 * config.bk + 5
    product = product_of(kernel_named("simt"), "float32", shape, layouts, turing, config)
    launch = product.launch()
    assert ".target sm_75" in launch.binary.ptx
    assert "cp.async" not in launch.binary.ptx
    product.reset(launch, 0.0)
    machine.run(launch, sanitize=True, seed=config.bk, counting=False)
    assert np.array_equal(product.d, product.expected(0.0))
