"""Control flow, warps, memory and their faults."""

from __future__ import annotations

import time

import numpy as np
import pytest

from lapidist.errors import ArgumentError
from lapidist.machine import MachineFault, PtxError, run, run_ptx
from lapidist.machine.faults import (
    BarrierMisuse,
    BudgetExceeded,
    Deadlock,
    Divergence,
    Misaligned,
    OutOfBounds,
    Trap,
)
from lapidist.machine.foreign import make_launch
from lapidist.machine.progress import bar_of_blocks
from snippets import HEADER, kernel, lanes, run_body

T = np.arange(32)


def test_lanes_part_and_meet() -> None:
    """Collatz steps: every lane leaves the loop at another time."""
    body = """
        mov.u32 d, 0; add.u32 %r1, %t, 1;
    LOOP: setp.eq.u32 %p1, %r1, 1; @%p1 bra DONE;
        and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 0; @%p2 bra EVEN;
        mad.lo.u32 %r1, %r1, 3, 1; bra.uni NEXT;
    EVEN: shr.u32 %r1, %r1, 1;
    NEXT: add.u32 d, d, 1; bra LOOP;
    DONE:"""
    expected = []
    for value in range(1, 33):
        steps = 0
        while value != 1:
            value, steps = (value * 3 + 1 if value % 2 else value // 2), steps + 1
        expected.append(steps)
    assert lanes(body, [], "u4").tolist() == expected


@pytest.mark.parametrize(
    ("mode", "source"),
    [
        ("up", np.where(T >= 3, T - 3, T)),
        ("down", np.where(T < 29, T + 3, T)),
        ("bfly", T ^ 3),
        ("idx", np.full(32, 3)),
    ],
)
def test_shuffles(mode: str, source: np.ndarray) -> None:
    clamp = 0 if mode == "up" else 31
    assert lanes(f"shfl.sync.{mode}.b32 d, %t, 3, {clamp}, -1;", [], "u4").tolist() == source.tolist()


def test_shuffle_in_segments_says_who_was_in_range() -> None:
    got = lanes(".reg .pred p; shfl.sync.down.b32 d|p, %t, 2, 0x181f, -1; @!p add.u32 d, d, 100;", [], "u4")
    assert got[:10].tolist() == [2, 3, 4, 5, 6, 7, 106, 107, 10, 11]


def test_votes_and_matches() -> None:
    odd = ".reg .pred p; and.b32 %r1, %t, 1; setp.eq.u32 p, %r1, 1;"
    assert lanes(odd + "vote.sync.ballot.b32 d, p, 0xffff;", [], "u4", threads=16)[0] == 0xAAAA
    assert lanes("shr.u32 %r1, %t, 3; match.any.sync.b32 d, %r1, -1;", [], "u4")[17] == 0xFF0000
    assert lanes("redux.sync.add.s32 d, %t, -1;", [], "u4")[0] == 31 * 16
    upper = ".reg .pred p, q; setp.ge.u32 q, %t, 4; mov.u32 d, 0; @!q bra N;"
    assert (
        lanes(f"{upper} elect.sync %r1|p, 0xfffffff0; selp.u32 d, 1, 0, p; N:", [], "u4").tolist()
        == [0] * 4 + [1] + [0] * 27
    )


def test_a_shuffle_that_a_lane_misses_is_a_fault() -> None:
    text = (
        ".reg .pred p; mov.u32 d, 0; setp.ge.u32 p, %t, 16; @p bra OUT; shfl.sync.idx.b32 d, %t, 0, 31, -1;"
        " OUT: bar.sync 0;"
    )
    with pytest.raises(Divergence, match="lane 16"):
        lanes(text, [], "u4")


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("meeting", ["bar.warp.sync -1;", "shfl.sync.idx.b32 %r4, %t, 0, 31, -1;"])
def test_lanes_wait_for_one_that_is_behind_them_in_the_text(meeting: str, seed: int | None) -> None:
    """Lane 0 takes a way round that the compiler put at the end, for longer than any group is passed over."""
    body = f"""
        .shared .b32 s; mov.u32 %r1, s; mov.u32 d, 0; setp.eq.u32 %p1, %t, 0; @%p1 bra ROUND;
        BACK: {meeting} bar.warp.sync -1; ld.shared.u32 d, [%r1]; bra END;
        ROUND: mov.u32 %r2, 7; mov.u32 %r3, 0; L: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 2000; @%p2 bra L;
        st.shared.u32 [%r1], %r2; bra BACK; END:"""
    assert lanes(body, [], "u4", sanitize=seed is not None, seed=seed).tolist() == [7] * 32


def test_local_memory_is_each_lane_s_own() -> None:
    body = ".local .align 4 .b8 box[16]; mov.u64 %rd3, box; st.local.u32 [%rd3+4], %t;"
    body += "cvta.local.u64 %rd4, %rd3; ld.u32 d, [%rd4+4];"
    assert lanes(body, [], "u4").tolist() == T.tolist()


def test_generic_addresses_may_mix_spaces() -> None:
    """Even lanes read shared memory, odd ones global memory, with one instruction."""
    body = """
        .shared .align 4 .b8 s[128]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; add.u32 %r3, %t, 1000;
        st.shared.u32 [%r2], %r3;
        cvt.u64.u32 %rd3, %r2; cvta.shared.u64 %rd3, %rd3; mad.wide.u32 %rd4, %t, 4, %in;
        and.b32 %r4, %t, 1; setp.eq.u32 %p1, %r4, 0; selp.b64 %rd5, %rd3, %rd4, %p1; ld.u32 d, [%rd5];"""
    got = lanes(body, [np.arange(32, dtype="u4")], "u4")
    assert got.tolist() == np.where(T % 2 == 0, T + 1000, T).tolist()


def test_atomics_serve_lanes_one_after_another() -> None:
    out = np.zeros(4, "u4")
    run_body(
        "and.b32 %r1, %t, 3; mad.wide.u32 %rd1, %r1, 4, %out; red.global.add.u32 [%rd1], %t;",
        np.zeros(2, "u4"),
        out,
        threads=64,
    )
    assert out.tolist() == [sum(t for t in range(64) if t % 4 == place) for place in range(4)]
    seen = lanes("mov.u64 %rd2, %in; atom.global.inc.u32 d, [%rd2], 9;", [np.zeros(32, "u4")], "u4")
    assert sorted(seen.tolist()) == sorted(t % 10 for t in range(32))


def test_module_variables_and_jump_tables() -> None:
    body = """
        mov.u64 %rd3, table; and.b32 %r1, %t, 1; mad.wide.u32 %rd4, %r1, 4, %rd3; ld.const.u32 %r2, [%rd4];
        TARGETS: .branchtargets L0, L1; brx.idx %r1, TARGETS;
        L0: add.u32 d, %r2, 1; bra OUT;
        L1: add.u32 d, %r2, 2;
        OUT:"""
    out = np.zeros(32, "u4")
    store = ".reg .b32 d;" + body + "mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], d;"
    run_body(store, np.zeros(2, "u4"), out, declarations=".const .align 4 .u32 table[2] = {10, 20};")
    assert out[:3].tolist() == [11, 22, 11]


STORE = "mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1{0}], %t;"
FAULTS = [
    (OutOfBounds, STORE.format("+4"), "0 bytes past the end of out"),
    (OutOfBounds, "mov.u64 %rd1, 0; ld.global.u32 %r1, [%rd1];", "outside all memory"),
    (OutOfBounds, ".shared .b32 s; mov.u32 %r1, s; ld.shared.u32 %r2, [%r1+4];", "outside shared memory"),
    (Misaligned, "ld.global.u32 %r1, [%in+2];", "multiple"),
    (Trap, "trap;", "trap"),
    (BudgetExceeded, "L: bra L;", "budget"),
    (Deadlock, "setp.lt.u32 %p1, %t, 32; @%p1 bar.sync 0; @!%p1 bar.sync 1;", "32 of 64 threads at bar 0"),
    (BarrierMisuse, "bar.sync 1, 40;", "multiple of 32"),
    (
        BarrierMisuse,
        ".shared .align 8 .b64 m; mov.u32 %r1, m; mbarrier.arrive.shared.b64 _, [%r1];",
        "no mbarrier",
    ),
]


@pytest.mark.parametrize(
    ("kind", "body", "words"), FAULTS, ids=[f"{kind.__name__}-{n}" for n, (kind, _, _) in enumerate(FAULTS)]
)
def test_faults_name_their_place(kind: type[MachineFault], body: str, words: str) -> None:
    out = np.zeros(64, "u4")
    with pytest.raises(kind, match=words) as caught:
        run_body(body, np.zeros(4, "u4"), out, threads=64, budget=1000)
    assert "PTX line" in str(caught.value)
    assert caught.value.site is not None
    assert caught.value.site.kernel == "k"


def test_a_fault_names_block_warp_lane_and_address() -> None:
    out = np.zeros(96, "u4")
    body = (
        "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %t; mad.wide.u32 %rd1, %r2, 4, %out; st.global.u32"
        " [%rd1], %t;"
    )
    with pytest.raises(OutOfBounds) as caught:
        run_body(body, np.zeros(4, "u4"), out, grid=2, threads=64)
    fault = caught.value
    assert (fault.thread.block, fault.thread.warp, fault.thread.lane) == ((1, 0, 0), 1, 0)
    assert fault.address == out.ctypes.data + out.nbytes


UNKNOWN = [
    ("frobnicate.u32 %r1, %r2;", "does not know this opcode"),
    ("add.quick.u32 %r1, %r2, %r3;", "modifier .quick"),
    ("add.u32 %r1, %r2, %nothere;", "neither a declared register"),
    ("mov.u32 %r1, nowhere;", "no variable"),
    ("bra NOWHERE;", "not a label"),
    ("add.u32 %r1, %r2 %r3;", "expected"),
    ("call (%r1), f, (%r2);", "only __assertfail, vprintf, malloc, free can be called"),
    ("add.u32 %r1, %r2;", "does not take these 2 operands"),
    ("shfl.sync.up.b32 %r1, %r2;", "does not take these 2 operands"),
    ("bra;", "a branch without a target"),
    (".reg .b32 %x<many>;", "is not NAME<COUNT>"),
    (".reg .b32 %x<9999999999>;", "at most 1048576 registers"),
    (".local .align 4 .b8 x[600000];", "a .local variable has at most 524288 bytes, x 600000"),
    (".shared .align 4 .u32 x = 6f2;", "the initial value is not a number"),
]


@pytest.mark.parametrize(("text", "words"), UNKNOWN)
def test_text_that_the_machine_cannot_run_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(PtxError, match=words) as caught:
        run_body(text, np.zeros(1, "u4"), np.zeros(1, "u4"))
    assert "PTX line" in str(caught.value)


def test_bad_launches_are_refused_before_anything_runs() -> None:
    text = kernel("st.global.u32 [%out], 1;")
    out = np.zeros(1, "u4")
    arrays = {"in": np.zeros(1, "u4"), "out": out}
    for arguments, words in (
        ({"in": out}, "has no value"),
        ({**arrays, "x": out}, "no parameter"),
        ({**arrays, "in": 2.5}, "float"),
        ({**arrays, "in": "x"}, "str"),
    ):
        with pytest.raises(ArgumentError, match=words):
            run_ptx(text, "k", (1, 1, 1), (32, 1, 1), arguments)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="at most 1024"):
        run_ptx(text, "k", (1, 1, 1), (64, 32, 1), arrays)
    with pytest.raises(ArgumentError, match="shared memory"):
        run_ptx(text, "k", (1, 1, 1), (32, 1, 1), arrays, shared_bytes=300_000)
    with pytest.raises(ArgumentError, match="multiple of the cluster"):
        run_ptx(text, "k", (3, 1, 1), (32, 1, 1), arrays, cluster=(2, 1, 1))
    with pytest.raises(PtxError, match="no kernel 'other'"):
        run_ptx(text, "other", (1, 1, 1), (32, 1, 1), arrays)
    assert out[0] == 0


def test_scopes_comments_and_several_statements_a_line() -> None:
    text = (
        HEADER
        + """
    .visible .entry k(.param .u64 out) { // a comment with ; and }
      .reg .b64 %rd<2>; .reg .b32 %r<3>; ld.param.u64 %rd1, [out]; mov.u32 %r1, 5;
      { .reg .b32 %r1; mov.u32 %r1, 7; /* inner ; */ add.u32 %r2, %r1, 1; }
      { .reg .pred p; L: setp.gt.u32 p, %r2, 20; @p bra M; add.u32 %r2, %r2, %r1; bra L; M: }
      { .reg .pred p; L: setp.gt.u32 p, %r2, 30; @p bra M; add.u32 %r2, %r2, %r1; bra L; M: }
      st.global.u32 [%rd1], %r2; ret; }"""
    )
    out = np.zeros(1, "u4")
    run_ptx(text, "k", (1, 1, 1), (1, 1, 1), {"out": out})
    assert out[0] == 33


def test_blocks_of_any_size_see_their_special_registers() -> None:
    body = """
        mov.u32 %r1, %ctaid.y; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
        mov.u32 %r5, %tid.y; mov.u32 %r6, %ntid.x; mad.lo.u32 %r7, %r5, %r6, %t; mov.u32 %r8, %laneid;
        mov.u32 %r9, %warpid;
        mad.lo.u32 %r10, %r9, 32, %r8; mad.lo.u32 %r11, %r4, 35, %r7; mad.wide.u32 %rd1, %r11, 4, %out;
        st.global.u32 [%rd1], %r10;"""
    out = np.zeros((6, 35), "u4")
    run_ptx(kernel(body), "k", (3, 2, 1), (7, 5, 1), {"in": np.zeros(1, "u4"), "out": out}, residency=4)
    assert (out == np.arange(35)).all()


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    text = kernel("mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd1, %r1, 4, %out; st.global.u32 [%rd1], %r1;")
    launch = make_launch(
        text, "k", (10, 1, 1), (1, 1, 1), {"in": np.zeros(1, "u4"), "out": np.zeros(10, "u4")}
    )
    run(launch, residency=4, on_progress=lambda started, blocks: told.append((started, blocks)))
    assert told == [(4, 10), (8, 10), (10, 10)]


def test_a_long_run_shows_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with bar_of_blocks("quick", patience=60.0) as told:
        told(10, 10)
    with bar_of_blocks("slow", patience=0.0) as told:
        told(4, 10)
        time.sleep(0.3)
    shown = capsys.readouterr()
    assert "slow" in shown.err
    assert "4/10" in shown.err
    assert "quick" not in shown.err
    assert shown.out == ""


def test_ranges_that_overlap_are_one() -> None:
    """A view that starts inside a larger array does not hide what lies behind it."""
    whole = np.zeros(64, "u4")
    store = "mad.wide.u32 %rd1, %t, 4, %in; st.global.u32 [%rd1], %t;"
    run_body(store, whole, whole[8:12], threads=64)
    assert whole.tolist() == list(range(64))
    with pytest.raises(OutOfBounds, match=r"in\+out"):
        run_body(store, whole[:60], whole[8:12], threads=64)
