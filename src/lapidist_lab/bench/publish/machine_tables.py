"""The blocks of docs/machine.md that are numbers: mutants, predictions, wall times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lapidist.dtypes import MATHS, short_name
from lapidist.kernels.registry import KERNELS
from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Run, by_present_names
from lapidist_lab.bench.publish.predictions import page
from lapidist_lab.bench.publish.record_views import RUNG_NUMBER, label, latest, shape_of
from lapidist_lab.bench.publish.tables import Column, Table, table
from lapidist_lab.machine_studies.mutants import KINDS, Survey, merged
from lapidist_lab.machine_studies.specimens import specimens

MISSED_SHOWN = 4
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
    return {"mutants": mutants_block(root / "results"), "predictions": page(runs), "speed": speed_block(runs)}


# ---- mutants ----


def mutants_block(results: Path) -> str:
    """Of each kernel the newest survey; several runs may have shared the work. What is not launched like that
    any more is left out, and what a run was stopped in."""
    ways = {(str(each), each.math) for math in MATHS for each in specimens(None, [math])}
    parts, names, seen = [], [], set[tuple[str, str]]()
    for file in sorted(results.glob("*-mutants.json"), reverse=True):
        stored = json.loads(by_present_names(file.read_text()))
        found = Survey.of_json(stored)
        unbroken, cut = ({(each.kernel, each.math) for each in part} for part in (found.unbroken, found.cut))
        fresh = ((unbroken - cut) & ways) - seen
        if fresh:
            parts.append(only(found, fresh))
            names.append(f"`results/{file.name}` (PTX of NVRTC {stored['conditions']['nvrtc']})")
        seen |= fresh
    if not seen:
        return "Not surveyed yet.\n"
    return survey_text(merged(parts), seen) + f"\nFrom {', '.join(reversed(names))}.\n"


def only(found: Survey, wanted: set[tuple[str, str]]) -> Survey:
    verdicts = [each for each in found.verdicts if (each.kernel, each.math) in wanted]
    return Survey(verdicts, [each for each in found.unbroken if (each.kernel, each.math) in wanted])


def survey_text(found: Survey, specimens: set[tuple[str, str]]) -> str:
    rows = []
    for kind in KINDS:
        hits, equal, total = found.share(kind)
        if total:
            share = f"{hits / (total - equal):.0%}" if total > equal else ""
            rows.append([KIND_WORDS[kind], f"{hits} of {total - equal}", share, str(equal or "")])
    shown = Table(["removed", "found", "share", "changes nothing"], rows).markdown()
    kernels = {kernel.partition(",")[0] for kernel, _ in specimens}
    maths = [short_name(math) for math in MATHS if any(each == math for _, each in specimens)]
    words = [
        f"{len(kernels)} kernels, launched in {len(specimens)} ways ({', '.join(maths)}; layouts, sizes of"
        f" tiles, lines off 16 bytes, Stream-K): {len(found.false_alarms)} false alarms in {found.clean_runs}"
        f" runs of the unbroken ones. {found.unreached} places that no run comes to were left whole."
    ]
    absent = [kernel.name for kernel in KERNELS if kernel.name not in kernels]
    if absent:
        words.append(f"Not surveyed: {', '.join(absent)}.")
    reasons = Counter(each.equivalent for each in found.verdicts if each.found_by is None and each.equivalent)
    if reasons:
        times = {why: "once" if count == 1 else f"{count} times" for why, count in reasons.most_common()}
        words.append("What changes nothing when it is removed, and why:")
        words.append("\n".join(f"- {count}: {why}." for why, count in times.items()))
    missed = missed_lines(found)
    if missed:
        words += ["Not found:", "\n".join(missed)]
    return "\n\n".join([shown.rstrip(), *words]) + "\n"


def missed_lines(found: Survey) -> list[str]:
    """How many of a kind each kernel hides, and where the first are; the Records name them all."""
    tried = Counter((each.kernel, each.math, each.kind) for each in found.verdicts)
    hidden: dict[tuple[str, str, str], list[int]] = {}
    for each in found.verdicts:
        if each.missed:
            hidden.setdefault((each.kernel, each.math, each.kind), []).append(each.line)
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
    """Seconds that the machine took for each kernel, by shape and math. A single run counts a kernel, but
    does not time it.
    """
    repeated = [
        replace(run, records=tuple(each for each in run.records if (each.replays or 0) > 1)) for run in runs
    ]
    found = [r for r, _ in latest(repeated) if r.mode == "machine" and r.seconds and r.kernel in RUNG_NUMBER]
    if not found:
        return "Not timed yet.\n"
    at = {(record.kernel, record.dtype, shape_of(record)): record for record in found}

    def least(math: str, shape: tuple[int, int, int], name: str) -> str:
        """The least of several runs: others on the same cores only add."""
        record = at.get((name, math, shape))
        return "" if record is None else f"{record.seconds_min or record.seconds or 0.0:.2f}"

    columns: list[Column] = [("kernel", label)]
    columns += [
        (f"{shape_words(*shape)} {short_name(math)}", partial(least, math, shape))
        for math, shape in sorted({key[1:] for key in at}, key=column_rank)
    ]
    names = sorted({record.kernel for record in found}, key=RUNG_NUMBER.__getitem__)
    return table(columns, names).markdown()


def column_rank(column: tuple[str, tuple[int, int, int]]) -> tuple[int, bool, int]:
    math, (m, n, k) = column
    return m * n * k, math != "float32", MATHS.index(math)
