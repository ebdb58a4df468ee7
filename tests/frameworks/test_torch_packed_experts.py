"""Mixtures of experts with weights of few bits, beside the same ones of the numbers that their codes mean."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
from typing import Any

import pytest

import lapidist
from lapidist import quantised

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
COUNT, TOP_K, FEATURES, INNER = 5, 2, 128, 64


@pytest.fixture
def stock(torch: Any, lt: Any) -> Any:
    torch.manual_seed(52)
    return importlib.import_module("mixtures")


def mixture(torch: Any, stock: Any, transposed: bool = False) -> Any:
    model = stock.StockMixture(COUNT, TOP_K, FEATURES, INNER, transposed)
    model.experts.requires_grad_(False)
    return model.to(torch.bfloat16), torch.rand(3, 7, FEATURES, dtype=torch.bfloat16)


def experts_alone(name: str, layer: Any) -> bool:
    return name == "experts"


def learned(torch: Any, experts: Any, x: Any, index: Any, shares: Any) -> list[Any]:
    x, shares = x.detach().requires_grad_(), shares.detach().requires_grad_()
    result = experts(x, index, shares)
    return [result.detach(), *torch.autograd.grad(result.square().sum(), (x, shares))]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("weights", "group"), [("int4", 32), ("mxfp4", None), ("nvfp4", None)])
def test_experts_learn_as_those_of_the_decoded_weights(
    torch: Any, lt: Any, stock: Any, weights: str, group: int | None, transposed: bool
) -> None:
    model, x = mixture(torch, stock, transposed)
    up = model.experts.gate_up_proj.detach()
    swapped = lt.swap(model, where=experts_alone, weights=weights, group=group)
    assert len(swapped) == 1
    assert [name for name, _ in model.named_parameters()] == ["gate.weight"]
    packed = model.experts.gate_up_proj.packed_weight
    expected = quantised.pack(up if transposed else up.mT, weights, group=group)
    assert torch.equal(packed.codes, expected.codes)
    tokens, shares = x.flatten(0, 1), torch.rand(21, TOP_K)
    index = torch.stack([torch.randperm(COUNT - 1)[:TOP_K] for _ in range(21)])  # none for the last one
    found = learned(torch, model.experts, tokens, index, shares)
    swapped.undo()
    assert type(model.experts) is stock.StockExperts
    numbers = quantised.unpack(packed).to(torch.bfloat16)
    assert torch.equal(model.experts.gate_up_proj, numbers if transposed else numbers.mT)
    decoded = copy.deepcopy(model.experts).double()
    for one, other in zip(
        found, learned(torch, decoded, tokens.double(), index, shares.double()), strict=True
    ):
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= 0.02 * other.abs().max()


def test_other_routes_and_no_tokens(torch: Any, lt: Any, stock: Any) -> None:
    """Experts of other devices add nothing."""
    model, x = mixture(torch, stock)
    lt.swap(model, weights="mxfp4", where=experts_alone)
    experts, tokens, weights = model.experts, x[0], torch.rand(7, 2)
    index = torch.tensor([[0, COUNT], [COUNT, 1], [4, 0], [3, 3], [COUNT, COUNT], [1, 2], [2, 0]])
    found = experts(tokens, index, weights)
    assert not found[4].any()
    up, down = (quantised.unpack(each.packed_weight).double() for each in experts.children())
    for token, row in enumerate(index.tolist()):
        expected = torch.zeros(FEATURES, dtype=torch.float64)
        for place, number in enumerate(row):
            if number < COUNT:
                hidden = experts._apply_gate(tokens[token].double() @ up[number])
                expected += weights[token, place] * (hidden @ down[number])
        assert (found[token].double() - expected).abs().max() <= 0.02 * expected.abs().max() + 1e-6
    assert experts(tokens[:0], index[:0], weights[:0]).shape == (0, FEATURES)


@pytest.mark.parametrize(("weights", "transposed"), [("int4", False), ("mxfp4", True)])
def test_without_gradients_products_route_their_rows(
    torch: Any, lt: Any, stock: Any, monkeypatch: pytest.MonkeyPatch, weights: str, transposed: bool
) -> None:
    """Two products, which gather tokens and scatter weighed results; nothing else moves rows."""
    module = importlib.import_module("lapidist.torch.experts")
    grouped = importlib.import_module("lapidist.calls.grouped")
    model, x = mixture(torch, stock, transposed)
    swapped = lt.swap(model, where=experts_alone, weights=weights)
    tokens, shares = x.flatten(0, 1), torch.rand(21, TOP_K)
    index = torch.stack([torch.randperm(COUNT - 1)[:TOP_K] for _ in range(21)])
    calls, taken = [], grouped.grouped

    def noted(*given: Any, **how: Any) -> Any:
        calls.append({name for name, value in how.items() if value is not None})
        return taken(*given, **how)

    monkeypatch.setattr(grouped, "grouped", noted)
    with torch.no_grad():
        found = model.experts(tokens, index, shares)
        assert calls == [{"gather_a"}, {"scatter_d", "out", "epilogue"}]
        monkeypatch.setattr(module, "LONGEST_GATHERED", FEATURES - 1)
        assert torch.equal(model.experts(tokens, index, shares), found)
        assert calls[2:] == [set(), calls[1]]
        swapped.undo()
        exact = copy.deepcopy(model.experts).double()(tokens.double(), index, shares.double())
    assert (found.double() - exact).abs().max() <= 0.02 * exact.abs().max()


def checkpoint(torch: Any, features: int, inner: int) -> dict[str, Any]:
    """Of experts in MXFP4, as gpt-oss has it: codes are (experts, n, k / 32, 16), two a byte."""
    state = {}
    for name, n, k in (("gate_up_proj", 2 * inner, features), ("down_proj", features, inner)):
        state[f"experts.{name}_blocks"] = torch.randint(256, (COUNT, n, k // 32, 16), dtype=torch.uint8)
        state[f"experts.{name}_scales"] = torch.randint(123, 127, (COUNT, n, k // 32), dtype=torch.uint8)
        state[f"experts.{name}_bias"] = torch.randn(COUNT, n, dtype=torch.bfloat16)
    return state


def test_experts_with_biases_take_a_checkpoint_of_mxfp4(torch: Any, lt: Any, stock: Any) -> None:
    model = torch.nn.ModuleDict({"experts": stock.StockBiasedExperts(COUNT, FEATURES, INNER)})
    model.bfloat16()
    state = checkpoint(torch, FEATURES, INNER)
    rest = lt.load_packed(model, {**state, "norm": torch.ones(1)})
    assert sorted(rest) == ["experts.down_proj_bias", "experts.gate_up_proj_bias", "norm"]
    model.load_state_dict(rest, strict=False)
    experts, exact = model["experts"], stock.StockBiasedExperts(COUNT, FEATURES, INNER).double()
    for name in ("gate_up_proj", "down_proj"):
        getattr(exact, name).data = quantised.unpack(getattr(experts, name).packed_weight, "float64")
        getattr(exact, f"{name}_bias").data = state[f"experts.{name}_bias"].double()
        pairs, steps = state[f"experts.{name}_blocks"], getattr(exact, name).shape[1]
        first = (pairs[2, 1] & 15).flatten()[0].item()  # of the third expert's second column
        value = [0, 0.5, 1, 1.5, 2, 3, 4, 6][first & 7] * (-1 if first & 8 else 1)
        factor = 2.0 ** (state[f"experts.{name}_scales"][2, 1, 0].item() - 127)
        assert getattr(exact, name)[2, 0, 1] == value * factor
        assert steps == pairs.shape[2] * 32
    tokens, shares = torch.rand(9, FEATURES, dtype=torch.bfloat16), torch.rand(9, TOP_K)
    index = torch.stack([torch.randperm(COUNT - 1)[:TOP_K] for _ in range(9)])
    results = []
    for layer, x, weights in ((experts, tokens, shares), (exact, tokens.double(), shares.double())):
        inputs = x.requires_grad_(), layer.gate_up_proj_bias, layer.down_proj_bias
        result = layer(x, index, weights)
        results.append((result, *torch.autograd.grad(result.square().sum(), inputs)))
    for one, other in zip(*results, strict=True):
        assert (one.double() - other).abs().max() <= 0.03 * other.abs().max()
    with torch.no_grad():
        assert torch.equal(experts(tokens, index, shares), results[0][0])


def test_checkpoints_of_experts_that_do_not_fit(torch: Any, lt: Any, stock: Any) -> None:
    """Also of biased ones that are packed by swap, which exchanges no others."""
    model = torch.nn.ModuleDict({"experts": stock.StockBiasedExperts(COUNT, FEATURES, INNER)})
    state, narrow = checkpoint(torch, FEATURES, INNER), checkpoint(torch, FEATURES, 2 * INNER)
    scales = "experts.down_proj_scales"
    for wrong, words in (
        ({**state, "experts.down_proj_blocks": torch.zeros(1)}, "blocks: must be bytes of shape"),
        ({key: state[key] for key in state if key != scales}, f"state: {scales} is missing beside experts"),
        (narrow, r"gate_up_proj must have shape \(5, 128, 128\), as the experts have; got \(5, 128, 256\)"),
        ({"other.down_proj_blocks": state[scales]}, "state: other must be experts of the model"),
    ):
        with pytest.raises(lapidist.LapidistError, match=words):
            lt.load_packed(model, wrong)
        assert type(model["experts"]) is stock.StockBiasedExperts
    with pytest.warns(UserWarning, match="no experts"):
        assert len(lt.swap(model)) == 0
    assert len(lt.swap(model, weights="int4")) == 1


def test_states_and_copies_of_packed_experts(torch: Any, lt: Any, stock: Any) -> None:
    (model, x), (other, _) = mixture(torch, stock), mixture(torch, stock)
    lt.swap(model, weights="int4", group=64)
    lt.swap(other, weights="mxfp4")
    expected, file = model(x), io.BytesIO()
    assert not torch.equal(other(x), expected)
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), expected)
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(same.experts, stock.StockExperts)
        assert torch.equal(same(x), expected)
    scales = model.experts.down_proj.scales.clone()
    model.half()
    assert torch.equal(model.experts.down_proj.scales, scales)
    assert model(x.half()).dtype is torch.float16


def test_one_graph_serves_all_routes(torch: Any, lt: Any, stock: Any) -> None:
    model, x = mixture(torch, stock)
    lt.swap(model, weights="int4", group=64)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for tokens in (x, x.flip(-1)):
        results = []
        for run in (compiled, model):
            given = tokens.detach().requires_grad_()
            result = run(given)
            results.append((result, *torch.autograd.grad(result.float().square().sum(), given)))
        for one, other in zip(*results, strict=True):
            assert torch.equal(one, other)


def test_a_graph_without_gradients_routes_rows_in_products(torch: Any, lt: Any, stock: Any) -> None:
    model, x = mixture(torch, stock)
    lt.swap(model, weights="mxfp4", where=experts_alone)
    graphs = []

    def noted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=noted)
    with torch.no_grad():
        for tokens in (x, x.flip(-1)):
            assert torch.equal(compiled(tokens), model(tokens))
    (graph,) = graphs
    routed = [node for node in graph.graph.nodes if "few_bits_routed" in str(node.target)]
    assert len(routed) == 2
    assert "grouped" not in graph.code


def test_the_operator_of_routed_rows(torch: Any, lt: Any) -> None:
    packed = quantised.pack(torch.randn(2, 64, 24), "int8")
    arrays = packed.codes, packed.scales, packed.zeros, packed.layout
    x, ends = torch.randn(3, 64, dtype=torch.bfloat16), torch.tensor([1, 4])
    rows, to = torch.tensor([2, 0, 0, 1]), torch.tensor([3, 1, 0, 2])
    call = torch.ops.lapidist.few_bits_routed
    torch.library.opcheck(call.default, (x, *arrays, ends, rows, to, torch.rand(4)))
    found = call(x, *arrays, ends, rows, to)
    assert torch.equal(found[to], lt.grouped(x[rows], packed, ends))
    with pytest.raises(lapidist.LapidistError, match="rows that a product gathers or scatters have no gr"):
        call(x.requires_grad_(), *arrays, ends, rows).sum().backward()


def test_what_packed_groups_refuse(torch: Any, lt: Any, stock: Any) -> None:
    model, x = mixture(torch, stock)
    packed = quantised.pack(model.experts.gate_up_proj.mT, "int8")
    ends = torch.tensor([2, 2, 3, 6, 7], dtype=torch.int32)
    for arguments, more, words in (
        ((x[0], packed[0], ends), {}, "b: must be weights of all groups, PackedExperts; got PackedWeight"),
        ((x[0], packed, ends), {"trans_b": True}, "trans_b: is not for weights of few bits"),
        ((x[0], packed, ends), {"into": x}, "into: is not for weights of few bits"),
        ((x[0].float(), packed, ends), {}, "float16, float8_e4m3fn or int8; got float32"),
        ((x[0], packed, ends[1:]), {}, "b: must have a matrix for each of the 4 groups"),
    ):
        with pytest.raises(lapidist.LapidistError, match=words):
            lt.grouped(*arguments, **more)
    broken = stock.StockMixture(COUNT, TOP_K, 64, 12)
    broken.experts.down_proj.data[-1, -1, -1] = torch.nan
    with pytest.raises(lapidist.LapidistError, match="weight: must be finite"):
        lt.swap(broken, weights="int4")
    assert type(broken.gate) is torch.nn.Linear
    assert type(broken.experts) is stock.StockExperts
