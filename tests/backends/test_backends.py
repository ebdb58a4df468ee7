"""Host, machine and GPU are backends of one interface: what runs is chosen once, and nobody asks again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.backends.backend import Backend
from lapidist.backends.gpu.launched_products import GpuBackend
from lapidist.backends.host_backend import HostBackend
from lapidist.backends.machine_backend import MachineBackend
from lapidist.backends.selection import MACHINE, backend_at, choose_place
from lapidist.frameworks.arrays import HOST

PACKAGE = Path(lapidist.__file__).parent


@lapidist.epilogue
def reduced_twice(acc: Any) -> Any:
    return acc, lapidist.row_sum(acc), lapidist.column_sum(acc)


@pytest.mark.parametrize(
    ("place", "kind", "words"),
    [(HOST, HostBackend, "the host"), (MACHINE, MachineBackend, "the machine"), (3, GpuBackend, "GPU 3")],
)
def test_a_place_has_its_backend(place: int | str, kind: type[Backend], words: str) -> None:
    backend = backend_at(place)
    assert type(backend) is kind
    assert backend.words == words
    assert backend_at(place) is backend


@pytest.mark.parametrize(
    ("device", "place"), [(None, HOST), ("host", HOST), ("cpu", HOST), ("machine", MACHINE)]
)
def test_host_arrays_are_multiplied_where_device_says(device: str | None, place: int | str) -> None:
    assert choose_place(HOST, device) == place


def test_the_machine_runs_all_second_passes() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    d, of_rows, of_columns = lapidist.matmul(a, a.T, epilogue=reduced_twice, device="machine")
    np.testing.assert_array_equal(d, a @ a.T)
    np.testing.assert_array_equal(of_rows, d.sum(1))
    np.testing.assert_array_equal(of_columns, d.sum(0))


def test_only_what_is_planned_has_a_chip() -> None:
    assert not backend_at(HOST).plans
    assert not hasattr(backend_at(HOST), "chip")
    assert backend_at(MACHINE).chip == lapidist.device.chip("h200")


def test_a_plan_does_not_ask_where_it_runs() -> None:
    """It asks its backend, which knows."""
    for name in ("prepared", "lists"):
        text = (PACKAGE / f"calls/{name}.py").read_text()
        assert re.findall(r"isinstance\(self\.(?:place|backend)|self\.place (?:==|!=) MACHINE", text) == []
