"""A Hopper pipeline with one thing wrong at a time: what is found, and that the report says where and by
whom.
"""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import run_ptx
from lapidist.machine.faults import (
    BarrierMisuse,
    MachineFault,
    MissingProxyFence,
    OutOfBounds,
    Race,
    Uninitialised,
)
from snippets import compiled

STEPS, SEEDS = 7, range(6)
ROWS = np.arange(STEPS * 256, dtype="f4").reshape(STEPS, 256) % 31


def run_pipeline(fault: int, **mode: object) -> np.ndarray:
    sums = np.full((2, STEPS, 256), np.nan, "f4")
    binary = compiled("pipeline.cu", "pipeline", FAULT=fault)
    run_ptx(
        binary.ptx,
        "pipeline",
        (2, 1, 1),
        (160, 1, 1),
        {0: ROWS, 1: sums, 2: STEPS},
        cluster=(2, 1, 1),
        **mode,
    )  # type: ignore[arg-type]
    return sums


@pytest.mark.often(2)
@pytest.mark.parametrize("mode", [{}, *({"sanitize": True, "seed": seed} for seed in SEEDS)], ids=str)
def test_the_sound_one_is_right(mode: dict[str, object]) -> None:
    assert (run_pipeline(0, **mode) == np.cumsum(ROWS, axis=0)).all()


BROKEN: dict[str, tuple[tuple[type[MachineFault], ...], str]] = {
    "arrives twice": ((Uninitialised, Race), "not waited for|nothing orders"),
    "expects no bytes": ((Uninitialised,), "not waited for|no one wrote"),
    "waits for the other parity": ((Uninitialised,), "not waited for|no one wrote"),
    "reads before the wait": ((Uninitialised,), "not waited for|no one wrote"),
    "no proxy fence before the store": ((MissingProxyFence,), r"without fence\.proxy\.async"),
    "loads before the stage is free": (
        (BarrierMisuse,),
        "1 arrivals at an mbarrier whose phase waits for 0 of 1",
    ),
    "writes what a store still reads": ((Race,), "source of an asynchronous operation"),
    "leaves before the others arrive": ((OutOfBounds,), "which has exited"),
    "loads before the others' barriers are there": (
        (BarrierMisuse, Race),
        "no mbarrier was initialised|nothing orders",
    ),
}


@pytest.mark.often(2)
@pytest.mark.parametrize(("fault", "name"), list(enumerate(BROKEN, 1)), ids=list(BROKEN))
def test_each_fault_is_found_and_placed(fault: int, name: str) -> None:
    kinds, words = BROKEN[name]
    found = []
    for seed in SEEDS:
        try:
            run_pipeline(fault, sanitize=True, seed=seed)
        except MachineFault as raised:
            found.append(raised)
    assert found, "no schedule found it"
    with pytest.raises(kinds, match=words):
        raise found[0]
    for each in found:
        for part in (
            "kernel pipeline, PTX line",
            "pipeline.cu:",
            "block (",
            "warp",
            "lane",
            "address 0x",
            "seed=",
        ):
            assert part in str(each)
