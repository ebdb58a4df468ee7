"""Calls that wait for ranks which do not come: released at the time limit, and an error of the next call."""

from __future__ import annotations

import gc
import weakref

import pytest

from lapidist.distributed.late_ranks import LateRanks
from lapidist.errors import LaunchError


class End:
    """An event at a call's end."""

    def __init__(self) -> None:
        self.reached = False

    def query(self) -> bool:
        return self.reached


class Card:
    """Calls that end when they are released."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.released = 0
        self.missing: list[int] = []
        self.late = LateRanks(10.0, self.release, missing=lambda waits: self.missing)

    def call(self, name: str, now: float) -> End:
        self.late.require_none()
        self.ends.append(End())
        self.late.add(name, self.ends[-1], now=now)
        return self.ends[-1]

    def release(self) -> None:
        """One more of those that wait goes on."""
        self.released += 1
        next(end for end in self.ends if not end.reached).reached = True


def test_calls_that_end_in_time_raise_nothing() -> None:
    card = Card()
    for start in range(0, 100, 5):
        end = card.call("push", start)
        card.late.look(start + 9.9)
        end.reached = True
        card.late.look(start + 1000)
    assert card.released == 0
    card.late.require_none()


def test_a_late_rank_is_an_error_of_the_next_call() -> None:
    card = Card()
    card.call("push", 0)
    card.call("slots", 1)
    card.late.look(9.9)
    assert card.released == 0
    card.late.look(10.0)
    assert card.released == 1
    with pytest.raises(LaunchError, match=r"push: another rank did not come within .* 10 s.* not valid"):
        card.call("push", 11)
    # what was enqueued behind it is released, too, and nothing is left that waits
    card.late.look(11)
    assert card.released == 2
    card.late.look(12)
    assert card.released == 2
    with pytest.raises(LaunchError):
        card.late.require_none()


@pytest.mark.parametrize(("ranks", "named"), [([3], "rank 3"), ([1, 3], "ranks 1, 3")])
def test_late_ranks_are_named(ranks: list[int], named: str) -> None:
    """Those whose flags were not set; "another rank" where that is not known."""
    card = Card()
    card.missing = ranks
    card.call("push", 0)
    card.late.look(10.0)
    with pytest.raises(LaunchError, match=f"push: {named} did not come within"):
        card.late.require_none()


def test_the_thread_keeps_no_group_and_ends_with_it() -> None:
    card = Card()
    card.late.start()
    card.call("push", 0).reached = True
    thread, group = card.late._thread, weakref.ref(card)
    del card
    gc.collect()
    assert thread is not None
    thread.join()
    assert group() is None
