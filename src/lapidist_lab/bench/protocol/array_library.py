"""torch or CuPy, whichever is there: they make the arrays of the bench and give access to the vendor's
library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, Protocol

from lapidist.backends.gpu.doctor import CUPY_HINT, TORCH_HINT
from lapidist.dtypes import FP8, TF32
from lapidist.errors import DeviceError

Call = Callable[[int], object]  # start the product on input set i
INTEGERS = ("int8", "uint8")
E5M2 = FP8[1]  # cuBLAS has no product of two: its B is e4m3, to which it is converted before the time begins


class Framework(Protocol):
    """The part of an array library that the bench needs on one GPU. From adopt to leave, its work goes to
    `stream`."""

    name: str
    capturable: bool  # its vendor call, in a CUDA graph

    def adopt(self, ordinal: int, stream: int) -> None: ...
    def leave(self) -> None: ...
    def random(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any: ...
    def poisoned(self, rows: int, cols: int, dtype: str) -> Any: ...
    def poison(self, array: Any) -> None: ...
    def vendor(self, math: str) -> str: ...
    def multiply(
        self, math: str, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any], fast: bool = True
    ) -> Call: ...
    def new_memory(self) -> Any: ...  # a pool of arrays
    def arrays_from(self, memory: Any) -> AbstractContextManager[Any]: ...  # new ones, inside
    def release(self) -> None: ...


class Torch:
    """cuBLAS through torch: torch.mm, of a batch torch.bmm; for the 8-bit types torch._int_mm and
    torch._scaled_mm."""

    name = "torch"
    capturable = True

    def __init__(self) -> None:
        import torch

        self.torch: Any = torch

    def adopt(self, ordinal: int, stream: int) -> None:
        self.torch.cuda.set_device(ordinal)
        self._before = self.torch.cuda.current_stream()
        self.torch.cuda.set_stream(self.torch.cuda.ExternalStream(stream, device=ordinal))

    def leave(self) -> None:
        self.torch.cuda.set_stream(self._before)

    def random(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any:
        """Standard normal; integers uniform over all that the type holds."""
        torch, shape = self.torch, (cols, rows) if transposed else (rows, cols)
        torch.manual_seed(seed)
        kind = getattr(torch, dtype)
        if dtype in INTEGERS:
            holds = torch.iinfo(kind)
            array = torch.randint(holds.min, holds.max + 1, shape, device="cuda", dtype=kind)
        else:
            array = torch.randn(shape, device="cuda", dtype=torch.float32 if dtype in FP8 else kind).to(kind)
        return array.T if transposed else array

    def poisoned(self, rows: int, cols: int, dtype: str) -> Any:
        array = self.torch.empty((rows, cols), device="cuda", dtype=getattr(self.torch, dtype))
        self.poison(array)
        return array

    def poison(self, array: Any) -> None:
        has_nan = array.dtype.is_floating_point or array.dtype.is_complex
        array.fill_(float("nan") if has_nan else self.torch.iinfo(array.dtype).min)

    def vendor(self, math: str) -> str:
        how = {
            "int8": "torch._int_mm",
            **dict.fromkeys(FP8, "torch._scaled_mm"),
            TF32: "torch.mm with TF32 allowed",
        }
        instead = ", B as e4m3" if math == E5M2 else ""
        return f"cuBLAS by {how.get(math, 'torch.mm')}{instead} (torch {self.torch.__version__})"

    def multiply(
        self, math: str, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any], fast: bool = True
    ) -> Call:
        """What starts the product of a set. `fast`: sums of fp8 stay in the tensor core, in fewer bits than a
        float."""
        if math == "uint8":
            raise DeviceError("peer cublas: torch gives no product of uint8; compare with int8")
        if math == "int8":
            return lambda index: self.torch._int_mm(a[index], b[index], out=c[index])
        if math in FP8:
            one = self.torch.ones((), device="cuda")
            b = [matrix.to(self.torch.float8_e4m3fn) for matrix in b] if math == E5M2 else b
            scaled, options = self.torch._scaled_mm, {"out_dtype": c[0].dtype, "use_fast_accum": fast}
            return lambda index: scaled(a[index], b[index], one, one, **options, out=c[index])

        product = self.torch.mm if a[0].ndim == 2 else self.torch.bmm

        def mm(index: int) -> object:
            with self.precision("tf32" if math == TF32 else "ieee"):
                return product(a[index], b[index], out=c[index])

        return mm

    @contextmanager
    def precision(self, fp32: str) -> Iterator[None]:
        """A context in which torch multiplies float32 as `fp32` says, and sums of halves stay in float."""
        switches = self.torch.backends.cuda.matmul
        settings: dict[str, object] = {
            f"allow_{half}_reduced_precision_reduction": False for half in ("fp16", "bf16")
        }
        if hasattr(switches, "fp32_precision"):  # torch 2.9 on; it refuses to see both switches used
            settings["fp32_precision"] = fp32
        else:
            settings["allow_tf32"] = fp32 == TF32
        before = {name: getattr(switches, name) for name in settings}
        for name, value in settings.items():
            setattr(switches, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(switches, name, value)

    def new_memory(self) -> Any:
        return self.torch.cuda.MemPool()

    def arrays_from(self, memory: Any) -> AbstractContextManager[Any]:
        pool: AbstractContextManager[Any] = self.torch.cuda.use_mem_pool(memory)
        return pool

    def release(self) -> None:
        self.torch.cuda.empty_cache()


class CuPy:
    """cuBLAS through cupy.matmul, in CuPy's default compute types."""

    name = "cupy"
    capturable = False

    def __init__(self) -> None:
        import cupy

        self.cupy: Any = cupy

    def adopt(self, ordinal: int, stream: int) -> None:
        self.cupy.cuda.Device(ordinal).use()
        self._before = self.cupy.cuda.get_current_stream()
        self.cupy.cuda.ExternalStream(stream, ordinal).use()

    def leave(self) -> None:
        self._before.use()

    def random(self, rows: int, cols: int, dtype: str, seed: int, transposed: bool = False) -> Any:
        """Standard normal, in the types that CuPy multiplies by cuBLAS."""
        if dtype not in ("float16", "float32", "float64"):
            raise DeviceError(
                f"framework: CuPy makes no {dtype} matrices for the bench. Install torch: {TORCH_HINT}"
            )
        shape = (cols, rows) if transposed else (rows, cols)
        random = self.cupy.random.default_rng(seed)
        array = random.standard_normal(shape, dtype="float64" if dtype == "float64" else "float32").astype(
            dtype
        )
        return array.T if transposed else array

    def poisoned(self, rows: int, cols: int, dtype: str) -> Any:
        return self.cupy.full((rows, cols), float("nan"), dtype=dtype)

    def poison(self, array: Any) -> None:
        array.fill(float("nan"))

    def vendor(self, math: str) -> str:
        return f"cuBLAS by cupy.matmul (CuPy {self.cupy.__version__})"

    def multiply(
        self, math: str, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any], fast: bool = True
    ) -> Call:
        if math == TF32:
            raise DeviceError(
                f"peer cublas: CuPy decides on TF32 at its import; torch does it by call: {TORCH_HINT}"
            )
        matmul = self.cupy.matmul
        return lambda index: matmul(a[index], b[index], out=c[index])

    def new_memory(self) -> Any:
        return self.cupy.cuda.MemoryPool()

    def arrays_from(self, memory: Any) -> AbstractContextManager[Any]:
        allocator: AbstractContextManager[Any] = self.cupy.cuda.using_allocator(memory.malloc)
        return allocator

    def release(self) -> None:
        self.cupy.get_default_memory_pool().free_all_blocks()


@lru_cache(maxsize=1)
def find_framework() -> Framework:
    """torch if it is installed and sees a GPU, else CuPy."""
    tried = []
    for make in (Torch, CuPy):
        try:
            framework: Framework = make()
            return framework
        except (ImportError, OSError, RuntimeError) as error:
            tried.append(f"{make.__name__}: {str(error).splitlines()[0]}")
    raise DeviceError(
        "framework: the bench on a GPU needs torch or CuPy for its arrays and for cuBLAS; got neither"
        f" ({'; '.join(tried)}). Install one with: {TORCH_HINT}, or: {CUPY_HINT}"
    )
