"""The bench of layouts: every case lies as it says for both rivals, and the table has each beside the one
whose k touches.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lapidist_lab.bench.protocol.contenders import problem_of
from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.runs import failures_section
from lapidist_lab.bench.studies.operand_layouts import LAYOUTS, MATHS, MODE, SIZES, cases, pair_of
from published import page_of, parts_of


def row(kernel: str, layout: str, tflops: float | None, math: str = "int8", **more: Any) -> Record:
    kind = "peer" if kernel == "cublas" else "production"
    seconds = 2.0 * 4096**3 / tflops / 1e12 if tflops else None
    numbers = (4096, 4096, 4096, seconds, tflops, None, None, 0.1, tflops is not None)
    return Record(kernel, kind, "NVIDIA H200", math, layout + "r", *numbers, mode=MODE, **more)


@pytest.mark.parametrize("math", MATHS)
def test_both_take_every_layout_as_it_is(math: str) -> None:
    here = [case for case in cases() if case.math == math]
    assert len(here) == len(SIZES) * len(LAYOUTS)
    for contender in pair_of(math, SimpleNamespace(framework=SimpleNamespace(capturable=True))):  # type: ignore[arg-type]
        assert [case.layouts(contender.columns)[:2] for case in here] == [case.layout for case in here]
    lies = {case.layout: problem_of(case, False) for case in here}
    assert {layout: (p.a.layout[0], p.b.layout[0]) for layout, p in lies.items()} == {
        each: tuple(each) for each in LAYOUTS
    }


def test_the_table_compares_with_the_layout_whose_k_touches() -> None:
    refused = row("cublas", "cr", None, error="RuntimeError: row-major expected")
    rows = [row("lapidist", "rc", 1200.0), row("lapidist", "cr", 900.0), row("cublas", "rc", 800.0), refused]
    text = page_of("layouts", rows)
    assert "| type | m = n = k |  | rows, columns | rows, rows | columns, columns | columns, rows |" in text
    assert "| int8 | 4096 | lapidist | 1200.0 | - | - | 900.0 (75.0) |" in text
    assert "| int8 | 4096 | cublas | 800.0 | - | - | - |" in text
    assert "| tf32 |" not in text
    assert parts_of("layouts", []) == []
    ours = row("lapidist", "cr", None, error="MismatchError: element (0, 0)")
    assert failures_section([refused]) == ""
    assert "MismatchError" in failures_section([refused, ours])
