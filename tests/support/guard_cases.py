"""Calls of each form, and what may change between two calls of one geometry without its showing in shapes.

A repeated call takes a fast path. Whatever changes, its outcome must be that of the full path: the same
numbers, or the same error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar, NamedTuple

import lapidist
from lapidist import epilogue
from lapidist.calls.repeat import ARRAY_PATHS, LISTS, MATRIX_PATHS, ROWS

Tensors = dict[str, Any]
WARM = 4  # calls until every form has a fast path, if it has one


class Form(NamedTuple):
    """`shapes` of the tensors by their names. `run` takes them by name."""

    shapes: Mapping[str, tuple[int, ...]]
    run: Callable[..., Any]
    dtype: str = "float32"
    dtypes: Mapping[str, str] = {}
    records: bool = False  # gradients and tangents, in place of refusing them


@epilogue
def shifted(acc: Any, bias: lapidist.Row) -> Any:
    return acc + bias


A, B, D = (24, 16), (16, 32), (24, 32)
MATRICES = {"a": A, "b": B}


def planned(a: Any, b: Any, out: Any) -> Any:
    return PLANS["plan"].execute(a, b, out=out)


PLANS: dict[str, Any] = {}


def lapidist_torch() -> Any:
    return importlib.import_module("lapidist.torch")


FORMS: dict[str, Form] = {
    "matmul": Form(MATRICES, lambda a, b: lapidist.matmul(a, b)),
    "matmul with out": Form(MATRICES | {"out": D}, lambda a, b, out: lapidist.matmul(a, b, out)),
    "gemm": Form(MATRICES, lambda a, b: lapidist.gemm(a, b, alpha=2.0)),
    "gemm with c": Form(MATRICES | {"c": D}, lambda a, b, c: lapidist.gemm(a, b, c, beta=2.0)),
    "gemm into c": Form(MATRICES | {"c": D}, lambda a, b, c: lapidist.gemm(a, b, c, beta=2.0, out=c)),
    "alpha in memory": Form(MATRICES | {"alpha": ()}, lambda a, b, alpha: lapidist.gemm(a, b, alpha=alpha)),
    "factors": Form(
        MATRICES | {"scale_a": (24,), "scale_b": ()},
        lambda a, b, scale_a, scale_b: lapidist.matmul(a, b, scale_a=scale_a, scale_b=scale_b),
        "float8_e4m3fn",
        {"scale_a": "float32", "scale_b": "float32"},
    ),
    "epilogue": Form(
        MATRICES | {"bias": (32,)}, lambda a, b, bias: lapidist.matmul(a, b, epilogue=shifted(bias=bias))
    ),
    "epilogue with out": Form(
        MATRICES | {"bias": (32,), "out": D},
        lambda a, b, bias, out: lapidist.matmul(a, b, out, epilogue=shifted(bias=bias)),
    ),
    "lists": Form(MATRICES | {"a2": A, "b2": B}, lambda a, b, a2, b2: lapidist.gemm([a, a2], [b, b2])),
    "lists into": Form(
        MATRICES | {"a2": A, "b2": B, "out": D, "out2": D},
        lambda a, b, a2, b2, out, out2: lapidist.gemm([a, a2], [b, b2], out=[out, out2]),
    ),
    "plan": Form(MATRICES | {"out": D}, planned),
    "operator": Form(MATRICES, lambda a, b: lapidist_torch().matmul(a, b), records=True),
    "linear": Form(
        {"a": A, "b": (32, 16), "bias": (32,)},
        lambda a, b, bias: lapidist_torch().linear(a, b, bias),
        records=True,
    ),
}


def forget(*plain: Any) -> None:
    """Every fast path, and that of a plan of these tensors. What was compiled is kept."""
    for known in (MATRIX_PATHS, ARRAY_PATHS, LISTS, ROWS):
        known.clear()
    PLANS["plan"] = lapidist.plan(*plain)


def tensors_of(torch: Any, form: Form, device: str) -> Tensors:
    torch.manual_seed(0)
    found = {}
    for name, shape in form.shapes.items():
        drawn = torch.randint(-3, 4, shape, device=device)
        found[name] = drawn.to(getattr(torch, form.dtypes.get(name, form.dtype)))
    return found


# ---- what changes ----


class Subclass:
    """Made where torch is imported."""

    kinds: ClassVar[dict[Any, Any]] = {}

    @classmethod
    def of(cls, torch: Any) -> Any:
        return cls.kinds.setdefault(torch, type("Marked", (torch.Tensor,), {}))


def with_gradient(torch: Any, tensor: Any) -> Any:
    return tensor.detach().requires_grad_()


def parameter(torch: Any, tensor: Any) -> Any:
    return torch.nn.Parameter(tensor.detach())


def negated(torch: Any, tensor: Any) -> Any:
    return torch._neg_view(-tensor)


def marked(torch: Any, tensor: Any) -> Any:
    return tensor.as_subclass(Subclass.of(torch))


def dual(torch: Any, tensor: Any) -> Any:
    return torch.autograd.forward_ad.make_dual(tensor, torch.ones_like(tensor))


def of_inference(torch: Any, tensor: Any) -> Any:
    with torch.inference_mode():
        return tensor.clone()


def fake(torch: Any, tensor: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(tensor)


def wrapped(torch: Any, tensor: Any) -> Any:
    """As vmap hands it to the function that it maps."""
    return torch._C._functorch._add_batch_dim(tensor.expand(2, *tensor.shape), 0, 1)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "gradient": with_gradient,
    "parameter": parameter,
    "negated": negated,
    "subclass": marked,
    "tangent": dual,
    "inference tensor": of_inference,
    "fake": fake,
    "mapped": wrapped,
}


@contextmanager
def mapping(torch: Any) -> Iterator[None]:
    """Inside of a function that vmap maps."""
    torch._C._functorch._vmap_increment_nesting(2, "error")
    try:
        yield
    finally:
        torch._C._functorch._vmap_decrement_nesting()


def inside_a_trace(torch: Any, call: Callable[[], Any]) -> Any:
    """What the call returns while torch.jit.trace runs it."""
    found = []

    def traced(x: Any) -> Any:
        found.append(call())
        return x + 1

    torch.jit.trace(traced, torch.ones(1), check_trace=False)
    return found[0]


def dispatch_mode(torch: Any) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    return Watching()


def fake_mode(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


TRACE = "a trace"
CONTEXTS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda torch: torch.enable_grad(),
    "no grad": lambda torch: torch.no_grad(),
    "inference": lambda torch: torch.inference_mode(),
    "tangents": lambda torch: torch.autograd.forward_ad.dual_level(),
    "a dispatch mode": dispatch_mode,
    "fake tensors": fake_mode,
    "vmap": mapping,
    TRACE: lambda torch: nullcontext(),
}
NEEDS = {"tangent": "tangents", "mapped": "vmap"}  # changes that exist only in a context


def cases(form: str) -> Iterator[tuple[str, str, str, str]]:
    """A form, what changes, the tensor that changes, and the context of the later call."""
    for context in CONTEXTS:
        yield form, "", "", context
    for change in CHANGES:
        for name in FORMS[form].shapes:
            for context in [NEEDS[change]] if change in NEEDS else ["grad", "no grad"]:
                yield form, change, name, context


# ---- outcomes ----


class Outcome(NamedTuple):
    """Of an error its type and words, of results their types and numbers."""

    words: str
    numbers: Any = None


def both_ways(torch: Any, device: str, form: str, change: str, name: str, context: str) -> list[Outcome]:
    """The outcome of a call after calls that made its fast path, and of the same one after none."""
    return [outcome(torch, FORMS[form], device, change, name, context, warm) for warm in (True, False)]


def outcome(torch: Any, form: Form, device: str, change: str, name: str, context: str, warm: bool) -> Outcome:
    plain = tensors_of(torch, FORMS["matmul"], device)
    forget(plain["a"], plain["b"])
    if warm:
        with torch.no_grad():
            start = tensors_of(torch, form, device)
            if change in ("gradient", "parameter"):
                start[name] = CHANGES[change](torch, start[name])
            for _ in range(WARM):
                form.run(**start)
    tensors = tensors_of(torch, form, device)
    with CONTEXTS[context](torch):
        try:
            if change:
                tensors[name] = CHANGES[change](torch, tensors[name])
            run = partial(form.run, **tensors)
            result = inside_a_trace(torch, run) if context == TRACE else run()
        except Exception as error:
            return Outcome(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    results = result if isinstance(result, list) else [result]
    words = [f"{type(x).__name__} {x.dtype}, gradient {x.requires_grad}" for x in results]
    return Outcome("; ".join(words), [numbers_of(x) for x in results])


def numbers_of(tensor: Any) -> Any:
    try:
        return tensor.detach().double().tolist()
    except RuntimeError as error:
        return str(error).splitlines()[0]
