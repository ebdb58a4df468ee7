"""float64 by remainders on a GPU: as near as float64 sums, in every layout, the same bits in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapidist_lab.emulated_float64 import multiplied

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("phi", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("m", "n", "k"), [(96, 80, 4096), (33, 65, 1001)])
def test_as_near_as_float64_sums(monkeypatch: pytest.MonkeyPatch, phi: float, m: int, n: int, k: int) -> None:
    monkeypatch.setenv("LAPIDIST_COMPILE", "wait")
    rng = np.random.default_rng(k)
    a, b = (
        (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape)) for shape in ((m, k), (k, n))
    )
    exact, magnitudes = a.astype(np.longdouble) @ b.astype(np.longdouble), np.abs(a) @ np.abs(b)
    of_a, of_b = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    plain = torch.mm(of_a, of_b).cpu().numpy()
    most = np.abs(plain - exact).__truediv__(magnitudes).max()
    first = multiplied(of_a, of_b)
    for left in (of_a, of_a.T.contiguous().T):
        for right in (of_b, of_b.T.contiguous().T):
            result = multiplied(left, right)
            assert torch.equal(result, first)
    assert (np.abs(first.cpu().numpy() - exact) / magnitudes).max() <= most
