"""The forms in which products are called, each beside what torch (or NumPy) would be called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lapidist.verify.sum_bound import judge

MATRICES = 8  # of a batch, and of a list
HOST_SIDE = 64  # of NumPy's arrays


class Contestant(NamedTuple):
    """A form of call, and the name of the call of torch that does the same; torch's own have None."""

    call: Callable[[], Any]
    peer: str | None
    worst: float  # of its errors, over the bound


def judged(call: Callable[[], Any], peer: str | None, a: Any, b: Any, **more: Any) -> Contestant:
    """The form with its error over the bound, from one call. Of lists and stacks the first product is
    judged."""
    result = call()
    first = result if not isinstance(result, list) and result.ndim <= 2 else result[0]
    return Contestant(call, peer, judge(first, a, b, **more).worst)


def of_matrices(a: Any, b: Any, out: Any) -> dict[str, Contestant]:
    import torch

    import lapidist

    c = torch.randn_like(out)
    plan, of_c = lapidist.plan(a, b, out=out), {"c": c, "beta": 1.0}
    mm, new, addmm = "torch.mm", "torch.mm, new output", "torch.addmm"
    return {
        mm: judged(lambda: torch.mm(a, b, out=out), None, a, b),
        new: judged(lambda: torch.mm(a, b), None, a, b),
        addmm: judged(lambda: torch.addmm(c, a, b, out=out), None, a, b, **of_c),
        "plan.execute": judged(lambda: plan.execute(a, b, None, out), mm, a, b),
        "matmul(out)": judged(lambda: lapidist.matmul(a, b, out=out), mm, a, b),
        "matmul": judged(lambda: lapidist.matmul(a, b), new, a, b),
        "gemm(out)": judged(lambda: lapidist.gemm(a, b, out=out), mm, a, b),
        "gemm(c, out)": judged(lambda: lapidist.gemm(a, b, c, beta=1.0, out=out), addmm, a, b, **of_c),
    }


def of_many(a: Any, b: Any) -> dict[str, Contestant]:
    """Forms of batches, lists, gathered rows and vectors."""
    import torch

    import lapidist

    stack, b_stack = torch.stack([a] * MATRICES), torch.stack([b] * MATRICES)
    a_list, b_list = list(stack.unbind()), list(b_stack.unbind())
    rows = torch.arange(a.shape[0] - 1, -1, -1, device=a.device)
    vector, of_vector = a[0].clone(), "torch.matmul of a vector"
    return {
        "torch.bmm": judged(lambda: torch.bmm(stack, b_stack), None, a, b),
        "matmul of a batch": judged(lambda: lapidist.matmul(stack, b_stack), "torch.bmm", a, b),
        "torch.mm in a loop": judged(lambda: list(map(torch.mm, a_list, b_list)), None, a, b),
        "gemm of lists": judged(lambda: lapidist.gemm(a_list, b_list), "torch.mm in a loop", a, b),
        "torch.mm of a[rows]": judged(lambda: torch.mm(a[rows], b), None, a[rows], b),
        "gemm(gather_a)": judged(
            lambda: lapidist.gemm(a, b, gather_a=rows), "torch.mm of a[rows]", a[rows], b
        ),
        of_vector: judged(lambda: torch.matmul(vector, b), None, vector, b),
        "matmul of a vector": judged(
            lambda: lapidist.matmul(vector, b), "torch.matmul of a vector", vector, b
        ),
    }


def of_layers(a: Any, b: Any) -> dict[str, Contestant]:
    """Forms of a linear layer with a bias: alone, recorded by autograd, and with its gradients."""
    import torch

    import lapidist.torch

    stock, ours = torch.nn.functional.linear, lapidist.torch.linear
    x, weight, g = a.bfloat16(), b.T.bfloat16(), a.bfloat16()
    bias = torch.randn(b.shape[1], dtype=x.dtype, device=x.device)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight.contiguous(), bias)]

    def recorded(layer: Any) -> Any:
        return layer(*leaves).detach()

    def with_gradients(layer: Any) -> Any:
        """The input's gradient, computed with all others."""
        return torch.autograd.grad(layer(*leaves), leaves, g)[0]

    plain = tuple(leaf.detach() for leaf in leaves)
    sums = {"c": bias.expand(len(x), -1), "beta": 1.0}
    peers = "F.linear", "F.linear, recorded", "F.linear, with gradients"
    forward, back = (x, weight.T), (g, plain[1])
    return {
        peers[0]: judged(lambda: stock(*plain), None, *forward, **sums),
        "linear": judged(lambda: ours(*plain), peers[0], *forward, **sums),
        peers[1]: judged(lambda: recorded(stock), None, *forward, **sums),
        "linear, recorded": judged(lambda: recorded(ours), peers[1], *forward, **sums),
        peers[2]: judged(lambda: with_gradients(stock), None, *back),
        "linear, with gradients": judged(lambda: with_gradients(ours), peers[2], *back),
    }


def of_factors(a: Any, b: Any) -> dict[str, Contestant]:
    """Forms of 8-bit floats with a factor each."""
    import torch

    import lapidist

    small, other = (matrix.to(torch.float8_e4m3fn) for matrix in (a, b.T.contiguous()))
    scale = torch.full((), 0.5, device=a.device)
    kind, of_scales = torch.bfloat16, {"scale_a": scale, "scale_b": scale}
    peer = "torch._scaled_mm"

    def theirs() -> Any:
        return torch._scaled_mm(small, other.T, scale, scale, out_dtype=kind)

    def ours() -> Any:
        return lapidist.matmul(small, other.T, out_dtype=kind, **of_scales)

    return {
        peer: judged(theirs, None, small, other.T, promoted=True, **of_scales),
        "matmul(scale_a, scale_b)": judged(ours, peer, small, other.T, **of_scales),
    }


def of_groups(a: Any, b: Any) -> dict[str, Contestant]:
    """Rows of groups by a matrix each, as of experts."""
    import torch

    import lapidist

    rows, weights = a.bfloat16(), torch.stack([b.bfloat16()] * MATRICES)
    ends = torch.arange(1, MATRICES + 1, dtype=torch.int32, device=a.device) * (len(a) // MATRICES)
    out, peer = torch.empty(len(a), b.shape[1], dtype=rows.dtype, device=a.device), "torch._grouped_mm"
    first = rows[: len(a) // MATRICES], weights[0]

    def of_first(call: Callable[[], Any], peer: str | None) -> Contestant:
        return Contestant(call, peer, judge(call()[: len(first[0])], *first).worst)

    return {
        peer: of_first(lambda: torch._grouped_mm(rows, weights, ends), None),
        "grouped": of_first(lambda: lapidist.grouped(rows, weights, ends), peer),
        "grouped(out)": of_first(lambda: lapidist.grouped(rows, weights, ends, out=out), peer),
    }


def of_numpy() -> dict[str, Contestant]:
    import lapidist

    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal((HOST_SIDE, HOST_SIDE), np.float32) for _ in "ab")
    size = f"{HOST_SIDE} x {HOST_SIDE}"
    return {
        f"numpy.matmul, {size}": judged(lambda: np.matmul(a, b), None, a, b),
        f"matmul of NumPy, {size}": judged(lambda: lapidist.matmul(a, b), f"numpy.matmul, {size}", a, b),
    }
