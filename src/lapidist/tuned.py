"""What `lapidist tune` found fastest, by chip and problem: a JSON file beside the compiled kernels, which plans read.

A chip is known by the driver's name for it ("NVIDIA H200"), so that plans for a chip that is only named, and those for the
machine, are the same on every computer. LAPIDIST_TUNED=0 leaves the file unread.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from lapidist.compiler import cache_directory
from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import LapidistError
from lapidist.modes import PLAIN
from lapidist.problem import Matrix, Problem
from lapidist.sharing import Sharing

FILE_FORMAT = 1
SWITCH = "LAPIDIST_TUNED"
MATRICES = ("a", "b", "c", "d")
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, LapidistError)  # what a file of nonsense may raise
Chips = dict[str, dict[str, Any]]  # by the chip's name, by the problem's key: a Winner as JSON has it


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest of what was measured; `planned_seconds` is what the planner's own choice took beside it."""

    kernel: str
    config: Config
    sharing: Sharing
    seconds: float
    planned_seconds: float
    date: str

    def __str__(self) -> str:
        return (
            f"{self.seconds * 1e6:.4g} us measured on {self.date} (lapidist tune); the model's own choice took "
            f"{self.planned_seconds * 1e6:.4g} us"
        )


def problem_key(problem: Problem) -> str:
    """Everything that decides between kernels. Steps between lines count by their alignment, not their length; alpha does not."""
    left_out = (*MATRICES, "modes", "one_alpha")
    words = [f"{each.name}={getattr(problem, each.name)!r}" for each in fields(problem) if each.name not in left_out]
    lies = [f"{name}: {matrix_key(matrix)}" for name in MATRICES if (matrix := getattr(problem, name)) is not None]
    return ", ".join([*words, *lies])


def matrix_key(matrix: Matrix) -> str:
    shared = "".join(" shared" if step == 0 else " stepped" for step in matrix.batch_strides)
    return f"{matrix.layout} on {matrix.alignment}{shared}"


# ---- reading ----


def look_up(problem: Problem, device: Device) -> tuple[Winner | None, str]:
    """The winner for this problem, if one was kept; and a warning where the file cannot be used."""
    if os.environ.get(SWITCH) == "0" or problem.modes != PLAIN:
        return None, ""
    path = database_path()
    try:
        status = path.stat()
        entry = read(path, status.st_mtime_ns, status.st_size).get(device.name, {}).get(problem_key(problem))
        return (None if entry is None else winner_of(entry)), ""
    except FileNotFoundError:
        return None, ""
    except BROKEN as error:
        return None, f"{path} is ignored: {type(error).__name__}: {error}. Remove it, or run lapidist tune again"


def database_path() -> Path:
    return cache_directory() / "tuned.json"


@lru_cache(maxsize=4)
def read(path: Path, modified: int, size: int) -> Chips:
    """The file as it was when it had that time and size."""
    return parse(path)


def parse(path: Path) -> Chips:
    content = json.loads(path.read_text())
    if content["format"] != FILE_FORMAT:
        raise ValueError(f"its format is {content['format']}, not {FILE_FORMAT}")
    return {chip: dict(entries) for chip, entries in content["chips"].items()}


def winner_of(entry: Mapping[str, Any]) -> Winner:
    values = {**entry, "config": Config(**entry["config"]), "sharing": Sharing(**entry["sharing"])}
    return Winner(**values)


# ---- writing ----


def keep(device: Device, winners: Mapping[str, Winner]) -> Path:
    """Add winners to those of other runs. Writers wait for each other; readers see the file before or after, never between."""
    path = database_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            chips = parse(path)
        except BROKEN:
            chips = {}  # none yet, or broken: it starts anew
        chips[device.name] = {**chips.get(device.name, {}), **{key: asdict(winner) for key, winner in winners.items()}}
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"format": FILE_FORMAT, "chips": chips}, file, indent=1)
        os.replace(temporary, path)
    return path
