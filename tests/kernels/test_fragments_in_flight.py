"""Products of wgmma with A in registers: in no tile are those written before the product has ended."""

from __future__ import annotations

from typing import Any

import pytest

from in_flight import written_too_early
from lapidist.build.compiler import compile_kernel
from lapidist.config import Config
from lapidist.device import chip
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Binary
from lapidist.planning.cost_table import as_computed
from lapidist.problems.problem import Problem, dense_problem

WGMMA, H200 = kernel_named("wgmma"), chip("h200")
# Operands along m or n, which are transposed in registers, and rows of 16 bits that start anywhere.
TRANSPOSED = [dense_problem(4096, 4096, 4096, math, "cr") for math in ("tf32", "int8", "float8_e4m3fn")]
SHIFTED = [dense_problem(4095, 4093, 4091, "bfloat16", "rr")]


def macros_of(problem: Problem, config: Config) -> dict[str, Any] | None:
    """None where A of the kernel goes by shared memory, or the config takes another problem."""
    if WGMMA.refuse(problem, config, H200) is not None:
        return None
    macros: dict[str, Any] = WGMMA.macros(as_computed(problem, config), config)
    transposed = str(macros["A_M_MAJOR"]) == "1" and problem.math != "bfloat16"
    return macros if transposed or config.skewed else None


def cases() -> list[Any]:
    """Of each type the largest tile in `make test`, whose products take longest; the others are a survey."""
    found = []
    for problem in (*TRANSPOSED, *SHIFTED):
        configs = [config for config, _ in WGMMA.configs_for(problem.math) if macros_of(problem, config)]
        largest = max(configs, key=lambda config: (config.bn, config.bm))
        for config in configs:
            marks = [] if config is largest else [pytest.mark.survey]
            found.append(pytest.param(problem, config, marks=marks, id=f"{problem.math}-{config}"))
    return found


def compiled(problem: Problem, config: Config) -> Binary:
    macros = macros_of(problem, config)
    assert macros is not None
    return compile_kernel(WGMMA.source, WGMMA.entry, macros, "sm_90a", WGMMA.options)


@pytest.mark.often(1)
@pytest.mark.parametrize(("problem", "config"), cases())
def test_a_stays_in_registers_until_its_product_has_ended(problem: Problem, config: Config) -> None:
    products, early = written_too_early(compiled(problem, config))
    assert products > 0
    assert early == []
