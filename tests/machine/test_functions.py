"""Functions of a module, read in place of their calls, and the arithmetic of numbers in several registers."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import PtxError, run_ptx
from lapidist.machine.faults import Race
from snippets import compiled, lanes, run_body

BOTH = np.dtype([("low", "u8"), ("high", "u8"), ("rest", "f4")], align=True)
SCHEDULES = [{}, {"sanitize": True, "seed": 0}]
TWICE = """
    .func (.param .b32 result) twice(.param .b32 x)
    { .reg .b32 %r<2>; ld.param.b32 %r0, [x]; add.u32 %r1, %r0, %r0; st.param.b32 [result], %r1; ret; }
"""
CALL_TWICE = """
    .param .b32 p; .param .b32 back;
    st.param.b32 [p], %t; {guard} call.uni (back), twice, (p); ld.param.b32 %r1, [back];
    mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], %r1;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_compiled_functions_call_each_other(rng: np.random.Generator, schedule: dict[str, object]) -> None:
    a, b, sums = (np.zeros(32, BOTH) for _ in range(3))
    for operand in (a, b):
        operand["low"], operand["high"] = rng.integers(0, 2**64, (2, 32), "u8", endpoint=False)
        operand["rest"] = rng.integers(-4, 5, 32)
    raw = [each.view("u1") for each in (a, b, sums)]
    run_ptx(
        compiled("functions.cu", "wide").ptx, "wide", (1, 1, 1), (32, 1, 1), dict(enumerate(raw)), **schedule
    )  # type: ignore[arg-type]
    for i in range(32):
        left, right = (int(each["high"][i]) << 64 | int(each["low"][i]) for each in (a, b))
        halves = (-1.0 if each["rest"][i] < 0 else 0.5 * each["rest"][i] for each in (a, b))
        expected = (divmod((left + right - 3) % 2**128, 2**64), sum(halves)) if i % 3 else ((0, 0), 0.0)
        found = (int(sums["high"][i]), int(sums["low"][i])), float(sums["rest"][i])
        assert found == expected


def test_small_products(rng: np.random.Generator) -> None:
    a, b = rng.integers(-(2**31), 2**31, (2, 32), "i4")
    out = np.zeros(128, "i4")
    binary = compiled("functions.cu", "narrow")
    run_ptx(binary.ptx, "narrow", (1, 1, 1), (32, 1, 1), {0: a, 1: b, 2: out})
    for x, y, row in zip(a.tolist(), b.tolist(), out.reshape(32, 4).tolist(), strict=True):
        signed = [(each & 0xFFFFFF ^ 0x800000) - 0x800000 for each in (x, y)]
        halves, octets = np.array([x], "i4").view("i2"), np.array([y], "i4").view("i1")
        unsigned_halves, unsigned_octets = halves.view("u2"), octets.view("u1")
        expected = [
            signed[0] * signed[1],
            (x & 0xFFFFFF) * (y & 0xFFFFFF),
            sum(int(h) * int(o) for h, o in zip(halves, octets[:2], strict=True)) + 7,
            sum(int(h) * int(o) for h, o in zip(unsigned_halves, unsigned_octets[2:], strict=True)) + 7,
        ]
        assert row == [(each + 2**31) % 2**32 - 2**31 for each in expected]


@pytest.mark.parametrize("kind", ["u32", "u64"])
def test_carries_and_borrows(rng: np.random.Generator, kind: str) -> None:
    """Products and sums of two words, beside Python's own integers."""
    code, bits = f"u{int(kind[1:]) // 8}", int(kind[1:])
    a, b, c, d = rng.integers(0, 2**bits, (4, 32), code, endpoint=False)
    c[:8], a[:4] = 2**bits - 1, 0
    body = {
        "sum": f"add.cc.{kind} d, a0, a2; addc.{kind} d, a1, a3;",
        "difference": f"sub.cc.{kind} d, a0, a2; subc.{kind} d, a1, a3;",
        "product": f"mad.lo.cc.{kind} d, a0, a1, a2; madc.hi.{kind} d, a0, a1, a3;",
    }
    sources = [a, b, c, d]
    low, high = ([int(x) for x in each] for each in (a, b))
    low2, high2 = ([int(x) for x in each] for each in (c, d))
    exact = {
        "sum": [x + y + ((u + v) >> bits) for x, y, u, v in zip(high, high2, low, low2, strict=True)],
        "difference": [x - y - (u < v) for x, y, u, v in zip(high, high2, low, low2, strict=True)],
        "product": [
            (x * y >> bits) + z + (((x * y) % 2**bits + u) >> bits)
            for x, y, u, z in zip(low, high, low2, high2, strict=True)
        ],
    }
    for name, text in body.items():
        assert lanes(text, sources, code).tolist() == [each % 2**bits for each in exact[name]], name


def test_carries_and_borrows_go_through_a_word(rng: np.random.Generator) -> None:
    """The word between is all ones, or nothing: what comes from below goes on above."""
    low, middle, other, high = rng.integers(0, 2**32, (4, 32), "u4", endpoint=False)
    sources, crossed = [low, middle, other, high], low.astype("u8") + other >= 2**32
    declared = ".reg .b32 x; not.b32 x, a1;"
    added = f"{declared} add.cc.u32 d, a0, a2; addc.cc.u32 d, a1, x; addc.u32 d, a3, 0;"
    left = f"{declared} sub.cc.u32 d, a0, a2; subc.cc.u32 d, a1, a1; subc.u32 d, a3, 0;"
    assert np.array_equal(lanes(added, sources, "u4"), high + crossed)
    assert np.array_equal(lanes(left, sources, "u4"), high - (low < other))


def test_a_call_under_a_guard_leaves_others_alone() -> None:
    out = np.zeros(32, "u4")
    body = "mov.u32 %r1, 5; setp.lt.u32 %p1, %t, 3;" + CALL_TWICE.format(guard="@%p1").replace(
        "ld.param", "@%p1 ld.param"
    )
    run_body(body, np.zeros(1, "u4"), out, declarations=TWICE, sanitize=True, seed=1)
    assert out.tolist() == [0, 2, 4] + [5] * 29


def test_each_call_has_names_of_its_own() -> None:
    """The function's %r1 is not the caller's, and two calls are two places."""
    out = np.zeros(32, "u4")
    call = "{ " + CALL_TWICE.format(guard="") + " }"
    run_body(f"mov.u32 %r0, 7; {call} add.u32 %t, %t, 0; {call}", np.zeros(1, "u4"), out, declarations=TWICE)
    assert out.tolist() == list(range(0, 64, 2))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (
            TWICE.replace(".param .b32 x)", ".reg .b32 x)").replace(
                "ld.param.b32 %r0, [x]", "mov.b32 %r0, x"
            ),
            "twice has parameters in registers",
        ),
        (
            TWICE.replace("(.param .b32 x)", "(.param .b32 x, .param .b32 y)"),
            "has 3 results and parameters, the call 2",
        ),
        (".extern .func (.param .b32 result) twice(.param .b32 x);", "functions with a body in the module"),
    ],
)
def test_what_cannot_be_called_is_said(declared: str, said: str) -> None:
    with pytest.raises(PtxError, match=said):
        run_body(CALL_TWICE.format(guard=""), np.zeros(1, "u4"), np.zeros(32, "u4"), declarations=declared)


def test_calls_that_unfold_without_end_are_refused() -> None:
    """Each function calls the one before twice: 2^40 bodies."""
    chain = [TWICE.replace("twice", "f0")]
    for number in range(1, 41):
        call = f"call.uni (result), f{number - 1}, (x);"
        chain.append(TWICE.replace("twice", f"f{number}").replace("ret;", f"{call} {call} ret;"))
    text = CALL_TWICE.format(guard="").replace("twice", "f40")
    with pytest.raises(PtxError, match="calls make more than"):
        run_body(text, np.zeros(1, "u4"), np.zeros(32, "u4"), declarations="".join(chain))


def test_a_race_within_a_function_is_found() -> None:
    text = """
        .func store(.param .b64 to)
        { .reg .b64 %rd<1>; .reg .b32 %r<1>; ld.param.b64 %rd0, [to]; mov.u32 %r0, %tid.x;
          st.global.u32 [%rd0], %r0; ret; }
    """
    body = ".param .b64 p; st.param.b64 [p], %out; call.uni store, (p);"
    with pytest.raises(Race):
        run_body(body, np.zeros(1, "u4"), np.zeros(1, "u4"), declarations=text, sanitize=True, seed=0)
