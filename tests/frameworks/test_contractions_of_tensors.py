"""einsum and tensordot of torch tensors and JAX arrays: views of the caller's memory, results of the caller's
framework.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lapidist
from contraction_cases import Case, cases, lying
from lapidist.contractions import einsum
from lapidist.errors import ArgumentError, StrideError

pytestmark = pytest.mark.frameworks
SPECS = ["ij,jk->ki", "bqhd,bkhd->bhqk", "...ij,...jk->...ik", "abij,cdji->cabd", "i,j", "ij,ij->"]
SIZES = dict(zip("abcdhijkq", (2, 3, 2, 4, 3, 5, 4, 6, 5), strict=True))


def shapes(spec: str) -> list[tuple[int, ...]]:
    terms = spec.partition("->")[0].replace("...", "ab").split(",")
    return [tuple(SIZES[letter] for letter in term) for term in terms]


@pytest.mark.parametrize("device", ["host", "machine"])
@pytest.mark.parametrize("spec", SPECS)
def test_torch_has_the_same_einsum(torch: Any, spec: str, device: str) -> None:
    a, b = (torch.randint(-5, 6, shape).float() for shape in shapes(spec))
    expected = torch.einsum(spec if "->" in spec else f"{spec}->ij", a, b)
    result = lapidist.einsum(spec, a, b, device=device)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, expected)
    out = torch.full(expected.shape[::-1], torch.nan).permute(tuple(range(expected.ndim))[::-1])
    assert lapidist.einsum(spec, a, b, out=out, device=device) is out
    assert torch.equal(out, expected)


@settings(deadline=None)  # the first example imports torch
@given(cases(backwards=False), st.data())
def test_tensors_of_any_layout(case: Case, data: st.DataObject) -> None:
    import torch

    a, b = torch.from_numpy(case.a), torch.from_numpy(case.b)
    expected = torch.from_numpy(np.asarray(np.einsum(case.spec, case.a, case.b)))
    assert torch.equal(lapidist.einsum(case.spec, a, b), expected)
    out = torch.from_numpy(lying(data.draw, np.full(case.shape, np.nan), (1, 1, 2)))
    assert lapidist.einsum(case.spec, a, b, out=out) is out
    assert torch.equal(out, expected)


@settings(deadline=None, max_examples=30)  # JAX compiles for every shape
@given(cases(), st.booleans())
def test_jax_arrays_of_any_letters(case: Case, spelled: bool) -> None:
    import jax

    spec = case.spec if spelled else case.spec.partition("->")[0]
    a, b = (jax.numpy.asarray(each, dtype="float32") for each in (case.a, case.b))
    result = lapidist.einsum(spec, a, b)
    np.testing.assert_array_equal(result, np.einsum(spec, case.a, case.b))
    assert isinstance(result, jax.Array)


def test_torch_has_the_same_tensordot(torch: Any) -> None:
    a, b = torch.randint(-5, 6, (3, 4, 5)).float(), torch.randint(-5, 6, (5, 3, 2)).float()
    assert torch.equal(lapidist.tensordot(a, b, ([2, 0], [0, 1])), torch.tensordot(a, b, ([2, 0], [0, 1])))
    assert torch.equal(lapidist.tensordot(a, b, 1), torch.tensordot(a, b, 1))


def test_tensors_are_multiplied_where_they_lie(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def matmul(a: Any, b: Any, out: Any = None, **how: Any) -> Any:
        seen[:] = [a, b, out]
        return lapidist.matmul(a, b, out, **how)

    monkeypatch.setattr(einsum, "matmul", matmul)
    a, b, out = torch.randn(2, 5, 3, 4), torch.randn(2, 6, 3, 4), torch.empty(2, 3, 6, 5)
    lapidist.einsum("bqhd,bkhd->bhkq", a, b, out=out)
    assert [each.data_ptr() for each in seen] == [a.data_ptr(), b.data_ptr(), out.data_ptr()]


def test_an_output_that_cannot_be_one_matrix_is_copied_to(torch: Any) -> None:
    a, b, base = torch.ones(4, 3, 5), torch.ones(5, 2), torch.zeros(4, 6, 2)
    before = base._version
    out = base[:, ::2]
    assert lapidist.einsum("ijk,kl->ijl", a, b, out=out) is out
    assert torch.equal(base[:, ::2], torch.full((4, 3, 2), 5.0))
    assert not base[:, 1::2].any()
    assert base._version > before


def test_gradients_and_repeated_elements_are_refused(torch: Any) -> None:
    a, b = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3)
    with pytest.raises(ArgumentError, match=r"a: requires a gradient"):
        lapidist.einsum("ji,jk", a, b)
    with pytest.raises(ArgumentError, match=r"out: requires a gradient"):
        lapidist.einsum("ij,jk", b, b, out=a)
    with pytest.raises(StrideError, match=r"out: each element must have its own memory"):
        lapidist.einsum("ij,jk", b, b, out=torch.zeros(3).expand(3, 3))


@pytest.mark.parametrize("spec", SPECS)
def test_jax_gets_arrays_of_its_own(spec: str) -> None:
    import jax

    a, b = (jax.numpy.arange(np.prod(shape), dtype="float32").reshape(shape) % 7 for shape in shapes(spec))
    result = lapidist.einsum(spec, a, b)
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, np.einsum(spec, np.asarray(a), np.asarray(b)))
    with pytest.raises(ArgumentError, match=r"out: JAX arrays cannot be written to"):
        lapidist.einsum(spec, a, b, out=result)
