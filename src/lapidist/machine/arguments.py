"""Kernel arguments as a command line writes them: NAME=VALUE, where VALUE is a number, a .npy file or a new array."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lapidist.errors import ArgumentError

NEW_ARRAY = re.compile(r"(?P<dtype>[a-z]+\d*)\[(?P<shape>\d+(,\d+)*)\](:(?P<fill>random|zeros|ones))?")
FORMS = "a number, a .npy file, or a new array such as float32[64,64], float32[100]:random or int32[8]:ones"
Value = np.ndarray | int | float


def parse_arguments(pairs: Sequence[str], option: str = "--arg") -> dict[str | int, Value]:
    """Each NAME=VALUE; a NAME that is a number is a position."""
    found: dict[str | int, Value] = {}
    random = np.random.default_rng(0)
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ArgumentError(f"{option}: must be NAME=VALUE; got {pair!r}. VALUE is {FORMS}")
        key = int(name) if name.isdigit() else name
        if key in found:
            raise ArgumentError(f"{option}: {name} must be given once; got {pair!r} as well. Leave one away")
        found[key] = parse_value(text, option, random)
    return found


def parse_value(text: str, option: str, random: np.random.Generator) -> Value:
    if text.endswith(".npy"):
        return load(text, option)
    match = NEW_ARRAY.fullmatch(text)
    if match is not None:
        return new_array(match, option, random)
    for kind in (lambda one: int(one, 0), float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ArgumentError(f"{option}: a value is {FORMS}; got {text!r}")


def load(text: str, option: str) -> np.ndarray:
    try:
        return np.load(text)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{option}: {text} cannot be read as an array: {error}") from error


def new_array(match: re.Match[str], option: str, random: np.random.Generator) -> np.ndarray:
    """Zeros unless told otherwise; random numbers are normal, or 0 to 9 for integers."""
    shape = tuple(int(extent) for extent in match["shape"].split(","))
    try:
        dtype = np.dtype(match["dtype"])
    except TypeError as error:
        raise ArgumentError(f"{option}: an element type of NumPy's is needed; got {match['dtype']!r}") from error
    if match["fill"] != "random":
        return np.full(shape, 1 if match["fill"] == "ones" else 0, dtype)
    return (random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 10, shape)).astype(dtype)


def require_savable(pairs: Sequence[str], arguments: dict[str | int, Value]) -> None:
    """Before the run, not after it."""
    for pair in pairs:
        name, _, path = pair.partition("=")
        value = arguments.get(int(name) if name.isdigit() else name)
        if not isinstance(value, np.ndarray) or not path:
            raise ArgumentError(f"--save: must be NAME=FILE with the name of an array argument; got {pair!r}")
        if not Path(path).absolute().parent.is_dir():
            raise ArgumentError(f"--save: the folder must exist; {str(Path(path).parent)!r} does not. Make it first")


def save_arrays(pairs: Sequence[str], arguments: dict[str | int, Value]) -> None:
    """NAME=FILE for arrays of the run."""
    for pair in pairs:
        name, _, path = pair.partition("=")
        np.save(Path(path), np.asarray(arguments[int(name) if name.isdigit() else name]))


def parse_extent(text: str, option: str) -> tuple[int, int, int]:
    """X, X,Y or X,Y,Z."""
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ArgumentError(f"{option}: must be one to three positive numbers, X,Y,Z; got {text!r}")
    x, y, z = (*(int(part) for part in parts), 1, 1)[:3]
    return x, y, z
