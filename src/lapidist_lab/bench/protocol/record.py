"""Records: measured rows as JSON lines, one file a run, the conditions of the run in its first row."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from lapidist.errors import ArgumentError


@dataclass(frozen=True)
class Conditions:
    """What held for all rows of a run. Values that could not be learnt are None."""

    date: str  # UTC, ISO 8601
    command: str
    device: str
    # facts of the Device, with the limits to which its rows are compared
    chip: dict[str, Any] = field(default_factory=dict)
    driver: str | None = None
    cuda: str | None = None
    nvrtc: str | None = None
    lapidist: str | None = None
    commit: str | None = None
    torch: str | None = None
    cupy: str | None = None
    numpy: str | None = None
    vendor: str | None = None
    cutlass: str | None = None  # its version, or why it was not measured
    inputs: str = "standard normal (integers: uniform over their range), fresh for each case"
    mode: str = ""
    protocol: str = ""
    seen: dict[str, Any] = field(default_factory=dict)  # clocks, power, temperature before and after
    remark: str | None = (
        None  # what the program could not know, such as who shared the host; added to the file by hand
    )


Key = tuple[str, str, str, int, int, int, int, str]  # what identifies a measurement


@dataclass(frozen=True)
class Record:
    """One measured row. A refusal or a failure has `seconds` None and its reason in `error`."""

    kernel: str
    kind: str  # rung, detour, production, peer, host or limit
    device: str
    dtype: str  # type of A and B, or tf32: float32 multiplied as such
    layout: str  # letters for A, B and C: r(ow), c(olumn), s(trided)
    m: int
    n: int
    k: int
    seconds: float | None
    tflops: float | None
    ratio: float | None  # seconds of the vendor's library, or of `peer`, in the same run over `seconds`
    limit_share: float | None  # speed over what the chip's best unit for this type reaches
    worst: float | None  # largest error over its bound
    ok: bool
    mode: str = ""  # sustained, burst, machine, schedule, schedule parts, static
    seconds_min: float | None = None
    seconds_max: float | None = None
    p90: float | None = None  # percentiles of the calls' seconds
    p99: float | None = None
    replays: int | None = None
    calls: int | None = None  # calls in one graph
    sets: int | None = None  # sets of inputs that calls rotate over
    l2: str | None = None  # rotated (sets exceed it together), or warm
    out_dtype: str | None = None  # type of C; None: the same as A's
    unit: str | None = None  # what multiplies: fma, mma or wgmma
    unit_share: float | None = None  # speed over what that unit reaches
    config: str | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    blocks_per_sm: int | None = None
    warps_per_sm: int | None = None
    ffma_share: float | None = None  # share of the main loop's instructions that multiply, on any unit
    bytes_per_flop: float | None = None  # traffic between the cores and L2, calculated from the tile
    warp_instructions: int | None = None  # this and the next two are counted by the machine
    sectors: float | None = None  # 32-byte sectors for each global load of a warp
    wavefronts: float | None = None  # turns of shared memory for each load of a warp
    global_sectors: float | None = None  # sectors of all loads together
    shared_turns: float | None = None  # turns of all loads and stores together
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    # `seconds` over those of the product without an epilogue, or of a plain run in place of a schedule
    over_plain: float | None = None
    over_wait: float | None = None  # by default: the seconds of compile="wait" over `seconds`
    largest_error: float | None = None  # of an element, over the product of magnitudes
    batch: int | None = None  # how many products; None: one
    peer: str | None = None  # who `ratio` compares with, if not the vendor's library
    parts: dict[str, float] | None = None  # of the machine's schedules: shares of the time
    note: str | None = None
    error: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether it ran, but its result was wrong."""
        return (self.error or "").startswith("wrong result")

    @cached_property
    def key(self) -> Key:
        """What identifies the measurement: of records with one key the newest counts."""
        return (self.kernel, self.dtype, self.layout, self.batch or 1, self.m, self.n, self.k, self.mode)


# rungs that were renamed: older Records have the earlier name
EARLIER_NAMES = {"tma_producer": "tma_streamk", "wgmma_persistent": "wgmma_clusters"}
EARLIER = re.compile(rf"\b({'|'.join(EARLIER_NAMES)})\b")

REQUIRED = {column.name for column in fields(Record) if column.default is MISSING}


@dataclass(frozen=True, eq=False)  # views of many runs are kept by which runs they are
class Run:
    """One file under results/."""

    name: str
    conditions: Conditions
    records: tuple[Record, ...]


# ---- JSON lines ----


def rounded(value: Any) -> Any:
    """The value with six significant digits: a clock tells no more, and people can read them."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return value


def row_of(record: Record | Conditions) -> dict[str, Any]:
    return {key: rounded(value) for key, value in asdict(record).items()}


def write_lines(file: TextIO, records: Iterable[Record]) -> None:
    """Write a JSON line for each record, without fields that are None: reading restores them."""
    for record in records:
        row = {key: value for key, value in row_of(record).items() if value is not None or key in REQUIRED}
        file.write(json.dumps(row) + "\n")


def write_run(path: Path, conditions: Conditions, records: Iterable[Record]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"conditions": row_of(conditions)}) + "\n")
        write_lines(file, records)


def read_run(path: Path) -> Run:
    """The run in a file as write_run writes it. An error names the line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        conditions = Conditions(**json.loads(lines[0])["conditions"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ArgumentError(
            f"{path}: line 1 must hold the conditions of the run; {error}. Measure it again"
        ) from error
    records = [_record_of(line, f"{path}: line {number}") for number, line in enumerate(lines[1:], 2)]
    return Run(path.name, conditions, tuple(records))


def by_present_names(text: str) -> str:
    """The text with present names of rungs in place of earlier ones."""
    return EARLIER.sub(lambda match: EARLIER_NAMES[match[1]], text)


def _record_of(line: str, place: str) -> Record:
    try:
        return Record(**json.loads(by_present_names(line)))
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"{place} must be a Record; {error}. Measure it again") from error


def read_runs(directory: Path) -> list[Run]:
    """All runs, oldest first."""
    runs = [read_run(path) for path in sorted(directory.glob("*.jsonl"))]
    return sorted(runs, key=lambda run: (run.conditions.date, run.name))


# ---- other files ----


def write_csv(path: Path, records: Sequence[Record]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [column.name for column in fields(Record)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row_of(record) for record in records)


def run_name(conditions: Conditions, study: str) -> str:
    """The file name of a run, like h200-20260101T120000-climb-4096.jsonl."""
    chip = conditions.device.lower().replace("nvidia ", "").replace(" ", "-")
    stamp = conditions.date.replace("-", "").replace(":", "").split("+")[0].split(".")[0]
    safe = "".join(letter if letter.isalnum() or letter in "-x" else "" for letter in study)
    return f"{chip}-{stamp}-{safe}.jsonl"
