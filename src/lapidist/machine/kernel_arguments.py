"""Kernel arguments as a command line writes them: NAME=VALUE, where VALUE is a number, a .npy file or a new
array.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.machine.footprint import DEFAULT_MEMORY
from lapidist.machine.run import require_plain
from lapidist.writable import require_writable

NEW_ARRAY = re.compile(r"(?P<dtype>[a-z]+\d*)\[(?P<shape>\d+(,\d+)*)\](:(?P<fill>random|zeros|ones))?")
FORMS = "a number, a .npy file, or a new array such as float32[64,64], float32[100]:random or int32[8]:ones"
Value = np.ndarray | int | float


def parse_arguments(pairs: Sequence[str], room: int | None = None) -> dict[str | int, Value]:
    """Each NAME=VALUE; a NAME that is a number is a position. New arrays take at most `room` bytes, each."""
    arguments: dict[str | int, Value] = {}
    random = np.random.default_rng(0)
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ArgumentError(f"--arg: must be NAME=VALUE; got {pair!r}. VALUE is {FORMS}")
        key = key_of(name)
        if key in arguments:
            raise ArgumentError(f"--arg: {name} must be given once; got {pair!r} as well. Leave one out")
        arguments[key] = parse_value(text, random, room or DEFAULT_MEMORY)
    return arguments


def key_of(name: str) -> str | int:
    """The name of a parameter, or its position."""
    return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else name


def parse_value(text: str, random: np.random.Generator, room: int) -> Value:
    if text.endswith(".npy"):
        return load(text)
    match = NEW_ARRAY.fullmatch(text)
    if match is not None:
        return new_array(match, random, room)
    for kind in (lambda one: int(one, 0), float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ArgumentError(f"--arg: a value is {FORMS}; got {text!r}")


def load(text: str) -> np.ndarray:
    """The array in a .npy file: no archive, and no pickled objects, which may do anything."""
    try:
        with open(text, "rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, RecursionError, OverflowError, TypeError) as error:
        raise ArgumentError(
            f"--arg: must be a file of one array of numbers; {text!r} is not ({error}). Save one by"
            " numpy.save"
        ) from error
    require_plain(f"--arg {text!r}", array)
    return array


def new_array(match: re.Match[str], random: np.random.Generator, room: int) -> np.ndarray:
    """Zeros unless asked otherwise; random numbers are normal, or 0 to 9 for integers."""
    try:
        dtype = np.dtype(match["dtype"])
    except TypeError as error:
        raise ArgumentError(f"--arg: an element type of NumPy's is needed; got {match['dtype']!r}") from error
    require_plain(f"--arg {match[0]}", np.empty(0, dtype))
    extents = match["shape"].split(",")
    if max(map(len, extents)) > 18 or math.prod(shape := tuple(map(int, extents))) * dtype.itemsize > room:
        raise ArgumentError(
            f"--arg: a new array must have at most {room:,} bytes; got {match[0]}. Ask for fewer elements"
        )
    if match["fill"] != "random":
        return np.ones(shape, dtype) if match["fill"] == "ones" else np.zeros(shape, dtype)
    return (random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 10, shape)).astype(
        dtype
    )


def require_savable(pairs: Sequence[str], arguments: dict[str | int, Value]) -> None:
    """Check --save before the run: a mistake must not cost its result."""
    for pair in pairs:
        name, _, path = pair.partition("=")
        if not isinstance(arguments.get(key_of(name)), np.ndarray) or not path:
            raise ArgumentError(f"--save: must be NAME=FILE with the name of an array argument; got {pair!r}")
        require_writable("--save", Path(path))


def save_arrays(pairs: Sequence[str], arguments: dict[str | int, Value]) -> None:
    """Save arrays of the run as NAME=FILE says. The file is opened here, as NumPy would add an ending to
    its name."""
    for pair in pairs:
        name, _, path = pair.partition("=")
        with open(path, "wb") as file:
            np.save(file, np.asarray(arguments[key_of(name)]))


def parse_extent(text: str, option: str) -> tuple[int, int, int]:
    """The three extents of X, X,Y or X,Y,Z; those left out are 1."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 3 or not all(re.fullmatch(r"[0-9]{1,10}", part) and int(part) for part in parts):
        raise ArgumentError(
            f"{option}: must be one to three positive numbers, X,Y,Z; got {text!r}. Write for example 16,16"
        )
    x, y, z = (*(int(part) for part in parts), 1, 1)[:3]
    return x, y, z
