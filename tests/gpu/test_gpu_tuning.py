"""On a GPU: the tuner's measurements, the plans that come of them, and the peer that pads by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lapidist.planning.tuned import SWITCH, look_up
from lapidist.verify.sum_bound import judge
from lapidist_lab.bench.protocol.array_library import Torch
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import KernelContender
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.peers import Compiled, Padded
from lapidist_lab.bench.protocol.timing import SHORT, TUNE
from lapidist_lab.bench.studies.tuning import run

pytestmark = pytest.mark.gpu


def test_tune_keeps_what_plans_then_take(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lapidist

    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((256, 1024), (1024, 384)))
    before = lapidist.plan(a, b).plan
    conditions, records, found = run([Case(256, 384, 1024, "float16")], 0, 6)
    assert len(records) == 7  # cuBLAS, and six ways
    assert conditions.mode == TUNE.mode
    assert all(record.ok for record in records if record.error is None)
    assert len(found) == 1
    after = lapidist.plan(a, b)
    winner, warning = look_up(after.plan.callers_problem, after.plan.device)
    assert warning == ""
    assert winner is not None
    assert "lapidist tune" in str(after.plan)
    assert (after.plan.kernel.name, after.plan.config) == (winner.kernel, winner.config)
    assert winner.seconds <= winner.planned_seconds
    assert before.tuned == ""
    assert judge(after.execute(a, b), a, b, unit=after.plan.kernel.unit).ok


@pytest.mark.parametrize("shape", [(129, 257, 63), (64, 64, 64), (100, 33, 128), (16, 128, 75)], ids=str)
@pytest.mark.parametrize("layout", ["rr", "rc", "cr"])
def test_padding_by_hand_multiplies(torch: Any, shape: tuple[int, int, int], layout: str) -> None:
    """A peer that is wrong would be no peer."""
    case = Case(*shape, "bfloat16", layout)
    with Stage(0, SHORT, Torch()) as stage:
        cublas, padded, ours = stage.measure(
            case, [stage_vendor(stage), Padded(stage.framework, case.math), KernelContender(None, case.math)]
        )
    for record in (cublas, padded, ours):
        assert record.ok, record.error
        assert record.seconds
        assert record.layout == f"{layout}r"


# torch's own compiler uses what another part of torch no longer wants
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_torch_compiles_multiplies(torch: Any) -> None:
    """Its graph must find its arrays where they were, whatever is made after it."""
    case = Case(1031, 1025, 1027, "bfloat16")
    assert Compiled.takes(case)
    with Stage(0, SHORT, Torch()) as stage:
        records = stage.measure(
            case,
            [stage_vendor(stage), Compiled(stage.framework, case.math), Padded(stage.framework, case.math)],
        )
    for record in records:
        assert record.ok, record.error
        assert record.seconds


def stage_vendor(stage: Stage) -> Any:
    from lapidist_lab.bench.protocol.peers import Vendor

    return Vendor(stage.framework, "bfloat16")
