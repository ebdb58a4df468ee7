"""Where a call runs: arrays in two places, GPUs and drivers that are not there, streams."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends import selection
from lapidist.backends.gpu import driver
from lapidist.calls import argument_rules
from lapidist.calls.bound_lists import require_one_place
from lapidist.errors import ArgumentError, DeviceError
from lapidist.frameworks import streams
from lapidist.frameworks.arrays import HOST, Operand
from typed import ones, operand_on_gpu

F32 = np.float32


def test_arrays_in_two_places() -> None:
    here = Operand("a", 4096, (4, 4), (4, 1), "float32", HOST, "numpy", None)
    with pytest.raises(
        DeviceError, match=r"b: must be where a is, host memory; it is in GPU 1\. Move one of them"
    ):
        argument_rules.require_same_device(operand_on_gpu("b", 1), here)
    with pytest.raises(DeviceError, match=r"c: must be where a is, GPU 0; it is in GPU 1"):
        argument_rules.require_same_device(operand_on_gpu("c", 1), operand_on_gpu("a"))


def test_lists_in_two_places() -> None:
    """Each product lies in one place, so only their first operands are compared."""
    places = [0, 0, HOST, 0]
    calls: Any = [SimpleNamespace(a=replace(operand_on_gpu("a"), device=place)) for place in places]
    require_one_place(calls[:2])
    with pytest.raises(DeviceError, match=r"a\[2\]: must be where a\[0\] is, GPU 0; it is in host memory"):
        require_one_place(calls)


@pytest.mark.parametrize("device", ["machine", "host"])
def test_the_machine_takes_no_gpu_arrays(device: str) -> None:
    with pytest.raises(
        ArgumentError,
        match=rf"device: '{device}' takes arrays in host memory; these are on GPU 0\. Copy them",
    ):
        selection.choose_place(0, device)


def test_arrays_stay_on_their_gpu() -> None:
    with pytest.raises(
        ArgumentError, match=r"device: the arrays are on GPU 0, not 1\. Leave device out or move them"
    ):
        selection.choose_place(0, 1)


def test_a_place_that_is_free_to_choose() -> None:
    assert selection.choose_place(HOST, None) == HOST
    assert selection.choose_place(HOST, "host") == HOST
    assert selection.choose_place(HOST, "machine") == "machine"
    assert selection.choose_place(3, None) == 3


def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a computer without a driver, also where there is one."""
    from cuda.bindings import driver as bindings

    def missing(*_: object) -> None:
        raise RuntimeError("Failure finding libcuda.so.1")

    monkeypatch.setattr(bindings, "cuInit", missing)
    driver.load_driver.cache_clear()


@pytest.mark.parametrize("device", ["gpu", "cuda", 0, 1])
def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, device: int | str) -> None:
    without_gpu(monkeypatch)
    out = np.full((4, 5), np.nan, F32)
    with pytest.raises(
        DeviceError,
        match=r"device: no usable NVIDIA driver or GPU \(Failure finding libcuda.*lapidist doctor",
    ):
        lapidist.matmul(ones(4, 6), ones(6, 5), out=out, device=device)
    assert np.isnan(out).all()
    assert driver.gpu_count() == 0
    driver.load_driver.cache_clear()


def test_a_gpu_number_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "load_driver", lambda: None)
    monkeypatch.setattr(driver, "gpu_count", lambda: 2)
    with pytest.raises(
        DeviceError, match=r"device: GPU 2 was asked for, but the driver sees 2\. Choose one below 2"
    ):
        driver.require_gpu(2)
    driver.require_gpu(1)


def test_a_driver_that_is_too_old() -> None:
    with pytest.raises(
        DeviceError,
        match=r"driver: CUDA 13\.0 is needed, this one gives 12\.4\. Install an NVIDIA driver of release 580",
    ):
        driver.require_driver_version(12040)
    with pytest.raises(DeviceError, match=r"for this one CUDA 12.s compiler: pip install .lapidist.cuda12"):
        driver.require_driver_version(12040)
    with pytest.raises(DeviceError) as told:
        driver.require_driver_version(11080)
    assert "cuda12" not in str(told.value)
    driver.require_driver_version(13000)
    driver.require_driver_version(13050)


@pytest.mark.parametrize("stream", ["first", 1.5, object()])
def test_a_stream_that_is_none(stream: object) -> None:
    with pytest.raises(
        ArgumentError, match=r"stream: must be a raw handle or a torch, CuPy or cuda\.core stream; got "
    ):
        streams.choose_stream(stream, "numpy", 0)


@pytest.mark.parametrize("attribute", ["cuda_stream", "ptr", "handle"])
def test_a_stream_of_any_framework(attribute: str) -> None:
    stream = type("Stream", (), {attribute: 77})()
    assert streams.choose_stream(stream, "numpy", 0) == 77
    assert streams.choose_stream(5, "numpy", 0) == 5


def test_an_unknown_chip() -> None:
    from lapidist.device import chip

    with pytest.raises(ArgumentError, match=r"chip: must be one of v100, .*h200; got 'h300'"):
        chip("h300")
