"""torch's own samples of its products (OpInfo), of complex tensors: ours in the operators' place."""

from __future__ import annotations

from typing import Any

import pytest

from complex_samples import count_of_right_samples, samples_of_torch

pytest.importorskip("torch")
pytestmark = [pytest.mark.frameworks, pytest.mark.survey]  # the import of all samples takes seconds


def test_samples_of_complex_tensors_and_their_gradients(lt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_of_right_samples(lt, samples_of_torch(monkeypatch), "cpu") > 60
