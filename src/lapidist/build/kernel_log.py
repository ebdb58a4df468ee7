"""Which kernels a program's calls load, in a file that `lapidist warm` compiles from on another computer.

LAPIDIST_KERNELS names the file. Each kernel is a line of JSON, written when a process first loads it. Several
processes may write to one file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from lapidist.build.compiler import CUDA_SOURCES, Order
from lapidist.build.folder import warn_once
from lapidist.errors import ArgumentError
from lapidist.knobs.sources import knobs_of

VARIABLE = "LAPIDIST_KERNELS"
FORMAT = "a line of the file that LAPIDIST_KERNELS names"


def log_kernel(order: Order) -> None:
    path = os.environ.get(VARIABLE)
    if path:
        append(path, json.dumps(order._asdict() | {"defines": dict(order.defines)}, sort_keys=True))


@lru_cache(maxsize=4096)
def append(path: str, line: str) -> None:
    """Append the line, once in a process. A file that cannot be written costs no call."""
    try:
        with open(path, "a") as file:
            file.write(line + "\n")  # short and written at once, so lines of processes do not mix
    except OSError as error:
        warn_once(f"{VARIABLE}: no kernel is logged: {error}")


def read_orders(path: Path) -> list[Order]:
    """The kernels of such a file, each once."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"--log: must be a file that {VARIABLE} named; {error}") from error
    return [order_of(line, number) for line, number in first_lines(lines)]


def first_lines(lines: list[str]) -> Iterator[tuple[str, int]]:
    numbers = {line: number for number, line in reversed(list(enumerate(lines, 1))) if line.strip()}
    return iter(sorted(numbers.items(), key=lambda entry: entry[1]))


def order_of(line: str, number: int) -> Order:
    try:
        fields = json.loads(line)
        order = Order(**fields)._replace(more=tuple(fields["more"]))
    except (ValueError, TypeError, KeyError) as error:
        raise ArgumentError(f"--log: line {number} must be {FORMAT}; got {line[:80]!r}") from error
    if not is_sound(order):
        raise ArgumentError(
            f"--log: line {number} must name a source of lapidist/cuda, and values of its knobs that are"
            f" numbers or names; got {line[:80]!r}. Log the kernels again with this version"
        )
    return order


def is_sound(order: Order) -> bool:
    """Whether it asks for a source of this package, and gives the compiler values of its knobs alone."""
    sources = {str(path.relative_to(CUDA_SOURCES)) for path in CUDA_SOURCES.rglob("*.cu")}
    words = [order.entry, order.architecture, *order.more] if isinstance(order.defines, dict) else [None]
    return (
        str(order.source) in sources
        and all(isinstance(word, str) for word in words)
        and {*order.defines} <= {knob.name for knob in knobs_of(str(order.source))}
        and all(is_on_a_line(value) for value in order.defines.values())
    )


def is_on_a_line(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and "\n" not in value)
