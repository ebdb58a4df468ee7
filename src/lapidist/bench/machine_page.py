"""The blocks of docs/machine.md that are numbers: mutants, predictions, wall times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lapidist.bench.cases import shape_words
from lapidist.bench.markdown import row_of, rule
from lapidist.bench.predictions import page
from lapidist.bench.record import Record, Run
from lapidist.bench.views import RUNG_NUMBER, label, latest
from lapidist.dtypes import MATHS, short_name
from lapidist.machine.mutants import KINDS

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
    """The newest survey."""
    files = sorted(results.glob("*-mutants.json"))
    if not files:
        return "Not surveyed yet.\n"
    survey: dict[str, Any] = json.loads(files[-1].read_text())
    heads = ["kernel", "found", "share"]
    lines = [row_of(["removed", *heads[1:]]), rule(heads)]
    for kind in KINDS:
        found, total = (survey["found"][kind][name] for name in ("found", "of"))
        if total:
            lines.append(row_of([KIND_WORDS[kind], f"{found} of {total}", f"{found / total:.0%}"]))
    kernels = {(each["kernel"], each["math"]) for each in survey["mutants"]}
    maths = [short_name(math) for math in MATHS if any(each == math for _, each in kernels)]
    words = [
        f"{len(kernels)} kernels ({', '.join(maths)}), {survey['seeds']} seeds: {len(survey['false_alarms'])} false alarms in "
        f"{survey['clean_runs']} runs of the unbroken ones. {survey['unreached']} places that no run comes to were left whole."
    ]
    missed = [each for each in survey["mutants"] if each["found_by"] is None]
    words += [
        f"- not found: {each['kernel']} in {short_name(each['math'])}, line {each['line']}: `{each['text']}`" for each in missed
    ]
    c = survey["conditions"]
    return "\n".join([*lines, "", *words, "", f"From `results/{files[-1].name}`, PTX of NVRTC {c['nvrtc']}."]) + "\n"


# ---- wall time ----


def speed_block(runs: Sequence[Run]) -> str:
    """Seconds that the machine took for each kernel, by shape and math."""
    found = [record for record, _ in latest(runs) if record.mode == "machine" and record.seconds and record.kernel in RUNG_NUMBER]
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
