"""Blocks that warps compute together: the schedule, findings and notes are as if each warp ran alone."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import lapidist
from lapidist.backends.machine_backend import sanitized
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Launch
from lapidist.machine import kernel_launch
from lapidist.machine.faults import MachineFault
from lapidist.machine.run import run
from lapidist.machine.sanitize.joint_runs import JointRuns
from lapidist.machine.sanitize.random_orders import FuzzedScheduler
from lapidist_lab.machine_studies.registered import product_of
from snippets import kernel

SHADOW = ["last_write", "last_read", "writer", "written", "write_site", "level", "lane"]
SHADOW += ["read", "last_reading", "state"]
# Each thread writes a word of shared memory; then all read those of the next warp, four rounds.
ROUNDS = """
    .shared .align 4 .b8 s[512]; mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.s32 %r3, %r1, %r2;
    add.s32 %r4, %r2, {step}; and.b32 %r4, %r4, {mask}; add.s32 %r4, %r4, %r1; mov.u32 %r5, 0; mov.u32 %r6, 0;
    mad.wide.u32 %rd1, %t, {stride}, %in; mov.f32 %f1, 0f00000000;
    L: ld.global.f32 %f2, [%rd1]; add.f32 %f2, %f2, %f1; st.shared.f32 [%r3], %f2; {first}
    ld.shared.f32 %f3, [%r4]; ld.shared.f32 %f4, [%r1]; fma.rn.f32 %f1, %f3, %f4, %f1; {second}
    add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, 4; @%p1 bra L;
    mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f1;"""
WHOLE = {"step": 128, "mask": 255, "stride": 4, "first": "bar.sync 0;", "second": "bar.sync 0;"}
BROKEN = {
    "no first barrier": {"first": ""},
    "no second barrier": {"second": ""},
    "beyond the array": {"stride": 400},
    "beyond shared memory": {"mask": 8191, "step": 2048},
    "never written": {"mask": 511, "step": 256},
}
# Warps of a block read what the first one writes: nobody waits.
GLOBAL_RACE = """
    mad.wide.u32 %rd1, %t, 4, %in; mov.u32 %r5, 0; setp.ge.u32 %p2, %t, 32;
    L: ld.global.f32 %f2, [%in]; ld.global.f32 %f1, [%rd1]; add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, 9;
    @%p1 bra L; @%p2 bra E; st.global.f32 [%rd1], %f1;
    E: mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f2;"""

# Two warps meet, and load what a third one writes again after they met that.
THIRD_WARP = """
    .shared .align 4 .b8 s[128]; mov.u32 %r1, s; shl.b32 %r2, %t, 2; and.b32 %r3, %r2, 127;
    add.s32 %r3, %r3, %r1; mov.f32 %f2, 0f3f800000; setp.ge.u32 %p1, %t, 64; @%p1 bra W; bar.sync 0;
    bar.sync 1, 64;
    ld.shared.f32 %f1, [%r3]; add.f32 %f1, %f1, %f2; N: mad.wide.u32 %rd2, %t, 4, %out;
    st.global.f32 [%rd2], %f1; bra E; W: st.shared.f32 [%r3], %f2; bar.sync 0; st.shared.f32 [%r3], %f2; E:"""
# Each thread reads the word of the next lane, with or without a wait for it.
NEXT_LANE = """
    .shared .align 4 .b8 s[1024]; mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.s32 %r3, %r1, %r2;
    xor.b32 %r4, %r2, 4; add.s32 %r4, %r4, %r1; mov.f32 %f1, 0f3f800000; mov.u32 %r5, 0;
    bar.sync 0; st.shared.f32 [%r3], %f1; {wait}
    L: ld.shared.f32 %f2, [%r4]; add.f32 %f1, %f1, %f2; add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, 3;
    @%p1 bra L; mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f1;"""
# Each thread stores two words, and reads those of a lane that it has met.
STORES = """
    .shared .align 8 .b8 s[2048]; mov.u32 %r1, s; shl.b32 %r2, %t, 3; {place} add.s32 %r3, %r1, %r2;
    xor.b32 %r4, %r3, 8; mov.u32 %r5, 0; mov.f32 %f1, 0f3f800000;
    L: {meet} st.shared.v2.f32 [%r3], {{%f1, %f1}}; {again} {meet}
    ld.shared.v2.f32 {{%f2, %f3}}, [%r4]; add.f32 %f1, %f2, %f3; add.s32 %r5, %r5, 1;
    setp.lt.s32 %p1, %r5, 4; @%p1 bra L; mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f1;"""
STORED = {"place": "", "meet": "bar.sync 0;", "again": ""}
TWO_STORES = {
    "two threads to one word": {"place": "and.b32 %r2, %r2, 511;"},
    "two stores of two lanes": {"again": "st.shared.f32 [%r4], %f1;"},
    "nobody waits": {"meet": ""},
    "beyond the end": {"place": "add.s32 %r2, %r2, 2040;"},
}
# Each warp loads what the next one then writes: only a use of the value is a fault.
AHEAD = """
    .shared .align 4 .b8 s[512]; mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.s32 %r3, %r1, %r2;
    add.s32 %r4, %r2, 128; and.b32 %r4, %r4, 511; add.s32 %r4, %r4, %r1; mov.f32 %f1, 0f3f800000;
    mov.u32 %r9, 9999; st.shared.f32 [%r3], %f1; bar.sync 0; ld.shared.f32 %f3, [%r4];
    setp.eq.u32 %p1, %t, %r9; @%p1 bra X; {use} mov.f32 %f3, 0f00000000; st.shared.f32 [%r3], %f1;
    X: mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f3;"""
# One warp keeps %r7 as one value, the other by lane.
TWO_FORMS = """
    mov.u32 %r7, 5; setp.lt.u32 %p1, %t, 32; @%p1 bra J; and.b32 %r7, %t, 31; J: bar.sync 0;
    mad.wide.u32 %rd1, %r7, 4, %in; ld.global.f32 %f1, [%in]; ld.global.f32 %f2, [%rd1];
    add.f32 %f1, %f1, %f2; bar.sync 0; mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f1;"""

# Lanes of a warp add their numbers by shuffles, between rounds of loads.
SHUFFLES = """
    mov.u32 %r5, 0; mov.f32 %f1, 0f00000000; mad.wide.u32 %rd1, %t, 4, %in;
    L: ld.global.f32 %f2, [%rd1]; add.f32 %f1, %f1, %f2; mov.b32 %r1, %f1;
    shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, {mask}; mov.b32 %f3, %r2; add.f32 %f1, %f1, %f3;
    add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, 5; @%p1 bra L;
    mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f1;"""

LATER = "xor.b32 %r6, %t, 1; mad.wide.u32 %rd3, %r6, 4, %out; st.global.f32 [%rd3], %f1; bra Z; Z:"
READ = "st.global.f32 [%rd2+512], %f2;"
# Each thread stores a word; all arrive and wait, and read those of the next warp, four rounds. At the second
# barrier each warp completes a phase, which lets all look again.
WAITS = """
    .shared .align 8 .b8 b[16]; .shared .align 4 .b8 s[512]; mov.u32 %r1, s; mov.u32 %r7, b;
    shl.b32 %r2, %t, 2; add.s32 %r3, %r1, %r2; add.s32 %r4, %r2, 128; and.b32 %r4, %r4, 511;
    add.s32 %r4, %r4, %r1; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r7], 128;
    @%p1 mbarrier.init.shared.b64 [%r7+8], 32; bar.sync 0; mov.u32 %r5, 0; mov.f32 %f1, 0f3f800000;
    R: st.shared.f32 [%r3], %f1; mbarrier.arrive.shared.b64 _, [%r7]; mbarrier.arrive.shared.b64 _, [%r7+8];
    and.b32 %r6, %r5, 1; W: mbarrier.try_wait.parity.shared.b64 %p2, [%r7], %r6; @!%p2 bra W;
    ld.shared.f32 %f2, [%r4]; add.f32 %f1, %f1, %f2; bar.sync 0; add.s32 %r5, %r5, 1;
    setp.lt.s32 %p3, %r5, 4; @%p3 bra R; mad.wide.u32 %rd2, %t, 4, %out; st.global.f32 [%rd2], %f1;"""
# Each thread stores a word, which a thread of another warp reads where nothing orders the two.
GLOBAL_STORES = """
    setp.{holds}.u32 %p2, %t, 40; add.u32 %r1, %t, {shift}; and.b32 %r1, %r1, 127;
    mad.wide.u32 %rd1, %r1, 4, %out; mad.wide.u32 %rd2, %t, 4, %out; mov.u32 %r5, 0; cvt.rn.f32.u32 %f1, %t;
    L: add.f32 %f1, %f1, %f1; {guard} st.global.f32 [%rd1{offset}], %f1; {wait}
    add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, 3; @%p1 bra L; {after}"""
STORED_ONCE = {"holds": "lt", "shift": 0, "guard": "", "offset": "", "wait": "", "after": ""}
STORED_TWICE = {
    "some of its lanes": ({"guard": "@%p2"}, False),
    "two of its lanes": ({"shift": "0; shr.u32 %r1, %r1, 1"}, True),
    "two lanes one after the other": ({"after": LATER}, True),
    "two warps": ({"shift": "0; and.b32 %r1, %r1, 63"}, True),
    "read and ordered": ({"shift": 32, "after": "bar.sync 0; ld.global.f32 %f2, [%rd2];" + READ}, False),
    "read by another warp": ({"shift": 32, "after": "ld.global.f32 %f2, [%rd2];" + READ}, True),
    "read before by another warp": ({"shift": 96, "after": "ld.global.f32 %f2, [%rd2];" + READ}, True),
    "beyond the end": ({"offset": "+1024"}, True),
}
RUNGS = {
    **dict.fromkeys(
        ["uncoalesced", "shared_tile", "thread_tile", "async_pipeline"], ("float32", (32, 40, 36))
    ),
    **dict.fromkeys(["wmma_simple", "mma_swizzled", "mma"], ("float16", (64, 128, 96))),
}

# %f9 is never set, and stored where no thread comes.
UNSET = "mov.u32 %r9, 99; setp.eq.u32 %p8, %t, %r9; @!%p8 bra A; st.global.f32 [%out], %f9; A: "


def launch_of(body: str, threads: int = 64) -> Launch:
    source, out = np.arange(64, dtype="f4"), np.zeros(threads, "f4")
    launch, _ = kernel_launch(kernel(body), (1, 1, 1), (threads, 1, 1), source, out)
    return launch


@pytest.fixture
def schedulers(monkeypatch: pytest.MonkeyPatch) -> list[FuzzedScheduler]:
    """The schedulers of all runs, in order."""
    made, begin = list[FuzzedScheduler](), FuzzedScheduler.__init__

    def keep(scheduler: FuzzedScheduler, *how: object) -> None:
        begin(scheduler, *how)  # type: ignore[arg-type]
        made.append(scheduler)

    monkeypatch.setattr(FuzzedScheduler, "__init__", keep)
    return made


def outcome(launch: Launch, seed: int, scheduler: list[FuzzedScheduler]) -> list[object]:
    """The steps and the fault of a run, what it wrote, and what was noted of memory until then."""
    before = [memory.owner.copy() for memory in launch.memory]
    story: list[object] = []
    try:
        report = run(launch, sanitize=True, seed=seed, counting=False)
        story += [report.steps, sorted(report.reached), report.ways]
    except MachineFault as fault:
        story.append(str(fault))
    sanitizer = scheduler[-1].sanitizer
    places = {memory.address: place for place, memory in enumerate(launch.memory)}
    for start, shadow in sorted([(-1, sanitizer.shared), *sanitizer.globals.items()]):
        shadow.replay()
        noted = [getattr(shadow, name).tolist() for name in SHADOW]
        if start < 0 or shadow.ever_written or (shadow.read > 0).any():
            story.append((places.get(start, start), noted))
    story += [sanitizer.clocks.touched.tolist(), *(memory.owner.tobytes() for memory in launch.memory)]
    for memory, content in zip(launch.memory, before, strict=True):
        memory.owner[...] = content
    return story


def both(
    launch: Launch, seed: int, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[object], list[object], int]:
    """The outcomes with and without warps that compute together, and how often one took its part."""
    taken, take, sprint = [0], JointRuns.take, JointRuns.sprint

    def counted(*where: object) -> bool:
        answer = take(*where)  # type: ignore[arg-type]
        taken[0] += answer
        return answer

    def sprinted(*where: object) -> list[tuple[int, int]]:
        before, way = taken[0], sprint(*where)  # type: ignore[arg-type]
        taken[0] = before + len(way)
        return way

    with monkeypatch.context() as patch:
        patch.setattr(JointRuns, "take", counted)
        patch.setattr(JointRuns, "sprint", sprinted)
        together = outcome(launch, seed, schedulers)
        patch.setattr(JointRuns, "turn", lambda *where: None)
        return together, outcome(launch, seed, schedulers), taken[0]


@pytest.mark.parametrize("fault", [None, *BROKEN])
def test_warps_that_compute_together_find_what_each_finds(
    fault: str | None, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(ROUNDS.format(**WHOLE | BROKEN.get(fault or "", {})))
    joined, found = 0, 0
    for seed in range(6):
        together, alone, taken = both(launch, seed, schedulers, monkeypatch)
        assert together == alone
        joined, found = joined + taken, found + isinstance(alone[0], str)
    assert joined
    assert bool(found) == (fault is not None)


@pytest.mark.parametrize("wait", ["", "bar.warp.sync 0xffffffff;"])
def test_what_another_lane_wrote_is_waited_for(
    wait: str, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(NEXT_LANE.format(wait=wait), 256)
    outcomes = [both(launch, seed, schedulers, monkeypatch) for seed in range(6)]
    assert all(together == alone for together, alone, _ in outcomes)
    assert all(isinstance(alone[0], str) != bool(wait) for _, alone, _ in outcomes)
    assert not wait or any(taken for _, _, taken in outcomes)


def test_what_was_loaded_ahead_is_dropped_when_others_write_there(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [both(launch_of(GLOBAL_RACE), seed, schedulers, monkeypatch) for seed in range(8)]
    assert all(together == alone for together, alone, _ in outcomes)
    assert any(isinstance(alone[0], str) for _, alone, _ in outcomes)
    assert sum(taken for _, _, taken in outcomes)


def test_warps_that_compute_together_race_with_another(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = [both(launch_of(THIRD_WARP, 96), seed, schedulers, monkeypatch) for seed in range(8)]
    assert all(together == alone for together, alone, _ in outcomes)
    assert any("a race on shared memory: read here" in str(alone[0]) for _, alone, _ in outcomes)


def test_warps_with_an_undefined_register_join_where_it_is_not_used(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = ROUNDS.format(**WHOLE).replace("ld.global.f32 %f2, [%rd1];", f"ld.global.f32 %f2, [%rd1]; {UNSET}")
    together, alone, taken = both(launch_of(body), 2, schedulers, monkeypatch)
    assert together == alone
    assert taken


def test_registers_that_warps_keep_in_two_forms(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, alone, _ = both(launch_of(TWO_FORMS), 2, schedulers, monkeypatch)
    assert together == alone
    assert isinstance(alone[0], int)


@pytest.mark.often(2)
@pytest.mark.parametrize("name", RUNGS)
def test_rungs_are_scheduled_as_before(
    name: str, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype, product = RUNGS[name]
    launch = product_of(kernel_named(name), dtype, product).launch(0.0)
    together, alone, taken = both(launch, 3, schedulers, monkeypatch)
    assert together == alone
    assert 3 * taken > int(str(alone[0]))  # of the steps, a good part


def test_warps_behind_a_wait_compute_together(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait may give up: then the warp does not come to what was computed for it."""
    passed, may_come = [0], JointRuns.waits_for
    monkeypatch.setattr(
        JointRuns, "waits_for", lambda *where: may_come(*where) and bool(passed.append(1) or True)
    )
    for seed in range(6):
        together, alone, _ = both(launch_of(WAITS, 128), seed, schedulers, monkeypatch)
        assert together == alone
        assert isinstance(alone[0], int)
    assert len(passed) > 8


@pytest.mark.often(2)
@pytest.mark.parametrize("cut", [r"cp\.async\.wait_group\s+\d+;", r"bar\.sync\s+0;"])
@pytest.mark.parametrize("name", ["async_pipeline", "simt"])
def test_copies_that_warps_make_together_miss_no_wait(
    name: str, cut: str, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = product_of(kernel_named(name), "float32", (32, 40, 72)).launch(0.0)
    text = re.sub(cut, "", launch.binary.ptx)
    assert text != launch.binary.ptx
    launch = replace(launch, binary=replace(launch.binary, ptx=text))
    together, alone, taken = both(launch, 3, schedulers, monkeypatch)
    assert together == alone
    assert isinstance(alone[0], str)
    assert taken


@pytest.mark.parametrize("use", ["", "add.f32 %f1, %f1, %f3;"])
def test_a_load_that_warps_make_together_counts_once_it_is_used(
    use: str, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(AHEAD.format(use=use), 128)
    outcomes = [both(launch, seed, schedulers, monkeypatch) for seed in range(6)]
    assert all(together == alone for together, alone, _ in outcomes)
    assert any(isinstance(alone[0], str) for _, alone, _ in outcomes) == bool(use)
    assert sum(taken for _, _, taken in outcomes)


def test_a_load_sees_what_its_block_stored(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = STORES.format(**STORED | {"again": "ld.shared.f32 %f4, [%r3]; mul.f32 %f1, %f4, %f4;"})
    launch = launch_of(body.replace("%f1, %f2, %f3;", "%f1, %f1, %f3;"), 128)
    together, alone, _ = both(launch, 1, schedulers, monkeypatch)
    assert together == alone
    assert isinstance(alone[0], int)


def test_a_store_meets_a_copy_that_is_still_to_land(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = "cp.async.ca.shared.global [%r3], [%in], 8; bar.sync 0; bar.sync 0;"
    body = STORES.format(**STORED).replace("L: bar.sync 0;", f"L: {copy}")
    together, alone, taken = both(launch_of(body, 128), 1, schedulers, monkeypatch)
    assert together == alone
    assert "still to land" in str(alone[0])
    assert taken


@pytest.mark.parametrize("fault", [None, *TWO_STORES])
def test_stores_that_warps_make_together(
    fault: str | None, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(STORES.format(**STORED | TWO_STORES.get(fault or "", {})), 128)
    outcomes = [both(launch, seed, schedulers, monkeypatch) for seed in range(4)]
    assert all(together == alone for together, alone, _ in outcomes)
    assert all(isinstance(alone[0], str) == (fault is not None) for _, alone, _ in outcomes)
    assert sum(taken for _, _, taken in outcomes)


@pytest.mark.often(2)
@pytest.mark.parametrize("case", STORED_TWICE)
def test_stores_to_global_memory_that_warps_make_together(
    case: str, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, wrong = STORED_TWICE[case]
    text, arrays = (
        kernel(GLOBAL_STORES.format(**STORED_ONCE | parts)),
        (np.zeros(64, "f4"), np.zeros(256, "f4")),
    )
    launch, _ = kernel_launch(text, (1, 1, 1), (128, 1, 1), *arrays)
    outcomes = [both(launch, seed, schedulers, monkeypatch) for seed in range(4)]
    assert all(together == alone for together, alone, _ in outcomes)
    assert any(isinstance(alone[0], str) for _, alone, _ in outcomes) == wrong
    assert sum(taken for _, _, taken in outcomes)


@pytest.mark.parametrize(("mask", "wrong"), [(-1, False), (0x7FFFFFFF, True)])
def test_warps_shuffle_together(
    mask: int, wrong: bool, schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(SHUFFLES.format(mask=mask))
    outcomes = [both(launch, seed, schedulers, monkeypatch) for seed in range(3)]
    assert all(together == alone for together, alone, _ in outcomes)
    assert all(isinstance(alone[0], str) == wrong for _, alone, _ in outcomes)
    assert wrong or all(2 * taken > int(str(alone[0])) for _, alone, taken in outcomes)


def test_warps_run_alone_where_somebody_counts_each_access(
    schedulers: list[FuzzedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JointRuns, "compute", lambda *where: pytest.fail("computed together"))
    report = run(launch_of(ROUNDS.format(**WHOLE)), sanitize=True, seed=1)
    assert report.counts is not None
    assert report.counts.shared_load.requests == 4 * 2 * 2


def test_a_block_that_a_warp_runs_by_itself_ends_what_was_computed_ahead() -> None:
    """Lists of addresses, in an order in which a warp meets undefined bits between two joint blocks. The
    second one was answered by what was computed for the first.
    """
    arrays = [np.ones((3, *shape), np.float32) for shape in ((33, 12), (12, 10), (33, 10), (33, 10))]
    a, b, c, out = (
        lapidist.Pointers(np.array([x.ctypes.data for x in each]), each.shape[1:], "float32", alignment=8)
        for each in arrays
    )
    with sanitized(215):
        lapidist.gemm(a, b, c, alpha=2.0, beta=1.0, out=out, device="machine")
    assert (arrays[3] == 25).all()
