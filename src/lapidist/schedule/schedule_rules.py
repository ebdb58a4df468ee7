"""The rules that every schedule obeys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapidist.errors import ArgumentError
from lapidist.launch import INT_LIMIT

if TYPE_CHECKING:
    from lapidist.schedule.units import Schedule

REDUCTIONS = ("none", "atomic", "turnstile", "separate", "cluster")
CLUSTER_MOST = 8  # blocks that a cluster may have on every chip with clusters


def check(schedule: Schedule) -> None:
    """Raise ArgumentError if the schedule breaks a rule."""
    grid = schedule.grid
    rules = [
        (
            "reduction",
            schedule.reduction,
            schedule.reduction in REDUCTIONS,
            f"must be one of {', '.join(REDUCTIONS)}",
        ),
        (
            "sk_tiles",
            schedule.sk_tiles,
            0 <= schedule.sk_tiles <= grid.tiles,
            f"must be between 0 and {grid.tiles}, the tiles",
        ),
        (
            "sk_blocks",
            schedule.sk_blocks,
            (schedule.sk_blocks > 0) == (schedule.sk_tiles > 0),
            "shared tiles need blocks",
        ),
        ("regions", schedule.regions, schedule.regions >= 1, "must be at least 1"),
        ("wave", schedule.wave, schedule.wave >= 1, "must be at least 1"),
        ("first_wave_tiles", schedule.first_wave_tiles, schedule.first_wave_tiles >= 1, "must be at least 1"),
        ("fragments", schedule.fragments, schedule.fragments >= 1, "must be at least 1"),
        (
            "launched",
            schedule.launched,
            schedule.launched >= 0,
            "must be 0 (one launched block a block) or a number of blocks",
        ),
        (
            "remap",
            schedule.remap,
            not (schedule.remap and schedule.launched),
            "must be off where blocks are persistent",
        ),
    ]
    for name, value, obeyed, rule in rules:
        if not obeyed:
            raise ArgumentError(f"{name}: {rule}; got {value}")
    if schedule.blocks > INT_LIMIT:
        raise ArgumentError(
            f"blocks: at most {INT_LIMIT} in one launch; got {schedule.blocks}. Take a larger tile, or split"
            " less"
        )
    if schedule.sk_blocks:
        check_shared(schedule)


def check_shared(schedule: Schedule) -> None:
    for name, count in (("sk_tiles", schedule.sk_tiles), ("sk_blocks", schedule.sk_blocks)):
        if count % schedule.regions:
            raise ArgumentError(
                f"regions: must divide {name}, {count}; got {schedule.regions}. Take a divisor, or 1"
            )
    if schedule.region_iterations > INT_LIMIT:
        raise ArgumentError(
            f"iterations: at most {INT_LIMIT} in one region; got {schedule.region_iterations}. Take more"
            " regions"
        )
    if schedule.normal_iterations < 1:
        limit = schedule.region_iterations * schedule.regions
        raise ArgumentError(
            f"sk_blocks: each needs an iteration, of which there are {limit}; got {schedule.sk_blocks}"
        )
    if schedule.reduction == "cluster":
        check_clusters(schedule)
    if schedule.reduction == "none" and schedule.shares_tiles:
        raise ArgumentError(
            "reduction: must not be 'none' where blocks share tiles. Take turnstile, atomic or separate"
        )


def check_clusters(schedule: Schedule) -> None:
    if schedule.regions != schedule.grid.tiles or schedule.launched:
        raise ArgumentError(
            "reduction: 'cluster' is for a split-K of all tiles; got another schedule. Take turnstile"
        )
    if schedule.cluster > CLUSTER_MOST:
        most = f"a cluster has at most {CLUSTER_MOST} blocks"
        raise ArgumentError(f"split_k: {most}; got {schedule.cluster}. Split less, or reduce another way")
