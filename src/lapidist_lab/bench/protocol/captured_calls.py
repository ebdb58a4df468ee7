"""Calls that are replayed: a CUDA graph with the memory that it was captured with, or plain calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lapidist_lab.bench.protocol.array_library import Framework
from lapidist_lab.bench.protocol.contenders import Call


@dataclass(frozen=True, slots=True)
class PlainCalls:
    """Plain calls in place of a graph, for a library that cannot be captured. Times of small products then
    include its cost on the host."""

    call: Call
    calls: int
    sets: int

    def launch(self, stream: Any) -> None:
        for index in range(self.calls):
            self.call(index % self.sets)


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph, and the pool from which its calls took arrays. A graph remembers their addresses. From the
    library's common pool others would get the same memory after the calls, and replays would write there.
    """

    graph: Any
    memory: Any

    def launch(self, stream: Any) -> None:
        self.graph.launch(stream)


def captured(framework: Framework, stream: Any, call: Call, calls: int, sets: int) -> Graph:
    """A graph of so many calls, which visit the sets in turn."""
    memory = framework.new_memory()
    builder = stream.create_graph_builder().begin_building()
    try:
        with framework.arrays_from(memory):
            for index in range(calls):
                call(index % sets)
    finally:
        builder.end_building()
    return Graph(builder.complete(), memory)
