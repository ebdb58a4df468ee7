"""Counts against numbers worked out by hand, and the explanation made from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lapidist.device import chip
from lapidist.kernels.registry import kernel_named
from lapidist.machine import Counts, run
from lapidist.machine.counters import pieces, wavefronts
from lapidist.machine.foreign import make_launch
from lapidist_lab.machine_studies.explain import along, difference, explain, explain_kernel
from lapidist_lab.machine_studies.resources import Limit, Residence
from snippets import kernel, run_body

LANE = np.arange(32)
ALL = np.ones((1, 32), bool)


def turns(addresses: np.ndarray, size: int, load: bool = True) -> int:
    return wavefronts(addresses.reshape(1, 32).astype(np.int64), ALL, size, load)


@pytest.mark.parametrize(
    ("addresses", "size", "expected"),
    [
        (4 * LANE, 4, 1),  # neighbours
        (0 * LANE, 4, 1),  # one word for all
        (128 * LANE, 4, 32),  # a column of a 32-wide tile
        (132 * LANE, 4, 1),  # the same, padded
        (8 * LANE, 4, 2),  # every other word
        (2 * LANE, 2, 1),  # two lanes a word
        (8 * LANE, 8, 2),  # 8 bytes: by half warps
        (16 * LANE, 16, 4),  # 16 bytes: by quarters
        (16 * (LANE // 2), 16, 2),  # pairs of lanes read the same: half warps in a turn
        (16 * (LANE % 2 + LANE // 4 * 2), 16, 2),  # so do lanes n and n ^ 2
        (16 * (LANE // 4), 16, 2),
        (64 * LANE, 16, 16),  # quarters of eight lanes in two groups of banks each: four turns a quarter
    ],
)
def test_shared_wavefronts(addresses: np.ndarray, size: int, expected: int) -> None:
    assert turns(addresses, size) == expected


def test_stores_are_not_packed() -> None:
    assert turns(16 * (LANE // 2), 16, load=False) == 4


@pytest.mark.parametrize(
    ("addresses", "size", "sectors", "lines"),
    [
        (4 * LANE, 4, 4, 1),
        (0 * LANE, 4, 1, 1),
        (1024 * LANE, 4, 32, 32),
        (4 * LANE + 4, 4, 5, 2),
        (16 * LANE, 16, 16, 4),
        (2 * LANE, 2, 2, 1),
    ],
)
def test_global_sectors_and_lines(addresses: np.ndarray, size: int, sectors: int, lines: int) -> None:
    rows = addresses.reshape(1, 32).astype(np.int64)
    assert pieces(rows, ALL, size, 32) == sectors
    assert pieces(rows, ALL, size, 128) == lines


def test_absent_lanes_cost_nothing() -> None:
    some = (LANE < 8).reshape(1, 32)
    assert pieces((128 * LANE).reshape(1, 32), some, 4, 32) == 8
    assert wavefronts((128 * LANE).reshape(1, 32), some, 4) == 8


BODY = """
    .shared .align 16 .b8 s[8192]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 128, %r1; mad.wide.u32 %rd1, %t, 4,
    %in;
    mov.u32 %r5, 0; mov.f32 %f2, 0f00000000;
    L: ld.global.f32 %f1, [%rd1]; st.shared.f32 [%r2], %f1; fma.rn.f32 %f2, %f1, %f1, %f2;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 5; @%p1 bra L;
    bar.sync 0; setp.lt.u32 %p2, %t, 7; @!%p2 bra E;
    mov.u32 %r6, %ctaid.x; mad.lo.u32 %r6, %r6, 64, %t; mad.wide.u32 %rd2, %r6, 4, %out; st.global.f32
    [%rd2], %f2; E:"""


def counted(**options: object) -> Counts:
    counts = run_body(BODY, np.zeros(64, "f4"), np.zeros(192, "f4"), grid=3, threads=64, **options).counts
    assert counts is not None
    return counts


@pytest.mark.parametrize("exact", [False, True])
def test_a_kernel_counted_by_hand(exact: bool) -> None:
    """Three blocks of two warps, five rounds; seven lanes of each block store."""
    counts = counted(exact_counts=exact)
    assert (
        counts.instructions["fma f32"]
        == counts.instructions["load global"]
        == counts.instructions["store shared"]
        == 30
    )
    assert counts.flops == 2 * 64 * 5 * 3
    assert (counts.global_load.requests, counts.global_load.nbytes, counts.global_load.turns) == (
        30,
        30 * 128,
        120,
    )
    assert (counts.global_store.requests, counts.global_store.nbytes, counts.global_store.turns) == (
        3,
        3 * 28,
        3,
    )
    assert (counts.shared_store.requests, counts.shared_store.turns) == (30, 30 * 32)
    assert counts.barriers == 3
    assert counts.divergent_branches == 1  # lanes of all blocks part together
    assert 0.9 < counts.active < 1.0
    assert counts.exact is exact
    assert counts.sites[0].text.startswith("st.shared")


def test_sanitized_runs_count_the_same() -> None:
    plain, careful = counted(), counted(sanitize=True, seed=4)
    assert plain.instructions == careful.instructions
    assert plain.flops == careful.flops
    assert plain.shared_store == careful.shared_store


def test_counts_read_well() -> None:
    text = str(counted())
    assert "32.00 wavefronts each" in text
    assert "4.00 sectors each" in text


COPY = """
    .shared .align 16 .b8 s[128]; mov.u32 %r1, s; mad.lo.u32 %r1, %t, 4, %r1; mad.wide.u32 %rd1, %t,
    {stride}, %in;
    cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.wait_all; bar.sync 0; ld.shared.u32 %r3, [%r1];
    mad.wide.u32 %rd2, %t, 4, %out; st.global.u32 [%rd2], %r3;
"""


@pytest.mark.parametrize(("stride", "turns", "sectors"), [(4, 1, 4), (32, 8, 32), (128, 32, 32)])
def test_a_copy_brings_each_line_in_a_turn_of_its_own(stride: int, turns: int, sectors: int) -> None:
    """32 words from that many lines of 128 bytes, to neighbouring banks; none of them takes the way to the
    registers.
    """
    counts = run_body(
        COPY.format(stride=stride), np.zeros(1024, "f4"), np.zeros(32, "f4"), exact_counts=True
    ).counts
    assert counts is not None
    assert counts.shared_store.turns == turns
    assert (counts.global_load.turns, counts.global_load.lines) == (sectors, 0)


# ---- explanations ----


def test_the_bound_is_the_slowest_resource() -> None:
    """960 turns of shared memory against 120 sectors and 30 multiplications: shared memory, by conflicts."""
    counts = counted(exact_counts=True)
    answer = explain(counts, chip("v100"), scale=1e6)
    assert answer.bound.name == "shared memory"
    assert answer.bound.seconds == pytest.approx(960e6 / 80 / 1530e6)
    assert answer.seconds > answer.bound.seconds
    assert "shared memory" in str(answer)


def test_bigger_work_takes_longer_and_a_bigger_chip_less() -> None:
    counts = counted(exact_counts=True)
    seconds = [
        explain(counts, chip(name), scale=scale).seconds
        for name, scale in (("h200", 1e6), ("v100", 1e6), ("v100", 1e7))
    ]
    assert seconds[0] < seconds[1] < seconds[2]


def test_idle_multiprocessors_are_paid_for() -> None:
    counts = counted(exact_counts=True)
    full, half = (
        explain(counts, chip("v100"), scale=1e9, residence=Residence(tiles)).seconds for tiles in (160, 81)
    )
    assert half == pytest.approx(full * 160 / 81, rel=1e-3)


def test_counts_go_on_along_a_line() -> None:
    """100 before the loop and 10 a step: counted after 4 and after 8 steps."""
    counts = counted()
    short, long = (
        replace(counts, flops=flops, instructions={"fma f32": flops, "control": 7}) for flops in (140, 180)
    )
    assert along(short, long, 0.0).flops == 140
    assert along(short, long, -1.0).instructions == {"fma f32": 100, "control": 7}
    assert along(short, long, 15.0).flops == 100 + 10 * 64
    assert along(short, long, 15.0).shared_store == counts.shared_store


def test_work_outside_the_loop_hides_behind_other_blocks_only() -> None:
    counts = counted(exact_counts=True)
    alone, among_four = (
        explain(counts, chip("v100"), scale=1e6, outside=counts, residence=Residence(blocks=n))
        for n in (1, 4)
    )
    assert alone.seconds == pytest.approx(4 * among_four.seconds, rel=1e-2)


@pytest.mark.parametrize(
    ("residence", "idle"),
    [
        (Residence(), 1.0),
        (Residence(80), 1.0),
        (Residence(81), 160 / 81),
        (Residence(81, balanced=True), 1.0),
        (Residence(30, 2), 80 / 60),
    ],
)
def test_idle_multiprocessors(residence: Residence, idle: float) -> None:
    """Of 80; clusters of two take two each."""
    assert residence.idle(chip("v100")) == pytest.approx(idle)


def by_name(limit: Limit) -> str:
    return limit.name


@pytest.mark.parametrize(
    ("name", "math", "unit"), [("thread_tile", "float32", "fma"), ("wmma_shared", "float16", "mma")]
)
def test_a_registered_kernel_is_counted_small_and_explained_large(name: str, math: str, unit: str) -> None:
    row, device = kernel_named(name), chip("h200")
    counts, small = explain_kernel(row, device, (256, 256, 256), math)
    _, large = explain_kernel(row, device, (4096, 2048, 256), math)
    assert counts.exact
    assert counts.flops + counts.tensor_flops >= 2 * 256**3
    assert {"DRAM", "issue slots"} <= {limit.name for limit in large.limits}
    assert ("tensor cores" in {limit.name for limit in large.limits}) == (unit == "mma")
    assert large.peak_flops == device.unit_limit(unit, math) * 1e12
    # the small product leaves most of the chip idle
    assert small.seconds < large.seconds < 128 * small.seconds
    for one, other in zip(sorted(small.limits, key=by_name), sorted(large.limits, key=by_name), strict=True):
        assert one.name in ("DRAM", "L2") or other.seconds == pytest.approx(128 * one.seconds)


def test_a_kernel_without_conflicts_is_not_told_to_pad() -> None:
    """ldmatrix takes four turns for its 512 bytes; only the store of C has conflicts, outside the loop."""
    _, answer = explain_kernel(kernel_named("mma_swizzled"), chip("h200"), (4096, 4096, 256), "float16")
    assert answer.bound.name == "shared memory"
    assert answer.advice.startswith("larger tiles a warp")


def test_what_tma_feeds_is_not_told_to_copy_by_tma() -> None:
    _, answer = explain_kernel(kernel_named("bank_order"), chip("h200"), (4096, 4096, 256), "float32")
    assert answer.bound.name == "issue slots"
    assert "TMA" not in answer.advice


def test_difference_names_what_changed() -> None:
    before = counted()
    after = run_body(
        BODY.replace("%t, 128, %r1", "%t, 4, %r1"),
        np.zeros(64, "f4"),
        np.zeros(192, "f4"),
        grid=3,
        threads=64,
    ).counts
    assert after is not None
    assert difference(before, before) == []
    assert before.shared_store.per_request == 32
    assert after.shared_store.per_request == 1


# ---- neighbouring loads ----

ROW = """
    .shared .align 16 .b8 s[8192]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, {pitch}, %r1; st.shared.u32 [%r2], %t;
    st.shared.u32 [%r2+4], %t; st.shared.u32 [%r2+8], %t; st.shared.u32 [%r2+12], %t; bar.sync 0;
    ld.shared.u32 %r3, [%r2]; ld.shared.u32 %r4, [%r2+4]; ld.shared.u32 %r5, [%r2+8]; {between} ld.shared.u32
    %r6, [%r2+12];
    add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6; mad.wide.u32 %rd1, %t, 4, %out;
    st.global.u32 [%rd1], %r3;"""


@pytest.mark.parametrize(
    ("pitch", "between", "requests", "nbytes"),
    [
        (128, "", 1, 512),  # one LDS.128
        (132, "", 4, 128),  # rows that no alignment is known of
        (136, "", 4, 128),  # joined by fours they would need 16 bytes
        (128, "st.shared.u32 [%r1+4096], %t;", 3, 512 // 3),  # a store between: two, one, one
    ],
)
def test_neighbouring_loads_count_as_the_assembler_joins_them(
    pitch: int, between: str, requests: int, nbytes: int
) -> None:
    text = kernel(ROW.format(pitch=pitch, between=between))
    launch = make_launch(
        text, "k", (1, 1, 1), (32, 1, 1), {"in": np.zeros(1, "u4"), "out": np.zeros(32, "u4")}
    )
    plain, merged = run(launch).counts, run(launch, merge_loads=True).counts
    assert plain is not None
    assert merged is not None
    assert plain.shared_load.requests == plain.instructions["load shared"] == 4
    assert merged.shared_load.requests == merged.instructions["load shared"] == requests
    assert merged.shared_load.nbytes // requests == nbytes
    assert plain.shared_load.nbytes == merged.shared_load.nbytes == 512
