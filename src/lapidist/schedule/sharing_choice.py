"""How blocks of a launch share the work: what the caller fixes and what is left to the planner."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from lapidist.config import AUTO
from lapidist.dtypes import integer_from
from lapidist.errors import ArgumentError, shown
from lapidist.schedule import CostModel, Raster, Schedule, TileGrid, data_parallel, split_k, stream_k

ScheduleName = Literal["auto", "data_parallel", "stream_k"]
Reduction = Literal["turnstile", "separate", "cluster", "atomic"]
KINDS = (AUTO, "data_parallel", "stream_k")
REDUCTIONS = ("turnstile", "separate", "cluster", "atomic")


def is_word(value: object, words: tuple[str, ...]) -> bool:
    """Whether it is one of these strings. An array must not be compared with a string, which would give an
    array.
    """
    return isinstance(value, str) and value in words


@dataclass(frozen=True, slots=True)
class Sharing:
    """The caller's choices; None and "auto" leave one to the planner. Hashable, as a part of the key of
    remembered plans.
    """

    schedule: ScheduleName | Schedule = AUTO
    split_k: int | Literal["auto"] = AUTO
    reduction: Reduction | None = None
    avail_sms: int | None = None
    deterministic: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule) and not is_word(self.schedule, KINDS):
            kinds = ", ".join(KINDS)
            raise ArgumentError(
                f"schedule: must be one of {kinds} or a lapidist.schedule.Schedule; got"
                f" {shown(self.schedule)}. "
                "Leave it out to let the planner choose"
            )
        if not is_word(self.split_k, (AUTO,)):
            self._count("split_k", 'must be "auto" or a whole number from 1 on', "1 splits nothing")
        if self.split_k != AUTO and self.schedule != AUTO:
            raise ArgumentError(
                f"split_k: is a schedule of its own; got split_k={self.split_k} and a schedule. Pass one of"
                " them"
            )
        if self.avail_sms is not None:
            self._count("avail_sms", "must be a whole number from 1 on", "Leave it out to use the whole chip")
        if self.reduction is not None and not is_word(self.reduction, REDUCTIONS):
            raise ArgumentError(
                f"reduction: must be one of {', '.join(REDUCTIONS)}, or None; got {shown(self.reduction)}. "
                "Leave it out to let the planner choose"
            )
        if not isinstance(self.deterministic, bool):
            raise ArgumentError(
                f"deterministic: must be True or False; got {shown(self.deterministic)}. Call bool() on it"
            )
        if self.reduction == "cluster" and self.schedule == "stream_k":
            raise ArgumentError(
                "reduction: 'cluster' is for a split-K of all tiles; got stream_k. Take 'turnstile'"
            )
        if self.deterministic and "atomic" in (self.reduction, getattr(self.schedule, "reduction", None)):
            raise ArgumentError(
                "reduction: 'atomic' adds in any order, and deterministic is True. Pass deterministic=False,"
                " or take 'turnstile'"
            )

    def _count(self, name: str, rule: str, way_out: str) -> None:
        given = getattr(self, name)
        count = integer_from(1, given)
        if count is None:
            raise ArgumentError(f"{name}: {rule}; got {shown(given)}. {way_out}")
        object.__setattr__(self, name, count)

    def __str__(self) -> str:
        """What the caller fixed, in the caller's notation."""
        names = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return ", ".join(f"{name}={getattr(self, name)}" for name in names) or "nothing"

    @property
    def asked_for(self) -> bool:
        """Whether the caller wants something that only kernels with schedules can do."""
        return self.schedule not in (AUTO, "data_parallel") or self.split_k not in (AUTO, 1)

    @property
    def open(self) -> bool:
        """Whether everything is left to the planner."""
        return (
            self.schedule == AUTO
            and self.split_k == AUTO
            and self.reduction is None
            and self.avail_sms is None
        )

    def schedule_of(
        self,
        grid: TileGrid,
        sms: int,
        per_sm: int,
        fragments: int,
        costs: CostModel,
        worth: float = 1.0,
        raster: Raster | None = None,
    ) -> Schedule:
        """The caller's schedule for these tiles; data-parallel if it is left open.

        `per_sm`: blocks that an SM holds; the load is balanced over all of them. `fragments`: parts into
        which a separate reduction may cut a tile. `worth`: as in stream_k.
        """
        if isinstance(self.schedule, Schedule):
            return fitting(self.schedule, grid)
        how = {"reduction": self.reduction or REDUCTIONS[0], "fragments": fragments, "raster": raster}
        if self.schedule == "stream_k":
            load = {"sms": sms, "avail_sms": self.avail_sms, "occupancy": per_sm}
            return stream_k(grid, costs=costs, worth=worth, **load, **how)  # type: ignore[arg-type]
        if isinstance(self.split_k, int) and self.split_k > 1:
            return split_k(grid, self.split_k, **how)  # type: ignore[arg-type]
        return data_parallel(grid, raster=raster)


PLANNED = Sharing()


def fitting(schedule: Schedule, grid: TileGrid) -> Schedule:
    if schedule.grid != grid:
        raise ArgumentError(
            f"schedule: must be made for the tiles of the kernel, {grid}; got one for {schedule.grid}. "
            "Pass kernel= and config= too, and make it for their tiles"
        )
    return schedule
