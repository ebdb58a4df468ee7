"""A graph keeps the memory that its calls took, whatever library has it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lapidist_lab.bench.protocol.captured_calls import captured


class Pool:
    pass


class Library:
    """Of one pool at a time; `now` is where new arrays come from."""

    now: Pool | None = None

    def new_memory(self) -> Pool:
        return Pool()

    @contextmanager
    def arrays_from(self, memory: Pool) -> Iterator[None]:
        self.now = memory
        try:
            yield
        finally:
            self.now = None


class Builder:
    building = False

    def create_graph_builder(self) -> Builder:
        return self

    def begin_building(self) -> Builder:
        self.building = True
        return self

    def end_building(self) -> None:
        self.building = False

    def complete(self) -> str:
        assert not self.building
        return "graph"


def test_calls_take_arrays_from_a_pool_that_the_graph_keeps() -> None:
    library, stream, seen = Library(), Builder(), []

    def call(index: int) -> None:
        assert stream.building
        assert library.now is not None
        seen.append((index, weakref.ref(library.now)))

    made: Any = captured(library, stream, call, calls=5, sets=2)  # type: ignore[arg-type]
    assert [index for index, _ in seen] == [0, 1, 0, 1, 0]
    assert library.now is None
    gc.collect()
    assert {pool() for _, pool in seen} == {made.memory}
    del made
    gc.collect()
    assert seen[0][1]() is None


def test_a_call_that_fails_ends_the_capture() -> None:
    library, stream = Library(), Builder()

    def call(index: int) -> None:
        raise ValueError(index)

    with pytest.raises(ValueError, match="0"):
        captured(library, stream, call, calls=1, sets=1)  # type: ignore[arg-type]
    assert not stream.building
    assert library.now is None
