"""The blocks of docs/machine.md that are numbers: mutants, predictions, wall times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from lapidist.dtypes import MATHS, short_name
from lapidist.kernels.registry import KERNELS
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record, Run, by_present_names
from lapidist_lab.bench.publish.cells import time_words
from lapidist_lab.bench.publish.predictions import page
from lapidist_lab.bench.publish.record_views import RUNG_NUMBER, label, latest, shape_of
from lapidist_lab.bench.publish.tables import Column, Table, table
from lapidist_lab.machine_studies.mutants import KINDS, Survey, merged
from lapidist_lab.machine_studies.schedule_parts import PARTS
from lapidist_lab.machine_studies.specimens import specimens

MISSED_SHOWN = 4
MOST_TIMES = 20  # that a schedule shall take over a plain run
KIND_WORDS = {
    "barrier": "barrier (`bar.sync`)",
    "warp barrier": "warp barrier (`bar.warp.sync` before an arrival)",
    "wait": "wait (cp.async, mbarrier, wgmma)",
    "arrival": "arrival (mbarrier)",
    "fence": "fence",
    "order": "release or acquire made relaxed",
    "bounds": "bounds check",
}


def machine_blocks(root: Path, runs: Sequence[Run]) -> dict[str, str]:
    """The text of each block by its name."""
    return {
        "mutants": mutants_block(root / "results"),
        "predictions": page(runs),
        "speed": speed_block(runs),
        "schedule costs": schedules_block(runs),
        "schedule parts": parts_block(runs),
    }


# ---- mutants ----


def mutants_block(results: Path) -> str:
    """The newest survey of each kernel; several runs may have shared the work. Ways to launch that are gone
    are left out, as are those cut short."""
    ways = {(str(specimen), specimen.math) for math in MATHS for specimen in specimens(None, [math])}
    parts, surveyed = [], set[tuple[str, str]]()
    compiled: dict[str, list[str]] = {}  # files by the NVRTC that made their PTX
    for file in sorted(results.glob("*-mutants.json"), reverse=True):
        stored = json.loads(by_present_names(file.read_text()))
        survey = Survey.of_json(stored)
        unbroken, cut = (
            {(specimen.kernel, specimen.math) for specimen in part} for part in (survey.unbroken, survey.cut)
        )
        fresh = ((unbroken - cut) & ways) - surveyed
        if fresh:
            parts.append(only(survey, fresh))
            compiled.setdefault(stored["conditions"]["nvrtc"], []).insert(0, f"`results/{file.name}`")
        surveyed |= fresh
    if not surveyed:
        return "Not surveyed yet.\n"
    sources = [f"{', '.join(names)} (PTX of NVRTC {version})" for version, names in compiled.items()]
    return survey_text(merged(parts), surveyed) + f"\nFrom {', and '.join(reversed(sources))}.\n"


def only(survey: Survey, ways: set[tuple[str, str]]) -> Survey:
    verdicts = [verdict for verdict in survey.verdicts if (verdict.kernel, verdict.math) in ways]
    return Survey(
        verdicts, [verdict for verdict in survey.unbroken if (verdict.kernel, verdict.math) in ways]
    )


def survey_text(survey: Survey, specimens: set[tuple[str, str]]) -> str:
    rows = []
    for kind in KINDS:
        hits, equal, total = survey.share(kind)
        if total:
            share = f"{hits / (total - equal):.0%}" if total > equal else ""
            rows.append([KIND_WORDS[kind], f"{hits} of {total - equal}", share, str(equal or "")])
    shown = Table(["removed", "found", "share", "changes nothing"], rows).markdown()
    kernels = {kernel.partition(",")[0] for kernel, _ in specimens}
    maths = [short_name(math) for math in MATHS if any(verdict == math for _, verdict in specimens)]
    words = [
        f"{len(kernels)} kernels, launched in {len(specimens)} ways ({', '.join(maths)}; layouts, sizes of"
        f" tiles, lines off 16 bytes, Stream-K): {len(survey.false_alarms)} false alarms in"
        f" {survey.clean_runs} runs of the unbroken ones. {survey.unreached} places that no run comes to were"
        " left whole."
    ]
    absent = [kernel.name for kernel in KERNELS if kernel.name not in kernels]
    if absent:
        words.append(f"Not surveyed: {', '.join(absent)}.")
    reasons = Counter(
        verdict.equivalent for verdict in survey.verdicts if verdict.found_by is None and verdict.equivalent
    )
    if reasons:
        times = {why: "once" if count == 1 else f"{count} times" for why, count in reasons.most_common()}
        words.append("What changes nothing when it is removed, and why:")
        words.append("\n".join(f"- {count}: {why}." for why, count in times.items()))
    missed = missed_lines(survey)
    if missed:
        words += ["Not found:", "\n".join(missed)]
    return "\n\n".join([shown.rstrip(), *words]) + "\n"


def missed_lines(survey: Survey) -> list[str]:
    """How many mutants of a kind were missed in each kernel, and the first lines of these."""
    tried = Counter((verdict.kernel, verdict.math, verdict.kind) for verdict in survey.verdicts)
    hidden: dict[tuple[str, str, str], list[int]] = {}
    for verdict in survey.verdicts:
        if verdict.missed:
            hidden.setdefault((verdict.kernel, verdict.math, verdict.kind), []).append(verdict.line)
    lines = []
    for way, missed in hidden.items():
        kernel, math, kind = way
        more = ", …" if len(missed) > MISSED_SHOWN else ""
        first = ", ".join(map(str, sorted(missed)[:MISSED_SHOWN])) + more
        count = f"{len(missed)} of {tried[way]}"
        lines.append(f"- {kernel} in {short_name(math)}: {kind}, {count}, PTX lines {first}")
    return lines


# ---- wall time ----


def speed_block(runs: Sequence[Run]) -> str:
    """A table of the machine's seconds for each kernel, by shape and math, of runs that repeated it."""
    repeated = [
        replace(run, records=tuple(row for row in run.records if (row.replays or 0) > 1)) for run in runs
    ]
    records = [
        r for r, _ in latest(repeated) if r.mode == "machine" and r.seconds and r.kernel in RUNG_NUMBER
    ]
    if not records:
        return "Not timed yet.\n"
    at = {(record.kernel, record.dtype, shape_of(record)): record for record in records}

    def least(math: str, shape: tuple[int, int, int], name: str) -> str:
        """The least of several runs: other work on the same cores only adds."""
        record = at.get((name, math, shape))
        return "" if record is None else f"{record.seconds_min or record.seconds or 0.0:.2f}"

    columns: list[Column] = [("kernel", label)]
    columns += [
        (f"{shape_words(*shape)} {short_name(math)}", partial(least, math, shape))
        for math, shape in sorted({key[1:] for key in at}, key=column_rank)
    ]
    names = sorted({record.kernel for record in records}, key=RUNG_NUMBER.__getitem__)
    return table(columns, names).markdown()


def schedules_block(runs: Sequence[Run]) -> str:
    """How many times the CPU time of a plain run schedules take, for each kernel."""
    records = [row for row, _ in latest(runs) if row.mode == "schedule" and row.over_plain]
    if not records:
        return "Not timed yet.\n"
    at = {(record.kernel, record.dtype, shape_of(record)): record for record in records}

    def times(math: str, shape: tuple[int, int, int], name: str) -> str:
        record = at.get((name, math, shape))
        return "" if record is None else f"{record.over_plain:.0f} ({time_words(record.seconds)})"

    columns: list[Column] = [("kernel", label)]
    columns += [
        (f"{shape_words(*shape)} {short_name(math)}", partial(times, math, shape))
        for math, shape in sorted({key[1:] for key in at}, key=column_rank)
    ]
    ranks = {kernel.name: place for place, kernel in enumerate(KERNELS)}
    names = sorted({record.kernel for record in records}, key=ranks.__getitem__)
    over = [record.over_plain or 0.0 for record in records]
    kept = sum(multiple <= MOST_TIMES for multiple in over)
    words = (
        f"The aim is {MOST_TIMES} times or less: {kept} of {len(over)} keep it; {max(over):.0f} is the most."
    )
    return f"{table(columns, names).markdown()}\n{words}\n"


def parts_block(runs: Sequence[Run]) -> str:
    """Shares of the CPU time of a schedule by part of the work, of the kernels that were watched."""
    rows = [row for row, _ in latest(runs) if row.mode == "schedule parts" and row.parts]
    if not rows:
        return "Not timed yet.\n"
    ranks = {kernel.name: place for place, kernel in enumerate(KERNELS)}
    rows.sort(key=lambda row: (column_rank((row.dtype, shape_of(row))), ranks[row.kernel]))
    shown = []
    for case, same in groupby(rows, key=case_words):
        columns = list(same)
        lines = [[part, *(f"{(row.parts or {}).get(part, 0.0):.0%}" for row in columns)] for part in PARTS]
        shown.append(Table([case, *(label(row.kernel) for row in columns)], lines).markdown())
    return "\n".join(shown)


def case_words(row: Record) -> str:
    return f"{shape_words(*shape_of(row))} {short_name(row.dtype)}"


def column_rank(column: tuple[str, tuple[int, int, int]]) -> tuple[int, bool, int]:
    math, (m, n, k) = column
    return m * n * k, math != "float32", MATHS.index(math)
