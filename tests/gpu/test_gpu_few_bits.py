"""On a GPU: products with weights of few bits, near those of decoded weights in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lapidist
from lapidist import quantised
from lapidist.quantised import product
from lapidist.quantised.launches import Skinny
from lapidist.quantised.streamed_configs import (
    BLOCKS_OF_ONE_SET,
    BLOCKS_OF_SM,
    COSTS_OF,
    Streamed,
    streamed_config,
)

pytestmark = pytest.mark.gpu

ULP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of a rounding to nearest, relative
FORMATS = [
    ("int4", {"group": 32}),
    ("int4", {"group": 128, "zero_points": True}),
    ("int4", {}),
    ("mxfp4", {}),
    ("nvfp4", {}),
    ("int8", {"group": 64}),
    ("e4m3", {}),
]
SHAPES = [(1, 1024, 520), (16, 2944, 2880), (64, 640, 1000), (200, 1024, 520)]  # m, k, n
SHAPES += [(3, 136, 72), (7, 77, 40), (130, 200, 72)]  # k ends inside of a block


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("dtype", list(ULP))
@pytest.mark.parametrize(("format", "more"), FORMATS)
def test_products_are_those_of_decoded_weights(
    torch: Any, format: str, more: Any, dtype: str, decode: bool
) -> None:
    """Sums are float32; the result is rounded once, and so is each decoded weight."""
    for m, k, n in SHAPES:
        packed = quantised.pack(torch.randn(k, n, device="cuda"), format, **more)
        x, bias = (torch.randn(*shape, device="cuda").to(getattr(torch, dtype)) for shape in ((m, k), (n,)))
        found = quantised.matmul(x, packed, bias, decode=decode).double()
        weight, left = quantised.unpack(packed, "float64"), x.double()
        exact = left @ weight + bias.double()
        terms = left.abs() @ weight.abs() + bias.double().abs()
        allowed = exact.abs() * ULP[dtype] + terms * (k * 2.0**-24 + decode * ULP[dtype]) + 2.0**-24
        assert bool(((found - exact).abs() <= allowed).all()), (m, k, n)


@pytest.mark.parametrize("dtype", list(ULP))
@pytest.mark.parametrize(("format", "more"), FORMATS)
def test_sums_are_divided_by_norms(torch: Any, format: str, more: Any, dtype: str) -> None:
    """In one launch, which the rows of x come from the launch before; or of rounded rows."""
    for m, k, n in [(1, 1024, 520), (4, 2944, 2880), (3, 136, 72), (20, 640, 1000)]:
        packed = quantised.pack(torch.randn(k, n, device="cuda"), format, **more)
        x = (torch.randn(m, k, device="cuda") * 3).to(getattr(torch, dtype))
        found = quantised.matmul(x + x, packed, norm_eps=0.5).double()
        left = 2 * x.double()
        left = left / (left.square().mean(-1, keepdim=True) + 0.5).sqrt()
        weight = quantised.unpack(packed, "float64")
        exact, terms = left @ weight, left.abs() @ weight.abs()
        rounded = ULP[dtype] if m > 4 else 0
        allowed = exact.abs() * ULP[dtype] + terms * ((k + 8) * 2.0**-24 + rounded) + 2.0**-24
        assert bool(((found - exact).abs() <= allowed).all()), (m, k, n)


def test_out_lies_as_it_likes(torch: Any) -> None:
    """Also in a graph, and where many rows are multiplied by the decoded weight."""
    packed = quantised.pack(torch.randn(512, 72, device="cuda"), "int4", group=128)
    for m in (1, 40, 600):
        x = torch.randn(m, 512, device="cuda").bfloat16()
        whole = torch.full((m, 160), 7.0, device="cuda", dtype=torch.bfloat16)
        expected, out = lapidist.matmul(x, packed), whole[:, 1:145:2]
        assert lapidist.matmul(x, packed, out=out) is out
        graph = torch.cuda.CUDAGraph()
        out.zero_()
        with torch.cuda.graph(graph):
            lapidist.matmul(x, packed, out=out)
        graph.replay()
        assert torch.equal(out, expected)
        assert bool((whole[:, :145:2] == 7).all() and (whole[:, 145:] == 7).all())
        relu = lapidist.epilogues.relu()
        by_columns = torch.empty(72, m, device="cuda", dtype=torch.bfloat16).T
        lapidist.matmul(x, packed, out=by_columns, epilogue=relu)
        assert torch.equal(by_columns, lapidist.matmul(x, packed, epilogue=relu))


def test_x_follows_the_order_of_activations(torch: Any) -> None:
    """Groups of a checkpoint of desc_act; in a graph, too, which takes what x has then."""
    words = torch.randint(-(2**31), 2**31 - 1, (25, 40), dtype=torch.int32, device="cuda")
    groups = (torch.arange(200) // 64)[torch.randperm(200)].cuda()
    packed = quantised.from_gptq(words, torch.rand(4, 40, device="cuda").half(), None, groups)
    weight = quantised.unpack(packed, "float64")
    for m in (2, 30, 600):
        x = torch.randn(m, 200, device="cuda").half()
        lapidist.matmul(x, packed)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = lapidist.matmul(x, packed)
        x.normal_()
        graph.replay()
        allowed = ULP["float16"] * 2 * (x.double().abs() @ weight.abs())
        assert bool(((found.double() - x.double() @ weight).abs() <= allowed).all())


WIDE_FORMATS = [  # of x in bfloat16, and whether products of codes and factors are rounded
    ("int4", {"group": 32, "zero_points": True}, True),
    ("int4", {"group": 128}, True),
    ("int4", {}, False),
    ("mxfp4", {}, False),
    ("nvfp4", {}, False),
]


@pytest.mark.parametrize("m", [129, 200, 256])
@pytest.mark.parametrize(("format", "more", "rounded"), WIDE_FORMATS)
def test_wide_blocks(
    torch: Any, monkeypatch: pytest.MonkeyPatch, format: str, more: Any, rounded: bool, m: int
) -> None:
    """Those that the library chooses by itself, of a ragged n; with a bias, and with a function."""
    configs = []

    def chosen(*facts: Any) -> Streamed:
        configs.append(streamed_config(*facts))
        return configs[-1]

    monkeypatch.setattr(product, "streamed_config", chosen)
    monkeypatch.setattr(product, "way_on", lambda *_: "streamed")
    k, n = 4096, 8200
    packed = quantised.pack(torch.randn(k, n, device="cuda"), format, **more)
    x, bias = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((m, k), (n,)))
    weight, left = quantised.unpack(packed, "float64"), x.double()
    exact = left @ weight + bias.double()
    terms = left.abs() @ weight.abs() + bias.double().abs()
    kept = terms * (k * 2.0**-24 + rounded * ULP["bfloat16"]) + 2.0**-24
    plain = quantised.matmul(x, packed, bias).double()
    positive = lapidist.matmul(x, packed, epilogue=lapidist.epilogues.bias_relu(bias=bias)).double()
    assert {config.rows > 64 and config.factors_first for config in configs} == {rounded}
    for found, expected in ((plain, exact), (positive, exact.relu())):
        assert bool(((found - expected).abs() <= expected.abs() * ULP["bfloat16"] + kept).all())


CONFIGS = [
    (rows, groups, parts, 3, resident)
    for rows in COSTS_OF[2]
    for groups, resident in BLOCKS_OF_SM[rows]
    for parts in (1, 3, 8)
]
FIRST_CONFIGS = [
    (rows, groups, parts, 3, resident, 2, True)
    for rows, blocks in BLOCKS_OF_ONE_SET.items()
    for groups, resident in blocks
    for parts in (1, 2, 3, 8)
]


@pytest.mark.parametrize("format", ["int4", "mxfp4"])
def test_each_config(torch: Any, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """Registers, clusters and ends of k as a chip has them; rows are more than a block has."""
    k, n = 2368, 600
    more = {"group": 64, "zero_points": True} if format == "int4" else {}
    packed = quantised.pack(torch.randn(k, n, device="cuda"), format, **more)
    weight = quantised.unpack(packed, "float64")
    for config in (*CONFIGS, *FIRST_CONFIGS):
        monkeypatch.setattr(product, "streamed_config", lambda *_, config=config: Streamed(*config))
        x = torch.randn(config[0] + 3, k, device="cuda", dtype=torch.bfloat16)
        result, exact = quantised.matmul(x, packed, decode=False).double(), x.double() @ weight
        kept = k * 2.0**-24 + (format == "int4" and config[6:] == (True,)) * ULP["bfloat16"]
        allowed = exact.abs() * ULP["bfloat16"] + x.double().abs() @ weight.abs() * kept
        assert bool(((result - exact).abs() <= allowed).all()), config


SKINNY = [(eights, warps, 2, sixteens) for eights in (1, 2) for warps in (3, 8) for sixteens in (1, 2, 4)]


@pytest.mark.parametrize(("format", "more"), FORMATS)
def test_each_config_of_skinny(torch: Any, monkeypatch: pytest.MonkeyPatch, format: str, more: Any) -> None:
    """Warps without a block of k, and factors above one, which powers of two do not hold beside codes."""
    k, n = 2176, 600
    packed = quantised.pack(torch.randn(k, n, device="cuda") * 64, format, **more)
    weight = quantised.unpack(packed, "float64")
    monkeypatch.setattr(product, "is_streamed", lambda *_: False)
    for config in SKINNY:
        monkeypatch.setattr(product, "skinny_config", lambda *_, config=config: Skinny(*config))
        x = torch.randn(8 * config[0] + 3, k, device="cuda", dtype=torch.bfloat16)
        result, exact = quantised.matmul(x, packed, decode=False).double(), x.double() @ weight
        allowed = exact.abs() * ULP["bfloat16"] + x.double().abs() @ weight.abs() * k * 2.0**-24
        assert bool(((result - exact).abs() <= allowed).all()), config


BYTES = [
    *(("float8_e4m3fn", *case) for case in FORMATS if case[0] not in ("int8", "nvfp4")),
    *(("int8", *case) for case in FORMATS if case[0] in ("int4", "int8")),
]
KEPT = {"float8_e4m3fn": 2.0**-12, "int8": 0}  # of sums in the tensor core


def rows_of_8_bits(torch: Any, m: int, k: int, dtype: str) -> Any:
    """With a factor for each row."""
    wide = torch.randn(m, k, device="cuda") * (30 if dtype == "int8" else 1)
    return wide.to(getattr(torch, dtype)), torch.rand(m, device="cuda") + 0.5


def require_near(found: Any, x: Any, factors: Any, packed: Any, ulp: float) -> None:
    left, weight = x.double() * factors[:, None].double(), quantised.unpack(packed, "float64")
    exact, terms = left @ weight, left.abs() @ weight.abs()
    kept = KEPT[str(x.dtype).removeprefix("torch.")] + (packed.shape[0] / 32 + 4) * 2.0**-24
    assert bool(((found.double() - exact).abs() <= exact.abs() * ulp + terms * kept).all())


@pytest.mark.parametrize("m", [5, 64, 100, 130, 300, 520])
def test_rows_become_bfloat16(torch: Any, monkeypatch: pytest.MonkeyPatch, m: int) -> None:
    """Rows of e4m3 by MXFP4, whose sums are float32 then."""
    monkeypatch.setattr(product, "way_on", lambda *_: "converted")
    k, n = 1088, 1030
    packed = quantised.pack(torch.randn(k, n, device="cuda"), "mxfp4")
    (x, factors), bias = rows_of_8_bits(torch, m, k, "float8_e4m3fn"), torch.randn(n, device="cuda")
    found = quantised.matmul(x, packed, bias, scale_a=factors).double()
    left, weight = x.double() * factors[:, None].double(), quantised.unpack(packed, "float64")
    terms = left.abs() @ weight.abs() + bias.double().abs()
    assert bool(((found - (left @ weight + bias.double())).abs() <= terms * ((k + 4) * 2.0**-24)).all())


@pytest.mark.parametrize(("dtype", "format", "more"), BYTES)
def test_rows_of_8_bits(torch: Any, dtype: str, format: str, more: Any) -> None:
    """Of each number of rows, also of those for which 16 bits decode first."""
    for m, k, n in (*SHAPES, (700, 2944, 600)):
        packed = quantised.pack(torch.randn(k, n, device="cuda"), format, **more)
        x, factors = rows_of_8_bits(torch, m, k, dtype)
        found = lapidist.matmul(x, packed, scale_a=factors)
        assert found.dtype == torch.float32
        require_near(found, x, factors, packed, 0)
        rounded = lapidist.matmul(x, packed, scale_a=factors, out_dtype=torch.bfloat16)
        require_near(rounded, x, factors, packed, ULP["bfloat16"])


@pytest.mark.parametrize(("dtype", "format"), [("float8_e4m3fn", "mxfp4"), ("int8", "int4")])
def test_each_config_by_rows_of_8_bits(
    torch: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, format: str
) -> None:
    k, n = 2368, 600
    more = {"group": 64, "zero_points": True} if format == "int4" else {}
    packed = quantised.pack(torch.randn(k, n, device="cuda"), format, **more)
    for config in (*CONFIGS, (192, 2, 1, 4, 1), (192, 2, 3, 4, 1)):
        monkeypatch.setattr(product, "streamed_config", lambda *_, config=config: Streamed(*config))
        x, factors = rows_of_8_bits(torch, config[0] + 3, k, dtype)
        require_near(lapidist.matmul(x, packed, scale_a=factors), x, factors, packed, 0)


def test_each_code_by_rows_of_8_bits(torch: Any) -> None:
    """Rows that pick a step of k each: what the chip makes of decoded codes is exact."""
    codes = torch.arange(16, dtype=torch.uint8, device="cuda").repeat(8, 8)
    blocks = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(8, 4, 16)
    scales = torch.tensor([[127, 130, 0, 250]] * 8, dtype=torch.uint8, device="cuda")
    whole = torch.arange(-8, 8, device="cuda", dtype=torch.float32).repeat(8, 8).T
    for packed, dtype in (
        (quantised.from_mxfp4(blocks, scales), torch.float8_e4m3fn),
        (quantised.pack(whole, "int4", group=128, zero_points=True), torch.float8_e4m3fn),
        (quantised.pack(whole, "int4", group=128), torch.float8_e4m3fn),
        (quantised.pack(whole, "int4", group=128), torch.int8),
    ):
        x = torch.eye(128, device="cuda").to(dtype)
        found = lapidist.matmul(x, packed, scale_a=1.0)
        assert torch.equal(found.double(), quantised.unpack(packed, "float64").double())


def test_groups_by_rows_of_8_bits(torch: Any) -> None:
    experts, k, n, rows = 9, 1024, 520, 900
    packed = quantised.pack(torch.randn(experts, k, n, device="cuda"), "mxfp4")
    x, factors = rows_of_8_bits(torch, rows, k, "float8_e4m3fn")
    ends = torch.sort(torch.randint(rows, (experts,), device="cuda", dtype=torch.int32))[0]
    found = lapidist.grouped(x, packed, ends, scale_a=factors)
    for group, (begin, end) in enumerate(itertools.pairwise([0, *ends.tolist()])):
        require_near(found[begin:end], x[begin:end], factors[begin:end], packed[group], 0)


@pytest.mark.parametrize("rows", [40, 900])
@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
def test_groups_of_packed_experts(torch: Any, format: str, rows: int) -> None:
    """A graph whose replays see other ends; rows behind the last stay as they are."""
    experts, k, n = 9, 1024, 520
    packed = quantised.pack(torch.randn(experts, k, n, device="cuda"), format)
    weights = quantised.unpack(packed, "float64")
    x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
    ends = torch.full((experts,), rows, dtype=torch.int32, device="cuda")
    out = torch.full((rows, n), 7.0, device="cuda", dtype=torch.bfloat16)
    lapidist.grouped(x, packed, ends, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.grouped(x, packed, ends, out=out)
    ends.copy_(torch.sort(torch.randint(rows, (experts,), device="cuda"))[0])
    out.fill_(7)
    graph.replay()
    begin = 0
    for group, end in enumerate(ends.tolist()):
        left, right = x[begin:end].double(), weights[group]
        exact, terms = left @ right, left.abs() @ right.abs()
        allowed = exact.abs() * ULP["bfloat16"] + terms * (k * 2.0**-24)
        assert bool(((out[begin:end].double() - exact).abs() <= allowed).all()), group
        begin = end
    assert bool((out[begin:] == 7).all())


def test_a_function_follows(torch: Any) -> None:
    packed = quantised.pack(torch.randn(1024, 520, device="cuda"), "int4", group=128)
    bias = torch.randn(520, device="cuda")
    for m in (3, 40):
        x = torch.randn(m, 1024, device="cuda", dtype=torch.bfloat16)
        found = lapidist.matmul(x, packed, epilogue=lapidist.epilogues.bias_relu(bias=bias))
        exact = (x.double() @ quantised.unpack(packed, "float64") + bias).relu()
        assert torch.allclose(found.double(), exact, rtol=2.0**-8, atol=1e-3)


def test_a_graph_multiplies_again(torch: Any) -> None:
    packed = quantised.pack(torch.randn(1024, 512, device="cuda"), "int4", group=128)
    x = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(8, 512, device="cuda", dtype=torch.bfloat16)
    lapidist.matmul(x, packed, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.matmul(x, packed, out=out)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(out, lapidist.matmul(x, packed))


def test_triton_s_kernel_multiplies(torch: Any) -> None:
    """The peer of `lapidist bench few_bits`, in each of its configs."""
    pytest.importorskip("triton")
    from lapidist_lab.bench.studies import few_bits_triton

    for m, n, k in ((5, 200, 384), (100, 72, 256)):
        codes = torch.randint(16, (k, n), device="cuda", dtype=torch.uint8)
        factors = torch.exp2(torch.randint(-8, 0, (k // 128, n), device="cuda").float()).bfloat16()
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        exact = x.double() @ ((codes.double() - 8) * factors.double().repeat_interleave(128, 0))
        allowed = exact.abs() * ULP["bfloat16"] + x.double().abs().sum(1, keepdim=True) * 2.0**-14
        for config in few_bits_triton.configs(m):
            out, room = torch.empty_like(exact, dtype=torch.bfloat16), torch.empty(8, m, n, device="cuda")
            few_bits_triton.launch(config, x, few_bits_triton.in_bytes(codes), factors, out, room)
            assert bool(((out.double() - exact).abs() <= allowed).all()), config
