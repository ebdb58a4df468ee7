"""The program that writes every published number: docs/performance, the README's table, the `Measured:` line
of each rung. Its only source is the Records under results/; the same Records give the same files."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lapidist.errors import ArgumentError
from lapidist.kernels.registry import KERNELS
from lapidist_lab.bench.protocol.record import Conditions, Run, read_runs
from lapidist_lab.bench.publish import pages, sharing_tables, study_tables
from lapidist_lab.bench.publish.areas import areas_table
from lapidist_lab.bench.publish.cells import chip, kind, percent, shape, speed
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.machine_tables import machine_blocks
from lapidist_lab.bench.publish.record_views import (
    TIMED_MODES,
    RunRecords,
    latest,
    main_case,
    maths_in,
    on,
    shape_of,
)
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.publish.squares import limits_table, summary
from lapidist_lab.bench.publish.withdrawn import Withdrawal, read_withdrawals, require_runs, without
from lapidist_lab.bench.publish.worklog import worklog
from lapidist_lab.bench.studies import (
    complex_products,
    emulated_errors,
    emulated_products,
    few_bits,
    grouped_products,
    invariant_products,
    muon_steps,
    served_model,
    several_cards,
    symmetric_products,
    warming,
)

LINE = 110  # columns of a source file
MEASURED = re.compile(r"^// Measured:.*(\n//           .*)*$", re.MULTILINE)
HEADLINE_MODE = "sustained"
STUDIES = (
    complex_products.MODE,
    emulated_products.MODE,
    *emulated_errors.MODES,
    few_bits.MODE,
    grouped_products.MODE,
    *invariant_products.SERVED_TYPES,
    muon_steps.MODE,
    served_model.MODE,
    several_cards.MODE,
    symmetric_products.MODE,
    *study_tables.MODES,
)
PUBLISHED = (*TIMED_MODES, "host", warming.MODE, warming.ALONE, *STUDIES)


def publish(root: Path, check: bool, html: Path | None = None) -> list[Path]:
    """The files that differ from the Records; they are written, or with `check` named only."""
    withdrawals, measured = read_withdrawals(root / "results"), read_runs(root / "results")
    require_runs(withdrawals, measured)
    runs = without(measured, withdrawals)
    if not runs:
        rule = "must hold Records in results/*.jsonl"
        raise ArgumentError(f"--root: {rule}; {str(root)!r} has none. Make them with climb --record")
    texts = documents(root, runs, withdrawals)
    stale = {
        path: text
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(f"{'differs from the Records' if check else 'written'}: {path}", file=sys.stderr)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if html is not None:
        write_html(html, runs)
    return list(stale)


def documents(root: Path, runs: Sequence[Run], withdrawals: Sequence[Withdrawal] = ()) -> dict[Path, str]:
    """The text of every published file."""
    run_records = [(record, run) for record, run in latest(runs) if record.mode in PUBLISHED]
    records = [record for record, _ in run_records]
    texts = pages.documents(root, Data(records, runs, withdrawals))
    for chart in sharing_tables.sharing_charts(runs):
        texts |= chart.files(root / "docs")
    blocks: dict[str, Callable[[], Mapping[str, str]]] = {
        "README.md": lambda: {
            "ladder": ladder_picture(texts),
            "types": summary(records),
            "areas": areas_table(Data(records, runs, withdrawals), "docs/performance/"),
        },
        "docs/ladder.md": lambda: {"limits": limits_table(records)},
        "docs/wgmma.md": lambda: {"limits": limits_table(records)},
        "docs/stream-k.md": lambda: sharing_tables.sharing_blocks(runs),
        "docs/machine.md": lambda: machine_blocks(root, runs),
    }
    for path, blocks_of in (
        (root / name, blocks_of) for name, blocks_of in blocks.items() if (root / name).exists()
    ):
        texts[path] = path.read_text(encoding="utf-8")
        for name, block in blocks_of().items():
            texts[path] = with_block(texts[path], name, block)
        if path.name in ("ladder.md", "wgmma.md"):
            texts[path] = worklog(texts[path], latest(runs))
    for path in sorted((root / "src" / "lapidist" / "cuda").glob("*/*.cu")):
        source = path.read_text(encoding="utf-8")
        if MEASURED.search(source):
            line = measured_line(path, run_records)
            texts[path] = MEASURED.sub(line.replace("\\", r"\\"), source, count=1)
    return texts


def with_block(text: str, name: str, table: str) -> str:
    """The text with `table` between the two comments of that name; a text without them stays."""
    begin, stop = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    start, end = text.find(begin), text.find(stop)
    if start < 0:
        return text
    if end < start:
        rule = f"must be followed by {stop}; the second is missing"
        raise ArgumentError(f"{begin}: {rule}. Put it after the table")
    return f"{text[:start]}{begin}\n{table}{text[end:]}"


def ladder_picture(texts: Mapping[Path, str]) -> str:
    """The HTML of the ladder's bars, where it was climbed."""
    name = "ladder-fp32"
    drawn = any(path.name == f"{name}-light.svg" for path in texts)
    words = "Each kernel of the ladder beside cuBLAS, fp32, 4096^3"
    return Chart(name, "", words).shown("docs/performance/") if drawn else "Not measured yet.\n"


def measured_line(path: Path, run_records: RunRecords) -> str:
    """The comment with the speeds of all kernels in a source file, in their first measured type."""
    source = f"{path.parent.name}/{path.name}"
    names = [kernel.name for kernel in KERNELS if kernel.source == source]
    maths = maths_in(record for record, _ in run_records if record.kernel in names)
    quoted = headline(run_records, maths[0]) if maths else []
    rows = [(record, run) for record, run in quoted if record.kernel in names and record.tflops is not None]
    if not rows:
        return "// Measured: -"
    record, run = rows[0]
    speeds = ", ".join(f"{other.kernel + ' ' if len(rows) > 1 else ''}{speed(other)}" for other, _ in rows)
    shares = ", ".join(percent(other.ratio) for other, _ in rows)
    product = shape(record) + ("" if record.dtype == "float32" else f" in {kind(record)}")
    words = (
        f"// Measured: {product}: {speeds} TFLOP/s, {shares} % of cuBLAS ({chip(record)}, results/{run.name})"
    )
    lines = textwrap.wrap(words, LINE, subsequent_indent="//           ", break_on_hyphens=False)
    return "\n".join(lines)


def headline(run_records: RunRecords, math: str) -> RunRecords:
    """The rows that the README and the kernels' headers quote."""
    rows = [
        (record, run) for record, run in run_records if (record.mode, record.dtype) == (HEADLINE_MODE, math)
    ]
    main = main_case([record for record, _ in rows])
    return [(record, run) for record, run in rows if main is not None and on([record], main)]


def write_html(path: Path, runs: Sequence[Run]) -> None:
    """Write one page of everything that was timed on one chip, under the conditions of the run that has most
    bars of the first ladder."""
    from lapidist_lab.bench.publish.html import page

    run_records = [(record, run) for record, run in latest(runs) if record.mode in (HEADLINE_MODE, "host")]
    main = headline_run(run_records) or runs[-1]
    device = main.conditions.device
    on_chip = [(record, run) for record, run in run_records if run.conditions.device == device]
    sources = {record.key: run.name.removesuffix(".jsonl") for record, run in on_chip}
    conditions = with_all_limits(main.conditions, runs)
    shown = page(conditions, [record for record, _ in on_chip], sources, f"results/{main.name}")
    path.write_text(shown, encoding="utf-8")


def headline_run(run_records: RunRecords) -> Run | None:
    """The run that most bars of the first type's ladder come from; None where nothing was timed."""
    records = [record for record, _ in run_records]
    shape_of_ladder, maths = main_case(records), maths_in(records)
    bars = [
        run
        for record, run in run_records
        if maths and (shape_of(record), record.dtype) == (shape_of_ladder, maths[0]) and run.conditions.vendor
    ]
    return max(bars, key=lambda run: (sum(run is other for other in bars), run.conditions.date), default=None)


def with_all_limits(conditions: Conditions, runs: Sequence[Run]) -> Conditions:
    """The conditions with the limits of types that only other runs on the same chip know."""
    limits: dict[str, Any] = {}
    for run in runs:
        if run.conditions.device == conditions.device:
            limits |= run.conditions.chip.get("limit_tflops", {})
    known = conditions.chip.get("limit_tflops", {})
    return replace(conditions, chip={**conditions.chip, "limit_tflops": {**limits, **known}})
