"""Kernels in tests: the fixture `lapidist_machine` checks one on `--kernel-seeds` schedules, and fails the
test with what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lapidist.machine import Findings

SEEDS = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lapidist")
    group.addoption(
        "--kernel-seeds",
        type=int,
        default=SEEDS,
        help="random schedules on which the fixture lapidist_machine runs each kernel",
    )


class KernelMachine:
    """What the fixture is: `check` of lapidist.machine, whose errors fail the test."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds

    def check(self, kernel: Any, grid: Any, block: Any = None, *args: Any, **options: Any) -> Findings:
        """Run a kernel, and fail the test if anything is found. Its results are in the arrays then."""
        __tracebackhide__ = True
        findings = self.find(kernel, grid, block, *args, **options)
        if not findings:
            pytest.fail(str(findings), pytrace=False)
        return findings

    def find(self, kernel: Any, grid: Any, block: Any = None, *args: Any, **options: Any) -> Findings:
        """Run a kernel, and return what was found: for kernels that a test breaks on purpose."""
        from lapidist.machine import check

        return check(kernel, grid, block, *args, **{"seeds": self.seeds, **options})


@pytest.fixture
def lapidist_machine(request: pytest.FixtureRequest) -> KernelMachine:
    """Checks kernels in the machine, on as many schedules as `--kernel-seeds` says."""
    return KernelMachine(request.config.getoption("--kernel-seeds"))
