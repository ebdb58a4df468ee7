"""torch or CuPy, whichever is there: they make the arrays of the bench and give access to the vendor's library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from lapidist.errors import DeviceError

Call = Callable[[int], object]  # start the product on input set i


class Framework(Protocol):
    """The little that the bench needs of an array library on one GPU. From adopt to leave, all work goes to the given stream."""

    name: str
    vendor: str
    capturable: bool  # its vendor call, in a CUDA graph

    def adopt(self, ordinal: int, stream: int) -> None: ...
    def leave(self) -> None: ...
    def normal(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any: ...
    def poisoned(self, rows: int, cols: int, dtype: str) -> Any: ...
    def poison(self, array: Any) -> None: ...
    def multiply(self, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call: ...
    def release(self) -> None: ...


class Torch:
    """cuBLAS through torch.mm, in full precision: no TF32, no reduced-precision reduction of halves."""

    name = "torch"
    capturable = True

    def __init__(self) -> None:
        import torch

        self.torch: Any = torch
        self.vendor = f"cuBLAS by torch.mm (torch {torch.__version__})"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def adopt(self, ordinal: int, stream: int) -> None:
        self.torch.cuda.set_device(ordinal)
        self._before = self.torch.cuda.current_stream()
        self.torch.cuda.set_stream(self.torch.cuda.ExternalStream(stream, device=ordinal))

    def leave(self) -> None:
        self.torch.cuda.set_stream(self._before)

    def normal(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any:
        self.torch.manual_seed(seed)
        shape = (cols, rows) if transposed else (rows, cols)
        array = self.torch.randn(shape, device="cuda", dtype=getattr(self.torch, dtype))
        return array.T if transposed else array

    def poisoned(self, rows: int, cols: int, dtype: str) -> Any:
        return self.torch.full((rows, cols), float("nan"), device="cuda", dtype=getattr(self.torch, dtype))

    def poison(self, array: Any) -> None:
        array.fill_(float("nan"))

    def multiply(self, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        mm = self.torch.mm
        return lambda index: mm(a[index], b[index], out=c[index])

    def release(self) -> None:
        self.torch.cuda.empty_cache()


class CuPy:
    """cuBLAS through cupy.matmul, in CuPy's default compute types."""

    name = "cupy"
    capturable = False

    def __init__(self) -> None:
        import cupy

        self.cupy: Any = cupy
        self.vendor = f"cuBLAS by cupy.matmul (CuPy {cupy.__version__})"

    def adopt(self, ordinal: int, stream: int) -> None:
        self.cupy.cuda.Device(ordinal).use()
        self._before = self.cupy.cuda.get_current_stream()
        self.cupy.cuda.ExternalStream(stream, ordinal).use()

    def leave(self) -> None:
        self._before.use()

    def normal(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any:
        shape = (cols, rows) if transposed else (rows, cols)
        random = self.cupy.random.default_rng(seed)
        array = random.standard_normal(shape, dtype="float64" if dtype == "float64" else "float32").astype(dtype)
        return array.T if transposed else array

    def poisoned(self, rows: int, cols: int, dtype: str) -> Any:
        return self.cupy.full((rows, cols), float("nan"), dtype=dtype)

    def poison(self, array: Any) -> None:
        array.fill(float("nan"))

    def multiply(self, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        matmul = self.cupy.matmul
        return lambda index: matmul(a[index], b[index], out=c[index])

    def release(self) -> None:
        self.cupy.get_default_memory_pool().free_all_blocks()


@lru_cache(maxsize=1)
def find_framework() -> Framework:
    """torch if it is installed and sees a GPU, else CuPy."""
    tried = []
    for make in (Torch, CuPy):
        try:
            found: Framework = make()
            return found
        except (ImportError, OSError, RuntimeError) as error:
            tried.append(f"{make.__name__}: {str(error).splitlines()[0]}")
    raise DeviceError(
        f"framework: the bench on a GPU needs torch or CuPy for its arrays and for cuBLAS; got neither ({'; '.join(tried)}). "
        'Install one with: pip install "lapidist[torch]" or "lapidist[cupy]"'
    )
