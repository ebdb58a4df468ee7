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


LAST_BIT = (
    "and.b32 %r5, %t, {lanes}; setp.ne.u32 %p1, %r5, 0; mov.{of} {value}, {one};"
    " @%p1 mov.{of} {value}, {two};"
)


@pytest.mark.parametrize("lanes", [1, 32], ids=["of a warp", "of two warps"])
@pytest.mark.parametrize(
    ("store", "of", "value", "one", "two"),
    [
        ("st.global.f32", "f32", "%f1", "0f3F800000", "0f3F800001"),
        ("st.global.b32", "f32", "%f1", "0f3F800000", "0f3F800001"),
        ("st.global.f64", "f64", "%fd1", "0d3FF0000000000000", "0d3FF0000000000003"),
        ("st.global.b16", "b16", "%h1", "0x3F80", "0x3F81"),
        ("st.global.b16", "b16", "%h1", "0x6C01", "0x6C00"),
    ],
)
def test_numbers_that_differ_in_their_last_bits(
    store: str, of: str, value: str, one: str, two: str, lanes: int
) -> None:
    """A sum with a fused product, and the same without: Triton lets lanes store both."""
    bits = LAST_BIT.format(lanes=lanes, of=of, value=value, one=one, two=two)
    assert levels(f"{bits} {store} [%out], {value};") == {"rounded-stores": "warning"}


@pytest.mark.parametrize(
    ("store", "one", "two"),
    [
        ("st.global.u32", "0x3F800000", "0x3F800001"),  # integers
        ("st.global.b32", "0x3F800000", "0xBF800000"),
        ("st.global.b32", "0x3F800000", "0x3F820000"),
        ("st.global.b32", "5", "6"),
        ("st.global.b32", "0x7FC00000", "0x7FC00001"),  # NaN
    ],
)
def test_other_values_are_a_race(store: str, one: str, two: str) -> None:
    for lanes in (1, 32):
        bits = LAST_BIT.format(lanes=lanes, of="b32", value="%r6", one=one, two=two)
        assert levels(f"{bits} {store} [%out], %r6;") == {"race": "error"}


@pytest.mark.parametrize(
    ("one", "two", "rule"),
    [
        ("0x3F800000", "0x3F800001", {"rounded-stores": "warning"}),
        ("0x3C003C00", "0x3C013C00", {"rounded-stores": "warning"}),
        ("0x3C001400", "0x3C001420", {"rounded-stores": "warning"}),  # a sum that cancels beside a large one
        ("0x3C000001", "0x3C003C01", {"race": "error"}),
    ],
)
def test_rows_of_matrices_that_differ_in_their_last_bits(one: str, two: str, rule: dict[str, str]) -> None:
    """All rows of a tile go to one place, and the last of them differs."""
    body = f""".shared .align 16 .b8 s[16]; mov.u32 %r1, s; setp.gt.u32 %p1, %t, 27; mov.u32 %r6, {one};
    @%p1 mov.u32 %r6, {two}; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {{%r6}};"""
    assert levels(body, threads=32) == rule
