"""Launches that overlap with those before them: what these write and read belongs behind the wait."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.errors import ArgumentError
from lapidist.machine import Findings, check_sequence, kernel_launch
from snippets import kernel

PLACE = "mad.wide.u32 %rd1, %t, 4, {}; "
WRITES = kernel(PLACE.format("%out") + "st.global.u32 [%rd1], %t;")
READS = kernel(
    PLACE.format("%in")
    + "FIRST ld.global.u32 %r1, [%rd1]; SECOND"
    + PLACE.format("%out")
    + "st.global.u32 [%rd1], %r1;"
)
WAIT = "griddepcontrol.wait;"
COPY = kernel(
    """.shared .align 16 .b8 s[128]; mov.u32 %r1, s; WAIT mad.lo.u32 %r2, %t, 16, %r1;
    mad.wide.u32 %rd1, %t, 16, %in; setp.lt.u32 %p1, %t, 8; @%p1 cp.async.cg.shared.global [%r2], [%rd1], 16;
    cp.async.wait_all; griddepcontrol.wait;"""
)


def reads(first: str, second: str) -> str:
    return READS.replace("FIRST", first).replace("SECOND", second)


def sequence(*launches: tuple[str, np.ndarray, np.ndarray], overlaps: bool = True) -> Findings:
    return check_sequence(
        [kernel_launch(text, (1, 1, 1), (32, 1, 1), a, b, overlaps=overlaps) for text, a, b in launches],
        seeds=2,
    )


@pytest.fixture
def arrays() -> list[np.ndarray]:
    return [np.zeros(32, "u4") for _ in range(4)]


def test_what_the_launch_before_writes_is_read_too_early(arrays: list[np.ndarray]) -> None:
    x, y, z, _ = arrays
    before = WRITES, x, y
    assert sequence(before, (reads(WAIT, ""), y, z))
    assert (z == np.arange(32)).all()
    found = sequence(before, (reads("", WAIT), y, z))
    assert [finding.rule for finding in found] == ["race"]
    assert "global memory that k writes, at its PTX line" in found[0].fault.rule
    assert "is read before griddepcontrol.wait" in found[0].fault.rule
    assert sequence(before, (reads("", WAIT), y, z), overlaps=False)
    assert not sequence(before, (COPY.replace("WAIT", ""), y, z))
    assert sequence(before, (COPY.replace("WAIT", WAIT), y, z))


def test_what_nobody_writes_may_be_read_before_the_wait(arrays: list[np.ndarray]) -> None:
    """Weights, say: a launch that fetches them early is sound."""
    x, y, z, w = arrays
    assert sequence((WRITES, x, y), (reads("", WAIT), w, z))


def test_what_the_launch_before_reads_is_written_too_early(arrays: list[np.ndarray]) -> None:
    x, y, _, _ = arrays
    found = sequence((reads("", ""), x, y), (WRITES, y, x))
    assert "global memory that k reads" in found[0].fault.rule


def test_a_wait_is_for_one_launch_unless_that_one_waited(arrays: list[np.ndarray]) -> None:
    """The second launch does not wait: the third waits for the second alone, and the first may still run."""
    x, y, z, w = arrays
    third = reads("", WAIT), y, w
    idle = [kernel(""), kernel(WAIT)]
    assert not sequence((WRITES, x, y), (idle[0], x, z), third)
    assert sequence((WRITES, x, y), (idle[1], x, z), third)


TRIGGER = "griddepcontrol.launch_dependents;"


def test_a_wait_does_not_reach_behind_a_launch_that_did_not_wait(arrays: list[np.ndarray]) -> None:
    x, y, z, w = arrays
    third = reads(WAIT, ""), y, w
    found = sequence((WRITES, x, y), (kernel(""), x, z), third)
    assert [finding.rule for finding in found] == ["race"]
    assert "behind griddepcontrol.wait, which waits for the launch between them alone" in found[0].fault.rule
    assert sequence((WRITES, x, y), (kernel(WAIT), x, z), third)
    assert sequence((WRITES, x, y), (kernel(""), x, z), third, overlaps=False)


def test_who_lets_the_next_launch_start_before_it_waited_leaves_the_first_to_it(
    arrays: list[np.ndarray],
) -> None:
    x, y, z, w = arrays
    early, late = kernel(TRIGGER + WAIT), kernel(WAIT + TRIGGER)
    assert not sequence((WRITES, x, y), (early, x, z), (reads("", WAIT), y, w))
    assert sequence((WRITES, x, y), (early, x, z), (reads(WAIT, ""), y, w))
    assert sequence((WRITES, x, y), (late, x, z), (reads("", WAIT), y, w))


def test_a_sequence_is_made_of_launches() -> None:
    with pytest.raises(ArgumentError, match="must be a list of what kernel_launch returns; got 3"):
        check_sequence(3)  # type: ignore[arg-type]
