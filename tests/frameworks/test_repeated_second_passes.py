"""Repeated calls that second passes follow: kernel for kernel and byte for byte those of the long way."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from typing import Any

import pytest

import lapidist
from beside_cases import FOLLOWED, Ready, asked_again, asks_followed, call_of
from lapidist.calls import full_path
from lapidist.calls.call import Call
from lapidist.calls.repeat.with_arrays import fast_path_with_arrays
from stand_in_card import Given, Rooms, Straight, launched_the_long_way, rooms_in

pytestmark = pytest.mark.frameworks


class Followed:
    """A call by the short way, and what its kernels were given."""

    def __init__(self, torch: Any, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
        self.torch, self.monkeypatch, self.form = torch, monkeypatch, form
        self.given: list[tuple[str, Given]] = []
        self.after: Any = None  # what happens at the next launch; true: the driver refuses it
        self.rooms = Rooms(monkeypatch, self.tell)
        asked = self.asks(0.75)
        call = self.call(asked)
        self.ready, bound = Straight(call, self.tell), call.bound()
        self.result = full_path.run(None, bound, call.choices, None)
        again = fast_path_with_arrays(self.ready, bound, call, self.result)  # type: ignore[arg-type]
        assert again is not None
        self.again = again

    def tell(self, entry: str, given: Given) -> object:
        self.given.append((entry, given))
        after, self.after = self.after, None
        return after and after()

    def asks(self, number: float) -> dict[str, Any]:
        return asks_followed(self.torch, self.form, number)

    def outputs(self) -> Any:
        made = self.result
        like = self.torch.empty_like
        return tuple(map(like, made)) if isinstance(made, tuple) else like(made)

    def call(self, asked: dict[str, Any], out: Any = None) -> Call:
        function: Any = lapidist.grouped if "offsets" in asked else lapidist.gemm
        return call_of(self.monkeypatch, lambda: function(**asked, out=out))

    def launched(self) -> list[tuple[str, Given]]:
        given, self.given[:] = list(self.given), []
        return given

    def by_the_long_way(self, call: Call, results: Any) -> list[tuple[str, Given]]:
        bound = replace(call, out=results).bound()
        assert bound.out is not None
        launched_the_long_way(self.ready, bound, bound.out)
        return self.launched()


@pytest.fixture(params=FOLLOWED)
def followed(request: Any, torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> Followed:
    return Followed(torch, monkeypatch, request.param)


@pytest.mark.parametrize("given_outputs", [True, False])
def test_all_kernels_are_launched_as_by_the_long_way(followed: Followed, given_outputs: bool) -> None:
    """With all new, with results alone new, and with what was there before."""
    first, made = followed.asks(0.75), followed.result
    outputs = [followed.outputs() for _ in range(2)]
    turns = [
        (first, 0),
        (first, 0),
        (first, 1),
        (followed.asks(0.25), 1),
        (first, 0),
        (followed.asks(1.5), 0),
    ]
    for asked, place in turns:
        call = followed.call(asked, outputs[place] if given_outputs else None)
        results = asked_again(followed.again, call)
        launched = followed.launched()
        everything = results if isinstance(results, tuple) else (results,)
        if given_outputs:
            assert all(x is y for x, y in zip(results, outputs[place], strict=True))
        assert [(x.shape, x.stride(), x.dtype) for x in everything] == [
            (x.shape, x.stride(), x.dtype) for x in made
        ]
        assert launched == followed.by_the_long_way(call, results)
        assert len(launched) == {"sums": 3, "in steps": 3}.get(followed.form, 2)
    assert followed.rooms.made == 1


def test_who_launches_in_between_has_another_room(followed: Followed) -> None:
    """Another thread on the same stream, after the product of this one: each of its passes reads what its own
    product left. Later calls of both find those rooms again."""
    call, other = (followed.call(followed.asks(0.5), followed.outputs()) for _ in "ab")
    asked_again(followed.again, call)
    alone = followed.launched()

    def come_between() -> None:
        thread = threading.Thread(target=asked_again, args=(followed.again, other))
        thread.start()
        thread.join()

    for _ in range(2):
        followed.after = come_between
        asked_again(followed.again, call)
        found = followed.launched()
        count = len(alone)
        assert [found[0], *found[count + 1 :]] == alone
        assert followed.rooms.made == 2
    assert [rooms_in(given) for _, given in alone] == [{1}] * count
    assert [rooms_in(given) for _, given in found[1 : count + 1]] == [{2}] * count


def test_a_graph_has_rooms_of_its_own(followed: Followed) -> None:
    """It may be replayed beside calls of the stream."""
    call = followed.call(followed.asks(0.5), followed.outputs())
    found = []
    for capture in (None, "a graph", None, "another one"):
        followed.rooms.capture = capture
        asked_again(followed.again, call)
        found.append(followed.launched())
        assert found[-1] == followed.by_the_long_way(call, call.out)
    assert found[0] == found[2]
    assert found[0] != found[1] != found[3] != found[0]
    assert followed.rooms.made == 3


def test_a_room_is_not_used_again_after_a_launch_that_failed(followed: Followed) -> None:
    """What the product left there may not have been cleared."""
    call = followed.call(followed.asks(0.5), followed.outputs())
    asked_again(followed.again, call)
    before = followed.launched()
    followed.after = lambda: True
    with pytest.raises(lapidist.LaunchError, match="refused"):
        asked_again(followed.again, call)
    followed.launched()
    asked_again(followed.again, call)
    assert followed.rooms.made == 2
    found = followed.launched()
    assert [entry for entry, _ in found] == [entry for entry, _ in before]
    assert [rooms_in(given) for _, given in found] == [{2}] * len(before)


def test_nothing_of_the_arrays_is_kept_for_second_passes(followed: Followed) -> None:
    asked, out = followed.asks(0.75), followed.outputs()
    call = followed.call(asked, out)
    asked_again(followed.again, call)
    arrays = [asked["a"], asked["b"], asked.get("offsets"), *asked["epilogue"].values.values(), *out]
    watched = [weakref.ref(x) for x in arrays if isinstance(x, followed.torch.Tensor)]
    del asked, out, call
    arrays.clear()
    gc.collect()
    assert [x() for x in watched] == [None] * len(watched)


def test_a_product_that_makes_it_all_has_no_room(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    """wgmma quantises by itself: no pass follows, nothing is left to one, and no room is asked for."""
    followed = Followed(torch, monkeypatch, "groups at once")
    for _ in range(2):
        call = followed.call(followed.asks(1.0), followed.outputs())
        asked_again(followed.again, call)
        (found,) = followed.launched()
        assert followed.rooms.made == 0
        (expected,) = followed.by_the_long_way(call, call.out)
        followed.rooms.made = 0
        words = [
            [given[0][at : at + 8] for at in range(0, len(given[0]), 8)] for _, given in (found, expected)
        ]
        changed = [(x, y) for x, y in zip(*words, strict=True) if x != y]
        assert [x for x, _ in changed] == [bytes(8)]
        assert rooms_in((changed[0][1], 0)) != set()
