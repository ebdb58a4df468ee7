"""The bench on a GPU: what is measured is right, beside the vendor, and leaves the framework as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lapidist.dtypes import MATHS
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import choose
from lapidist_lab.bench.protocol.timing import BURST

pytestmark = pytest.mark.gpu


def test_a_measured_row_is_right_and_timed_beside_the_vendor() -> None:
    from lapidist_lab.bench.studies.ladder_runs import Work, on_gpu

    kept: list[int] = []
    works = [Work(Case(1000, 1004, 512), tuple(choose("coalesced,lapidist", False, "float32")))]
    conditions, records = on_gpu(works, 0, "burst", 2, lambda _, rows: kept.append(len(rows)))
    assert kept == [len(records)]
    assert conditions.driver is not None
    by_name = {record.kernel: record for record in records}
    assert by_name["cublas"].ratio == 1.0
    for record in records:
        assert record.ok, record.error
        assert record.seconds is not None
        assert record.worst is not None
        assert 0 < record.worst <= 1
    assert by_name["coalesced"].seconds > by_name["lapidist"].seconds


@pytest.mark.parametrize("math", [math for math in MATHS if math != "uint8"])
def test_every_type_is_measured_beside_the_vendor(math: str) -> None:
    from lapidist_lab.bench.studies.ladder_runs import Work, on_gpu

    works = [Work(Case(512, 256, 384, math), tuple(choose("lapidist", False, math)))]
    conditions, records = on_gpu(works, 0, "burst", 1, lambda *_: None)
    by_name = {record.kernel: record for record in records}
    ours, vendor = by_name["lapidist"], by_name["cublas"]
    assert ours.ok, ours.error
    assert (ours.dtype, ours.out_dtype) == (math, Case(1, 1, 1, math).out_dtype)
    assert "cuBLAS by torch" in (conditions.vendor or "")
    assert ("B as e4m3" in (conditions.vendor or "")) == (math == "float8_e5m2")
    assert vendor.ok, vendor.error
    assert ours.ratio is not None


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("math", ["float32", "float64", "bfloat16"])
def test_a_batch_is_measured_beside_the_vendor(math: str, layout: str) -> None:
    from lapidist_lab.bench.protocol.measure import Stage
    from lapidist_lab.bench.studies.batched_products import pair_of

    with Stage(0, replace(BURST, rounds=1)) as stage:
        rows = stage.measure(Case(48, 40, 64, math, layout, batch=7), pair_of(math, stage))
    for row in rows:
        assert row.ok, row.error
        assert row.batch == 7
    assert rows[1].ratio is not None


@pytest.mark.parametrize(
    ("way", "math"),
    [
        ("forward", "bfloat16"),
        ("to data", "bfloat16"),
        ("to weights", "bfloat16"),
        ("forward", "float8_e4m3fn"),
    ],
)
def test_groups_are_measured_beside_torch(way: str, math: str) -> None:
    from lapidist_lab.bench.studies.group_cases import Layer, case_of
    from lapidist_lab.bench.studies.group_contenders import contenders_of
    from lapidist_lab.bench.studies.grouped_products import GroupStage, with_peer_ratios

    case = case_of(Layer("Mixtral up", 4, 512, 1024), way, 1000, "zipf", math)
    with GroupStage(0, replace(BURST, rounds=1)) as stage:
        contenders = contenders_of(case, stage.framework)  # type: ignore[arg-type]
        rows = with_peer_ratios(case, stage.measure(case, contenders), stage.device)
    for row in rows:
        assert row.ok, (row.kernel, row.error)
    assert [row.kind for row in rows][:2] == ["peer", "production"]
    assert rows[1].ratio is not None


def test_torchs_switches_are_put_back() -> None:
    import torch

    from lapidist_lab.bench.protocol.array_library import Torch

    before = torch.backends.cuda.matmul.fp32_precision
    a, b, c = (torch.randn(256, 256, device="cuda") for _ in "abc")
    Torch().multiply("tf32", [a], [b], [c])(0)
    exact = a.double() @ b.double()
    assert (c - exact).abs().max() > 1e-3, "it was multiplied as tf32"
    Torch().multiply("float32", [a], [b], [c])(0)
    assert (c - exact).abs().max() < 1e-3
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapidist_lab.bench.protocol.contenders import KernelContender
    from lapidist_lab.bench.protocol.measure import Stage
    from lapidist_lab.bench.protocol.peers import Vendor

    class Lazy(KernelContender):
        """Does nothing: the poison stays."""

        def prepare(self, case, a, b, c):  # type: ignore[no-untyped-def]
            return lambda index: None

    with Stage(0, replace(BURST, rounds=1)) as stage:
        _, wrong = stage.measure(
            Case(64, 64, 64), (Vendor(stage.framework, "float32"), Lazy(None, "float32"))
        )
    assert not wrong.ok
    assert wrong.seconds is None
    assert "wrong result" in (wrong.error or "")


def test_the_framework_works_on_after_the_bench() -> None:
    """It must not be left on a stream that no longer exists."""
    import torch

    from lapidist_lab.bench.protocol.measure import Stage

    before = torch.cuda.current_stream()
    with Stage(0, BURST) as stage:
        assert torch.cuda.current_stream().cuda_stream == int(stage.stream.handle)
    del stage
    assert torch.cuda.current_stream() == before
    torch.manual_seed(0)
    assert torch.ones(3, device="cuda").sum().item() == 3
