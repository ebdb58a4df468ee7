"""Which launches may share a workspace, and how large it is, with a driver that writes down its calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from lapidist.backends.gpu import workspaces
from lapidist.backends.gpu.workspaces import PER_THREAD_STREAM, owned, rooms_between, rounded, stream_key
from lapidist.errors import LaunchError

FINE, OUT_OF_MEMORY = SimpleNamespace(value=0, name="fine"), SimpleNamespace(value=2, name="OUT_OF_MEMORY")


class Driver:
    """Allocates from 1 GiB on, so that rooms are told apart."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING="apart")

    def __init__(self, captures: int = 0, memory: Any = FINE) -> None:
        """`captures`: the number of the capture under way; 0: none."""
        self.captures, self.memory, self.at = captures, memory, 1 << 30
        self.zeroed: list[tuple[int, int]] = []
        self.modes: list[str] = []

    def cuStreamIsCapturing(self, handle: Any) -> Any:
        return 0, self.captures

    def cuStreamGetCaptureInfo(self, handle: Any) -> Any:
        return FINE, 1, self.captures

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> Any:
        self.modes.append(mode)
        return FINE, "as before"

    def cuMemAlloc(self, nbytes: int) -> Any:
        self.at += nbytes
        return self.memory, self.at - nbytes

    def cuMemsetD8Async(self, at: int, value: int, nbytes: int, stream: Any) -> Any:
        assert value == 0
        self.zeroed.append((at, nbytes))
        return (FINE,)

    def cuStreamCreate(self, flags: str) -> Any:
        return FINE, flags

    def cuStreamSynchronize(self, stream: Any) -> Any:
        assert stream == "apart"
        return (FINE,)

    cuStreamDestroy = cuStreamSynchronize


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "_owned", {})
    monkeypatch.setattr(workspaces, "_free", {})


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (0, 1 << 16),
        (1 << 16, 1 << 16),
        ((1 << 16) + 1, 1 << 17),
        (1 << 20, 1 << 20),
        ((1 << 20) + 4, 1 << 21),
    ],
)
def test_sizes_are_powers_of_two(nbytes: int, expected: int) -> None:
    assert rounded(nbytes) == expected


def test_a_stream_has_one_key_and_a_capture_on_it_another() -> None:
    assert stream_key(Driver(), 7, 7) == stream_key(Driver(), 7, 7) == 7
    captured = [stream_key(Driver(capture), 7, stream) for capture, stream in ((5, 7), (6, 7), (5, 8))]
    assert len({*captured, 7}) == 4
    assert stream_key(Driver(5), 7, 7) == captured[0]


def test_cudas_stream_of_each_thread_has_a_key_for_each() -> None:
    """One handle stands for all of them, and they do not wait for each other."""
    with ThreadPoolExecutor(1) as other:
        for stream, apart in ((PER_THREAD_STREAM, True), (7, False)):
            own = stream_key(Driver(), stream, stream)
            theirs = other.submit(stream_key, Driver(), stream, stream).result()
            assert (own != theirs) == apart
            assert own == stream_key(Driver(), stream, stream)


def test_launches_share_a_workspace_by_gpu_key_and_size() -> None:
    driver = Driver()
    first = owned(driver, 0, 7, 100, 1 << 20)
    assert first[1] - first[0] == 1 << 16
    assert driver.zeroed == [(first[0], 1 << 16)]
    assert owned(driver, 0, 7, 200, (1 << 20) - 5) == first
    others = [(1, 7, 100, 1 << 20), (0, 8, 100, 1 << 20), (0, 7, 1 << 17, 1 << 20), (0, 7, 100, 1 << 21)]
    rooms = [owned(driver, *asked) for asked in others]
    assert len({first, *rooms}) == 5
    assert [owned(driver, *asked) for asked in others] == rooms
    assert len(driver.zeroed) == 5


def test_the_capture_mode_is_put_back_where_there_is_no_memory() -> None:
    driver = Driver(memory=OUT_OF_MEMORY)
    with pytest.raises(LaunchError, match="cuMemAlloc of a workspace: the driver answered OUT_OF_MEMORY"):
        owned(driver, 0, 7, 100, 100)
    assert driver.modes == ["relaxed", "as before"]
    driver.memory = FINE
    assert owned(driver, 0, 7, 100, 100)[0] > 0


def test_free_workspaces_belong_to_a_gpu_a_key_and_a_size() -> None:
    rooms_between(0, 7, (1, 2)).append((10, 20))
    assert rooms_between(0, 7, (1, 2)) == [(10, 20)]
    assert [rooms_between(*asked) for asked in ((1, 7, (1, 2)), (0, 8, (1, 2)), (0, 7, (2, 2)))] == [[]] * 3
