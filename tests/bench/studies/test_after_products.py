"""bench epilogue: our epilogue and torch's kernels give the same, within the bound that it judges
by.
"""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.epilogues.passes import GROUP
from lapidist.verify.sum_bound import Expected, expect, to_float64
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.studies.after_products import ENDINGS, SWIGLU, Ending, EpilogueArrays

pytestmark = pytest.mark.frameworks
CASE = Case(24, 2 * GROUP, 40, "bfloat16", "rc")


def beside(torch: Any, ending: Ending) -> EpilogueArrays:
    (m, n), kind = CASE.extents[:2], torch.bfloat16
    shapes = {
        "d": ((m, n), kind),
        "second": ((m, n), kind),
        "half": ((m, n // 2), kind),
        "largest": ((), torch.float32),
        "small": ((m, n), torch.float8_e4m3fn),
        "factors": ((m, n // GROUP), torch.float32),
    }
    results = [torch.zeros(shape, dtype=dtype) for shape, dtype in map(shapes.__getitem__, ending.stored)]
    return EpilogueArrays(torch.randn(n).to(kind), torch.randn(m, n).to(kind), tuple(results))


def of_product(torch: Any, ending: Ending, a: Any, b: Any, bias: Any, neighbours: bool) -> Expected:
    sums = expect(a, b, out_dtype=torch.float32)
    pair = sums.reference + (to_float64(bias) if ending.biased else 0), sums.bound
    if ending.name == SWIGLU and neighbours:
        pair = tuple(torch.cat([x[:, ::2], x[:, 1::2]], dim=1) for x in pair)
    return Expected(*pair)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_ours_and_torch_are_within_the_bound(ending: Ending) -> None:
    import torch

    torch.manual_seed(0)
    a, b = torch.randn(CASE.m, CASE.k).bfloat16(), torch.randn(CASE.n, CASE.k).bfloat16().T
    with_ours, with_torch = beside(torch, ending), beside(torch, ending)
    outs = with_ours.results if len(with_ours.results) > 1 else with_ours.results[0]
    lapidist.matmul(a, b, out=outs, epilogue=ending.bound_epilogue(with_ours))
    verdict = ending.expected(
        torch, of_product(torch, ending, a, b, with_ours.bias, True), with_ours, "bfloat16", 0
    ).judge(ending.combined(torch, with_ours.results))
    assert verdict.ok

    named = dict(zip(ending.stored, with_torch.results, strict=True))
    sums = named.get(ending.sums_in, torch.zeros(CASE.m, CASE.n, dtype=torch.bfloat16))
    if ending.biased:
        torch.addmm(with_torch.bias, a, b, out=sums)
    else:
        torch.mm(a, b, out=sums)
    ending.in_place(torch, sums, with_torch)
    expected = ending.expected(
        torch, of_product(torch, ending, a, b, with_torch.bias, False), with_torch, "bfloat16", 3
    )
    assert expected.judge(ending.combined(torch, with_torch.results)).ok
    with_torch.results[0].view(torch.uint8)[0, :8] ^= 0x40  # an exponent's bit
    assert not expected.judge(ending.combined(torch, with_torch.results)).ok
