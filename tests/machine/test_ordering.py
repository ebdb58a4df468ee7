"""Messages through memory: what release, acquire, fences and scopes order, and what stays a race.

Agents are blocks of one thread, or warps of one block. Agent 0 writes data and raises the flag; the last
agent waits for the flag, reads the data and puts the flag back with a plain store."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check
from lapidist.machine.authors.findings import Findings
from lapidist.machine.faults import Race
from lapidist.machine.sanitize.clocks import Clocks, Packed
from lapidist.machine.sanitize.shadow import Shadow
from snippets import run_body

SEEDS = range(4)
DATA, FLAG, RESULT = "[%in]", "[%out]", "[%out+8]"
PUBLISH = f"st.global.u32 {DATA}, 42;"
USE = f"ld.global.u32 %r9, {DATA}; st.global.u32 {RESULT}, %r9;"
RESET = f"st.global.u32 {FLAG}, 0;"


def wait(load: str, value: int = 1) -> str:
    """Until the flag has a value; `load` is a load, or an atomic that changes nothing."""
    read = (
        f"{load}.global.u32 %r2, {FLAG};"
        if load.startswith("ld")
        else f"{load}.global.max.u32 %r2, {FLAG}, 0;"
    )
    return f"W{value}: {read} setp.ne.u32 %p2, %r2, {value}; @%p2 bra W{value};"


def raise_flag(store: str, value: int = 1) -> str:
    if store.startswith("st"):
        return f"{store}.global.u32 {FLAG}, {value};"
    return f"{store}.global.add.u32 {'%r3, ' if store.startswith('atom') else ''}{FLAG}, 1;"


def races(*agents: str, block: bool = False) -> int:
    """How many schedules find a race among agents: blocks, or warps of one block."""
    names = [f"A{number}" for number in range(len(agents))]
    jumps = " ".join(f"setp.eq.u32 %p1, %r1, {number}; @%p1 bra {name};" for number, name in enumerate(names))
    bodies = " ".join(f"{name}: {agent} bra END;" for name, agent in zip(names, agents, strict=True))
    who = "shr.u32 %r1, %t, 5;" if block else "mov.u32 %r1, %ctaid.x;"
    only = "and.b32 %r8, %t, 31; setp.ne.u32 %p8, %r8, 0; @%p8 bra END;" if block else ""
    grid, threads = (1, 32 * len(agents)) if block else (len(agents), 1)
    found = 0
    for seed in SEEDS:
        memory = np.zeros(4, "u4")
        try:
            run_body(
                f"{who} {only} {jumps} {bodies} END:",
                np.zeros(4, "u4"),
                memory,
                grid,
                threads,
                sanitize=True,
                seed=seed,
                residency=grid,
            )
        except Race:
            found += 1
    return found


GPU_FENCE, BLOCK_FENCE = "fence.acq_rel.gpu;", "fence.acq_rel.cta;"
# (agent 0 before raising the flag, how it raises it, how the reader waits, what it does then)
SOUND = [
    ("", "st.release.gpu", "ld.acquire.gpu", ""),
    ("", "st.release.sys", "ld.acquire.gpu", ""),
    ("", "red.release.gpu", "ld.acquire.gpu", ""),
    ("", "atom.release.gpu", "atom.acquire.gpu", ""),
    ("", "atom.acq_rel.gpu", "atom.acq_rel.gpu", ""),
    (GPU_FENCE, "red.relaxed.gpu", "ld.relaxed.gpu", GPU_FENCE),
    (GPU_FENCE, "red", "ld.acquire.gpu", ""),
    ("membar.gl;", "st.volatile", "ld.volatile", "membar.gl;"),
    ("fence.sc.gpu;", "st.relaxed.gpu", "atom.relaxed.gpu", "fence.sc.gpu;"),
]
UNSOUND = [
    ("", "st.relaxed.gpu", "ld.acquire.gpu", ""),
    ("", "red.relaxed.gpu", "ld.relaxed.gpu", GPU_FENCE),
    ("", "red.release.gpu", "ld.relaxed.gpu", ""),
    ("", "atom.release.gpu", "ld.volatile", ""),
    (GPU_FENCE, "st.volatile", "ld.volatile", ""),
    ("", "st.release.cta", "ld.acquire.gpu", ""),
    ("", "red.release.gpu", "ld.acquire.cta", ""),
    (BLOCK_FENCE, "st.relaxed.gpu", "ld.relaxed.gpu", GPU_FENCE),
    (GPU_FENCE, "st.relaxed.gpu", "ld.relaxed.gpu", BLOCK_FENCE),
]
IN_A_BLOCK = [
    ("", "st.release.cta", "ld.acquire.cta", ""),
    ("", "red.release.cta", "ld.acquire.gpu", ""),
    (BLOCK_FENCE, "red.relaxed.cta", "ld.relaxed.cta", BLOCK_FENCE),
]


def message(form: tuple[str, str, str, str]) -> tuple[str, str]:
    before, store, load, after = form
    return f"{PUBLISH} {before} {raise_flag(store)}", f"{wait(load)} {after} {USE} {RESET}"


@pytest.mark.parametrize("form", SOUND)
def test_a_message_that_arrives_is_no_race(form: tuple[str, str, str, str]) -> None:
    assert races(*message(form)) == 0


@pytest.mark.parametrize("form", UNSOUND)
def test_a_message_that_is_not_published_or_not_taken_in_is_a_race(form: tuple[str, str, str, str]) -> None:
    assert races(*message(form)) == len(SEEDS)


@pytest.mark.parametrize("form", IN_A_BLOCK)
def test_block_scope_is_enough_in_a_block_only(form: tuple[str, str, str, str]) -> None:
    assert races(*message(form), block=True) == 0
    assert races(*message(form)) == len(SEEDS)


def test_what_is_written_behind_the_flag_is_not_part_of_the_message() -> None:
    writer, reader = message(SOUND[0])
    assert races(writer.removeprefix(PUBLISH) + PUBLISH, reader) == len(SEEDS)


@pytest.mark.parametrize(
    ("store", "found"), [("red.relaxed.gpu", 0), ("atom.relaxed.gpu", 0), ("st.relaxed.gpu", len(SEEDS))]
)
def test_an_atomic_hands_a_message_on_and_a_store_ends_it(store: str, found: int) -> None:
    """Agent 1 changes the flag again; the reader takes in what agent 0 published only if the change read
    it.
    """
    writer, _ = message(SOUND[0])
    between = f"{wait('ld.relaxed.gpu')} {raise_flag(store, 2)}"
    reader = f"{wait('ld.relaxed.gpu', 2)} ld.acquire.gpu.global.u32 %r2, {FLAG}; {USE} {RESET}"
    assert races(writer, between, reader) == found


def test_many_writers_and_a_reader_that_waits_for_all() -> None:
    first = f"{PUBLISH} {raise_flag('red.release.gpu')}"
    second = first.replace("%in]", "%in+4]")
    both = f"{wait('ld.acquire.gpu', 2)} {USE} {USE.replace('%in]', '%in+4]')} {RESET}"
    assert races(first, second, both) == 0
    assert races(first, second.replace("release", "relaxed"), both) == len(SEEDS)


def test_putting_the_flag_back_needs_to_have_seen_it() -> None:
    raised = raise_flag("red.release.gpu")
    assert races(raised, f"{wait('ld.relaxed.gpu')} {RESET}") == 0
    assert races(raised, RESET) == len(SEEDS)


def test_another_warp_may_put_the_flag_back_behind_a_barrier() -> None:
    """Warp 1 of the second block has not seen the flag itself."""
    second = (
        f"setp.ge.u32 %p3, %t, 32; @%p3 bra B; {wait('ld.acquire.gpu')} B: {{barrier}} setp.lt.u32 %p3, %t,"
        " 32; @%p3 bra END;"
    )
    body = (
        "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @!%p1 bra A; setp.ne.u32 %p4, %t, 0; @%p4 bra END;"
    )
    body += f"{PUBLISH} {raise_flag('red.release.gpu')} bra END; A: {second} {RESET} END:"
    for seed in SEEDS:
        arrays = np.zeros(4, "u4"), np.zeros(4, "u4")
        run_body(
            body.replace("{barrier}", "bar.sync 0;"), *arrays, 2, 64, sanitize=True, seed=seed, residency=2
        )
        with pytest.raises(Race):
            run_body(body.replace("{barrier}", ""), *arrays, 2, 64, sanitize=True, seed=seed, residency=2)


@pytest.mark.parametrize(("scope", "found"), [("gpu", 0), ("cta", len(SEEDS))])
def test_atomics_of_two_blocks_meet_at_the_scope_of_the_gpu(scope: str, found: int) -> None:
    add = f"red.relaxed.{scope}.global.add.u32 {FLAG}, 1;"
    assert races(add, add) == found
    assert races(add, add, block=True) == 0


def test_reads_that_are_noted_later_are_noted_alike() -> None:
    """Reads of what nobody wrote are logged. Replayed together, they leave what one by one leave."""
    random = np.random.default_rng(3)
    for _ in range(40):
        one, other = (Shadow(64, 4, agents=8) for _ in range(2))
        for moment in range(1, 1 + int(random.integers(1, 30))):
            warp, site = int(random.integers(4)), int(random.integers(9))
            if random.integers(4):
                addresses, lanes = 4 * random.permutation(12)[:6].astype(np.uint64), np.arange(6)
            else:
                addresses, lanes = 4 * random.permutation(12)[:1].astype(np.uint64), np.array([-1])
            size = int(random.choice([4, 8]))
            at = one.grains(addresses.astype(np.int64) + 8, size)
            one.note_read(at, 0, warp, moment, site, np.repeat(lanes, len(at) // len(lanes)))
            other.log_read(at, warp, moment, site, lanes)
            if not random.integers(8):
                other.replay()
        other.replay()
        for name in ("read", "reader", "read_warp", "last_read"):
            assert (getattr(one, name) == getattr(other, name)).all(), name
        assert (one.read_site(slice(None)) == other.read_site(slice(None))).all()
        seen = (one.read > 0).any(axis=1)
        assert (one.read_lane[seen] == other.read_lane[seen]).all()


def test_atomics_before_any_fence_leave_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relaxed atomic publishes what its warp knew at its last fence. Before one that is nothing, and each
    of its lanes left a clock of all warps at its place."""
    made: list[int] = []
    message = Clocks.message
    monkeypatch.setattr(Clocks, "message", lambda clocks, warp: made.append(warp) or message(clocks, warp))
    source = """extern "C" __global__ void count(int* bins) {
        __shared__ int mine[128]; mine[threadIdx.x] = 0; __syncthreads();
        atomicAdd(mine + (threadIdx.x * 5) % 128, 1); __syncthreads();
        atomicAdd(bins + threadIdx.x, mine[threadIdx.x]); }"""
    bins = np.zeros(128, "i4")
    assert check(source, (8, 1, 1), (128, 1, 1), bins, seeds=1)
    assert (bins == 8).all()
    warps, atomics, barriers = 32, 2, 2
    assert len(made) <= warps * (atomics + barriers)


def test_a_message_at_rest_is_shared_and_never_changed() -> None:
    clocks = Clocks(4, products=False)
    for warp in range(3):
        clocks.tick(warp)
    first, second, third = (Packed(clocks.message(warp)) for warp in range(3))
    both = first.joined(second, clocks.agents)
    assert [first.columns.tolist(), both.columns.tolist()] == [[0], [0, 1]]
    assert both.joined(third, clocks.agents).message(clocks.agents).vector.tolist() == [2, 2, 2, 0]
    assert first.joined(first, clocks.agents) is first


def last_block(behind: str) -> Findings:
    """Blocks leave sums. One thread takes a ticket, and its whole block adds them up if it was the last."""
    source = f"""extern "C" __global__ void last(int* sums, unsigned* tickets, int* total) {{
        __shared__ bool is_last; int t = threadIdx.x;
        sums[blockIdx.x * 64 + t] = t + blockIdx.x;
        __threadfence(); __syncthreads();
        if (t == 0) is_last = atomicAdd(tickets, 1) == gridDim.x - 1;
        __syncthreads();
        if (!is_last) return;
        {behind}
        int sum = 0;
        for (int block = 0; block < gridDim.x; block++) sum += sums[block * 64 + t];
        total[t] = sum; }}"""
    total = np.zeros(64, "i4")
    found = check(source, (3, 1, 1), (64, 1, 1), np.zeros(192, "i4"), np.zeros(1, "u4"), total, seeds=4)
    assert (total == 3 * np.arange(64) + 3).all()
    return found


def test_a_sequential_fence_behind_a_barrier_takes_in_what_another_thread_saw() -> None:
    """Sums of several blocks do so. Sequential fences have one order, those of acquire have none:
    there the thread that saw the ticket must have the fence."""
    assert last_block("__threadfence();")
    for behind in ("", 'asm volatile("fence.acq_rel.gpu;" ::: "memory");', "__threadfence_block();"):
        assert [found.rule for found in last_block(behind).findings] == ["race"], behind
