"""Weights of a type's kernels, fitted to measured times, and judged on products that were left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lapidist.device import Device
from lapidist.kernels.config_table import grids_of
from lapidist.kernels.kernel_table import config_alone
from lapidist.kernels.vector_width import inputs_on_16_bytes
from lapidist.planning.cost_table import as_computed
from lapidist.planning.fitted_times import (
    BY_AREA,
    LARGEST,
    SLOPES,
    area_of,
    basis,
    chip_of,
    fading,
    static_terms,
)
from lapidist.schedule.schedule_options import ScalarOption, ScheduleOption
from lapidist_lab.fit.samples import Measurements, by_product, problem_of_case

FOLDS = 5
PENALTIES = 0.1, 0.3, 1.0, 3.0, 10.0  # of a squared weight; the best one is taken
LEVEL = 0.3  # how much a product's mean error counts: candidates are compared within products
NEAR = 4  # a sample counts as (fastest / its time) to this power: slow candidates are not chosen anyway
# Weights of a type are kept if choices lose at most this share of what they lost. Less may be chance, and
# the model was fitted to other products, too.
WORTH_FITTING = 0.8
LEAST_WEIGHT = 1e-3  # smaller weights are left out

Term = tuple[str, str]  # a kernel's name and one of its terms


class Row(NamedTuple):
    """A sample with the model's time and the terms of its weights."""

    product: int
    seconds: float
    model: float  # seconds without factors
    terms: Mapping[Term, float]


class Judgement(NamedTuple):
    """Errors of times, and how much longer choices take than the fastest candidate, as factors."""

    products: int
    error: float
    regret: float
    worst: float

    @property
    def words(self) -> str:
        return (
            f"times off by {self.error - 1:.1%}, choices {self.regret - 1:.1%} over the fastest,"
            f" {self.worst - 1:.1%} at worst"
        )

    def __str__(self) -> str:
        return f"{self.products} products, {self.words}"


# ---- rows ----


def rows_of(measurements: Measurements, math_name: str, first: int = 0) -> list[Row]:
    """A row for each sample of a type; of samples with the same candidate the first. Products count from
    `first`.
    """
    rows, device = [], measurements.device
    samples = [sample for sample in measurements.samples if sample.case.math == math_name]
    for product, (case, group) in enumerate(by_product(samples).items(), first):
        problem, candidates = problem_of_case(case), set()
        for sample in group:
            candidate = sample.candidate(problem, device)
            key = candidate.kernel, candidate.config, str(candidate.schedule)
            if key in candidates or candidate.refusal is not None:
                continue
            candidates.add(key)
            computed = as_computed(problem, candidate.config)
            columns = config_alone(candidate.kernel, candidate.config, problem.math).scalar_row
            option = ScalarOption(grids_of(computed, candidate.config), ScheduleOption.of(candidate.schedule))
            share = fading(candidate.seconds)
            terms = {
                (candidate.kernel.name, name): value * share
                for name, value in terms_of(candidate.config, computed, columns, device, option).items()
            }
            rows.append(Row(product, sample.seconds, candidate.seconds, terms))
    return rows


def terms_of(config: Any, problem: Any, columns: Any, device: Device, option: Any) -> dict[str, float]:
    """What each weight is multiplied by."""
    terms = dict.fromkeys(static_terms(config, not inputs_on_16_bytes(problem)), 1.0)
    area = area_of(config)
    for name, value in zip(SLOPES, basis(problem, columns.cluster, device, option), strict=True):
        terms[name], terms[name + BY_AREA] = float(value), area * float(value)
    return terms


# ---- weights ----


class Design(NamedTuple):
    """Rows as arrays."""

    products: Any
    measured: Any  # logarithms
    model: Any
    matrix: Any
    terms: list[Term]

    @staticmethod
    def of(rows: Sequence[Row]) -> Design:
        terms = sorted({term for row in rows for term in row.terms})
        place = {term: number for number, term in enumerate(terms)}
        matrix = np.zeros((len(rows), len(terms)))
        for number, row in enumerate(rows):
            for term, value in row.terms.items():
                matrix[number, place[term]] = value
        products = np.array([row.product for row in rows])
        measured = np.log([row.seconds for row in rows])
        return Design(products, measured, np.log([row.model for row in rows]), matrix, terms)

    def part(self, chosen: Any) -> Design:
        return Design(
            self.products[chosen], self.measured[chosen], self.model[chosen], self.matrix[chosen], self.terms
        )


def solve(design: Design, penalty: float) -> Any:
    """Weights by ridge regression of log(measured / model), mostly within products."""
    target, matrix = design.measured - design.model, design.matrix.copy()
    target, importance = target.copy(), np.zeros(len(target))
    for product in np.unique(design.products):
        at = design.products == product
        importance[at] = np.exp(NEAR * (design.measured[at].min() - design.measured[at]))
        share = importance[at] / importance[at].sum()
        target[at] -= (1.0 - LEVEL) * (share @ target[at])
        matrix[at] -= (1.0 - LEVEL) * (share @ matrix[at])
    weighted = matrix * importance[:, None]
    normal = matrix.T @ weighted + penalty * np.eye(matrix.shape[1])
    return np.linalg.solve(normal, weighted.T @ target)


def logarithms(design: Design, weights: Any) -> Any:
    """Predicted logarithms with these weights."""
    most = LARGEST * fading(np.exp(design.model))
    return design.model + np.clip(design.matrix @ weights, -most, most)


def judged(design: Design, predicted: Any) -> Judgement:
    losses, errors = [], []
    for product in np.unique(design.products):
        at = design.products == product
        measured, choice = design.measured[at], int(predicted[at].argmin())
        losses.append(measured[choice] - measured.min())
        errors.append(float(np.mean((measured - predicted[at]) ** 2)))
    return Judgement(
        len(losses), math.exp(math.sqrt(np.mean(errors))), math.exp(np.mean(losses)), math.exp(max(losses))
    )


def left_out(design: Design, penalty: float) -> Any:
    """Predicted logarithms of each product by weights that were fitted to other ones."""
    predicted = np.empty(len(design.measured))
    for fold in range(FOLDS):
        tested = design.products % FOLDS == fold
        predicted[tested] = logarithms(design.part(tested), solve(design.part(~tested), penalty))
    return predicted


class FittedType(NamedTuple):
    """The weights of one type's kernels, and judgements of each chip without and with them."""

    weights: dict[str, dict[str, float]]
    judgements: dict[str, tuple[Judgement, Judgement]]  # with them: on products that were left out
    helps: bool

    def lines(self, math_name: str) -> list[str]:
        words = [
            f"{math_name} on {chip}: {before}; fitted, {after.words}"
            for chip, (before, after) in self.judgements.items()
        ]
        return words if self.helps else [*words, f"{math_name}: left as it was, as choices gain too little"]

    def json_lines(self, math_name: str) -> list[str]:
        return [
            json.dumps(
                {"type": math_name, "chip": chip, "before": before._asdict(), "after": after._asdict()}
            )
            for chip, (before, after) in self.judgements.items()
        ]


def fit(all_measurements: Sequence[Measurements], math_name: str) -> FittedType | None:
    """The weights with which choices lose least on products that were left out. None without samples."""
    rows: list[Row] = []
    chips: dict[str, slice] = {}
    for measurements in all_measurements:
        start = len(rows)
        rows += rows_of(measurements, math_name, 1 + rows[-1].product if rows else 0)
        if len(rows) > start:
            chips[chip_of(measurements.device)] = slice(start, len(rows))
    if not rows:
        return None
    design = Design.of(rows)
    predictions = {penalty: left_out(design, penalty) for penalty in PENALTIES}
    penalty = min(predictions, key=lambda penalty: judged(design, predictions[penalty]).regret)
    before, after = (judged(design, predicted) for predicted in (design.model, predictions[penalty]))
    judgements = {
        chip: (
            judged(design.part(span), design.model[span]),
            judged(design.part(span), predictions[penalty][span]),
        )
        for chip, span in chips.items()
    }
    helps = after.regret - 1.0 <= WORTH_FITTING * (before.regret - 1.0)
    return FittedType(named(design.terms, solve(design, penalty)) if helps else {}, judgements, helps)


def named(terms: Sequence[Term], weights: Any) -> dict[str, dict[str, float]]:
    by_kernel: dict[str, dict[str, float]] = {}
    for (kernel, name), weight in zip(terms, weights.tolist(), strict=True):
        if abs(weight) >= LEAST_WEIGHT:
            by_kernel.setdefault(kernel, {})[name] = round(weight, 4)
    return by_kernel
