"""The choices that `lapidist tune` measured to be fastest, by chip and problem: a JSON file beside the
compiled kernels, which plans read.

A chip is known by the driver's name ("NVIDIA H200"). Plans for a chip that is only named, and plans for the
machine, are therefore the same on every computer. LAPIDIST_TUNED=0 leaves the file unread.

Nothing in the file makes a call fail, or steers a terminal. A record that cannot be used is ignored, with one
line in the log. A broken file is renamed, never overwritten.
"""

from __future__ import annotations

import json
import math
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import date
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from lapidist.build.folder import cache_directory, holds_no, make_directory, warn_once
from lapidist.build.portable_files import BYTES, NO_WAIT, NOT_INHERITED, open_file
from lapidist.build.portable_files import lock as take_lock
from lapidist.config import Config
from lapidist.device import Device
from lapidist.errors import ArgumentError, LapidistError
from lapidist.problems.matrix import Matrix
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import Sharing
from lapidist.visible import brief, visible

FILE_FORMAT, FILE_NAME = 1, "tuned.json"
SWITCH = "LAPIDIST_TUNED"
MATRICES = ("a", "b", "c", "d")
# errors that a malformed record may raise
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, LapidistError)
MOST_BYTES, MOST_DIGITS = 32 << 20, 400  # more takes seconds to read
Chips = dict[str, dict[str, Any]]  # a Winner as JSON, by the chip's name and the problem's key


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest measured choice. `planned_seconds`: the time of the planner's own choice in the
    same run.
    """

    kernel: str
    config: Config
    sharing: Sharing
    seconds: float
    planned_seconds: float
    date: str

    def __str__(self) -> str:
        return (
            f"{self.seconds * 1e6:.4g} us measured on {self.date} (lapidist tune); the model's own choice"
            f" took {self.planned_seconds * 1e6:.4g} us"
        )


def problem_key(problem: Problem) -> str:
    """The text of all that decides between kernels. Strides count by alignment, not by value; alpha does not
    count.
    """
    excluded = (*MATRICES, "modes", "one_alpha", "invariant")
    words = [
        f"{field.name}={getattr(problem, field.name)!r}"
        for field in fields(problem)
        if field.init and field.name not in excluded
    ]
    matrices = [
        f"{name}: {matrix_key(matrix)}" for name in MATRICES if (matrix := getattr(problem, name)) is not None
    ]
    return ", ".join([*words, *matrices])


def matrix_key(matrix: Matrix) -> str:
    shared = "".join(" shared" if step == 0 else " stepped" for step in matrix.batch_strides)
    return f"{matrix.layout} on {matrix.alignment}{shared}"


# ---- reading ----


class Unusable(NamedTuple):
    why: str
    broken: bool  # else it belongs to another version


def look_up(problem: Problem, device: Device) -> tuple[Winner | None, str]:
    """The winner for this problem, or None without a record; and a warning if the file or the record cannot
    be used.
    """
    if holds_no(FILE_NAME) or os.environ.get(SWITCH) == "0" or problem.modes != PLAIN:
        return None, ""
    path = database_path()
    try:
        status = path.stat()
    except OSError:  # there is no file, or we may not see it
        return None, ""
    try:
        chips = read(path, status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError as error:
        return None, warn(f"{path} is ignored: {error}. Make it readable, or set {SWITCH}=0")
    if isinstance(chips, Unusable):
        return None, ignored_file(path, chips)
    entry = chips.get(device.name, {}).get(problem_key(problem))
    try:
        return (None if entry is None else winner_of(entry)), ""
    except MALFORMED as error:
        return None, ignored_record(problem, device, words_of(error))


def database_path() -> Path:
    return cache_directory() / FILE_NAME


@lru_cache(maxsize=4)
def read(path: Path, inode: int, modified: int, size: int) -> Chips | Unusable:
    """The parsed file; its inode, time and size make sure that it is read again after a change."""
    return parse(path)


def parse(path: Path) -> Chips | Unusable:
    try:
        content = json.loads(text_of(path), parse_int=short_int, parse_float=short_float)
        version, chips = content["format"], content["chips"]
        if version == FILE_FORMAT and all(isinstance(part, dict) for part in (chips, *chips.values())):
            return chips
    except RecursionError:
        return Unusable("it is nested too deep", broken=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Unusable(words_of(error), broken=True)
    if isinstance(version, int) and version != FILE_FORMAT:
        return Unusable(f"its format is {version}, not {FILE_FORMAT}", broken=False)
    return Unusable("it does not hold records by chip and problem", broken=True)


def text_of(path: Path) -> str:
    """The content of the file, which is opened without blocking: a pipe would never answer."""
    handle = os.open(path, os.O_RDONLY | NO_WAIT | NOT_INHERITED | BYTES)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no plain file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    finally:
        os.close(handle)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return content.decode()


def short_int(text: str) -> int:
    return int(short(text))


def short_float(text: str) -> float:
    return float(short(text))


def short(text: str) -> str:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return text


def winner_of(entry: Mapping[str, Any]) -> Winner:
    values = {**entry, "config": Config(**entry["config"]), "sharing": Sharing(**entry["sharing"])}
    for name, kinds in (
        ("kernel", str),
        ("date", str),
        ("seconds", (int, float)),
        ("planned_seconds", (int, float)),
    ):
        if not isinstance(values[name], kinds) or values[name] is True or values[name] is False:
            raise ValueError(f"{name} is {values[name]!r}")
    if not (math.isfinite(values["seconds"]) and math.isfinite(values["planned_seconds"])):
        raise ValueError(f"seconds are {values['seconds']} and {values['planned_seconds']}")
    if date.fromisoformat(values["date"]).isoformat() != values["date"]:
        raise ValueError(f"date is {values['date']!r}, not written as 2026-11-21")
    return Winner(**values)


# ---- what cannot be used ----


def words_of(error: Exception) -> str:
    """The error in one short line: Python's errors quote what the file holds."""
    return brief(" ".join(f"{type(error).__name__}: {error}".split()))


def warn(words: str) -> str:
    """Log the words, once in a process. A warning would raise where the caller makes errors of warnings."""
    warn_once(words)
    return visible(words)


def ignored_record(problem: Problem, device: Device, why: str) -> str:
    where = f"the record of {device.name}, {problem_key(problem)!r}, in {database_path()}"
    return warn(f"{where} is ignored: {why}. Run lapidist tune for that product again, or remove the record")


def ignored_file(path: Path, unusable: Unusable) -> str:
    """The warning about a file that cannot be used. A broken one is renamed."""
    words = f"{path} is ignored: {unusable.why}"
    if not unusable.broken:
        return warn(f"{words}. Run lapidist tune again with this version")
    try:
        with locked(path):
            aside = set_aside(path) if isinstance(parse(path), Unusable) else None
    except FileNotFoundError:  # another process did it
        return ""
    except (OSError, LapidistError) as error:
        return warn(f"{words}. Remove it, and run lapidist tune again; it could not be set aside: {error}")
    return (
        warn(f"{words}. It is {aside} now: mend it and put it back, or run lapidist tune again")
        if aside
        else ""
    )


def set_aside(path: Path) -> Path:
    """Rename the file to the first free name. The caller holds the lock."""
    names = (path.with_name(f"{path.name}.broken-{number}") for number in count(1))
    free = next(name for name in names if not os.path.lexists(name))
    os.rename(path, free)
    return free


# ---- writing ----


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock, which writers open anew, so that threads of one process wait, too. A lock that is
    a link is refused.
    """
    lock = path.with_suffix(".lock")
    try:
        handle = open_file(lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ArgumentError(
            f"{lock}: must be a plain file that can be written; got {error}. Remove it"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ArgumentError(f"{lock}: must be a plain file; got a pipe or a device. Remove it")
        take_lock(handle)
        yield
    finally:
        os.close(handle)


def require_writable() -> None:
    """Raise if the file cannot be written: before minutes of measuring."""
    path = database_path()
    make_directory(path.parent)
    with locked(path):
        pass


def keep(device: Device, winners: Mapping[str, Winner]) -> Path:
    """Add winners to those of other runs. Readers see the file before or after, never between."""
    path = database_path()
    make_directory(path.parent)
    with locked(path):
        chips = other_records(path)
        chips = {
            **chips,
            device.name: {
                **chips.get(device.name, {}),
                **{key: asdict(winner) for key, winner in winners.items()},
            },
        }
        write(path, json.dumps({"format": FILE_FORMAT, "chips": chips}, indent=1))
    return path


def other_records(path: Path) -> Chips:
    """Records of other runs; a broken file is renamed."""
    try:
        content = parse(path)
        if not isinstance(content, Unusable):
            return content
        warn(
            f"{path} was not added to: {content.why}. It is {set_aside(path)} now: mend it and put it back,"
            " or leave it"
        )
    except FileNotFoundError:
        pass
    return {}


def write(path: Path, content: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
