"""lapidist.torch.gram and the Newton-Schulz steps of Muon."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lapidist  # noqa: E402
import lapidist.torch as lt  # noqa: E402

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize("trans", [False, True])
def test_gradients_are_those_of_the_whole_product(trans: bool) -> None:
    a = torch.randn(2, 7, 5, dtype=torch.float64, requires_grad=True)
    n = 5 if trans else 7
    c = torch.randn(n, n, dtype=torch.float64)
    c = (c + c.T).requires_grad_()
    result = lt.gram(a, c, trans=trans, alpha=0.5, beta=2.0)
    left, right = (a.mT, a) if trans else (a, a.mT)
    torch.testing.assert_close(result, 0.5 * left @ right + 2.0 * c)
    weights = torch.randn_like(result)
    ours = torch.autograd.grad((result * weights).sum(), (a, c))
    torchs = torch.autograd.grad(((0.5 * left @ right + 2.0 * c) * weights).sum(), (a, c))
    for one, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(one, other)


def test_compiled_as_one_graph() -> None:
    function = torch.compile(lambda a: lt.gram(a, alpha=2.0) + 1, fullgraph=True, backend="aot_eager")
    a = torch.randn(6, 4)
    torch.testing.assert_close(function(a), 2 * a @ a.T + 1)


def test_flops_count_as_torchs() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        lt.gram(torch.ones(6, 4))
    assert counter.get_total_flops() == 2 * 6 * 6 * 4


def newton_schulz(gradient: Any, steps: int) -> Any:
    """As the authors of Muon write it."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.double()
    x = x.mT if x.shape[-2] > x.shape[-1] else x
    x = x / x.norm(dim=(-2, -1), keepdim=True)
    for _ in range(steps):
        squared = x @ x.mT
        x = a * x + (b * squared + c * squared @ squared) @ x
    return x.mT if gradient.shape[-2] > gradient.shape[-1] else x


@pytest.mark.parametrize("shape", [(12, 20), (3, 20, 12)])
def test_the_step_of_muon(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    gradient = torch.randn(shape)
    result = lt.orthogonalised(gradient)
    assert result.shape == gradient.shape
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.double(), newton_schulz(gradient, 5), atol=0.05, rtol=0.05)
    spread = torch.linalg.svdvals(result.double())
    assert spread.min() > 0.5
    assert spread.max() < 1.4


def test_what_is_no_matrix_is_refused() -> None:
    with pytest.raises(lapidist.ArgumentError, match="gradient: must be a matrix"):
        lt.orthogonalised(torch.ones(3))
    with pytest.raises(lapidist.DTypeError, match=r"a: must be a torch\.Tensor"):
        lt.gram([[1.0]])
