"""Plans that are copied or pickled: the same choice, in this process or in another one."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.device import chip
from lapidist.kernels.registry import KERNELS

A, B, C = (np.arange(64, dtype=np.float32).reshape(8, 8) % number for number in (3, 5, 7))
PLACES = pytest.mark.parametrize("device", [None, "machine"])
COPIES = pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda plan: pickle.loads(pickle.dumps(plan))],
    ids=["copy", "deep", "pickle"],
)


@lapidist.epilogue
def scaled_and_summed(acc: Any, scale: lapidist.Row) -> Any:
    return acc * scale, lapidist.row_sum(acc)


PLANS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "planned": lambda device: (lapidist.plan(A, B, C, alpha=2.0, beta=3.0, device=device), A, B, C),
    "factors": lambda device: (lapidist.plan(A, B, alpha=np.full(1, 2, "f4"), device=device), A, B),
    "epilogue": lambda device: (
        lapidist.plan(A, B, epilogue=scaled_and_summed(scale=C[1]), device=device),
        A,
        B,
    ),
    "lists": lambda device: (lapidist.plan([A, B], [B, A], device=device), [A, B], [B, A]),
    "lists with an epilogue": lambda device: (
        lapidist.plan([A, B], [B, A], epilogue=scaled_and_summed(scale=C[1]), device=device),
        [A, B],
        [B, A],
    ),
}


def flat(results: Any) -> list[Any]:
    """The arrays of lists and tuples of results."""
    if not isinstance(results, (list, tuple)):
        return [results]
    return [array for each in results for array in flat(each)]


@pytest.mark.often(3)
@PLACES
@COPIES
@pytest.mark.parametrize("what", PLANS)
def test_a_copy_does_the_same(what: str, copied: Any, device: str | None) -> None:
    plan, *given = PLANS[what](device)
    expected = plan.execute(*given)
    found = copied(plan)
    for one, other in zip(flat(found.execute(*given)), flat(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    assert str(found) == str(plan)
    assert found.plan is None or found.plan.kernel is plan.plan.kernel


@COPIES
def test_named_kernels_keep_their_identity(copied: Any) -> None:
    assert all(copied(kernel) is kernel for kernel in KERNELS)


def test_a_row_that_was_changed_stays_changed() -> None:
    changed = replace(KERNELS[0], idea="another")
    assert copy.deepcopy(changed).idea == "another"


def test_another_process_runs_it(tmp_path: Path) -> None:
    plan = lapidist.plan(A, B, device="machine", kernel="thread_tile")
    (tmp_path / "plan").write_bytes(pickle.dumps((plan, A, B, plan.execute(A, B))))
    code = (
        "import pickle, sys\n"
        "plan, a, b, expected = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert (plan.execute(a, b) == expected).all() and 'thread_tile' in repr(plan)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "plan")], check=True)


@pytest.mark.parametrize("lists", [False, True])
def test_another_chip_is_refused(monkeypatch: pytest.MonkeyPatch, lists: bool) -> None:
    given = ([A], [B]) if lists else (A, B)
    kept = pickle.dumps(lapidist.plan(*given, device="machine"))
    monkeypatch.setattr("lapidist.backends.machine_backend.MachineBackend.chip", chip("h100"))
    with pytest.raises(lapidist.DeviceError, match=r"plan: .* on H200; got one here on H100.* Plan again"):
        pickle.loads(kept)


@pytest.mark.parametrize("lists", [False, True])
def test_a_workspace_belongs_to_one_plan(lists: bool) -> None:
    room = np.zeros(1 << 20, np.uint8)
    room = room[-room.ctypes.data % 256 :]
    given = ([A], [B]) if lists else (A, B)
    plan = lapidist.plan(*given, device="machine", workspace=room)
    with pytest.raises(lapidist.ArgumentError, match=r"workspace: .* neither copied nor pickled"):
        copy.deepcopy(plan)
