"""share/schedule.cuh against schedule/units.py: the units of thousands of random schedules, and sums that
need the flags.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lapidist.build.compiler import compile_options, compile_to_ptx
from lapidist.knobs.header import snippet_header
from lapidist.launch import INT_LIMIT, PARAMETER_KINDS
from lapidist.machine import run_ptx
from lapidist.schedule import Schedule, TileGrid, WorkUnit, split_k, stream_k
from lapidist.schedule.divisors import Divisor, device_words, divided_by
from schedule_cases import REDUCTIONS, draw_schedule

HERE = Path(__file__).parent
WORDS = 14
CASES = 4000


def ptx(name: str) -> str:
    text, config = (HERE / f"{name}.cu").read_text(), snippet_header(f"{name}.cu", {})
    return compile_to_ptx(text, name, compile_options("sm_90a"), "sm_90a", f"{name}.cu", config).ptx


def words_of(schedule: Schedule) -> list[int]:
    """As the struct's bytes have them."""
    return list(struct.unpack("46i", struct.pack(PARAMETER_KINDS["schedule"][0], *device_words(schedule))))


def record(schedule: Schedule, unit: WorkUnit) -> list[int]:
    own = [
        unit.tile,
        unit.row,
        unit.column,
        unit.batch,
        unit.k_begin,
        unit.k_end,
        unit.peer,
        unit.peers,
        unit.slot,
        unit.flag,
    ]
    peer = 0 if unit.fragment < 0 else unit.peers - 1
    needed, finishes = schedule.arrivals_needed(unit), int(schedule.finishes(unit))
    return [*own, unit.fragment, needed, finishes, schedule.peer_slot(unit, peer)]


def test_members_are_the_words() -> None:
    source = (HERE.parents[1] / "src/lapidist/cuda/share/schedule.cuh").read_text()
    body = source.split("struct Schedule {")[1].split("__device__")[0]
    lines = [line.split("//")[0].strip() for line in body.splitlines()]
    schedule = split_k(TileGrid(1, 1, 2), 2)
    for kind, names in (("int ", schedule.words()), ("Divisor ", divided_by(schedule))):
        found = [line.removeprefix(kind).rstrip(";").split(",") for line in lines if line.startswith(kind)]
        assert [name.strip() for line in found for name in line] == list(names)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, INT_LIMIT), st.integers(1, INT_LIMIT + 1))
@example(INT_LIMIT, 1)
@example(INT_LIMIT, INT_LIMIT + 1)
@example(INT_LIMIT, INT_LIMIT)
@example(INT_LIMIT - 1, INT_LIMIT)
@example(INT_LIMIT, 2**30 + 1)
def test_a_product_and_a_shift_divide(whole: int, number: int) -> None:
    divisor = Divisor.of(number)
    assert divisor.factor < 2**32
    for exact in {whole, whole // number * number, max(0, whole // number * number - 1)}:
        assert exact * divisor.factor < 2**64
        assert exact * divisor.factor >> divisor.shift == exact // number


def draw_clusters(generator: random.Random) -> Schedule:
    grid = TileGrid(
        generator.randint(1, 5), generator.randint(1, 5), generator.randint(8, 20), generator.randint(1, 2)
    )
    return split_k(grid, generator.randint(2, 8), reduction="cluster")


def test_units_are_equal_to_python() -> None:
    generator = random.Random(11)
    schedules = [draw_schedule(generator.randint)[0] for _ in range(CASES)]
    schedules += [draw_clusters(generator) for _ in range(100)]
    assert {schedule.kind for schedule in schedules} == {"data-parallel", "split-K", "Stream-K"}
    assert any(schedule.remap for schedule in schedules)
    assert any(schedule.first_wave_tiles > 1 for schedule in schedules)
    which, index, expected = [], [], []
    for number, schedule in enumerate(schedules):
        for block in range(schedule.blocks):
            which.append(number)
            index.append(block)
            units = schedule.units(schedule.block_of_launch(block))
            expected.append([record(schedule, unit) for unit in units])
    counts = np.array([len(units) for units in expected], np.int32)
    start = (np.cumsum(counts) - counts).astype(np.int32)
    found_counts = np.full(len(which), -1, np.int32)
    records = np.full((int(counts.sum()), WORDS), -99, np.int32)
    arrays = [
        np.array([words_of(s) for s in schedules], np.int32),
        np.array(which, np.int32),
        np.array(index, np.int32),
        start,
    ]
    arguments = dict(enumerate([len(which), *arrays, found_counts, records]))
    run_ptx(ptx("schedule_units"), "schedule_units", (-(-len(which) // 128), 1, 1), (128, 1, 1), arguments)
    wrong = np.flatnonzero(found_counts != counts)
    assert not len(wrong), f"block {index[wrong[0]]} of {schedules[which[wrong[0]]]}"
    flat = np.array([row for units in expected for row in units], np.int32)
    rows = np.flatnonzero((flat != records).any(axis=1))
    assert not len(rows), f"{flat[rows[0]]} became {records[rows[0]]}"


# ---- sums that need the flags ----


def sum_tiles(
    schedule: Schedule,
    values: np.ndarray,
    flags: np.ndarray,
    slots: np.ndarray,
    residency: int,
    seed: int | None = None,
) -> np.ndarray:
    """With a seed: under fuzzed scheduling with the race detector, which starts blocks in any order, so all
    are resident.

    Without: blocks start in the order of their index, as the hardware does it; then one resident block must
    do."""
    result = np.full((schedule.grid.tiles, 64), np.nan, np.float32)
    packed = np.array(words_of(schedule), np.int32).tobytes()
    grid = (schedule.launch_blocks, 1, 1)
    arguments = {0: packed, 1: flags, 2: slots, 3: values, 4: result}
    binary, fuzzed = ptx("schedule_sum"), seed is not None
    run_ptx(
        binary, "schedule_sum", grid, (64, 1, 1), arguments, sanitize=fuzzed, seed=seed, residency=residency
    )
    return result


def workspace(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Exactly as much as the schedule says (the machine refuses empty arrays), flags zero, sums poisoned."""
    return np.zeros(max(schedule.flags, 1), np.int32), np.full(
        (max(schedule.slots, 1), 64), np.nan, np.float32
    )


SUMS = [
    (
        "stream",
        lambda reduction: stream_k(
            TileGrid(2, 2, 9), sms=3, reduction=reduction, fragments=2, sk_tiles=4, sk_blocks=7
        ),
    ),
    (
        "hybrid",
        lambda reduction: stream_k(
            TileGrid(3, 3, 8), sms=4, reduction=reduction, fragments=2, sk_tiles=5, sk_blocks=4
        ),
    ),
    ("split", lambda reduction: split_k(TileGrid(1, 3, 8), 4, reduction=reduction, fragments=4)),
]


@pytest.mark.often(2)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("build", [build for _, build in SUMS], ids=[name for name, _ in SUMS])
def test_sums_are_right_again_and_again_on_one_workspace(build, reduction, rng) -> None:  # type: ignore[no-untyped-def]
    schedule = build(reduction)
    assert schedule.shares_tiles
    values = rng.integers(-8, 9, (schedule.grid.tiles, schedule.grid.iterations, 64)).astype(np.float32)
    flags, slots = workspace(schedule)
    for residency, seed in ((1, None), (3, None), (schedule.blocks, 1), (schedule.blocks, 2)):
        found = sum_tiles(schedule, values, flags, slots, residency, seed)
        np.testing.assert_array_equal(found, values.sum(axis=1))
        assert not flags.any()
        slots.fill(np.nan)


@pytest.mark.parametrize("reduction", ["turnstile", "separate"])
def test_ordered_reductions_give_the_same_bits(reduction: str, rng: np.random.Generator) -> None:
    schedule = SUMS[0][1](reduction)
    values = rng.standard_normal((schedule.grid.tiles, schedule.grid.iterations, 64)).astype(np.float32)
    flags, slots = workspace(schedule)
    ways = [(1, None), (2, None), (schedule.blocks, 3), (schedule.blocks, 4)]
    runs = [sum_tiles(schedule, values, flags, slots, residency, seed).tobytes() for residency, seed in ways]
    assert len(set(runs)) == 1


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_persistent_blocks_sum_right(reduction: str, rng: np.random.Generator) -> None:
    schedule = stream_k(
        TileGrid(3, 3, 8), sms=4, reduction=reduction, fragments=2, sk_tiles=5, sk_blocks=4, persistent=True
    )
    values = rng.integers(-8, 9, (9, 8, 64)).astype(np.float32)
    flags, slots = workspace(schedule)
    found = sum_tiles(schedule, values, flags, slots, schedule.launch_blocks, 6)
    np.testing.assert_array_equal(found, values.sum(axis=1))


def test_sums_of_random_schedules(rng: np.random.Generator) -> None:
    """As few resident blocks as the schedule says it needs, in the order of their index."""
    generator, done = random.Random(5), 0
    while done < 60:
        schedule, resident = draw_schedule(generator.randint)
        if not schedule.shares_tiles or schedule.blocks > 60:
            continue
        values = rng.integers(-8, 9, (schedule.grid.tiles, schedule.grid.iterations, 64)).astype(np.float32)
        flags, slots = workspace(schedule)
        found = sum_tiles(schedule, values, flags, slots, resident)
        np.testing.assert_array_equal(found, values.sum(axis=1), str(schedule))
        assert not flags.any()
        done += 1
