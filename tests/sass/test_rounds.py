"""How long a round of a loop takes beyond its instructions: registers of one bank, the warp's own pauses,
loads ahead.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lapidist.device import CHIPS
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Binary
from lapidist.planning.binaries import compiled
from lapidist.planning.warm import builds_of, ordinary, plans_of
from lapidist_lab.sass import analyse, binary_of
from lapidist_lab.sass.encoding import stalls_of
from lapidist_lab.sass.listing import Line, sass_line, sass_lines
from lapidist_lab.sass.loops import main_loop
from lapidist_lab.sass.rounds import SHARED_LATENCY, loads_ahead, operand_waits, pauses


def fma(a: int, b: int, c: int, reused: str = "") -> Line:
    """FFMA of registers; `reused` names those with .reuse, as "a"."""
    sources = ",".join(
        f"R{register}{'.reuse' * (name in reused)}" for name, register in zip("abc", (a, b, c), strict=True)
    )
    return sass_line({"opcode": "FFMA", "operands": f"R{c},{sources}"})


LOAD = sass_line({"opcode": "LDS.128", "operands": "R40,[R60]"})


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        (
            [fma(0, 1, 2)],
            1,
        ),  # three reads, two of the even bank: each starts a cycle after the one before was served
        ([fma(0, 2, 4)], 2),  # all three of one bank
        ([fma(0, 2, 0)], 1),  # a register read twice is fetched once
        ([fma(0, 2, 4, reused="a")] * 2, 2),  # R0 stays in the cache: two reads of the bank
        (
            [fma(0, 1, 2, reused="a"), fma(0, 3, 4, reused="a")],
            0,
        ),  # R0 is cached: each fetches one of either bank
        ([fma(0, 1, 2, reused="a"), fma(0, 3, 5, reused="a")], 1),  # one even, three odd ones in two cycles
        (
            [fma(0, 2, 4, reused="ab"), fma(0, 2, 6, reused="ab"), fma(0, 2, 8, reused="ab")],
            0,
        ),  # only the sums are fetched
        ([fma(0, 2, 4, reused="ab"), LOAD], 1),  # a load empties the cache, but has a cycle of its own
        ([LOAD, LOAD], 0),
    ],
)
def test_waits_for_registers(loop: list[Line], waits: int) -> None:
    assert operand_waits(loop) == waits


def test_a_short_excess_is_worked_off_later() -> None:
    """Two reads of one bank are a cycle behind, which the next instruction makes up for."""
    assert operand_waits([fma(0, 2, 1, reused="c"), fma(3, 5, 1, reused="c")]) == 0


def test_a_warp_waits_for_what_it_loads_and_rests_where_it_is_told() -> None:
    use = fma(40, 1, 3)
    others = [fma(0, 1, 2)] * 10
    assert pauses(others) == 0
    assert pauses([LOAD, use]) == SHARED_LATENCY - 1
    assert pauses([LOAD, *others, use]) == SHARED_LATENCY - 11
    assert pauses([LOAD, *others * 4, use]) == 0
    stalled = sass_line({"opcode": "FFMA", "operands": "R0,R1,R2,R0"}, stall=5)
    assert pauses([stalled] * 3) == 12


def kinds(text: str) -> list[Line]:
    names = {"g": "ldg", "s": "sts", "f": "fma", ".": "integer"}
    return [Line(letter, names[letter]) for letter in text]


@pytest.mark.parametrize(
    ("loop", "ahead"),
    [
        ("gsffff", False),  # loaded, stored, used
        ("sgffff", True),  # the next tile is loaded while this one is multiplied
        ("sffgff", True),
        ("sffffg", False),
        ("gffff", False),  # straight into the multiplications
        ("ffff", False),
    ],
)
def test_who_loads_ahead(loop: str, ahead: bool) -> None:
    assert loads_ahead(kinds(loop)) is ahead


# ---- the assembler's numbers ----


def test_stalls_are_read_from_the_cubin() -> None:
    """One for each instruction; an fma stalls a cycle or two, nobody longer than four bits say."""
    row = kernel_named("transposed_a")
    binary = binary_of(row, row.config, "float32", "sm_90a")
    stalls, lines = stalls_of(binary), sass_lines(binary)
    assert len(stalls) == len(lines)
    assert all(1 <= stall <= 15 for stall in stalls)
    fmas = [line.stall for line in lines if line.opcode == "FFMA"]
    assert sum(fmas) < 1.2 * len(fmas)
    assert len(set(stalls)) > 3


def test_a_file_that_is_no_cubin_says_nothing() -> None:
    assert stalls_of(Binary("k", "sm_90a", "", b"no cubin", "")) == ()


def test_what_makes_rung_12_slow_is_in_its_registers() -> None:
    """A H200's profiler saw dispatch stalls of 64, 69, 117, 67 and 46 cycles a round, and 155 in rung 9, on
    the instructions behind which no other warp was chosen; this counts all."""
    seen = {
        "transposed_a": 64,
        "warp_tile": 69,
        "double_buffer": 117,
        "fragment_prefetch": 67,
        "async_pipeline": 46,
        "large_tile": 155,
    }
    for name, stalls in seen.items():
        assert analyse(kernel_named(name), None, "float32", "sm_90a").waits == pytest.approx(stalls, rel=0.2)


@pytest.mark.survey
def test_no_round_of_sgemm_waits_for_registers_of_one_bank() -> None:
    """Where its sums lie depends on code far from the loop: of every plan of ordinary products, with C and
    without, a warp's round of 550 cycles loses a few at most. With half of the products 166 late, a whole one
    took a quarter longer."""
    products = ordinary("float32")
    both = [each for product in products for each in (product, replace(product, c=product.d))]
    builds = [build for build in builds_of(plans_of(both, CHIPS["h200"])) if build.kernel == "sgemm"]
    assert len(builds) > 10
    for build in builds:
        lines = sass_lines(compiled(kernel_named("sgemm"), build.macros, build.architecture))
        loop = [lines[index] for index in sorted(main_loop(lines) or ())]
        assert sum(line.kind == "fma" for line in loop) == 512
        assert operand_waits([line for line in loop if line.opcode != "NOP"]) <= 8, build.macros
