"""The families that chips other than Hopper have, compiled for each of them."""

from __future__ import annotations

import pytest

from lapidist.config import Config
from lapidist.device import Device, chip
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.row import Kernel
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from lapidist.static.analysis import analyse

OTHERS = [chip(name) for name in ("a100", "rtx3090", "rtx4090", "rtx5090")]
CONFIGS = [
    (kernel, config, math)
    for kernel in map(kernel_named, ("simt", "mma"))
    for math in kernel.types.maths
    for config, _ in kernel.configs_for(math)
]
FIRST = list({(kernel.name, config): (kernel, config, math) for kernel, config, math in CONFIGS}.values())


@pytest.mark.survey
@pytest.mark.parametrize("device", OTHERS, ids=lambda device: device.name)
@pytest.mark.parametrize(
    ("kernel", "config", "math"), FIRST, ids=lambda each: getattr(each, "name", str(each))
)
def test_every_config_fits_the_chip_or_is_refused_for_its_room(
    kernel: Kernel, config: Config, math: str, device: Device
) -> None:
    """As the assembler counts shared memory and registers."""
    problem = dense_problem(512, 512, 512, math)
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
