"""The blocks of docs/machine.md that are numbers: mutants, predictions, wall times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record, Run, by_present_names
from lapidist.bench.publish.markdown import row_of, rule
from lapidist.bench.publish.predictions import page
from lapidist.bench.publish.views import RUNG_NUMBER, label, latest
from lapidist.dtypes import MATHS, short_name
from lapidist.kernels.registry import KERNELS
from lapidist.machine.study.mutants import KINDS, Survey, merged
from lapidist.machine.study.specimens import specimens

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
    files = sorted(results.glob("*-mutants.json"), reverse=True)
    ways = {(str(each), each.math) for math in MATHS for each in specimens(None, [math])}
    parts, names, seen = [], [], set[tuple[str, str]]()
    for file in files:
        stored = json.loads(by_present_names(file.read_text()))
        found = Survey.of_json(stored)
        whole = {(each.kernel, each.math) for each in found.unbroken} - {
            (each.kernel, each.math) for each in found.cut
        }
        fresh = (whole & ways) - seen
        if fresh:
            parts.append(only(found, fresh))
            names.append(f"`results/{file.name}` (PTX of NVRTC {stored['conditions']['nvrtc']})")
        seen |= fresh
    return (
        survey_text(merged(parts), seen) + f"\nFrom {', '.join(reversed(names))}.\n"
        if seen
        else "Not surveyed yet.\n"
    )


def only(found: Survey, wanted: set[tuple[str, str]]) -> Survey:
    verdicts = [each for each in found.verdicts if (each.kernel, each.math) in wanted]
    return Survey(verdicts, [each for each in found.unbroken if (each.kernel, each.math) in wanted])


def survey_text(found: Survey, specimens: set[tuple[str, str]]) -> str:
    heads = ["removed", "found", "share", "changes nothing"]
    lines = [row_of(heads), rule(heads)]
    for kind in KINDS:
        hits, equal, total = found.share(kind)
        if total:
            share = f"{hits / (total - equal):.0%}" if total > equal else ""
            lines.append(row_of([KIND_WORDS[kind], f"{hits} of {total - equal}", share, str(equal or "")]))
    kernels = {kernel.partition(",")[0] for kernel, _ in specimens}
    maths = [short_name(math) for math in MATHS if any(each == math for _, each in specimens)]
    words = [
        f"{len(kernels)} kernels, launched in {len(specimens)} ways ({', '.join(maths)}; layouts, sizes of"
        f" tiles, lines off 16 bytes, Stream-K): {len(found.false_alarms)} false alarms in {found.clean_runs}"
        f" runs of the unbroken ones. {found.unreached} places that no run comes to were left whole."
    ]
    absent = [kernel.name for kernel in KERNELS if kernel.name not in kernels]
    if absent:
        words += ["", f"Not surveyed: {', '.join(absent)}."]
    reasons = Counter(each.equivalent for each in found.verdicts if each.found_by is None and each.equivalent)
    if reasons:
        words += ["", "What changes nothing when it is removed, and why:", ""]
        words += [
            f"- {'once' if count == 1 else f'{count} times'}: {why}." for why, count in reasons.most_common()
        ]
    missed = missed_lines(found)
    if missed:
        words += ["", "Not found:", "", *missed]
    return "\n".join([*lines, "", *words]) + "\n"


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
        first = ", ".join(map(str, sorted(missed)[:MISSED_SHOWN])) + (
            ", …" if len(missed) > MISSED_SHOWN else ""
        )
        lines.append(
            f"- {kernel} in {short_name(math)}: {kind}, {len(missed)} of {tried[way]}, PTX lines {first}"
        )
    return lines


# ---- wall time ----


def speed_block(runs: Sequence[Run]) -> str:
    """Seconds that the machine took for each kernel, by shape and math. A single run counts a kernel, but
    does not time it.
    """
    repeated = [
        replace(run, records=tuple(each for each in run.records if (each.replays or 0) > 1)) for run in runs
    ]
    found = [
        record
        for record, _ in latest(repeated)
        if record.mode == "machine" and record.seconds and record.kernel in RUNG_NUMBER
    ]
    if not found:
        return "Not timed yet.\n"
    columns = sorted({(record.dtype, record.m, record.n, record.k) for record in found}, key=column_rank)
    heads = ["kernel", *(f"{shape_words(m, n, k)} {short_name(math)}" for math, m, n, k in columns)]
    at = {(record.kernel, record.dtype, record.m, record.n, record.k): record for record in found}
    lines = [row_of(heads), rule(heads)]
    for name in sorted({record.kernel for record in found}, key=RUNG_NUMBER.__getitem__):
        lines.append(row_of([label(name), *(cell(at.get((name, *column))) for column in columns)]))
    return "\n".join(lines) + "\n"


def column_rank(column: tuple[str, int, int, int]) -> tuple[int, bool, int]:
    math, m, n, k = column
    return m * n * k, math != "float32", MATHS.index(math)


def cell(record: Record | None) -> str:
    """The least of several runs: others on the same cores only add."""
    return "" if record is None else f"{record.seconds_min or record.seconds or 0.0:.2f}"
