"""Rows of D that wgmma stores at their owners, each by a map of its own. Nothing else is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from in_turns import in_turns
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of
from lapidist.calls.operation import Operation, Types
from lapidist.config import Config
from lapidist.device import chip
from lapidist.errors import RefusalError
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.launch import Launch, Memory
from lapidist.machine.together import Devices
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.workspace import Scratch
from lapidist.problems.owners import Owners

Array = np.ndarray[Any, Any]
H200 = chip("h200")
TILE = tile("float16", 64, 32, 3)
CONFIGS = {
    "one warpgroup": TILE,
    "a pair along m": tile("float16", 64, 32, 3, (2, 1)),
    "exchanged": replace(TILE, exchanged=True),
    "two warpgroups": tile("float16", 128, 64, 4),
    "the planner's": None,
}


def launched(
    a: Array, b: Array, slots: list[Array], config: Config | None, first: int = 0
) -> tuple[Plan, Launch, Array]:
    """The launch, and D, which stays as it is."""
    owners = Owners(tuple(slot.ctypes.data for slot in slots), len(slots[0]), first)
    bound = Bound(a, b, None, None, Operation(types=Types(owners=owners)))
    plan = make_plan(bound.problem(), H200, kernel_named("wgmma"), config)
    d, target = output_of(bound)
    d[:] = -1
    scratch = Scratch(plan) if plan.workspace_bytes else None
    launch = plan.launch(bound.a, bound.b, None, target, 1.0, 0.0, workspace=scratch)
    memory = [Memory(f"owner {place}", x.ctypes.data, x.nbytes, x) for place, x in enumerate(slots)]
    return plan, replace(launch, memory=(*launch.memory, *memory)), d


def operands(rng: np.random.Generator, rows: int, n: int = 40, k: int = 72) -> tuple[Array, Array]:
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((rows, k), (k, n)))
    return a, b


@pytest.mark.often(1)
@pytest.mark.parametrize(
    ("name", "rows", "owners"),
    in_turns(CONFIGS, (128, 48), (2, 3), leave=[("exchanged", 48, 2), ("exchanged", 48, 3)]),
)
def test_each_owner_gets_its_rows(rng: np.random.Generator, name: str, rows: int, owners: int) -> None:
    """Tiles that end with an owner's rows, and tiles that two or three of them share."""
    a, b = operands(rng, owners * rows)
    slots = [np.full((rows, b.shape[1]), np.nan, np.float16) for _ in range(owners)]
    _, launch, d = launched(a, b, slots, CONFIGS[name], owners - 1)
    Devices(0).run([launch])
    assert (np.concatenate(slots).astype("f8") == a.astype("f8") @ b.astype("f8")).all()
    assert (d == -1).all()


def test_the_last_owner_may_have_fewer_rows(rng: np.random.Generator) -> None:
    a, b = operands(rng, 100)
    slots = [np.full((rows, 40), np.nan, np.float16) for rows in (64, 40)]
    slots[1][36:] = 7
    _, launch, _ = launched(a, b, slots, TILE)
    Devices(0).run([launch])
    assert (np.concatenate(slots)[:100].astype("f8") == a.astype("f8") @ b.astype("f8")).all()
    assert (slots[1][36:] == 7).all()


def test_kernels_that_have_one_matrix_refuse_owners(rng: np.random.Generator) -> None:
    a, b = operands(rng, 128)
    slots = [np.zeros((64, 40), np.float16) for _ in range(2)]
    plan, _, _ = launched(a, b, slots, None)
    assert "64 rows to each owner" in str(plan.problem)
    for name in ("mma", "small", "simt"):
        with pytest.raises(RefusalError, match="not to owners of its rows"):
            make_plan(plan.callers_problem, H200, kernel_named(name))
    with pytest.raises(RefusalError, match="rows of D that start on multiples of 16 bytes"):
        launched(a, b[:, :38], slots, None)
    with pytest.raises(RefusalError, match="TMA stores 16 rows at once, which have one owner; it has 40"):
        launched(a[:80], b, [slot[:40] for slot in slots], None)
    with pytest.raises(RefusalError, match="TMA stores 64 rows at once, which have one owner; it has 48"):
        launched(a[:96], b, [slot[:48] for slot in slots], CONFIGS["exchanged"])
