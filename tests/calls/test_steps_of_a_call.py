"""Calls of several launches, repeated: which addresses and numbers launches take from the call, and which
from the room between them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lapidist.calls.repeat.start_in_steps import ROOM, A, B, C, D, Place, Step, started_in_steps

SCALARS, STREAM = (2.0, 0.5), 9
ROOM_AT = 0x7000


class Launches:
    """What was launched, in order; the room of the next call lies at `room`."""

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.room = ROOM_AT

    def start(self, *given: Any) -> None:
        self.launched.append(given)

    def new_room(self) -> Any:
        address = self.room
        return SimpleNamespace(data_ptr=lambda: address)


def bring(at: Any, numbers: Any) -> Any:
    return "brought", tuple(at[3:]), tuple(numbers)


@pytest.fixture
def launches() -> Launches:
    return Launches()


@pytest.fixture
def start(launches: Launches) -> Any:
    inside = Place(ROOM, 256)
    steps = [
        Step(launches.start, (A, inside, Place(ROOM), Place(ROOM, 512))),
        Step(launches.start, (inside, B, C, D), (1.0, 0.0)),
        Step(launches.start, (B, A, D, D), None, bring, Place(ROOM, 8)),
    ]
    return started_in_steps(steps, launches.new_room).start


def test_addresses_and_numbers(launches: Launches, start: Any) -> None:
    start((1, 2, 3, 4), SCALARS, STREAM)
    assert launches.launched == [
        ((1, ROOM_AT + 256, ROOM_AT, ROOM_AT + 512), SCALARS, STREAM),
        ((ROOM_AT + 256, 2, 3, 4), (1.0, 0.0), STREAM),
        ((2, 1, 4, 4), SCALARS, STREAM, ("brought", (ROOM_AT + 8,), ())),
    ]


def test_equal_calls_pass_the_same_objects(launches: Launches, start: Any) -> None:
    """Which the launcher compares first."""
    for _ in range(2):
        start((1, 2, 3, 4), SCALARS, STREAM)
    first, second = launches.launched[:3], launches.launched[3:]
    assert all(before[0] is after[0] for before, after in zip(first, second, strict=True))
    assert first[2][3] is second[2][3]


@pytest.mark.parametrize("moved", ["a matrix", "the room"])
def test_whatever_moved_is_looked_at(launches: Launches, start: Any, moved: str) -> None:
    start((1, 2, 3, 4), SCALARS, STREAM)
    launches.launched.clear()
    a = 5 if moved == "a matrix" else 1
    launches.room = ROOM_AT if moved == "a matrix" else 0x9000
    start((a, 2, 3, 4), SCALARS, STREAM)
    room = launches.room
    assert launches.launched[0][0] == (a, room + 256, room, room + 512)
    assert launches.launched[2][0] == (2, a, 4, 4)
    assert launches.launched[2][3] == ("brought", (room + 8,), ())
