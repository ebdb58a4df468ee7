"""Launches that overlap: what touches global memory must come behind the wait for the launch before."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import lapidist
from lapidist import machine
from lapidist.config import Config
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.launch import Launch, ParameterBlock
from lapidist.machine.faults import Race
from lapidist.machine.foreign import make_launch
from snippets import kernel

LOAD = "ld.global.b32 %r1, [%in];"
STORE = "mad.wide.u32 %rd1, %t, 4, %out; st.global.b32 [%rd1], %t;"
COPY = (
    "mov.u32 %r2, buffer; mad.lo.u32 %r2, %t, 4, %r2; cp.async.ca.shared.global [%r2], [%in], 4;"
    " cp.async.wait_all;"
)
WAIT = "griddepcontrol.wait;"
FIRST_LANES = "setp.ge.u32 %p1, %t, 32; "
IN_TIME = {
    "waited": WAIT + LOAD + STORE,
    "next launch let go": "griddepcontrol.launch_dependents;" + WAIT + STORE,
    "only fetched ahead": "prefetch.global.L2 [%in];" + WAIT + COPY,
    "whole stretches only fetched ahead": (
        "mov.u32 %r1, 16; cp.async.bulk.prefetch.L2.global [%in], %r1;" + WAIT + LOAD + STORE
    ),
    "another warp waited, and met this one": FIRST_LANES + f"@%p1 bra met; {WAIT} met: bar.sync 0; {LOAD}",
}
EARLY = {
    "a load": LOAD + WAIT + STORE,
    "a store": STORE + WAIT,
    "a copy": COPY + WAIT,
    "no wait at all": LOAD,
    "another warp waited": FIRST_LANES + f"@%p1 bra late; {WAIT} {LOAD} bra done; late: {LOAD} done:",
}


def overlapping(body: str) -> Launch:
    text = kernel(body, ".shared .align 16 .b8 buffer[256];")
    launch = make_launch(
        text, "k", (1, 1, 1), (64, 1, 1), {"in": np.ones(4, np.int32), "out": np.zeros(64, np.int32)}
    )
    return replace(launch, overlaps=True)


@pytest.mark.parametrize("body", IN_TIME)
def test_what_comes_behind_the_wait_is_in_time(body: str) -> None:
    for seed in range(4):
        machine.run(overlapping(IN_TIME[body]), sanitize=True, seed=seed)


@pytest.mark.parametrize("body", EARLY)
def test_what_comes_before_the_wait_is_early(body: str) -> None:
    with pytest.raises(Race, match=r"touched before griddepcontrol\.wait"):
        machine.run(overlapping(EARLY[body]), sanitize=True, seed=1)
    # nobody else is at it
    machine.run(replace(overlapping(EARLY[body]), overlaps=False), sanitize=True, seed=1)


WGMMA = tile("float16", 64, 32, 3)
SGEMM = kernel_named("sgemm").configs_for("float32")[-1][0]


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("name", "config", "dtype", "odd"),
    [
        ("wgmma", WGMMA, np.float16, 0),
        ("sgemm", SGEMM, np.float32, 0),
        ("sgemm", SGEMM, np.float32, 1),  # packed
    ],
)
def test_a_product_waits_before_it_reads(name: str, config: Config, dtype: type, odd: int) -> None:
    k = 64 + odd
    a, b, d = np.ones((16, k), dtype), np.ones((k, 96), dtype), np.zeros((16, 96), dtype)
    gemm = lapidist.plan(a, b, out=d, kernel=name, config=config, device="machine")
    assert gemm.plan is not None
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    assert launch.overlaps
    machine.run(launch, sanitize=True, seed=1, residency=launch.grid[0])
    assert (d == k).all()
    forgets = re.sub(r"(@\w+ )?griddepcontrol\.wait;", "", launch.binary.ptx)
    with pytest.raises(Race, match=r"touched before griddepcontrol\.wait"):
        machine.run(
            replace(launch, binary=replace(launch.binary, ptx=forgets)),
            sanitize=True,
            seed=1,
            residency=launch.grid[0],
        )


def test_what_is_no_launch_is_refused_by_name() -> None:
    with pytest.raises(
        ArgumentError,
        match=r"launch: must be a Launch, as Plan.launch makes it; got 3\. For other PTX take run_ptx",
    ):
        machine.run(3)  # type: ignore[arg-type]


def test_each_parameter_has_one_name() -> None:
    """A driver takes an address for each. A struct that is named by its members shifts all behind it."""
    launch = overlapping(WAIT + LOAD + STORE)
    right = ParameterBlock([("in", "pointer"), ("out", "pointer")])
    machine.run(replace(launch, parameters=right))
    members = ParameterBlock([("in", "pointer"), ("low", "i32"), ("high", "i32")])
    with pytest.raises(ArgumentError, match=r"parameters: k takes 2, .* names 3"):
        machine.run(replace(launch, parameters=members))
