"""On a GPU, with torch: 8-bit floats with factors in every form, promoted sums, pairs of types; and batches
that are packed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.dtypes import FP8
from lapidist.kernels.mma.family import MMA_FAMILY
from lapidist.kernels.rules.tensor import PROMOTED_SUMS
from lapidist.kernels.wgmma.family import WGMMA_FAMILY
from lapidist.verify.sum_bound import judge
from on_gpu import laid_out, normal, poisoned
from scale_cases import PAIRS, factors

pytestmark = pytest.mark.gpu
M, N, K = 333, 720, 1040


def on_gpu(torch: Any, scale: Any) -> Any:
    return torch.from_numpy(scale).cuda() if isinstance(scale, np.ndarray) else scale


@pytest.mark.parametrize("kernel", ["wgmma", "mma"])
@pytest.mark.parametrize("output", ["float32", "bfloat16"])
@pytest.mark.parametrize(("a_form", "b_form"), PAIRS)
def test_every_form(
    torch: Any, rng: np.random.Generator, a_form: str, b_form: str, output: str, kernel: str
) -> None:
    for left, right in (FP8, FP8[::-1]):
        a, b = normal(torch, M, K, dtype=left), normal(torch, N, K, dtype=right).T
        scales = {
            "scale_a": on_gpu(torch, factors(rng, a_form, M, K)),
            "scale_b": on_gpu(torch, factors(rng, b_form, N, K, of_b=True)),
        }
        d = lapidist.gemm(a, b, out_dtype=output, kernel=kernel, **scales)
        assert judge(
            d, a, b, promoted={a_form, b_form} & {"strips", "squares"} != set(), unit=kernel, **scales
        ).ok


TILES = [config for config, _ in WGMMA_FAMILY.configs_for(FP8[0])]


@pytest.mark.parametrize("config", TILES, ids=str)
def test_every_tile(torch: Any, rng: np.random.Generator, config: Any) -> None:
    """Those with registers for sums and a part's products, shared memory for factors, and two of these along
    a row; the others refuse.
    """
    a, b = normal(torch, M, K, dtype=FP8[0]), normal(torch, N, K, dtype=FP8[0]).T
    scales = {
        "scale_a": on_gpu(torch, factors(rng, "strips", M, K)),
        "scale_b": on_gpu(torch, factors(rng, "squares", N, K, of_b=True)),
    }
    refused = ""
    try:
        d = lapidist.gemm(a, b, kernel="wgmma", config=config, **scales)
    except lapidist.RefusalError as refusal:
        refused = str(refusal)
    if refused:
        known = (
            "of shared memory",
            "may meet three",
            "have the products of a part beside them",
            "registers for its sums",
            "whose sums stay",
        )
        assert config.exchanged or any(words in refused for words in known)
    else:
        assert judge(d, a, b, promoted=True, unit="wgmma", **scales).ok


@pytest.mark.parametrize("sharing", [{}, {"split_k": 3}, {"schedule": "stream_k"}], ids=str)
@pytest.mark.parametrize("config", [config for config, _ in MMA_FAMILY.configs_for(FP8[0])], ids=str)
@pytest.mark.parametrize("layouts", ["rr", "cr", "cc", "ss"])
def test_every_tile_of_mma(
    torch: Any, rng: np.random.Generator, config: Any, layouts: str, sharing: dict[str, Any]
) -> None:
    """With C, in every layout, lines on 16 bytes and (strided) elsewhere; those with too few registers
    promote nothing.
    """
    fits = config.wm * config.wn <= PROMOTED_SUMS
    forms = ("strips", "squares") if fits else ("lines", "line")
    a, b = (normal(torch, 2 * rows, 2 * cols, dtype=FP8[0])[::2, ::2] for rows, cols in ((M, K), (K, N)))
    if layouts != "ss":
        a, b = (
            laid_out(each.contiguous(), {"r": "row", "c": "col"}[by])
            for each, by in zip((a, b), layouts, strict=True)
        )
    scales = {
        "scale_a": on_gpu(torch, factors(rng, forms[0], M, K)),
        "scale_b": on_gpu(torch, factors(rng, forms[1], N, K, of_b=True)),
    }
    c, out = normal(torch, M, N, dtype="bfloat16"), poisoned(torch, M, N, dtype="bfloat16")
    lapidist.gemm(a, b, c, beta=-0.5, out=out, kernel="mma", config=config, **sharing, **scales)
    assert judge(out, a, b, c, 1.0, -0.5, promoted=fits, unit="mma", **scales).ok


def test_what_wgmma_refuses_is_multiplied_by_mma(torch: Any, rng: np.random.Generator) -> None:
    a, b = normal(torch, 2 * M, 2 * K, dtype=FP8[0])[::2, ::2], normal(torch, K, N, dtype=FP8[1])
    scales = {"scale_a": on_gpu(torch, factors(rng, "strips", M, K)), "scale_b": 0.5}
    plan = lapidist.plan(a, b, **scales).plan
    assert plan is not None
    assert plan.kernel is MMA_FAMILY
    assert judge(lapidist.gemm(a, b, **scales), a, b, promoted=True, unit="mma", **scales).ok


def test_promotion_keeps_what_the_tensor_core_loses(torch: Any) -> None:
    a, b = (torch.rand(*shape, device="cuda").to(torch.float8_e4m3fn) for shape in ((256, 8192), (256, 8192)))
    kept, promoted = (
        lapidist.gemm(a, b.T, promote=each, kernel="wgmma", schedule="data_parallel")
        for each in (False, True)
    )
    assert judge(promoted, a, b.T, promoted=True, unit="wgmma").ok
    assert not judge(kept, a, b.T, promoted=True, unit="wgmma").ok  # 1.9 times the bound on an H200


@pytest.mark.parametrize("kernel", [None, "mma"])
def test_in_a_graph_with_factors_that_change(
    torch: Any, rng: np.random.Generator, kernel: str | None
) -> None:
    a, b = normal(torch, M, K, dtype=FP8[0]), normal(torch, N, K, dtype=FP8[0]).T
    scale_a, scale_b = (
        on_gpu(torch, factors(rng, form, size, K, of_b))
        for form, size, of_b in (("strips", M, False), ("squares", N, True))
    )
    out = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
    plan = lapidist.plan(a, b, out=out, scale_a=scale_a, scale_b=scale_b, kernel=kernel)
    plan.execute(a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.execute(a, b, out=out)
    scale_a.mul_(3.0)
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert judge(out, a, b, scale_a=scale_a, scale_b=scale_b, promoted=True).ok


def test_a_prepared_product_takes_other_factors(torch: Any, rng: np.random.Generator) -> None:
    a, b = normal(torch, 130, K, dtype=FP8[0]), normal(torch, 96, K, dtype=FP8[1]).T
    out = torch.empty(96, 130, device="cuda").T  # as D' = B' A'
    for form in ("strips", "strips", "line", "line", "number"):
        scale_a, scale_b = (
            on_gpu(torch, factors(rng, form, 130, K)),
            on_gpu(torch, factors(rng, "squares", 96, K, of_b=True)),
        )
        for d in (
            lapidist.matmul(a, b, scale_a=scale_a, scale_b=scale_b),
            lapidist.gemm(a, b, scale_a=scale_a, scale_b=scale_b, out=out),
        ):
            assert judge(d, a, b, scale_a=scale_a, scale_b=scale_b, promoted=True).ok


@pytest.mark.parametrize("math", ["bfloat16", "int8"])
def test_batches_that_are_packed(torch: Any, math: str) -> None:
    """Lines that start anywhere; B shared by half of the batch."""
    kind = getattr(torch, math)
    a = torch.randint(-4, 5, (2, 6, 130, 263), device="cuda").to(kind)[..., 1:]
    b = torch.randint(-4, 5, (6, 262, 77), device="cuda").to(kind)
    d = lapidist.matmul(a, b)
    assert lapidist.plan(a, b, kernel="wgmma").plan is not None
    assert judge(lapidist.gemm(a, b, kernel="wgmma"), a, b, exact=math == "int8").ok
    assert judge(d, a, b, exact=math == "int8").ok
