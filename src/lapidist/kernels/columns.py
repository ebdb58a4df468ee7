"""Configs as columns: an array for each knob, so that a formula weighs all configs of a family at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np

from lapidist.config import Config, Knobs

KNOBS = {each.name: each.default for each in fields(Config)}


class Columns(Knobs):
    """Many configs at once: an array for each knob, or one value for all of them."""

    def __init__(self, **knobs: Any) -> None:
        self.__dict__.update({name: np.asarray(knobs.get(name, value)) for name, value in KNOBS.items()})

    @staticmethod
    def of(configs: Sequence[Config]) -> Columns:
        table = np.array([[int(getattr(each, name)) for each in configs] for name in KNOBS], np.int64)
        return Columns(**dict(zip(KNOBS, table, strict=True)))

    @cached_property
    def consumers(self) -> Any:
        return super().consumers

    @cached_property
    def cluster(self) -> Any:
        return super().cluster
