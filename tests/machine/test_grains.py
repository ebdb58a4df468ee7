"""How fine the sanitizer looks at memory, and which ranges it takes for written."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import kernel_launch
from lapidist.machine.faults import Race
from lapidist.machine.program import compile_program
from lapidist.machine.run import run
from lapidist.machine.sanitize.grains import smallest_access
from lapidist.machine.sanitize.sanitizer import Sanitizer
from snippets import HEADER, kernel

DOUBLES = "ld.global.f64 %fd1, [%in]; st.global.f64 [%out], %fd1;"
GRAINS = {
    "doubles": ("", 8),
    "two words at once": ("st.global.v2.u32 [%out], {%r1, %r2};", 8),
    "a word of two": ("st.global.u32 [%out], %r1;", 4),
    "a copy of four bytes": ("cp.async.ca.shared.global [%r1], [%in], 4;", 4),
    "a vector of atomics": ("red.global.add.v2.f32 [%out], {%f1, %f2};", 4),
    "one byte": ("ld.global.u8 %r1, [%in];", 1),
    "bulk copies": ("cp.async.bulk.commit_group;", 4),
}
# A struct of three pointers, whose members are loaded from its address.
STRUCT = f"""{HEADER}.visible .entry k(.param .align 8 .b8 s[24]) {{
    .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .b32 %r<9>;
    mov.b64 %rd1, s; add.s64 %rd2, %rd1, 8; ld.param.u64 %rd3, [%rd2+-8]; ld.param.u64 %rd4, [%rd2];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd3, %rd5; add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6]; st.global.f32 [%rd7], %f1; add.s64 %LAST, %rd1, 16;
    ld.param.u64 %rd8, [%LAST]; setp.eq.u64 %p1, %rd8, 0; @!%p1 st.global.f32 [%rd8], %f1;
    ret; }}""".replace(".reg .b32", ".reg .pred %p<3>; .reg .b32")


@pytest.mark.parametrize("case", GRAINS)
def test_grain_is_the_narrowest_access_of_a_lane(case: str) -> None:
    more, grain = GRAINS[case]
    assert smallest_access(compile_program(kernel(DOUBLES + more), "k"), []) == grain
    assert smallest_access(compile_program(kernel(DOUBLES + more), "k"), [2]) == min(grain, 2)


def test_neighbouring_words_of_two_lanes_are_apart() -> None:
    body = "mad.wide.u32 %rd1, %t, 4, %out; st.global.u32 [%rd1], %t;" + DOUBLES.partition(";")[0] + ";"
    launch, _ = kernel_launch(kernel(body), (1, 1, 1), (64, 1, 1), np.zeros(1), np.zeros(64, "u4"))
    run(launch, sanitize=True, seed=1)


def test_doubles_of_two_warps_race() -> None:
    body = "and.b32 %r1, %t, 31; mad.wide.u32 %rd1, %r1, 8, %out; cvt.rn.f64.u32 %fd1, %t;"
    text = kernel(f"{body} st.global.f64 [%rd1], %fd1;")
    launch, _ = kernel_launch(text, (1, 1, 1), (64, 1, 1), np.zeros(1), np.zeros(32))
    with pytest.raises(Race, match="written by warp"):
        run(launch, sanitize=True, seed=1)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("third", [0, 1])
def test_members_of_a_struct_are_known_as_pointers(
    known: bool, third: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A register that is written twice may hold any address: then a store through what it leads to may reach
    any range."""
    made = list[Sanitizer]()
    begin = Sanitizer.__init__
    monkeypatch.setattr(Sanitizer, "__init__", lambda s, *how: made.append(s) or begin(s, *how))
    text = STRUCT.replace("%LAST", "%rd0" if known else "%rd1")
    source, out = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    members = [source, out, out if third else np.uint64(0)]
    launch, _ = kernel_launch(text, (1, 1, 1), (1, 1, 1), members)
    run(launch, sanitize=True, seed=1)
    ranges = made[0].ranges
    assert ranges.anywhere != known
    assert ranges.are_only_read(launch.memory[0].address) == known
    assert not ranges.are_only_read(launch.memory[1].address)
