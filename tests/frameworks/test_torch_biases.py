"""Which layers give their bias to the kernel as an epilogue, and which as C."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.frameworks


def on_card(torch: Any, shape: tuple[int, ...], dtype: str = "bfloat16") -> Any:
    """What is asked of a tensor there before anything is computed."""
    size, kind = torch.Size(shape), getattr(torch, dtype)
    return SimpleNamespace(shape=size, ndim=len(shape), numel=size.numel, dtype=kind, is_cuda=True)


def test_the_bias_of_a_large_layer_is_an_epilogue(torch: Any) -> None:
    biases = importlib.import_module("lapidist.torch.biases")
    layer = (8, 1024, 1024), (1024, 1024), (1024,)

    def follows(shapes: Any = layer, dtypes: tuple[str, ...] = ("bfloat16",) * 3) -> bool:
        a, weight, bias = (on_card(torch, *each) for each in zip(shapes, dtypes, strict=True))
        given = biases.added(bias, a, weight, weight.shape[0])
        assert given.keys() == ({"epilogue"} if "epilogue" in given else {"c", "beta"})
        return "epilogue" in given

    assert follows()
    assert follows(dtypes=("float16",) * 3)
    assert not follows(dtypes=("bfloat16", "bfloat16", "float32"))
    assert not follows(dtypes=("float32",) * 3)
    for other in (
        ((8, 512, 1024), *layer[1:]),  # small
        ((64, 2**14), (2**14, 2**14), (2**14,)),  # few rows
        ((8, 1024, 1024), (1028, 1024), (1028,)),  # rows of D start anywhere
        ((8, 1024, 1028), (1024, 1028), (1024,)),
        (*layer[:2], (1,)),
        (*layer[:2], (1, 1024)),
    ):
        assert not follows(other), other
    assert biases.added(None, *(on_card(torch, each) for each in layer[:2]), 1024) == {"beta": 0.0}
