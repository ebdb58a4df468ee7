"""The study of several cards on the CPU: what it times, and what becomes of its Records."""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from unittest import mock

from lapidist.device import chip
from lapidist_lab.bench.protocol.record import read_run
from lapidist_lab.bench.publish.parallel_tables import PARALLEL, of_parallel
from lapidist_lab.bench.publish.section import Data
from parallel_ranks import ROWS, K, N
from torch_processes import in_processes

COMMIT = "0123456789ab"
PRODUCTS = "all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"


def bench(device: str) -> None:
    """The study of several cards, with products that take no time: all ways and peers that the host has."""
    study = importlib.import_module("lapidist_lab.bench.studies.several_cards")
    assert len(study.cases(2)) == 3 * len(study.EXTENTS) * len(study.ROWS)
    for product, dtype in zip((*PRODUCTS, PRODUCTS[0]), ["bfloat16"] * 3 + ["float8_e4m3fn"], strict=True):
        rows = study.measured(study.Case(product, ROWS, N, K, dtype), device, "H200")
        names = [product, f"{product}, chunks", f"alone, {product}", f"cublas + nccl, {product}"]
        assert [row.kernel for row in rows] == names
        assert {row.dtype for row in rows} == {dtype}
        assert all(row.ok and row.seconds and row.mode == "parallel" for row in rows)
        assert [row.ratio for row in rows][2:] == [None, 1.0]
        assert all(row.peer == "cublas + nccl" for row in rows if row.ratio)


def published(device: str) -> None:
    """Records have the commit that a copy without git is told, and the page has a line for each case."""
    study = importlib.import_module("lapidist_lab.bench.studies.several_cards")
    selected = [
        study.Case(product, ROWS, N, K, dtype)
        for dtype in ("bfloat16", "float8_e4m3fn")
        for product in PRODUCTS
    ]
    path = Path(tempfile.mkdtemp()) / "run.jsonl"
    with mock.patch.dict(os.environ, LAPIDIST_COMMIT=COMMIT):
        study.write_cases(selected, device, chip("h200"), path, ["/tmp/run.jsonl", "--skip", "3"])
    if not path.exists():  # another rank writes
        return
    run = read_run(path)
    assert run.conditions.commit == COMMIT
    assert run.conditions.command == f"torchrun --nproc-per-node 2 -m {study.MODULE} run.jsonl --skip 3"
    assert run.conditions.mode == study.MODE
    data = Data(list(run.records))
    table = str(PARALLEL.written(data)[2])
    lines = [line.split(" | ")[:4] for line in table.splitlines() if line.startswith("| `")]
    expected = [
        [f"| `{product}`", short, "-", f"{ROWS}x{N}x{K}"]
        for short in ("bf16", "e4m3")
        for product in PRODUCTS
    ]
    assert lines == expected
    assert all(f"`{product}`" in of_parallel(data) for product in PRODUCTS)


__all__ = ["bench", "in_processes", "published"]
