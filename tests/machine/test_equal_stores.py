"""Two stores of one value to one place, which nothing orders: a rule of its own, and a warning."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import check
from snippets import kernel

GLOBAL = "st.global.u32 [%out{place}], {value};"
SHARED = ".shared .align 4 .b8 s[256]; mov.u32 %r1, s; st.shared.u32 [%r1{place}], {value};"
LOOP = """mov.u32 %r7, 0; L: setp.eq.u32 %p1, %r7, %t; @%p1 st.global.u32 [%out], {value};
    add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 4; @%p2 bra L;"""


def levels(body: str, blocks: int = 1, threads: int = 64, out: int = 0) -> dict[str, str]:
    arrays = np.zeros(64, "u4"), np.full(64, out, "u4")
    found = check(kernel(body), (blocks, 1, 1), (threads, 1, 1), *arrays, seeds=4)
    return {finding.rule: finding.level for finding in found}


def by_value(body: str, value: str) -> str:
    return body.replace("{place}", "").replace("{value}", value)


@pytest.mark.parametrize("body", [GLOBAL, SHARED, LOOP], ids=["global", "shared", "lanes of a warp"])
def test_equal_stores_are_warned_of_and_others_are_races(body: str) -> None:
    assert levels(by_value(body, "7")) == {"equal-stores": "warning"}
    assert levels(by_value("shr.u32 %r6, %t, 5; add.u32 %r6, %r6, %t;" + body, "%r6"))["race"] == "error"


def test_blocks_store_equal_values() -> None:
    assert levels(by_value(GLOBAL, "7"), blocks=3, threads=1) == {"equal-stores": "warning"}
    numbered = "mov.u32 %r6, %ctaid.x;" + by_value(GLOBAL, "%r6")
    assert levels(numbered, blocks=3, threads=1) == {"race": "error"}


def test_one_lane_of_many_that_stores_another_value_is_a_race() -> None:
    """All lanes of two warps store to the same places; lane 5 of the second stores something else."""
    place = "and.b32 %r5, %t, 31; mad.wide.u32 %rd3, %r5, 4, %out; mov.u32 %r6, 7;"
    store = "st.global.u32 [%rd3], %r6;"
    assert levels(place + store) == {"equal-stores": "warning"}
    one = "setp.eq.u32 %p1, %t, 37; @%p1 mov.u32 %r6, 8;"
    assert levels(place + one + store)["race"] == "error"


def test_a_value_that_was_there_before_both_stores_is_no_third_one() -> None:
    """What the place held at first decides nothing: the second store meets the first."""
    assert levels(by_value(GLOBAL, "7"), out=7) == {"equal-stores": "warning"}


def test_a_read_beside_equal_stores_is_a_race() -> None:
    body = by_value(GLOBAL, "7") + "ld.global.u32 %r6, [%out]; st.global.u32 [%out+64], %r6;"
    assert levels(body)["race"] == "error"
