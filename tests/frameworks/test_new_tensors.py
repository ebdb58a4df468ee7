"""New tensors of a geometry, by the shorter way where that is right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lapidist.frameworks.new_tensors import tensor_maker

pytestmark = pytest.mark.frameworks

GPU = SimpleNamespace(type="cuda")  # one that torch cannot use


@pytest.fixture
def shorter(torch: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the shorter way was asked for; it makes tensors of the CPU."""
    asked: list[Any] = []
    guards = torch._C._dynamo.guards
    made = guards._empty_strided_cpu
    monkeypatch.setattr(guards, "_empty_strided_cuda", lambda *given: asked.append(given) or made(*given))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return asked


def test_the_shorter_way_makes_the_same(torch: Any, shorter: list[Any]) -> None:
    make = tensor_maker(torch.bfloat16, GPU)((3, 5), (1, 3))
    shorter.clear()
    one, other = make(), make()
    assert shorter == [((3, 5), (1, 3), torch.bfloat16)] * 2
    assert one.data_ptr() != other.data_ptr()
    assert (one.shape, one.stride(), one.dtype) == ((3, 5), (1, 3), torch.bfloat16)


@pytest.mark.parametrize("case", ["the CPU", "two GPUs", "missing", "another one"])
def test_the_longer_way_is_taken(
    torch: Any, monkeypatch: pytest.MonkeyPatch, shorter: list[Any], case: str
) -> None:
    guards, device = torch._C._dynamo.guards, torch.device("cpu") if case == "the CPU" else GPU
    if case == "two GPUs":
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    elif case == "missing":
        monkeypatch.delattr(guards, "_empty_strided_cuda")
    elif case == "another one":
        monkeypatch.setattr(guards, "_empty_strided_cuda", lambda *given: torch.empty(given[0]))
    asked = []
    monkeypatch.setattr(torch, "empty_strided", lambda *given, **more: asked.append((given, more)))
    tensor_maker(torch.bfloat16, device)((3, 5), (1, 3))()
    assert asked == [(((3, 5), (1, 3)), {"dtype": torch.bfloat16, "device": device})]
