"""What a kernel says and how it stops: printf, assert, trap, as nvcc compiles them, and small PTX beside
that.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from lapidist.machine import PtxError, run_ptx
from lapidist.machine.faults import AssertionFailed, OutOfBounds, Trap
from lapidist.machine.instructions.printf import pieces_of, show
from snippets import HEADER, kernel, run_body

TELL = (Path(__file__).parent / "foreign" / "nvcc_tell.ptx").read_text()
SCHEDULES = [{}, {"sanitize": True, "seed": 0}]


def tell(entry: str, arguments: list[object], **schedule: object) -> None:
    run_ptx(TELL, entry, (1, 1, 1), (32, 1, 1), dict(enumerate(arguments)), **schedule)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_printf_writes_to_stdout(schedule: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    tell("tell", [np.arange(32, dtype="f4") / 4, 3], **schedule)
    expected = [
        "lane 0:   0.00, 0, a, 1099511627776|0   |(nil)",
        "lane 1:   0.25, 0x10, b, 2199023255552|1   |0x1",
        "lane 2:   0.50, 0x20, c, 4398046511104|2   |0x2",
    ]
    assert capsys.readouterr().out.splitlines() == expected


def test_a_kernel_runs_where_there_is_no_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under pythonw: its words are lost, its numbers are not."""
    monkeypatch.setattr(sys, "stdout", None)
    tell("tell", [np.arange(32, dtype="f4"), 3])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_failed_assert_is_a_fault_that_says_what_and_where(schedule: dict[str, object]) -> None:
    x = np.ones(32, "f4")
    x[5] = -1
    with pytest.raises(AssertionFailed) as caught:
        tell("tell", [x, 0], **schedule)
    said = str(caught.value)
    assert re.search(
        r"tell\.cu:7: void tell\(const float \*, int\): assertion `x\[i\] >= 0.0f && \"no roots of these\"`"
        r" failed",
        said,
    )
    assert caught.value.thread.lane == 5


def test_nvcc_s_expf() -> None:
    """It rounds one fma down."""
    x, y = np.linspace(-80, 80, 1000, dtype="f4"), np.zeros(1000, "f4")
    run_ptx(TELL, "powers", (4, 1, 1), (256, 1, 1), {0: x, 1: y, 2: 1000})
    assert np.allclose(y, np.exp(x.astype("f8")), rtol=3e-7)


def test_a_trap_at_the_end() -> None:
    with pytest.raises(Trap, match="executed trap"):
        tell("stop", [4])
    tell("stop", [3])
    with pytest.raises(Trap, match="executed trap"):
        run_ptx(f"{HEADER}.visible .entry k()\n{{ trap; }}", "k", (1, 1, 1), (32, 1, 1), {})


PRINT = """
    .global .align 1 .b8 format[8] = {37, 115, 10};
    .extern .func (.param .b32 result) vprintf (.param .b64 a, .param .b64 b);
"""


def test_a_text_that_is_not_there_is_out_of_bounds() -> None:
    body = """
        .local .align 8 .b8 buffer[8];
        st.local.u64 [buffer], 4096;
        mov.u64 %rd1, format; mov.u64 %rd2, buffer; cvta.local.u64 %rd2, %rd2;
        { .param .b64 p0; .param .b64 p1; .param .b32 r; st.param.b64 [p0], %rd1; st.param.b64 [p1], %rd2;
          call.uni (r), vprintf, (p0, p1); ld.param.b32 %r1, [r]; }
    """
    with pytest.raises(OutOfBounds, match="access of 1 bytes"):
        run_body(body, np.zeros(1, "u4"), np.zeros(1, "u4"), declarations=PRINT)


def test_what_a_kernel_prints_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    body = """
        mov.u64 %rd1, escape;
        { .param .b64 p0; .param .b64 p1; .param .b32 r; st.param.b64 [p0], %rd1; st.param.b64 [p1], 0;
          call.uni (r), vprintf, (p0, p1); ld.param.b32 %r1, [r]; }
        st.global.u32 [%out], %r1;
    """
    out = np.ones(1, "u4")
    run_body(
        body,
        np.zeros(1, "u4"),
        out,
        threads=1,
        declarations=".global .align 1 .b8 escape[5] = {27, 99, 33, 10};" + PRINT,
    )
    assert capsys.readouterr().out == "␛c!\n"
    assert out == 0  # arguments


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("%5d|%-5d|%05d|%+d|% d", [42, 42, -42, 42, 42], "   42|42   |-0042|+42| 42"),
        ("%.3d|%6.3d|%06.3d|%.0d", [5, -5, 5, 0], "005|  -005|   005|"),
        (
            "%u|%lu|%x|%#X|%#o|%o",
            [-1 % 2**32, 2**64 - 1, 255, 255, 8, 8],
            "4294967295|18446744073709551615|ff|0XFF|010|10",
        ),
        ("%#06x|%#x|%hhd|%hd|%hu", [255, 0, 255, 65535, -1], "0x00ff|0|-1|-1|65535"),
        (
            "%f|%.0f|%10.3f|%-8.1e|%+g",
            [1.5, 2.5, -3.14159, 12345.678, 1e-5],
            "1.500000|2|    -3.142|1.2e+04 |+1e-05",
        ),
        ("%05.1f|%05f|%F|%#.0f", [-2.25, np.inf, np.nan, 3.0], "-02.2|  inf|NAN|3."),
        ("%a|%A|%a", [1.0, -0.5, 0.1], "0x1p+0|-0X1P-1|0x1.999999999999ap-4"),
        ("%s|%8s|%-8s|%.2s", ["text"] * 4, "text|    text|text    |te"),
        ("%*d|%-*d|%.*f", [5, 7, 4, 7, 2, 3.14159], "    7|7   |3.14"),
        ("%c%c|%p|%p|100%%|%y|%", [72, 105, 0, 48879], "Hi|(nil)|0xbeef|100%|%y|%"),
    ],
)
def test_formats_are_c_s(text: str, values: list[object], shown: str) -> None:
    left, found = list(values), ""
    for piece in pieces_of(text):
        taken, left = left[: len(piece.codes)], left[len(piece.codes) :]
        found += show(piece, taken)  # type: ignore[arg-type]
    assert found == shown
    assert not left


@pytest.mark.parametrize("pair", ["{%h1}", "%h1"])
def test_braces_around_one_register(pair: str) -> None:
    source, out = np.arange(32, dtype="u2"), np.zeros(32, "u2")
    places = "mad.wide.u32 %rd0, %t, 2, %in; mad.wide.u32 %rd1, %t, 2, %out;"
    run_body(f"{places} ld.global.b16 {pair}, [%rd0]; st.global.b16 [%rd1], {pair};", source, out)
    assert (out == source).all()


@pytest.mark.parametrize("bits", [32, 64])
def test_the_address_of_a_parameter(bits: int) -> None:
    register = "%r1" if bits == 32 else "%rd3"
    source, out = np.arange(4, dtype="u4"), np.zeros(1, "u8")
    run_body(
        f"mov.b{bits} {register}, out; ld.param.u64 %rd4, [{register}]; st.global.u64 [%rd4], %rd4;",
        source,
        out,
    )
    assert out == out.ctypes.data
    generic = "mov.b64 %rd3, out; cvta.param.u64 %rd3, %rd3; ld.u64 %rd4, [%rd3]; st.global.u64 [%rd4], 7;"
    run_body(generic, source, out)
    assert out == 7


def test_other_functions_are_refused() -> None:
    text = kernel("call f, (%r1);", ".extern .func f (.param .b32 x);")
    with pytest.raises(PtxError, match="only __assertfail, vprintf, malloc, free can be called"):
        run_ptx(text, "k", (1, 1, 1), (32, 1, 1), {0: 0, 1: 0})
