"""lapidist.torch on the CPU: operators, gradients, transforms, torch.compile, torch.export, autocast,
layers.
"""

from __future__ import annotations

import importlib
import sys
import unittest
import weakref
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import lapidist

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
SHAPES = [  # of matmul
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
]
LAYERS = [  # of linear
    ((3, 4), (5, 4), (5,)),
    ((4,), (5, 4), (5,)),
    ((2, 3, 4), (5, 4), (5,)),
    ((2, 3, 4), (4,), ()),
    ((2, 3, 4), (5, 4), None),
    ((4,), (4,), None),
]
GEMMS = [  # a, b, c and how
    ((3, 4), (4, 5), None, ()),
    ((3, 4), (4, 5), (5,), (0.5, 2.0, False, False)),
    ((2, 4, 3), (4, 5), (3, 5), (0.5, 2.0, True, False)),
    ((3, 4), (2, 5, 4), (2, 1, 5), (2.0, -1.0, False, True)),
    ((2, 4, 3), (2, 5, 4), (2, 3, 5), (1.0, 1.0, True, True)),
    ((3, 4), (4, 5), (3, 5), (3.0, 0.0, False, False)),
]
CASES = [
    *[("matmul", shapes, ()) for shapes in SHAPES],
    *[("linear", shapes, ()) for shapes in LAYERS],
    *[("gemm", shapes[:3], shapes[3]) for shapes in GEMMS],
]
EACH = pytest.mark.parametrize(("name", "shapes", "how"), CASES, ids=str)


def tensors(torch: Any, shapes: Any, dtype: str = "float64", grad: bool = True) -> list[Any]:
    make = [None if shape is None else torch.randn(shape, dtype=getattr(torch, dtype)) for shape in shapes]
    return [each if each is None else each.requires_grad_(grad) for each in make]


def public(lt: Any, name: str, how: tuple[Any, ...]) -> Callable[..., Any]:
    more = dict(zip(("alpha", "beta", "trans_a", "trans_b"), how, strict=False))
    return lambda *given: getattr(lt, name)(*given, **more)


def stock(torch: Any, name: str, how: tuple[Any, ...]) -> Callable[..., Any]:
    """What torch itself has for it."""

    def gemm(a: Any, b: Any, c: Any = None, beta: float = 0.0) -> Any:
        alpha, beta, trans_a, trans_b = how or (1.0, beta, False, False)
        d = alpha * torch.matmul(a.mT if trans_a else a, b.mT if trans_b else b)
        return d if c is None else d + beta * c

    def linear(
        x: Any, w: Any, b: Any = None
    ) -> Any:  # torch.func does not take torch's own with a weight of one dimension
        return gemm(x, w, b, beta=1.0) if w.ndim == 1 else torch.nn.functional.linear(x, w, b)

    return {"matmul": torch.matmul, "linear": linear, "gemm": gemm}[name]


# ---- the operators, and their gradients ----


@EACH
def test_operators_are_what_torch_expects(torch: Any, lt: Any, name: str, shapes: Any, how: Any) -> None:
    torch.library.opcheck(getattr(torch.ops.lapidist, name).default, (*tensors(torch, shapes), *how))


@EACH
def test_results_and_gradients_are_torchs(torch: Any, lt: Any, name: str, shapes: Any, how: Any) -> None:
    given = tensors(torch, shapes)
    there = [each for each in given if each is not None]
    ours, theirs = public(lt, name, how)(*given), stock(torch, name, how)(*given)
    torch.testing.assert_close(ours, theirs)
    direction = torch.randn_like(theirs)
    found = torch.autograd.grad(ours, there, direction, materialize_grads=True)
    torch.testing.assert_close(found, torch.autograd.grad(theirs, there, direction))
    with torch.no_grad():
        torch.testing.assert_close(public(lt, name, how)(*given), theirs)


@EACH
def test_gradients_are_right_to_the_second_order(
    torch: Any, lt: Any, name: str, shapes: Any, how: Any
) -> None:
    call, given = public(lt, name, how), tensors(torch, shapes)
    assert torch.autograd.gradcheck(call, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, given)


# NumPy's matmul warned once in many runs, of a sample whose values were right: they are judged below.
@pytest.mark.filterwarnings("ignore:.* encountered in matmul:RuntimeWarning")
@pytest.mark.parametrize(("name", "module"), [("matmul", "matmul"), ("linear", "nn.functional.linear")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_torchs_own_samples(
    torch: Any, lt: Any, monkeypatch: Any, name: str, module: str, dtype: str
) -> None:
    if "expecttest" not in sys.modules:  # torch's list of operators asks for its TestCase and nothing else
        monkeypatch.setitem(sys.modules, "expecttest", SimpleNamespace(TestCase=unittest.TestCase))
    known = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    info = next(each for each in known if each.name == module)
    samples = list(info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=True))
    assert len(samples) > 10
    for sample in samples:
        given = [each for each in (sample.input, *sample.args) if each is not None]
        exact = [each.detach().double().requires_grad_() for each in given]
        ours, theirs = getattr(lt, name)(*given, **sample.kwargs), info(*exact, **sample.kwargs)
        close(torch, ours, theirs)
        direction = torch.randn_like(ours)
        found = torch.autograd.grad(ours, given, direction)
        for one, other in zip(found, torch.autograd.grad(theirs, exact, direction.double()), strict=True):
            close(torch, one, other)


def close(torch: Any, found: Any, exact: Any) -> None:
    """A few units in the last place of the largest."""
    tolerance = 4 * torch.finfo(found.dtype).eps
    largest = exact.abs().max().item() if exact.numel() else 0.0
    torch.testing.assert_close(found, exact.to(found.dtype), rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "uint8"])
def test_types_whose_results_are_others(torch: Any, lt: Any, dtype: str) -> None:
    a, b = (
        torch.randint(0, 3, (3, 4)).to(getattr(torch, dtype)),
        torch.randint(0, 3, (4, 5)).to(getattr(torch, dtype)),
    )
    torch.library.opcheck(torch.ops.lapidist.matmul.default, (a, b), test_utils="test_faketensor")
    d = lt.matmul(a, b)
    assert d.dtype is (torch.float32 if "float" in dtype else torch.int32)
    torch.testing.assert_close(d.float(), a.float() @ b.float())


def test_eight_bit_floats_have_gradients(torch: Any, lt: Any) -> None:
    a, b = (torch.randn(4, 4).to(torch.float8_e4m3fn).requires_grad_() for _ in range(2))
    lt.matmul(a, b).sum().backward()
    assert a.grad.dtype is torch.float8_e4m3fn
    torch.testing.assert_close(a.grad.float(), (torch.ones(4, 4) @ b.detach().float().T).to(a.dtype).float())


def test_results_never_share_memory_with_what_was_given(torch: Any, lt: Any) -> None:
    for name, shapes, how in CASES:
        given = tensors(torch, shapes)
        result = getattr(torch.ops.lapidist, name)(*given, *how)
        assert result.untyped_storage().data_ptr() not in {
            x.untyped_storage().data_ptr() for x in given if x is not None
        } - {0}


@pytest.mark.parametrize("name", ["matmul", "gemm", "linear"])
def test_a_frozen_operand_lets_the_other_go(torch: Any, lt: Any, name: str) -> None:
    """The gradient of a product's one factor needs the other alone."""
    frozen, inner = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True) * 2
    gone = weakref.ref(inner)
    result = getattr(lt, name)(inner, frozen)
    del inner
    assert gone() is None
    result.sum().backward()


# ---- transforms ----


@EACH
def test_vmap_is_a_loop(torch: Any, lt: Any, name: str, shapes: Any, how: Any) -> None:
    there = [shape for shape in shapes if shape is not None]
    op = getattr(torch.ops.lapidist, name)
    filling = (None,) * (3 - len(there)) if how else ()
    for mapped in product([True, False], repeat=len(there)):
        if not any(mapped):
            continue
        given = tensors(
            torch,
            [(*shape, 6) if each else shape for shape, each in zip(there, mapped, strict=True)],
            grad=False,
        )
        dims = tuple(-1 if each else None for each in mapped)
        each = [[x.select(-1, i) if m else x for x, m in zip(given, mapped, strict=True)] for i in range(6)]
        expected = torch.stack([public(lt, name, how)(*one) for one in each])
        torch.testing.assert_close(torch.vmap(public(lt, name, how), dims)(*given), expected)
        torch.testing.assert_close(torch.vmap(lambda *x: op(*x, *filling, *how), dims)(*given), expected)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")  # of torch.func.linearize
@EACH
def test_torch_func_goes_through(torch: Any, lt: Any, name: str, shapes: Any, how: Any) -> None:
    given = [each for each in tensors(torch, shapes, grad=False) if each is not None]
    op, filling = getattr(torch.ops.lapidist, name), (None,) * (3 - len(given)) if how else ()
    ours, theirs = public(lt, name, how), stock(torch, name, how)
    places, func = tuple(range(len(given))), torch.func
    nested = [
        lambda f, outer=outer, inner=inner: outer(inner(squares(f)))
        for outer, inner in product((func.jacrev, func.jacfwd), repeat=2)
    ]
    for transform in (
        lambda f: func.grad(squares(f), places),
        lambda f: func.jacfwd(f, places),
        lambda f: func.jacrev(f, places),
        lambda f: func.hessian(squares(f), places),
        lambda f: lambda *x: func.jvp(f, x, x),
        lambda f: lambda *x: func.linearize(f, *x)[1](*x),
        *(nested if all(each.numel() for each in given) else ()),  # jacrev(jacrev) takes no empty ones
    ):
        expected = transform(theirs)(*given)
        torch.testing.assert_close(transform(ours)(*given), expected)
        torch.testing.assert_close(transform(lambda *x: op(*x, *filling, *how))(*given), expected)
    several = [torch.stack([each, 2 * each], -1) for each in given]
    of_each = [func.vmap(func.grad(squares(f), places), in_dims=-1)(*several) for f in (ours, theirs)]
    torch.testing.assert_close(*of_each)


def squares(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *x: f(*x).square().sum()


# ---- compilers ----


def layered(lt: Any) -> Callable[..., Any]:
    return lambda x, w, b: lt.gemm(lt.linear(x, w, b).relu(), lt.matmul(x, w.t()), trans_a=True, alpha=0.5)


def test_compiled_calls_are_one_graph_for_every_length(torch: Any, lt: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    call, compiled = layered(lt), torch.compile(layered(lt), fullgraph=True, backend=counter)
    w, b = tensors(torch, [(5, 4), (5,)])
    for m in (3, 7, 20):
        x = torch.randn(m, 4, dtype=torch.float64)
        torch._dynamo.mark_dynamic(x, 0)
        ours, plain = compiled(x, w, b), call(x, w, b)
        torch.testing.assert_close(ours, plain)
        torch.testing.assert_close(
            torch.autograd.grad(ours.sum(), (w, b)), torch.autograd.grad(plain.sum(), (w, b))
        )
    assert counter.frame_count == 1


def test_exported_programs_hold_the_operators(torch: Any, lt: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    expected = model(x := torch.randn(6, 4))
    with lt.swap(model):
        exported = torch.export.export(
            model, (torch.randn(2, 4),), dynamic_shapes=({0: torch.export.Dim("m")},)
        )
    called = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert called.count(torch.ops.lapidist.linear.default) == 2
    torch.testing.assert_close(exported.module()(x), expected)


def test_transforms_are_compiled(torch: Any, lt: Any) -> None:
    func, ops = torch.func, torch.ops.lapidist
    x, w = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    forms = (
        lambda f: func.grad(squares(f), (0, 1)),
        lambda f: func.vmap(func.grad(squares(f)), (0, None)),
        lambda f: lambda x, w: func.jvp(f, (x, w), (x, w)),
    )
    for form in forms:
        expected = form(torch.nn.functional.linear)(x, w)
        for call in (lt.linear, ops.linear):
            torch._dynamo.reset()
            compiled = torch.compile(form(call), fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(compiled(x, w), expected)


def test_tangents_go_through_torchs_operators(torch: Any, lt: Any) -> None:
    forward_ad, ops = torch.autograd.forward_ad, torch.ops.lapidist
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x.flip(0))
        for result in (ops.linear(dual, w), ops.matmul(dual, w.T), ops.gemm(dual, w, trans_b=True)):
            torch.testing.assert_close(forward_ad.unpack_dual(result).tangent, x.flip(0) @ w.T)


def test_meta_and_fake_tensors_have_shapes_alone(torch: Any, lt: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    a, b = torch.empty(2, 3, 4, device="meta"), torch.empty(4, 5, device="meta")
    assert lt.matmul(a, b).shape == lt.gemm(a, b).shape == lt.linear(a, b.mT, b[0]).shape == (2, 3, 5)
    with FakeTensorMode():
        d = lt.matmul(
            torch.empty(3, 4, dtype=torch.float8_e5m2, device="cuda"),
            torch.empty(4, dtype=torch.float8_e5m2, device="cuda"),
        )
    assert (d.shape, d.dtype, d.device.type) == ((3,), torch.float32, "cuda")


def test_graphs_of_every_tracer_hold_the_operators(torch: Any, lt: Any) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x, w = torch.randn(2, 3, 4), torch.randn(5, 4)
    traced = make_fx(lambda y: lt.linear(y, w))(x)
    assert torch.ops.lapidist.linear.default in [node.target for node in traced.graph.nodes]
    scripted = torch.jit.trace(lambda y: lt.linear(y, w), x)
    assert "lapidist::linear" in str(scripted.graph)
    mapped = torch.compile(torch.vmap(lambda y: lt.linear(y, w)), fullgraph=True, backend="aot_eager")
    for call in (traced, scripted, mapped):
        torch.testing.assert_close(call(2 * x), 2 * x @ w.T)


def test_what_no_tracer_sees_goes_past_the_operators(torch: Any, lt: Any, monkeypatch: Any) -> None:
    """Autograd alone is served by functions of its own, which cost less than torch.library's."""
    from lapidist.torch import operators

    def refuse(*_: Any) -> None:
        raise AssertionError("torch saw it")

    for each in (operators.matmul, operators.gemm, operators.linear):
        monkeypatch.setattr(each, "op", refuse)
    a = torch.nn.Parameter(torch.ones(3, 3))
    with torch.no_grad():
        assert torch.equal(lt.matmul(a, a), lt.gemm(a, a))
        assert torch.equal(lt.linear(a, a, a[0]), torch.full((3, 3), 4.0))
    (lt.matmul(a, a) + lt.gemm(a, a) + lt.linear(a, a, a[0])).sum().backward()
    with pytest.raises(AssertionError, match="torch saw it"):
        torch.compile(lt.matmul, backend="eager")(a, a)


# ---- autocast ----


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["matmul", "linear"])
def test_autocast_is_torchs(torch: Any, lt: Any, name: str, compiled: bool) -> None:
    ours, theirs = public(lt, name, ()), stock(torch, name, ())
    ours = torch.compile(ours, fullgraph=True, backend="aot_eager") if compiled else ours
    for dtype in ("float32", "float64", "float16"):
        given = tensors(torch, [(4, 4)] * 2, dtype)
        with torch.autocast("cpu", torch.bfloat16):
            found, expected = ours(*given), theirs(*given)
        torch.testing.assert_close(found, expected)
        direction = torch.randn_like(expected)
        torch.testing.assert_close(
            torch.autograd.grad(found, given, direction), torch.autograd.grad(expected, given, direction)
        )


# ---- layers ----


def a_model(torch: Any) -> Any:
    nn = torch.nn
    attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(4, 8), attention, nn.Linear(8, 3, bias=False)).double()


def test_swapped_models_learn_as_before_and_come_back(torch: Any, lt: Any) -> None:
    model, x = a_model(torch), torch.randn(2, 5, 4, dtype=torch.float64)
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    identities = [id(each) for each in (*model.modules(), *model.parameters())]

    def step() -> tuple[Any, list[Any]]:
        result = model(x)
        return result, list(torch.autograd.grad(result.square().sum(), list(model.parameters())))

    before = step()
    swapped = lt.swap(model)
    assert len(swapped) == 4
    torch.testing.assert_close(step(), before)
    assert [id(each) for each in (*model.modules(), *model.parameters())] == identities
    swapped.undo()
    swapped.undo()
    assert not any(isinstance(layer, lt.Linear) for layer in model.modules())
    after = step()
    assert torch.equal(after[0], before[0])
    assert all(torch.equal(one, other) for one, other in zip(after[1], before[1], strict=True))
    assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())


def test_layers_are_chosen_by_name_and_come_back_after_an_error(torch: Any, lt: Any) -> None:
    model = a_model(torch)
    swapped = lt.swap(model, lambda name, layer: name == "2")
    assert [type(layer) is lt.Linear for layer in (model[0], model[2])] == [False, True]
    with pytest.raises(lapidist.ShapeError), swapped:
        model[2](torch.ones(3))
    assert type(model[2]) is torch.nn.Linear


def test_a_swap_keeps_no_model_alive(torch: Any, lt: Any) -> None:
    model = torch.nn.Linear(3, 3)
    gone, swapped = weakref.ref(model), lt.swap(model)
    del model
    assert gone() is None
    swapped.undo()


def test_a_linear_layer_has_the_state_of_torchs(torch: Any, lt: Any) -> None:
    ours, theirs = lt.Linear(4, 3), torch.nn.Linear(4, 3)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 4)
    torch.testing.assert_close(ours(x), theirs(x))
