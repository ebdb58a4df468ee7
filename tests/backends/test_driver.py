"""What the driver is asked when a kernel is loaded."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from lapidist.backends.gpu import driver
from lapidist.errors import LaunchError
from lapidist.launch import Binary


@pytest.mark.parametrize("shared_bytes", [0, 16384, 49152, 131072])
def test_a_kernel_is_allowed_its_dynamic_shared_memory(
    monkeypatch: pytest.MonkeyPatch, shared_bytes: int
) -> None:
    """Also 48 KB and less: static shared memory, a schedule's cursor say, counts among the 48 KB that a
    kernel has unasked.
    """
    allowed: list[int] = []
    modes, loaded = ["global"], []
    fine = SimpleNamespace(value=0)

    def attribute(_name: str, nbytes: int, _kernel: Any, _device: Any) -> tuple[Any]:
        allowed.append(nbytes)
        return (fine,)

    def exchange(mode: str) -> Any:
        modes.append(mode)
        return fine, modes[-2]

    def load(function: int) -> Any:
        loaded.append((function, modes[-1]))
        return (fine,)

    fake = SimpleNamespace(
        CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed"),
        cuThreadExchangeStreamCaptureMode=exchange,
        cuKernelGetFunction=lambda kernel: (fine, kernel + 1),
        cuFuncLoad=load,
        cuLibraryLoadData=lambda *_: (fine, 1),
        cuLibraryGetKernel=lambda *_: (fine, 2),
        cuDeviceGet=lambda *_: (fine, 0),
        cuKernelSetAttribute=attribute,
        CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most"),
        CUfunction=int,
    )
    monkeypatch.setattr(driver, "load_driver", lambda: fake)
    monkeypatch.setattr(driver, "current_device", lambda _: nullcontext())
    driver.load_binary(Binary("mma", "sm_90a", "", bytes([shared_bytes % 251]), ""), 0, shared_bytes)
    assert allowed == ([shared_bytes] if shared_bytes else [])
    assert loaded == [(3, "relaxed")]  # whole, before a launch that a capture may hold
    assert modes[-1] == "global"


def test_a_capture_that_another_thread_ended_has_a_way_out() -> None:
    status = SimpleNamespace(value=901, name="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
    with pytest.raises(LaunchError, match=r"JAX's threads .* capture_error_mode=\"thread_local\""):
        driver.check((status,), "cuLaunchKernelEx")
