"""Factors on the model's times, fitted to measurements of an architecture's chips by `lapidist fit`.

The model counts cycles, rounds and bytes. What is left is systematic: a tile shape is a little better than
its count, sharing costs more where k is short. The logarithm of a factor is a sum of weights: one for each
property of a config, and slopes along the depth of k, the waves of tiles and sharing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lapidist.config import Config
from lapidist.device import Device, known_as
from lapidist.kernels.kernel_table import Rows, ScalarRow
from lapidist.kernels.vector_width import inputs_on_16_bytes
from lapidist.problems.cached_fact import fact
from lapidist.problems.problem import Problem
from lapidist.schedule.numbers import Array
from lapidist.schedule.schedule_options import ScalarOption, ScheduleOptions

FOLDER = Path(__file__).with_name("fitted")  # a file for each architecture
# types that share what was fitted or chosen for another one: the same instructions at the same rate
ALIKE = {"float16": "bfloat16", "float8_e5m2": "float8_e4m3fn", "uint8": "int8"}
SLOPES = ("depth", "many waves", "few waves", "shared", "shared, depth", "shared, waves", "in a cluster")
BY_AREA = ", by area"  # of the tile
USUAL_DEPTH, USUAL_AREA = 10, 14  # log2 of k, and of a tile's elements, that count as zero
LARGEST = 0.4  # of the logarithm: no factor is trusted further
# Seconds at which half of the logarithm counts. What the model misses lies in short products: their starts,
# stores and waits. With 10 to 300 us choices on left-out products were as good; long ones keep their times.
FADES = 30e-6

Weights = Mapping[str, float]


class Effects(NamedTuple):
    """The weights of configs: columns of many, or plain numbers of one."""

    base: Any
    slopes: Any  # a row for each of SLOPES
    cluster: Any  # blocks


class Fit(NamedTuple):
    """What `lapidist fit` wrote for one architecture."""

    chips: tuple[str, ...]  # that were measured
    weights: Mapping[str, Mapping[str, Weights]]  # by math and kernel


# ---- the files ----


def path_of(architecture: str) -> Path:
    return FOLDER / f"{architecture}.json"


@cache
def fit_of(architecture: str) -> Fit | None:
    """Chips of an architecture share their factors. So they also share the order in which a product's k is
    summed.
    """
    path = path_of(architecture)
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    return Fit(tuple(content["chips"]), content["weights"])


def chip_of(device: Device) -> str:
    """The chip's name, without what the driver adds to it."""
    known = known_as(device.name)
    return known.name if known else device.name


def write(fit: Fit, path: Path) -> None:
    """Write a line for each kernel of each type."""
    types = [
        f" {json.dumps(math)}: {{\n"
        + ",\n".join(f"  {json.dumps(kernel)}: {json.dumps(terms)}" for kernel, terms in kernels.items())
        + "}"
        for math, kernels in fit.weights.items()
    ]
    chips = json.dumps(fit.chips)
    path.write_text(f'{{"chips": {chips}, "weights": {{\n' + ",\n".join(types) + "}}\n")
    fit_of.cache_clear()


def origin(device: Device) -> str:
    """Where the times of this chip come from, for plans."""
    fit = fit_of(device.architecture)
    if fit is None:
        return "the chip's facts alone: none of its architecture was fitted (`lapidist fit` does it)"
    chips = " and ".join(fit.chips)
    if chip_of(device) in fit.chips:
        return f"fitted on {chips}"
    return f"those of {chips}, scaled by this chip's facts: it was not fitted (`lapidist fit` does it)"


# ---- the factors ----


def static_terms(config: Config, with_ragged_lines: bool) -> list[str]:
    """The properties of a config that have weights. Where lines start anywhere they have further ones."""
    terms = [
        "any",
        f"tile {config.bm}x{config.bn}",
        f"warp {config.wm}x{config.wn}",
        f"step {config.bk}",
        f"cluster {config.cluster_m}x{config.cluster_n}",
        *(["ping-pong"] if config.ping_pong else []),
        *(["exchanged"] if config.exchanged else []),
        *(["shifted"] if config.skewed else []),
        *([f"slices {config.slices} of {config.bm}x{config.bn}"] if config.slices > 1 else []),
    ]
    return terms + [f"ragged, {term}" for term in terms] if with_ragged_lines else terms


def area_of(config: Config) -> float:
    return log2(max(1, config.bm * config.bn * config.cluster)) - USUAL_AREA


def basis(problem: Problem, cluster: Any, device: Device, options: Any) -> tuple[Any, ...]:
    """What the slopes multiply, for each schedule of each config. Plain numbers have the bits of columns."""
    tiles, shares = options.grid.tiles * cluster, options.shares_tiles
    depth, waves = log2(problem.k) - USUAL_DEPTH, np.log2((tiles + (tiles == 0)) / device.sms)
    if waves.__class__ is not Array:
        waves = float(waves)
    many, few = waves * (waves > 0), waves * (waves <= 0)
    return depth, many, few, shares, shares * depth, shares * waves, options.cluster > 1


def effects_of(weights: Weights, config: Config, with_ragged_lines: bool) -> list[float]:
    """The base and the slopes of one config."""
    area = area_of(config)
    slopes = [weights.get(name, 0.0) + area * weights.get(name + BY_AREA, 0.0) for name in SLOPES]
    return [sum(weights.get(term, 0.0) for term in static_terms(config, with_ragged_lines)), *slopes]


def effects(problem: Problem, rows: Rows | ScalarRow, device: Device) -> Effects | None:
    """The effects of these configs for problems with such lines on this chip. None where nothing was
    measured: batches and epilogues, and types whose choices a fit did not improve.
    """
    if problem.batch or (problem.fused is not None and not problem.fused.is_bias):
        return None
    key = "effects", device.capability, problem.math, ragged(problem)
    if key not in rows.cached:
        fit = fit_of(device.architecture)
        by_kernel = fit.weights.get(ALIKE.get(problem.math, problem.math)) if fit else None
        rows.cached[key] = effects_by(by_kernel, rows, ragged(problem)) if by_kernel else None
    answer: Effects | None = rows.cached[key]
    return answer


@fact
def ragged(problem: Problem) -> bool:
    return not inputs_on_16_bytes(problem)


def effects_by(weights: Mapping[str, Weights], rows: Rows | ScalarRow, with_ragged_lines: bool) -> Effects:
    binaries = zip(rows.kernels, rows.configs, strict=True)
    columns = [
        effects_of(weights.get(kernel.name, {}), config, with_ragged_lines) for kernel, config in binaries
    ]
    base, *slopes = map(rows.column, zip(*columns, strict=True))
    return Effects(base, slopes, rows.cluster)


def fading(seconds: Any) -> Any:
    """The part of the logarithm that counts for a product of so many seconds."""
    return FADES / (FADES + seconds)


def corrected(
    seconds: Any,
    fitted: Effects | None,
    problem: Problem,
    device: Device,
    options: ScheduleOptions | ScalarOption,
) -> Any:
    """The model's time of each schedule of each config, times its factor. `problem`: as the kernel computes
    it.
    """
    if fitted is None or not problem.k:
        return seconds
    logarithm = fitted.base
    for slope, value in zip(fitted.slopes, basis(problem, fitted.cluster, device, options), strict=True):
        logarithm = logarithm + slope * value
    share = fading(seconds)
    if logarithm.__class__ is Array:
        return seconds * np.exp(np.clip(logarithm, -LARGEST, LARGEST) * share)
    return seconds * float(np.exp(min(max(logarithm, -LARGEST), LARGEST) * share))
