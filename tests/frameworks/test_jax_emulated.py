"""Emulated precision in JAX: the bits of lapidist.matmul in the machine, and on a GPU what is launched there,
run in the machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends import machine_backend
from lapidist.backends.machine_backend import MachineBackend
from lapidist.calls.bound import Bound
from lapidist.calls.prepared import Prepared
from lapidist.errors import ArgumentError, DTypeError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.launch import Memory

pytestmark = pytest.mark.frameworks

jax = pytest.importorskip("jax")
import lapidist.jax as lj  # noqa: E402
from lapidist.jax import several_launches  # noqa: E402
from lapidist.jax.product import Product, operands_of  # noqa: E402

MACHINE: dict[str, Any] = {"device": "machine"}
BOTH = pytest.mark.parametrize("precision", ["emulated", "emulated_any_range"])


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@BOTH
def test_the_bits_of_matmul(rng: np.random.Generator, precision: Any) -> None:
    a, b = normal(rng, 2, 9, 300), normal(rng, 300, 20)
    ours = jax.jit(lambda a, b: lj.matmul(a, b, precision=precision, **MACHINE))(a, b)
    theirs = [lapidist.matmul(matrix, b, precision=precision, **MACHINE) for matrix in a]
    np.testing.assert_array_equal(ours, theirs)


def test_gradients_and_vmap(rng: np.random.Generator) -> None:
    a, b, weights = normal(rng, 3, 12, 300), normal(rng, 300, 280), normal(rng, 3, 12, 280)

    def loss(a: Any, b: Any) -> Any:
        product = jax.vmap(lambda x: lj.matmul(x, b, precision="emulated", **MACHINE))
        return (product(a) * weights).sum()

    of_a, of_b = jax.grad(loss, (0, 1))(a, b)
    np.testing.assert_allclose(of_a, weights @ b.T, atol=2e-4)
    np.testing.assert_allclose(of_b, np.einsum("xik,xij->kj", a, weights), atol=1e-4)
    assert "precision='emulated'" in str(jax.make_jaxpr(jax.grad(loss))(a, b))


def test_xla_computes_the_epilogue(rng: np.random.Generator) -> None:
    x, w, bias = normal(rng, 5, 300), normal(rng, 16, 300), normal(rng, 16)
    sums = lj.linear(x, w, bias, precision="emulated", **MACHINE)
    layer = lj.linear(x, w, bias, activation="silu", precision="emulated", **MACHINE)
    np.testing.assert_allclose(layer, jax.nn.silu(sums), rtol=1e-6, atol=1e-7)


def test_a_product_with_itself(rng: np.random.Generator) -> None:
    a = normal(rng, 2, 20, 300)
    d = lj.gram(a, precision="emulated", **MACHINE)
    np.testing.assert_array_equal(d, np.swapaxes(d, -2, -1))
    np.testing.assert_allclose(d, a @ np.swapaxes(a, -2, -1), atol=3e-4)


def test_what_is_refused() -> None:
    half = np.ones((4, 300), np.float16)
    with pytest.raises(DTypeError, match="is a way to multiply float32; a is float16"):
        lj.matmul(half, half.T, precision="emulated")
    with pytest.raises(ArgumentError, match="invariant=True"):
        lj.matmul(np.ones((4, 300), "f4"), np.ones((300, 4), "f4"), precision="emulated", invariant=True)
    with pytest.raises(DTypeError, match="float32"):
        lj.gram(half, precision="emulated")
    a = np.ones((4, 300), np.float32)
    with pytest.raises(DTypeError, match="the result bfloat16"):
        lj.gram(a, precision="emulated_any_range", out_dtype="bfloat16", **MACHINE)


# ---- on a GPU: the launches, by the addresses that XLA gives ----


class OnMachine:
    """A kernel that is no product. `everything`: the arrays that it may touch."""

    everything: tuple[Memory, ...] = ()

    def __init__(self, launch: Any, ordinal: int) -> None:
        self.launch = launch

    def start_with(self, brought: Any, stream: int, scalars: Any, operands: Any) -> None:
        values = dict(zip(("alpha", "beta"), scalars, strict=True))
        at = dict(zip("ABCD", operands, strict=True))
        machine_backend.run(self.launch.patched(values).placed(at, memory=self.everything))


class Products:
    """A prepared product, which runs in the machine."""

    workspace_bytes = 0

    def __init__(self, bound: Bound, ordinal: int, choices: Any) -> None:
        self.bound, self.choices = bound, choices

    def start(self, a: int, b: int, c: int, d: int, scalars: Any, stream: int, pointers: Any) -> None:
        operation = self.bound.operation
        operation = operation._replace(guard=at(operation.guard, pointers.alpha))
        of_c = None if self.bound.c is None else at(self.bound.c, c)
        bound = Bound(at(self.bound.a, a), at(self.bound.b, b), of_c, at(self.bound.out, d), operation)
        Prepared(bound, "machine", self.choices._replace(device=None)).run(bound)


def at(operand: Any, pointer: int) -> Operand:
    return replace(operand, pointer=pointer, device=HOST, framework="numpy")


@pytest.fixture
def on_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_launches, "kernel_alone", OnMachine)
    monkeypatch.setattr(several_launches, "Prepared", Products)
    monkeypatch.setattr(several_launches, "backend_at", lambda place: MachineBackend())


@BOTH
def test_launches_on_a_gpu(
    rng: np.random.Generator, on_machine: None, monkeypatch: Any, precision: str
) -> None:
    a, b, c = normal(rng, 3, 9, 300), normal(rng, 15, 300), normal(rng, 15)
    a[1, 2, 3] = 1e20  # slices do not reach: float32 itself follows
    outlines = [(array.shape, "float32") for array in (a, b, c)]
    product = Product(("a", "b", "c"), False, True, 0.5, 2.0, precision=precision)
    bound = product.bound(operands_of(outlines, product.arrays, 0))
    ready = several_launches.InSteps(bound, precision, 0)
    d, room = np.full((3, 9, 15), np.nan, np.float32), np.zeros(ready.room + 256, np.uint8)
    arrays = (a, b, c, d, room)
    memory = tuple(Memory(str(i), x.ctypes.data, x.nbytes, x) for i, x in enumerate(arrays))
    monkeypatch.setattr(OnMachine, "everything", memory)
    ready.start(tuple(array.ctypes.data for array in arrays), 0)
    for matrix, result in zip(a, d, strict=True):
        expected = lapidist.gemm(
            matrix, b, c, alpha=0.5, beta=2.0, trans_b=True, precision=precision, **MACHINE
        )
        np.testing.assert_array_equal(result, expected)


def test_by_bits(rng: np.random.Generator) -> None:
    a, b = normal(rng, 9, 200), normal(rng, 200, 20)
    bits = lapidist.Accuracy(21)
    ours = jax.jit(lambda a, b: lj.matmul(a, b, precision=bits, **MACHINE))(a, b)
    np.testing.assert_array_equal(ours, lapidist.matmul(a, b, precision=bits, **MACHINE))
