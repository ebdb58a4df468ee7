"""A repeated call on the CPU whose tensors have changed, or what torch does with them: its outcome is that of
the full path.
"""

from __future__ import annotations

from typing import Any

import pytest

import lapidist
from guard_cases import FORMS, both_ways, cases
from lapidist.calls.repeat import guard

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings(
        "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
    ),  # make_dual's own
]


@pytest.mark.parametrize("form", FORMS)
def test_what_changes_is_seen(torch: Any, form: str) -> None:
    for case in cases(form):
        again, first = both_ways(torch, "cpu", *case)
        assert again == first, case


@pytest.mark.parametrize("form", FORMS)
def test_what_changes_is_seen_without_torchs_own_guard(
    torch: Any, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """It is no public part of torch, and may go away."""
    monkeypatch.setattr(guard, "torch_guard", lambda *_: None)
    for case in cases(form):
        again, first = both_ways(torch, "cpu", *case)
        assert again == first, case


@pytest.mark.parametrize("form", FORMS)
def test_no_gradient_is_lost(torch: Any, form: str) -> None:
    """After calls under no_grad, by whatever path: refused, naming the tensor, or recorded."""
    for _, change, name, context in cases(form):
        if change in ("gradient", "parameter", "tangent") and context != "no grad":
            again, _ = both_ways(torch, "cpu", form, change, name, context)
            if FORMS[form].records:
                assert "gradient True" in again.words or change == "tangent"
            else:
                assert again.words.startswith(f"ArgumentError: {argument(name, form)}: "), again
                assert "requires a gradient" in again.words or "has a tangent" in again.words


def argument(name: str, form: str) -> str:
    """Its name in errors: in lists, with the number of its product."""
    if not form.startswith("lists"):
        return name
    return f"{name.removesuffix('2')}[{int(name.endswith('2'))}]"


def test_a_gradient_of_c_is_not_lost_where_rows_are_scattered(torch: Any) -> None:
    a, c, out = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True), torch.full((4, 4), 7.0)
    rows = torch.tensor([2, 0, 1, 3])
    with pytest.raises(lapidist.ArgumentError, match="c: requires a gradient"):
        lapidist.gemm(a, a, c, beta=1.0, out=out, scatter_d=rows)
    assert (out == 7.0).all()
    assert lapidist.gemm(a, a, c.detach(), beta=1.0, out=out, scatter_d=rows) is out
