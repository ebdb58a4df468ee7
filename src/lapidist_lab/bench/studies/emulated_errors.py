"""How near float32 products are, by k and by how far numbers differ in size: those of cuBLAS, in tf32, and
both emulated precisions.

A and B are (U - 0.5) exp(phi N), of uniform U and normal N, as papers on emulated products have them. The
error is the largest of all elements, against float64 and over the product of magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import lapidist
from lapidist.dtypes import ANY_RANGE, EMULATED, Precision
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.record import Record

NAMES: dict[Precision, str] = {EMULATED: "lapidist, emulated", ANY_RANGE: "lapidist, emulated, any range"}
PHIS, DEPTHS, M, N = (0.0, 0.5, 1.0, 2.0, 4.0), (256, 1024, 4096, 16384), 512, 384
WIDE = "float32, phi {:g}"  # the mode of Records
MODES = {WIDE.format(phi): phi for phi in PHIS}


def drawn(torch: Any, phi: float, rows: int, columns: int) -> Any:
    shape = {"size": (rows, columns), "device": "cuda", "dtype": torch.float64}
    return ((torch.rand(**shape) - 0.5) * torch.exp(phi * torch.randn(**shape))).float()


def ways(torch: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Who multiplies. tf32 is ours: cuBLAS rounds alike."""
    emulated: dict[str, Callable[[Any, Any], Any]] = {
        name: partial(lapidist.matmul, precision=precision, compile="wait")
        for precision, name in NAMES.items()
    }
    return {
        "cublas": torch.matmul,
        "lapidist, tf32": partial(lapidist.matmul, precision="tf32", compile="wait"),
        **emulated,
    }


def errors(stage: Stage) -> Iterator[Record]:
    """None without torch, whose float64 products are what others are compared with."""
    if stage.framework.name != "torch":
        return
    import torch

    torch.manual_seed(0)
    for mode, phi in MODES.items():
        for k in DEPTHS:
            a, b = drawn(torch, phi, M, k), drawn(torch, phi, k, N)
            exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
            for name, multiply in ways(torch).items():
                error = ((multiply(a, b).double() - exact).abs() / magnitudes).max().item()
                kind = "peer" if name == "cublas" else "production"
                row = Record(
                    name,
                    kind,
                    stage.device.name,
                    "float32",
                    "rrr",
                    M,
                    N,
                    k,
                    seconds=None,
                    tflops=None,
                    ratio=None,
                    limit_share=None,
                    worst=None,
                    ok=True,
                )
                yield replace(row, mode=mode, largest_error=error)
