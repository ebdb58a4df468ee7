"""Measured speeds for a lesson: one run, so that all bars and shares stand under the same conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lapidist_lab.bench.protocol.cases import shape_words
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.record_views import in_order, label, main_case, on

PEER = "cublas"


def measured(runs: Sequence[Run], name: str, math: str) -> dict[str, Any] | None:
    """The run with most rungs of those that timed this kernel at the main case; the newest of equals."""
    best: tuple[Run, list[Record]] | None = None
    for run in runs:
        rows = timed(run, math)
        if any(row.kernel == name for row in rows) and (best is None or len(rows) >= len(best[1])):
            best = run, rows
    if best is None:
        return None
    run, rows = best
    first = rows[0]
    return {
        "shape": shape_words(first.m, first.n, first.k),
        "math": math,
        "device": first.device,
        "mode": first.mode,
        "file": f"results/{run.name}",
        "rows": [row_data(row) for row in rows],
    }


def timed(run: Run, math: str) -> list[Record]:
    records = [row for row in run.records if row.dtype == math and row.tflops and row.mode == "sustained"]
    shape = main_case(records)
    rows = () if shape is None else on(records, shape)
    return in_order(row for row in rows if row.kind == "rung" or row.kernel == PEER)


def row_data(row: Record) -> dict[str, Any]:
    return {
        "name": row.kernel,
        "label": "cuBLAS" if row.kernel == PEER else label(row.kernel),
        "tflops": row.tflops,
        "ratio": row.ratio,
        "peer": row.kernel == PEER,
    }
