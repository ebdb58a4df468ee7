"""A computer without a GPU."""

from __future__ import annotations

import pytest

from lapidist.backends.gpu import driver
from lapidist.errors import DeviceError


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise DeviceError("device: no usable NVIDIA driver")

    monkeypatch.setattr(driver, "gpu_count", lambda: 0)
    monkeypatch.setattr(driver, "load_driver", absent)
