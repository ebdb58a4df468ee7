"""What macros would cost as values: counted in machine code of builds that have both."""

from __future__ import annotations

import pytest

from lapidist.kernels.registry import kernel_named
from lapidist_lab.sass import constant_values, sample_problem
from lapidist_lab.sass.constant_values import MATHS, VALUES, Counts, Value, rows, table


def test_macros_are_those_of_the_source() -> None:
    """Or such as a header has a default for."""
    left_out = {"ALPHA", "ADDEND", "BATCHED", "ALONG_M", "RASTER", "C_VECTOR"}
    for value in VALUES:
        kernel, math = kernel_named(value.kernel), MATHS[value.kernel]
        told = kernel.macros(sample_problem(kernel, math), kernel.config_for(math))
        assert set(value.macros) <= {*told, *left_out}
        assert any(told.get(name) != setting for name, setting in value.macros.items())


def test_code_that_is_left_out_is_counted_where_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_values, "VALUES", (Value("simt", "shared tiles", {"SCHEDULED": 1}),))
    (_, first, plain), (_, words, shared) = rows("sm_90a", ("simt",))
    assert (first, words) == ("as it is", "shared tiles")
    assert 512 < plain.loop < plain.all < shared.all
    assert 0 < plain.registers <= 255


def test_the_table_has_a_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_values, "counts_of", lambda *_: Counts(168, 550, 2219))
    lines = table("sm_90a").splitlines()
    assert len(lines) == 2 + len(MATHS) + len(VALUES)
    assert lines[2] == "| `wgmma` | as it is | 168 | 550 | 2219 |"
