"""The bench's arrays by torch, without a GPU."""

from __future__ import annotations

from typing import Any

from lapidist_lab.bench.protocol.array_library import Torch


class HostTorch(Torch):
    """torch in host memory."""

    def random(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any:
        shape = (cols, rows) if transposed else (rows, cols)
        array = self.torch.randn(shape).to(getattr(self.torch, dtype))
        return array.T if transposed else array

    def poisoned(self, rows: int, cols: int, dtype: str) -> Any:
        return self.torch.full((rows, cols), float("nan"), dtype=getattr(self.torch, dtype))

    def release(self) -> None:
        """Nothing is cached."""
