"""Sums of doubles that machine code touches before the tensor core has added to them.

DMMA's result comes late, on a scoreboard. Where the assembler finds 64 cycles between two products of one sum
it leaves the wait out. NVRTC 13.0 counted wrongly on the edge of a loop of single products: 35 cycles were
left, and an H200 added to old sums in every run. So this looks for less, on every way through a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lapidist.launch import Binary
from lapidist_lab.sass.encoding import controls_of
from lapidist_lab.sass.listing import Line, sass_lines, sass_rows

OPCODE = "DMMA.16x8x8"
SUM_REGISTERS = 8  # of a thread: four doubles
CYCLES = 64  # after which the assembler takes a sum for done
NAMES = re.compile(r"\bR(\d+)")
AWAITED = re.compile(r"SB(\d)")  # the operand of DEPBAR, which waits for the oldest results of a scoreboard


class Early(NamedTuple):
    """The product's line, that of the instruction which touches its sum, and the cycles between them."""

    product: int
    touched: int
    cycles: int


def early_touches(binary: Binary) -> list[Early]:
    """Each instruction that touches a product's sum within CYCLES, without a wait for it."""
    steps = steps_of(binary)
    products = [place for place, step in enumerate(steps) if step.line.opcode == OPCODE]
    return [early for product in products for early in touches_of(steps, product)]


class Step(NamedTuple):
    line: Line
    registers: tuple[int, ...]  # the first one is the result; of pairs the lower one
    stall: int
    result: int | None  # its scoreboard
    waits: frozenset[int]


def steps_of(binary: Binary) -> list[Step]:
    steps = []
    for row, line, controls in zip(
        sass_rows(binary), sass_lines(binary), controls_of(binary), strict=False
    ):  # nvdisasm leaves out what fills the end
        operands = row.get("operands", "")
        registers = tuple(int(name) for name in NAMES.findall(operands))
        oldest = (
            {int(name) for name in AWAITED.findall(operands)} if row["opcode"].startswith("DEPBAR") else set()
        )
        steps.append(Step(line, registers, controls.stall, controls.result, controls.waits | oldest))
    return steps


def touches_of(steps: Sequence[Step], product: int) -> Iterator[Early]:
    """The first instruction that touches the product's sum too early, on each way from there."""
    _, (first, *_), stall, scoreboard, _ = steps[product]
    sums = range(first, first + SUM_REGISTERS)
    ways = [(product + 1, stall)]
    shortest: dict[int, int] = {}
    while ways:
        place, cycles = ways.pop()
        if place >= len(steps) or cycles >= shortest.get(place, CYCLES):
            continue
        shortest[place] = cycles
        step = steps[place]
        if scoreboard in step.waits:
            continue
        if any(register in sums for register in step.registers):
            yield Early(product, place, cycles)
            continue
        if step.line.target is not None:
            ways.append((step.line.target, cycles + step.stall))
        if step.line.falls:
            ways.append((place + 1, cycles + step.stall))
