"""On a GPU: packed experts whose rows are gathered and scattered, near decoded weights in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lapidist
from lapidist import quantised
from lapidist.quantised import product, ways
from lapidist.quantised.streamed_configs import BLOCKS_OF_ONE_SET, BLOCKS_OF_SM, COSTS_OF, Streamed

pytestmark = pytest.mark.gpu

TOKENS, EXPERTS, N, OUT_OF_RANGE = 50, 9, 520, 2**30
ULP = {"bfloat16": 2.0**-8, "float32": 0}


class Pairs:
    """Rows of x and places of results, in groups; those behind the last group lie nowhere."""

    def __init__(self, torch: Any, count: int, index: str = "int32") -> None:
        self.torch, self.count = torch, count
        how = {"device": "cuda", "dtype": getattr(torch, index)}
        self.ends, self.rows = torch.empty(EXPERTS, **how), torch.empty(count, **how)
        self.to, self.shares = torch.empty(count, **how), torch.rand(count + 9, device="cuda")
        self.draw()

    def draw(self) -> None:
        torch, count = self.torch, self.count
        self.ends.copy_(torch.sort(torch.randint(count, (EXPERTS,), device="cuda"))[0])
        self.rows.copy_(torch.randint(TOKENS, (count,), device="cuda"))
        self.to.copy_(torch.randperm(count + 9, device="cuda")[:count])
        self.rows[int(self.ends[-1]) :] = OUT_OF_RANGE
        self.to[int(self.ends[-1]) :] = OUT_OF_RANGE

    def multiply(self, x: Any, packed: Any, out: Any, **more: Any) -> None:
        how = {"gather_a": self.rows, "scatter_d": self.to, "out": out, **more}
        epilogue = lapidist.epilogues.scaled_rows(factors=self.shares)
        lapidist.grouped(x, packed, self.ends, epilogue=epilogue, **how)

    def require_near(self, out: Any, x: Any, packed: Any, kept: float) -> None:
        weights = quantised.unpack(packed, "float64")
        ulp, stored = ULP[str(out.dtype).removeprefix("torch.")], []
        for group, (begin, end) in enumerate(itertools.pairwise([0, *self.ends.tolist()])):
            to, left = self.to[begin:end].long(), x[self.rows[begin:end].long()]
            shares = self.shares[to, None].double()
            exact, terms = shares * (left @ weights[group]), shares * (left.abs() @ weights[group].abs())
            allowed = exact.abs() * (ulp + 2.0**-23) + terms * kept
            assert bool(((out[to].double() - exact).abs() <= allowed).all()), group
            stored.append(to)
        left_alone = self.torch.ones(len(out), dtype=self.torch.bool, device="cuda")
        left_alone[self.torch.cat(stored)] = False
        assert bool((out[left_alone] == 7).all())


@pytest.mark.parametrize(("count", "index"), [(20, "int32"), (400, "int64"), (5000, "int32")])
@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
def test_a_graph_routes_other_rows(torch: Any, format: str, count: int, index: str) -> None:
    """By both kernels and by decoded weights; replays see other ends and indices."""
    k = 1088  # half a stage at the end
    packed = quantised.pack(torch.randn(EXPERTS, k, N, device="cuda"), format)
    x = torch.randn(TOKENS, k, device="cuda", dtype=torch.bfloat16)
    out = torch.full((count + 9, N), 7.0, device="cuda", dtype=torch.bfloat16)
    pairs = Pairs(torch, count, index)
    pairs.multiply(x, packed, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pairs.multiply(x, packed, out)
    decoded = count // EXPERTS > ways.ROWS_OF_GROUPS
    for _ in range(3):
        pairs.draw()
        out.fill_(7)
        graph.replay()
        pairs.require_near(out, x.double(), packed, k * 2.0**-24 + decoded * ULP["bfloat16"])


@pytest.mark.parametrize(
    ("dtype", "format"),
    [("bfloat16", "int4"), ("bfloat16", "mxfp4"), ("float8_e4m3fn", "mxfp4"), ("int8", "int4")],
)
def test_each_config_gathers(torch: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, format: str) -> None:
    """Registers and stages as a chip has them; groups have more rows than a block, and less."""
    k, of_bytes = 1088, dtype != "bfloat16"
    one_set = BLOCKS_OF_ONE_SET if (dtype, format) == ("bfloat16", "mxfp4") else BLOCKS_OF_SM
    more = {"group": 64, "zero_points": True} if format == "int4" else {}
    packed = quantised.pack(torch.randn(EXPERTS, k, N, device="cuda"), format, **more)
    x = (torch.randn(TOKENS, k, device="cuda") * (30 if dtype == "int8" else 1)).to(getattr(torch, dtype))
    factors = torch.rand(TOKENS, device="cuda") + 0.5 if of_bytes else None
    meant = x.double() if factors is None else x.double() * factors[:, None].double()
    for lines in [
        *(lines for lines in COSTS_OF[2] if lines > 8),
        *([192] if of_bytes else []),
    ]:  # as of groups
        for groups, resident in (one_set if lines == 128 else BLOCKS_OF_SM)[lines]:
            for parts in (1, 3):
                config = Streamed(lines, groups, parts, 4 if lines == 192 else 3, resident)
                monkeypatch.setattr(product, "streamed_config", lambda *_, config=config: config)
                pairs = Pairs(torch, 3 * lines + 40)
                result = torch.float32 if of_bytes else torch.bfloat16
                out = torch.full((pairs.count + 9, N), 7.0, device="cuda", dtype=result)
                pairs.multiply(x, packed, out, scale_a=factors)
                kept = 2.0**-12 if dtype == "float8_e4m3fn" else 0
                pairs.require_near(out, meant, packed, kept + k * 2.0**-24)


def test_routed_rows_have_the_bits_of_copies(torch: Any) -> None:
    """What is gathered in the kernel is summed as rows that were copied before."""
    packed = quantised.pack(torch.randn(EXPERTS, 1024, N, device="cuda"), "mxfp4")
    x = torch.randn(TOKENS, 1024, device="cuda", dtype=torch.bfloat16)
    for count in (20, 300, 2000):
        pairs = Pairs(torch, count)
        last = int(pairs.ends[-1])
        rows = pairs.rows.clamp(max=TOKENS - 1).long()
        found = lapidist.grouped(x, packed, pairs.ends, gather_a=pairs.rows)
        assert torch.equal(found[:last], lapidist.grouped(x[rows], packed, pairs.ends)[:last])
