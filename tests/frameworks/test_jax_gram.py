"""lapidist.jax.gram: exactly symmetric, its gradient is one product, and the mirror follows on a GPU."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lapidist.backends.machine_backend import MachineBackend
from lapidist.errors import ShapeError

pytestmark = pytest.mark.frameworks

jax = pytest.importorskip("jax")
import lapidist.jax as lj  # noqa: E402


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("device", [None, "machine"])
def test_against_jax(rng: np.random.Generator, trans: bool, device: Any) -> None:
    a = rng.standard_normal((2, 9, 7)).astype(np.float32)
    n = 7 if trans else 9
    c = rng.standard_normal((n, n)).astype(np.float32)
    c, weights = c + c.T, rng.standard_normal((2, n, n)).astype(np.float32)

    def ours(a: Any, c: Any) -> Any:
        return jax.vmap(lambda a: lj.gram(a, c, trans=trans, alpha=0.5, beta=2.0, device=device))(a)

    def theirs(a: Any, c: Any) -> Any:
        left, right = (a.swapaxes(-2, -1), a) if trans else (a, a.swapaxes(-2, -1))
        return 0.5 * left @ right + 2.0 * c

    d = jax.jit(ours)(a, c)
    np.testing.assert_array_equal(d, np.swapaxes(d, -2, -1))
    np.testing.assert_allclose(d, theirs(a, c), rtol=1e-5, atol=1e-5)
    gradients = (jax.grad(lambda a, c, f=f: (f(a, c) * weights).sum(), (0, 1))(a, c) for f in (ours, theirs))
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_gradient_is_one_product() -> None:
    program = str(jax.make_jaxpr(jax.grad(lambda a: lj.gram(a).sum()))(np.ones((9, 7), np.float32)))
    assert program.count("lapidist_product[") == 2


def test_a_c_of_another_shape() -> None:
    with pytest.raises(ShapeError, match="c: "):
        lj.gram(np.ones((4, 7), np.float32), np.ones((5, 5), np.float32), beta=1.0)


def test_the_mirror_follows_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    several, products = (
        importlib.import_module(f"lapidist.jax.{x}") for x in ("several_launches", "product")
    )
    log: list[Any] = []
    monkeypatch.setattr(several, "backend_at", lambda place: MachineBackend())
    kernel = lambda launch, ordinal: SimpleNamespace(  # noqa: E731
        start_with=lambda brought, stream, scalars, at: log.append((launch.grid[0], stream, at))
    )
    monkeypatch.setattr(several, "kernel_alone", kernel)
    product = products.Product(("a", "b"), trans_b=True, triangle="lower")
    outlines = [((3, 128, 64), "bfloat16")] * 2
    bound = product.bound(products.operands_of(outlines, product.arrays, 0))
    first = SimpleNamespace(room=96, start=lambda pointers, stream: log.append("product"))
    mirrored = several.Mirrored(first, bound, 0)
    mirrored.start((0x100, 0x100, 0x200, 0x300), 5)
    assert mirrored.room == 96
    assert log == ["product", (3 * 3, 5, (0x200, 0, 0, 0x200))]
