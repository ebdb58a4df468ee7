"""einsum and tensordot on a GPU: views of the caller's memory, outputs of any strides, the framework's
stream.
"""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from lapidist.errors import ArgumentError
from on_gpu import poisoned, whole

pytestmark = pytest.mark.gpu
SPECS = [
    "ij,jk->ki",
    "bqhd,bkhd->bhqk",
    "bhqk,bkhd->bqhd",
    "...ij,...jk->...ik",
    "abij,cdji->cabd",
    "i,j->ji",
    "ij,ij->",
]
SIZES = dict(zip("abcdhijkq", (2, 3, 2, 40, 3, 50, 64, 72, 56), strict=True))


def operands(torch: Any, spec: str, math: str) -> list[Any]:
    terms = spec.partition("->")[0].replace("...", "ab").split(",")
    return [whole(torch, math, *(SIZES[letter] for letter in term)) for term in terms]


@pytest.mark.parametrize("math", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("spec", SPECS)
def test_einsum_is_torchs(torch: Any, spec: str, math: str) -> None:
    a, b = operands(torch, spec, math)
    expected = torch.einsum(spec, a.double(), b.double())
    result = lapidist.einsum(spec, a, b, out_dtype="float64" if math == "float64" else "float32")
    assert torch.equal(result.double(), expected)
    for step in (1, 2):  # a corner, and gaps along all dimensions: neither is a matrix that kernels write
        base = torch.full([2 * size for size in expected.shape], torch.nan, dtype=result.dtype, device="cuda")
        out = (
            base[tuple(slice(None, size * step, step) for size in expected.shape)] if expected.ndim else base
        )
        assert lapidist.einsum(spec, a, b, out=out) is out
        assert torch.equal(out.double(), expected)


def test_tensordot_is_torchs(torch: Any) -> None:
    a, b = whole(torch, "float32", 30, 40, 50), whole(torch, "float32", 50, 30, 20)
    assert torch.equal(lapidist.tensordot(a, b, ([2, 0], [0, 1])), torch.tensordot(a, b, ([2, 0], [0, 1])))


def test_copies_are_made_on_the_frameworks_stream(torch: Any) -> None:
    """On another one, a kernel would read them before they are there."""
    a, b = whole(torch, "float32", 40, 60, 50)[:, :30], whole(torch, "float32", 50, 20)
    stream = torch.cuda.Stream()
    with pytest.raises(ArgumentError, match=r"stream: must be left out where a or b is copied"):
        lapidist.einsum("ijk,kl->ijl", a, b, stream=stream)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = lapidist.einsum("ijk,kl->ijl", a, b)
    stream.synchronize()
    assert torch.equal(result, torch.einsum("ijk,kl->ijl", a, b))


def test_views_can_be_captured_in_a_graph(torch: Any) -> None:
    a, b, out = (
        whole(torch, "float32", 2, 50, 3, 64),
        whole(torch, "float32", 2, 40, 3, 64),
        poisoned(torch, 2, 3, 50, 40),
    )
    lapidist.einsum("bqhd,bkhd->bhqk", a, b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.einsum("bqhd,bkhd->bhqk", a, b, out=out)
    out.zero_()
    graph.replay()
    assert torch.equal(out, torch.einsum("bqhd,bkhd->bhqk", a, b))
