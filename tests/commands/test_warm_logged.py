"""`lapidist warm --log`: what a program's calls loaded, compiled elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import run
from lapidist.build.cache import read
from lapidist.build.compiler import key_of
from lapidist.build.kernel_log import log_kernel
from lapidist.device import chip
from lapidist.planning.binaries import order_of
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem


def test_logged_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "kernels.jsonl"
    plan = make_plan(dense_problem(64, 48, 32, "float32"), chip("h100"))
    order = order_of(*plan.build)
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LAPIDIST_KERNELS", str(log))
    log_kernel(order)
    assert read(key_of(*order), order.entry, order.architecture) is None
    assert run(["warm", "--log", str(log)], monkeypatch) == 0
    assert "1 of 1 logged kernels are compiled" in capsys.readouterr().out
    assert read(key_of(*order), order.entry, order.architecture) is not None


def test_kernels_that_fail_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "kernels.jsonl"
    fields = {"source": "gemm/simt.cu", "entry": "simt", "defines": {"BM": 3}, "architecture": "sm_90a"}
    log.write_text(json.dumps(fields | {"more": []}))
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "cache"))
    assert run(["warm", "--log", str(log), "--json"], monkeypatch) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["kernels"] == 1
    assert "simt" in told["failed"][0]
