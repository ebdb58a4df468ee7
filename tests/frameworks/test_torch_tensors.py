"""torch tensors on the CPU: what they mean is multiplied, autograd hears of writes, what has no memory is
refused in words.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.errors import ArgumentError, LapidistError

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]
PLACES = pytest.mark.parametrize("device", ["host", "machine"])


def negated(torch: Any, *shape: int) -> Any:
    """A tensor whose memory holds its negative."""
    tensor = torch.randn(*shape, dtype=torch.complex64).conj().imag
    assert tensor.is_neg()
    return tensor


@PLACES
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_negative_bits_keep_their_sign(torch: Any, device: str, name: str) -> None:
    given = {"a": torch.randn(9, 7), "b": torch.randn(7, 5), "c": torch.randn(9, 5)}
    given[name] = negated(torch, *given[name].shape)
    before = given[name].clone()
    for _ in range(2):  # prepared, too
        d = lapidist.gemm(**given, beta=0.5, device=device)
        torch.testing.assert_close(d, given["a"] @ given["b"] + 0.5 * given["c"])
    assert torch.equal(given[name], before)
    if name != "c":
        torch.testing.assert_close(
            lapidist.matmul(given["a"], given["b"], device=device), given["a"] @ given["b"]
        )


@PLACES
def test_an_output_with_a_negative_bit_is_copied_to_or_refused(torch: Any, device: str) -> None:
    a, b, out = torch.randn(9, 7), torch.randn(7, 5), negated(torch, 9, 5)
    before = out.clone()
    with pytest.raises(ArgumentError, match=r"out\[0\]: .*negative bit"):
        lapidist.gemm([a], [b], out=[out], device=device)
    assert torch.equal(out, before)
    assert lapidist.matmul(a, b, out=out, device=device) is out
    torch.testing.assert_close(out.resolve_neg(), a @ b)


@PLACES
@pytest.mark.parametrize("call", ["matmul", "gemm", "lists"])
def test_autograd_hears_of_what_is_written(torch: Any, device: str, call: str) -> None:
    """Else it goes back through the new numbers, and gives the wrong gradient without a word."""
    w, buffer = torch.randn(6, 5, requires_grad=True), torch.randn(6, 5)
    loss = (w * buffer).sum()
    x, y = torch.randn(6, 4), torch.randn(4, 5)
    if call == "lists":
        lapidist.gemm([x], [y], out=[buffer], device=device)
    else:
        getattr(lapidist, call)(x, y, out=buffer, device=device)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("name", ["a", "b", "c", "out", "alpha"])
def test_what_requires_a_gradient_is_refused(torch: Any, name: str) -> None:
    given = {"a": torch.randn(9, 7), "b": torch.randn(7, 5), "c": torch.randn(9, 5), "out": torch.zeros(9, 5)}
    given |= {"beta": 1.0, "alpha": torch.ones(1) if name == "alpha" else 1.0}
    given[name].requires_grad_()
    with pytest.raises(ArgumentError, match=rf"{name}: requires a gradient"):
        lapidist.gemm(**given)
    assert not given["out"].any()
    with torch.no_grad():
        lapidist.gemm(**given)
    assert given["out"].any()


def test_tangents_are_refused(torch: Any) -> None:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        a = forward_ad.make_dual(torch.randn(3, 3), torch.randn(3, 3))
        with pytest.raises(ArgumentError, match=r"a: has a tangent.*unpack_dual"):
            lapidist.matmul(a, torch.randn(3, 3))
        lapidist.matmul(torch.randn(3, 3), torch.randn(3, 3))


def test_tracing_is_refused(torch: Any) -> None:
    with pytest.raises(ArgumentError, match=r"a: torch\.jit\.trace would record the result as a constant"):
        torch.jit.trace(lambda x: lapidist.matmul(x, x), torch.ones(3, 3))


@PLACES
def test_subclasses_come_back_as_what_they_are(torch: Any, device: str) -> None:
    class Named(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    plain = torch.randn(4, 4)
    d = lapidist.matmul(plain.as_subclass(Named), plain, device=device)
    assert type(d) is Named
    torch.testing.assert_close(d.as_subclass(torch.Tensor), plain @ plain)
    parameter = torch.nn.Parameter(plain, requires_grad=False)
    assert type(lapidist.matmul(parameter, plain, device=device)) is torch.Tensor


def odd_tensors(torch: Any) -> dict[str, Callable[[], Any]]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Wrapping(torch.Tensor):  # type: ignore[misc, name-defined]
        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError("nothing is computed")

    def freed() -> Any:
        tensor = torch.eye(3)
        tensor.untyped_storage().resize_(0)
        return tensor

    eye = torch.eye(3)
    return {
        "sparse": eye.to_sparse,
        "csr": eye.to_sparse_csr,
        "mkldnn": eye.to_mkldnn,
        "meta": lambda: eye.to("meta"),
        "nested": lambda: torch.nested.nested_tensor([eye, eye]),
        "jagged": lambda: torch.nested.nested_tensor([eye, eye], layout=torch.jagged),
        "quantized": lambda: torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8),
        "fake": lambda: FakeTensorMode().from_tensor(eye),
        "wrapping": lambda: Wrapping(eye),
        "freed": freed,
    }


KINDS = ["sparse", "csr", "mkldnn", "meta", "nested", "jagged", "quantized", "fake", "wrapping", "freed"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_tensors_without_plain_memory_are_refused_in_words(torch: Any, kind: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of half of them
        odd = odd_tensors(torch)[kind]()
        given = {"a": torch.eye(3), "b": torch.eye(3), "c": torch.eye(3), "out": torch.zeros(3, 3), name: odd}
        with pytest.raises(LapidistError, match=rf"^{name}: must "):
            lapidist.gemm(**given, beta=1.0)
    assert name == "out" or not given["out"].any()


@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "functionalize"])
def test_transforms_are_refused_in_words(torch: Any, transform: str) -> None:
    def product(x: Any) -> Any:
        return lapidist.matmul(x, torch.eye(3)).sum()

    x = torch.ones(3, 3)
    calls: dict[str, Callable[[], Any]] = {
        "vmap": lambda: torch.vmap(product)(x.expand(2, 3, 3)),
        "grad": lambda: torch.func.grad(product)(x),
        "jvp": lambda: torch.func.jvp(product, (x,), (x,)),
        "functionalize": lambda: torch.func.functionalize(product)(x),
    }
    with pytest.raises(LapidistError, match=r"^a: must be a tensor with memory of its own"):
        calls[transform]()


def test_memory_offered_read_only_is_not_written() -> None:
    class ReadOnly:
        def __init__(self, array: Any) -> None:
            array.flags.writeable = False
            self.array = array

        def __dlpack__(self, **more: Any) -> Any:
            return self.array.__dlpack__(**{"max_version": (1, 0), **more})

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    out = np.zeros((3, 3), np.float32)
    with pytest.raises(ArgumentError, match="out: must be writable"):
        lapidist.matmul(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32), out=ReadOnly(out))
    assert not out.any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_memory_may_be_resized_after_a_product(torch: Any, dtype: str) -> None:
    """Tensor.numpy() would forbid it for ever; FSDP frees weights so."""
    a = torch.ones(3, 4).to(getattr(torch, dtype))
    out = torch.empty(3, 3, dtype=torch.float32)
    lapidist.matmul(a, a.T, out=out, out_dtype="float32")
    assert torch.equal(out, torch.full((3, 3), 4.0))
    for each in (a, out):
        each.untyped_storage().resize_(0)
