"""Tensors of torch's in host memory, and descriptors of them, as arguments of `check`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from lapidist.errors import ArgumentError  # noqa: E402
from lapidist.launch import TensorMap  # noqa: E402
from lapidist.machine import check  # noqa: E402
from lapidist.machine.authors.framework_kernels import triton_type, with_descriptors  # noqa: E402

SOURCE = """extern "C" __global__ void twice(unsigned short* x, float* y) {
    y[threadIdx.x] *= 2;
    x[0] = 0x4000;
}"""
META = {"swizzle": 2, "block_size": [8, 32], "fp4_padded": False}


def test_tensors_are_changed_in_place() -> None:
    x, y = torch.ones(4, dtype=torch.bfloat16), torch.arange(32.0, requires_grad=True)
    found = check(SOURCE, (1, 1, 1), (32, 1, 1), x, y, seeds=0)
    assert not list(found)
    assert (x[0].item(), x[1].item()) == (2.0, 1.0)
    assert torch.equal(y.detach(), 2 * torch.arange(32.0))


def test_a_tensor_elsewhere_is_refused() -> None:
    x = torch.empty(4, device="meta")
    with pytest.raises(ArgumentError, match=r"args\[0\]: must lie in host memory.*on meta. Pass its .cpu"):
        check(SOURCE, (1, 1, 1), (32, 1, 1), x, x)


def descriptor(base: Any, **options: Any) -> Any:
    """What Triton's TensorDescriptor has."""
    made = type("TensorDescriptor", (SimpleNamespace,), {"__module__": "triton.tools.tensor_descriptor"})
    fields = {"padding": "zero", "round_f32_to_tf32": False, "block_shape": [8, 64], **options}
    return made(base=base, shape=list(base.shape), strides=list(base.stride()), **fields)


def test_a_descriptor_becomes_a_map_and_numbers() -> None:
    base = torch.zeros(16, 64, dtype=torch.bfloat16)
    values, memory = with_descriptors((descriptor(base), 7), [META])
    assert triton_type("d", descriptor(base)) == "tensordesc<bf16[8, 64]>"
    expected = TensorMap(base.data_ptr(), "bfloat16", (64, 16), (128,), (32, 8), 64)
    assert values == (expected, 16, 64, 64, 1, 7)
    assert [type(value) for value in values[1:5]] == [np.int32, np.int32, np.int64, np.int64]
    assert memory[0].ctypes.data == base.data_ptr()


@pytest.mark.parametrize(
    ("options", "meta", "words"),
    [
        ({"padding": "nan"}, META, "must pad with zeros and not round"),
        ({"round_f32_to_tf32": True}, META, "must pad with zeros and not round"),
        ({}, {**META, "fp4_padded": True}, "must be a tile of a matrix, which TMA copies"),
        ({}, {**META, "is_im2col": True}, "must be a tile of a matrix, which TMA copies"),
    ],
)
def test_what_a_descriptor_must_be(options: dict[str, Any], meta: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        with_descriptors((descriptor(torch.zeros(16, 64), **options),), [meta])


def test_a_descriptor_of_what_is_no_tensor() -> None:
    array = SimpleNamespace(shape=(16, 64), stride=lambda: (64, 1))
    with pytest.raises(ArgumentError, match="must describe a tensor of torch's in host memory"):
        triton_type("d", descriptor(array))
