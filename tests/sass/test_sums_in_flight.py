"""Machine code waits for the sums of doubles that it adds to."""

from __future__ import annotations

import pytest

from in_turns import sampled, surveyed_but
from lapidist.build.compiler import compile_kernel, nvrtc_version
from lapidist.config import Config
from lapidist.device import chip
from lapidist.kernels.registry import kernel_named
from lapidist.planning.binaries import compiled, order_of
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.problem import dense_problem
from lapidist_lab.sass.listing import sass_line
from lapidist_lab.sass.sums_in_flight import NAMES, OPCODE, Early, Step, early_touches, steps_of, touches_of

H200 = chip("h200")
MMA = kernel_named("mma")
CONFIGS = [config for config, _ in MMA.configs_for("float64")]
WHOLE, RAGGED = (640, 640, 512), (641, 643, 513)


def planned(config: Config, extents: tuple[int, int, int], layouts: str) -> Plan:
    return make_plan(dense_problem(*extents, "float64", layouts), H200, MMA, config)


@pytest.mark.often(1)
@pytest.mark.parametrize("config", surveyed_but(CONFIGS, 0, 4, 7), ids=str)
def test_no_sum_is_touched_early(config: Config) -> None:
    binary = compiled(*planned(config, WHOLE, "rr").build)
    assert any(step.line.opcode == OPCODE for step in steps_of(binary))
    assert not early_touches(binary)


@pytest.mark.parametrize(
    ("config", "extents", "layouts"), sampled(CONFIGS, ["whole", "ragged"], ["rc", "cr", "cc"], share=3)
)
def test_no_sum_is_touched_early_in_any_layout(config: Config, extents: str, layouts: str) -> None:
    shape = {"whole": WHOLE, "ragged": RAGGED}[extents]
    assert not early_touches(compiled(*planned(config, shape, layouts).build))


def step(opcode: str, operands: str, stall: int = 1, waits: tuple[int, ...] = ()) -> Step:
    line = sass_line({"opcode": opcode, "operands": operands}, stall)
    registers = tuple(int(name) for name in NAMES.findall(operands))
    return Step(line, registers, stall, 5 if opcode == OPCODE else None, frozenset(waits))


PRODUCT = "R8,R16,R4,R8"


@pytest.mark.parametrize(
    ("behind", "cycles"),
    [
        ([step("NOP", "", 15)], [16]),
        ([step("NOP", "", 15)] * 4, [61]),
        ([step("NOP", "", 15)] * 4 + [step("NOP", "", 3)], []),
        ([step("NOP", "", waits=(4,))], [2]),
        ([step("NOP", "", waits=(5,))], []),
        ([step("STL.64", "[R1],R14")], [1]),
        ([step("STL.64", "[R1],R16")], [2]),
    ],
)
def test_a_sum_is_waited_for_by_its_scoreboard_or_by_cycles(behind: list[Step], cycles: list[int]) -> None:
    steps = [step(OPCODE, PRODUCT), *behind, step(OPCODE, PRODUCT), step("EXIT", "", waits=(5,))]
    assert [early.cycles for early in touches_of(steps, 0)] == cycles


def test_every_way_is_followed() -> None:
    """Around the loop in 3 cycles; on, there is a wait."""
    steps = [
        step(OPCODE, PRODUCT),
        step("NOP", ""),
        step("BRA", "P0,0x0"),
        step("NOP", "", waits=(5,)),
        step("STL.64", "[R1],R8"),
        step("EXIT", ""),
    ]
    assert list(touches_of(steps, 0)) == [Early(0, 0, 3)]


@pytest.mark.skipif(nvrtc_version() != (13, 0), reason="the fault is that of NVRTC 13.0's assembler")
def test_the_loop_that_a_card_got_wrong_is_found() -> None:
    """A rule refuses such a config, so its constants are given by hand."""
    source, entry, defines, architecture, more = order_of(*planned(CONFIGS[-1], (48, 96, 512), "rr").build)
    wrong = {**defines, "BM": 16, "BN": 32, "BK": 32, "WM": 16, "WN": 8}
    (early,) = early_touches(compile_kernel(source, entry, wrong, architecture, more))
    assert early.touched < early.product  # around the loop
