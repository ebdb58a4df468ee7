"""Configs as columns: an array for each knob, so that one formula weighs all configs of a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs
from lapidist.kernels.halves import halved, sides
from lapidist.problems.problem import Problem
from lapidist.schedule.schedule_options import Grids

KNOBS = {field.name: field.default for field in fields(Config)}


class Columns(Knobs):
    """Many configs: an array for each knob, or one value for all of them."""

    def __init__(self, **knobs: Any) -> None:
        self.__dict__.update({name: np.asarray(knobs.get(name, value)) for name, value in KNOBS.items()})

    @staticmethod
    def of(configs: Sequence[Config]) -> Columns:
        table = np.array([[int(getattr(config, name)) for config in configs] for name in KNOBS], np.int64)
        return Columns(**dict(zip(KNOBS, table, strict=True)))

    @cached_property
    def consumers(self) -> Any:
        return super().consumers

    @cached_property
    def cluster(self) -> Any:
        return super().cluster


def grids_of(problem: Problem, config: Knobs, walks: Any = False) -> Grids:
    """The grid of tiles of each config; the tiles of a cluster count as one. `walks`: whose kernels compute
    only the tiles that meet one triangle.
    """
    bm, bn = sides(config)
    half = halved(problem, config, walks) if problem.triangle else None
    return Grids.of(problem.m, problem.n, problem.k, bm, bn, config.bk, prod(problem.batch), half)
