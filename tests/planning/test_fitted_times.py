"""Factors on the model's times: which chip's fit is taken, and where it counts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapidist.device import chip
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.kernel_table import config_alone
from lapidist.kernels.registry import kernel_named
from lapidist.planning import fitted_times
from lapidist.planning.cost_table import CostTable
from lapidist.planning.covering_sets import MATHS
from lapidist.planning.fitted_times import (
    FADES,
    LARGEST,
    SLOPES,
    Fit,
    corrected,
    effects,
    effects_of,
    fit_of,
    path_of,
    static_terms,
    write,
)
from lapidist.planning.planner import every_kernel, grouped, weigh
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem
from lapidist.schedule.schedule_options import ScalarOption
from planned import A100, H200

H100 = chip("h100")


@pytest.fixture
def one_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit of which only wgmma's level in bfloat16 is known is 1.2 times as long."""
    weights = {"bfloat16": {"wgmma": {"any": math.log(1.2)}}}
    monkeypatch.setattr(fitted_times, "fit_of", lambda architecture: Fit(("H200",), weights))


def table(math_name: str = "bfloat16", extents: tuple[int, int, int] = (256, 384, 512)) -> CostTable:
    """The times of wgmma's configs, computed anew."""
    kernels = (kernel_named("wgmma"),)
    grouped.cache_clear()
    (first, *_) = weigh(dense_problem(*extents, math_name), H200, grouped(kernels, math_name))
    return first


def test_hopper_is_fitted_in_most_types() -> None:
    fit = fit_of("sm_90a")
    assert fit is not None
    assert set(fit.chips) == {"H100", "H200"}
    assert {"float32", "float64", "tf32", "float8_e4m3fn"} <= set(fit.weights) <= set(MATHS)


def test_a_plan_says_where_its_times_come_from() -> None:
    problem = dense_problem(512, 512, 512, "float32")
    chips = H200, replace(H100, name="NVIDIA H100 80GB HBM3"), replace(H200, name="NVIDIA H20"), A100
    known, named, other, unfitted = (str(make_plan(problem, device)) for device in chips)
    assert "times are fitted on H200 and H100;" in known
    assert "times are fitted on H200 and H100;" in named
    assert "scaled by this chip's facts: it was not fitted" in other
    assert "none of its architecture was fitted" in unfitted


@pytest.mark.usefixtures("one_weight")
def test_a_factor_is_applied_once_to_each_schedule_of_each_config() -> None:
    seconds = table().schedule_seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitted_times, "fit_of", lambda architecture: None)
        raw = table().schedule_seconds
    grouped.cache_clear()  # its columns keep the factors
    finite = np.isfinite(raw)
    expected = raw[finite] * np.exp(math.log(1.2) * FADES / (FADES + raw[finite]))
    assert seconds[finite] == pytest.approx(expected, rel=1e-12)


def test_long_products_keep_the_models_time() -> None:
    tables = table("tf32", (8192, 8192, 8192))
    fitted = effects(tables.problem, tables.rows, tables.device)
    assert fitted is not None
    for seconds, most in ((1e-3, LARGEST * 0.03), (3e-6, LARGEST)):
        times = corrected(np.full(tables.allowed.shape, seconds), fitted, *inputs(tables))
        logarithms = np.abs(np.log(times / seconds))
        assert 0.0 < logarithms.max() <= most


def test_what_was_not_measured_has_no_factors() -> None:
    plain = dense_problem(256, 384, 512, "tf32")
    rows = table("tf32").rows
    assert effects(plain, rows, H200) is not None
    assert effects(dense_problem(256, 384, 512, "tf32", batch=4), rows, H200) is None
    assert effects(plain, rows, A100) is None


@pytest.mark.parametrize("math_name", ["float32", "float64", "tf32"])
def test_plain_numbers_have_the_factors_of_columns(math_name: str) -> None:
    """A fallback is chosen by the one, the full choice by the other."""
    problem = dense_problem(300, 401, 777, math_name)
    for tables in weigh(problem, H200, grouped(every_kernel(), problem.math)):
        if not tables.any or tables.rows.kernels[0].family.scalar_schedules is None:
            continue
        for column in np.flatnonzero(tables.accepted).tolist()[:4]:
            kernel, config = tables.rows.kernels[column], tables.rows.configs[column]
            row = config_alone(kernel, config, problem.math).scalar_row
            option = tables.options.at(0, column)
            alone = ScalarOption(grids_of(tables.problem, config), option)
            fitted = effects(tables.problem, tables.rows, tables.device)
            factors = corrected(np.full(tables.allowed.shape, 1e-6), fitted, *inputs(tables))
            plain = corrected(1e-6, effects(tables.problem, row, H200), tables.problem, H200, alone)
            assert plain == pytest.approx(
                float(np.broadcast_to(factors, tables.schedule_seconds.shape)[0, column]), rel=1e-9
            )


def inputs(tables: CostTable) -> Any:
    return tables.problem, tables.device, tables.options


def test_ragged_lines_have_weights_of_their_own() -> None:
    (config, _), *_ = table().rows.kernels[0].configs_for("bfloat16")
    weights = {"any": 0.1, "ragged, any": 0.02, f"tile {config.bm}x{config.bn}": -0.3}
    assert effects_of(weights, config, with_ragged_lines=False)[0] == pytest.approx(-0.2)
    assert effects_of(weights, config, with_ragged_lines=True)[0] == pytest.approx(-0.18)
    assert len(effects_of(weights, config, with_ragged_lines=True)) == 1 + len(SLOPES)
    assert len(static_terms(config, with_ragged_lines=True)) == 2 * len(
        static_terms(config, with_ragged_lines=False)
    )


def test_what_is_written_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hopper = fit_of("sm_90a")
    assert hopper is not None
    monkeypatch.setattr(fitted_times, "FOLDER", tmp_path)
    new = Fit(("RTX 4090",), hopper.weights)
    write(new, path_of("sm_89"))
    try:
        assert [path.name for path in tmp_path.glob("*")] == ["sm_89.json"]
        assert fit_of("sm_89") == new
    finally:
        fit_of.cache_clear()
