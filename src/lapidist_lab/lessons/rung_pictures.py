"""Data of the pictures that a lesson opens with: the ring of stages, who shares tiles, banks of registers,
and boxes that go to a whole cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lapidist.kernels.kernel import Kernel
from lapidist.schedule import Schedule, TileGrid, data_parallel, stream_k
from lapidist_lab.lessons.clock import LATENCY, Clock, Moment
from lapidist_lab.lessons.elements import NOWHERE, Elements
from lapidist_lab.lessons.watch import Copy, Multiplication, Request
from lapidist_lab.sass.analysis import binary_of
from lapidist_lab.sass.listing import Line, sass_lines
from lapidist_lab.sass.loops import main_loop
from lapidist_lab.sass.rounds import BANKS, RegisterFile, operand_waits

ARCHITECTURE = "sm_90a"
FMAS_SHOWN = 24
SHARING = TileGrid(2, 3, 8)  # tiles that four blocks share
BLOCKS = 4

# ---- the ring of stages ----


def ring(clock: Clock, elements: Elements, bk: int) -> list[list[int]]:
    """[stage, k, ordered, landed, first read, given back], a row for each time that a stage was filled.

    A stage is known by the barrier that hears of its bytes. Reads belong to the latest fill with their k."""
    moments = sorted(
        ((moment, number) for number, warp in clock.warps.items() for moment in warp.moments),
        key=lambda pair: pair[0].time,
    )
    fills: list[list[int]] = []
    stages = sorted({b for moment, _ in moments if is_load(moment) for b in barriers_of(moment)})
    for moment, number in moments:
        step = step_of(moment, elements)
        if step < 0 or (is_load(moment) and not barriers_of(moment)):
            continue
        k, now = step // bk * bk, round(moment.time)
        if is_load(moment):
            stage = stages.index(barriers_of(moment)[0])
            latest = next((fill for fill in reversed(fills) if fill[0] == stage), None)
            if latest is None or latest[1] != k:
                fills.append([stage, k, now, now + LATENCY, 0, 0])
            else:
                latest[3] = now + LATENCY
        elif (fill := latest_with(fills, k)) and not is_read_in_vain(fills, fill):
            fill[4] = fill[4] or now
            fill[5] = max(fill[5], completion(clock, number, moment))
    return fills


def latest_with(fills: Sequence[list[int]], k: int) -> list[int] | None:
    return next((fill for fill in reversed(fills) if fill[1] == k), None)


def is_read_in_vain(fills: Sequence[list[int]], fill: list[int]) -> bool:
    """Whether the fill after the next is read already. Then this read is a prefetch that no step uses."""
    return any(later[4] for later in fills[fills.index(fill) + 2 :])


def is_load(moment: Moment) -> bool:
    return isinstance(moment.event, Copy) and moment.event.loads


def barriers_of(moment: Moment) -> tuple[int, ...]:
    return moment.event.barriers if isinstance(moment.event, Copy) else ()


def step_of(moment: Moment, elements: Elements) -> int:
    """The first k of A that a moment moves; NOWHERE if it moves nothing of A from memory to a product."""
    event = moment.event
    if isinstance(event, Multiplication):
        numbers = event.a
    elif isinstance(event, Copy) or (
        isinstance(event, Request) and event.space == "shared" and event.action == "load"
    ):
        numbers = event.elements
    else:
        return NOWHERE
    of_a = numbers[(numbers != NOWHERE) & (numbers < elements.starts[1])]
    return int((of_a % elements.arrays[0].shape[1]).min()) if len(of_a) else NOWHERE


def completion(clock: Clock, warp: int, moment: Moment) -> int:
    """When what a moment reads is read: a product is known to be complete after a later wait."""
    if not isinstance(moment.event, Multiplication):
        return round(moment.time)
    done = clock.multiplied[id(moment.event)]
    waits = (m.time for m in clock.warps[warp].moments if m.event == "wgmma" and m.time >= done)
    return round(min(waits, default=done))


# ---- who computes which tile ----


def shares(split: bool) -> dict[str, Any]:
    """Four blocks and six tiles: what each block computes, in order. With `split`, also how Stream-K splits
    the last tiles, beside whole ones."""
    rounds = block_rows(data_parallel(SHARING, persistent_blocks=BLOCKS))
    words = {"tiles": [SHARING.tiles_m, SHARING.tiles_n], "steps": SHARING.iterations}
    if not split:
        return words | {"before": None, "now": rounds}
    split_tiles = SHARING.tiles % BLOCKS
    shared = stream_k(
        SHARING, sms=BLOCKS, sk_tiles=split_tiles, sk_blocks=BLOCKS, dp_first=True, persistent=True
    )
    return words | {"before": rounds, "now": block_rows(shared)}


def block_rows(schedule: Schedule) -> list[list[list[int]]]:
    """[tile, first step, end, peer, peers] of each unit, block by block."""
    return [
        [[u.tile, u.k_begin, u.k_end, u.peer, u.peers] for _, u in schedule.units_of_launch(block)]
        for block in range(BLOCKS)
    ]


# ---- banks of registers ----


def registers(kernel: Kernel, math: str) -> dict[str, Any] | None:
    """The main loop's fmas: which registers each fetches from which bank, and how late it is issued.

    None where nvdisasm is not found."""
    lines = sass_lines(binary_of(kernel, kernel.config_for(math), math, ARCHITECTURE))
    sites = main_loop(lines) if lines else None
    if not sites:
        return None
    loop = [lines[site] for site in sorted(sites)]
    late = operand_waits(loop)
    return {"late": late, "fmas": sum(line.kind == "fma" for line in loop), "rows": fetches(loop)}


def fetches(loop: Sequence[Line]) -> list[list[list[int]]]:
    """Of the first fmas of the second round: [register, bank, whether it is fetched] of each operand."""
    file = RegisterFile()
    for line in loop:
        file.issue(line)
    rows: list[list[list[int]]] = []
    for line in loop:
        missing = set().union(*RegisterFile(cached=dict(file.cached)).fetched(line))
        file.issue(line)
        if line.kind == "fma" and len(rows) < FMAS_SHOWN:
            rows.append([[r.register, r.register % BANKS, int(r.register in missing)] for r in line.reads])
    return rows
