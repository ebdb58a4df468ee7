"""aten's products by lapidist, for code that cannot be edited.

While a block is open, each product has a kernel at the dispatch key BackendSelect. That is below autograd,
autocast, modes and transforms, and above those of devices. These are still there for what lapidist refuses.
Other operators cost what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock, active_count
from typing import Any

import torch

from lapidist import api
from lapidist.calls import grouped as grouped_calls
from lapidist.calls.number_rules import require_flag
from lapidist.calls.operation import is_invariant
from lapidist.dtypes import IEEE, TF32, Precision
from lapidist.errors import ArgumentError, CompileError, LapidistError, LaunchError, RefusalError

KEY = torch._C.DispatchKey.BackendSelect
BELOW = torch._C._dispatch_keyset_full_after(KEY)
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


@contextmanager
def everywhere(invariant: bool = False) -> Iterator[None]:
    """A `with` block: in the whole process, products of torch are lapidist's until it ends. These are mm,
    addmm, bmm, baddbmm, _scaled_mm, _grouped_mm, _scaled_grouped_mm, and what torch makes of them: matmul,
    linear, their gradients, compiled graphs.

    Blocks may lie in each other and in several threads: the last to end restores torch's. What lapidist does
    not multiply (complex numbers, integers, two types) stays torch's.

    `invariant`: whether rows of these products have the same bits whatever other rows there are, in the whole
    process while such a block is open. What lapidist refuses then is an error, as are tensors in host memory.
    """
    way_out = "Open the block without it, or write lapidist.torch.swap(model)"
    require_flag("invariant", invariant, *[way_out] * isinstance(invariant, torch.nn.Module))
    _blocks.enter(bool(invariant))
    try:
        yield
    finally:
        _blocks.leave(bool(invariant))


class Blocks:
    """The open `everywhere` blocks. The first one registers the kernels, the last one removes them.

    Removing them is not atomic: a product that another thread has begun may meet the empty place, or a kernel
    that is gone. Beside other threads they stay, and leave products to torch until a block is open again."""

    def __init__(self) -> None:
        self._lock, self._open = Lock(), 0
        self._invariant = 0  # of the open ones
        self._library: Any = None
        self._in_use: list[Any] = []  # other threads may still be in them when the last block ends

    @property
    def are_open(self) -> bool:
        return self._open > 0

    @property
    def invariant(self) -> bool | None:
        """What products ask for; None: as a block of lapidist.invariant around them says."""
        return True if self._invariant else None

    def enter(self, invariant: bool) -> None:
        with self._lock:
            self._invariant += invariant
            if self._library is None:
                self._library = routed()
                self._in_use = kernels_in_place()
            self._open += 1

    def leave(self, invariant: bool) -> None:
        with self._lock:
            self._invariant -= invariant
            self._open -= 1
            if not self._open and active_count() == 1:
                self._library._destroy()
                self._library = None


_blocks = Blocks()


def routed() -> Any:
    """The kernels, registered until the library is destroyed."""
    library = torch.library.Library("aten", "IMPL")
    for name, product in present().items():
        packet, overload = name.partition(".")[::2]
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        library.impl(name, partial(route, op, product), KEY.name, with_keyset=True)
    return library


def kernels_in_place() -> list[Any]:
    find = getattr(torch.library, "get_kernel", None)  # torch has it since 2.10
    return [] if find is None else [find(f"aten::{name}", KEY.name) for name in present()]


def present() -> dict[str, Callable[..., Any]]:
    """The products that this torch has; _grouped_mm came with 2.8."""
    packets = torch.ops.aten
    return {name: product for name, product in PRODUCTS.items() if hasattr(packets, name.partition(".")[0])}


def route(op: Any, product: Callable[..., Any], keys: Any, *args: Any, **options: Any) -> Any:
    """The product by lapidist, or by torch's kernel if lapidist refuses."""
    if not _blocks.are_open:
        return op.redispatch(keys & BELOW, *args, **options)
    recording = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)  # autograd, further up, has recorded the product by now
    try:
        result = product(*args, **options)
    except (CompileError, LaunchError):
        raise
    except (ArgumentError, RefusalError):
        if is_invariant(_blocks.invariant):  # torch's kernel would not keep the bits of rows
            if args[0].is_cpu:
                raise ArgumentError(
                    "invariant: holds for kernels on a GPU; got tensors in host memory. Move them to a GPU,"
                    " or multiply them outside of the block"
                ) from None
            raise
        result = None
    except LapidistError:
        result = None
    finally:
        torch._C._set_grad_enabled(recording)
    return op.redispatch(keys & BELOW, *args, **options) if result is None else result


# ---- aten's products, as calls of gemm; None: they stay aten's ----


def product(rank: int, a: Any, b: Any, out_dtype: Any = None, *, out: Any = None) -> Any:
    return combined(rank, None, a, b, out_dtype, beta=0.0, out=out)


def combined(
    rank: int,
    c: Any,
    a: Any,
    b: Any,
    out_dtype: Any = None,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Any = None,
) -> Any:
    """alpha a b + beta c. `rank`: 2 of matrices, 3 of batches; gemm would take both, and broadcast them."""
    dtype = a.dtype
    if (
        dtype not in FLOATS
        or not (is_dense(a, rank) and is_dense(b, rank))
        or a.shape[:-2] != b.shape[:-2]
        or isinstance(alpha, complex)
        or isinstance(beta, complex)
        or not no_tangents()
    ):
        return None
    shape = *a.shape[:-1], b.shape[-1]
    if out is not None and not is_output(out, shape, out_dtype or dtype):
        return None
    if beta == 0 and c is not None and not is_addend(c, a.device, shape, out_dtype or dtype):
        return None
    precision = precision_of(a) if dtype is torch.float32 else IEEE
    kind = None if out_dtype is dtype else out_dtype
    how: dict[str, Any] = {"alpha": float(alpha), "beta": float(beta), "precision": precision}
    return api.gemm(a, b, c, **how, out=out, out_dtype=kind, invariant=_blocks.invariant)


def precision_of(tensor: Any) -> Precision:
    """The precision that torch's settings allow for products of float32."""
    return TF32 if tensor.is_cuda and torch.backends.cuda.matmul.fp32_precision == "tf32" else IEEE


def in_place(rank: int, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return combined(rank, c, a, b, beta=beta, alpha=alpha, out=c)


def scaled(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    out: Any = None,
) -> Any:
    dtype = out_dtype or a.dtype
    if a.dtype not in EIGHT_BITS or scale_result is not None or not (is_dense(a, 2) and is_dense(b, 2)):
        return None
    if out is not None and not is_output(out, (a.shape[0], b.shape[1]), dtype):
        return None
    factors = {"scale_a": scale_a, "scale_b": scale_b, "promote": not use_fast_accum or None}
    beta = 0.0 if bias is None else 1.0
    return api.gemm(a, b, bias, beta=beta, out=out, out_dtype=dtype, **factors, invariant=_blocks.invariant)


def by_groups(a: Any, b: Any, offsets: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Groups that end at `offsets`; without them a batch. torch, too, has no result but of a's type."""
    if bias is not None or out_dtype not in (None, a.dtype):
        return None
    if offsets is None:
        batches = is_dense(a, 3) and is_dense(b, 3)
        return combined(3, None, a, b, beta=0.0, out=padded(a, b, [len(a)], a.dtype)) if batches else None
    if a.dtype not in FLOATS or not are_groups(a, b, offsets):
        return None
    precision = precision_of(a) if a.dtype is torch.float32 else IEEE
    out = padded(a, b, offsets.shape, a.dtype)
    how: dict[str, Any] = {"precision": precision, "invariant": _blocks.invariant}
    return grouped_calls.grouped(a, b, offsets, out=out, **how)


def scaled_by_groups(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    offsets: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """Groups of 8-bit floats, with a factor for each row of a and each column of b."""
    dtype = out_dtype or torch.bfloat16
    if a.dtype not in EIGHT_BITS or not (bias is scale_result is None) or not are_groups(a, b, offsets):
        return None
    factors = {"scale_a": scale_a, "scale_b": scale_b, "promote": not use_fast_accum or None}
    factors["invariant"] = _blocks.invariant
    out = padded(a, b, offsets.shape, dtype)
    return grouped_calls.grouped(a, b, offsets, out=out, out_dtype=dtype, **factors)


def are_groups(a: Any, b: Any, offsets: Any) -> bool:
    """Whether they are such as torch takes: at least one operand is a matrix that groups share."""
    are_dense = all(is_dense(matrix, 2) or is_dense(matrix, 3) for matrix in (a, b))
    in_order = offsets is not None and offsets.dtype is torch.int32 and is_dense(offsets, 1)
    return in_order and are_dense and a.ndim + b.ndim < 6 and no_tangents()


def no_tangents() -> bool:
    """Tangents cannot be read below autograd."""
    return bool(torch.autograd.forward_ad._current_level < 0)


def padded(a: Any, b: Any, batch: Any, dtype: Any) -> Any:
    """Memory for a grouped result whose rows begin at 16 bytes, as torch's do and compilers expect. None:
    packed ones do so. `batch`: of a result with a matrix for each group.
    """
    n, step = b.shape[-1], 16 // dtype.itemsize
    if n % step == 0:
        return None
    shape = (*(batch if a.ndim == b.ndim else ()), a.shape[-2], -(-n // step) * step)
    return a.new_empty(shape, dtype=dtype)[..., :n]


def is_dense(tensor: Any, rank: int) -> bool:
    """Whether a tensor is strided, of `rank` dimensions, on a device of lapidist's."""
    return tensor.layout is torch.strided and (tensor.is_cuda or tensor.is_cpu) and tensor.ndim == rank


def is_output(out: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether `out` can be written in place. aten resizes or refuses others."""
    return is_dense(out, len(shape)) and tuple(out.shape) == shape and out.dtype is dtype


def is_addend(c: Any, device: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether gemm could add c. With beta = 0 gemm does not read c, but aten refuses others."""
    broadcasts = c.ndim <= len(shape) and all(
        extent in (1, result) for extent, result in zip(reversed(c.shape), reversed(shape), strict=False)
    )
    return broadcasts and c.layout is torch.strided and c.device == device and c.dtype is dtype


RANKS = {"mm": 2, "bmm": 3, "addmm": 2, "baddbmm": 3}
KINDS = ("", ".out", ".dtype", ".dtype_out")
PRODUCTS: dict[str, Callable[..., Any]] = {
    **{f"{name}{kind}": partial(product, RANKS[name]) for name in ("mm", "bmm") for kind in KINDS},
    **{f"{name}{kind}": partial(combined, RANKS[name]) for name in ("addmm", "baddbmm") for kind in KINDS},
    **{f"{name}_": partial(in_place, RANKS[name]) for name in ("addmm", "baddbmm")},
    "_scaled_mm": scaled,
    "_scaled_mm.out": scaled,
    "_grouped_mm": by_groups,
    "_scaled_grouped_mm": scaled_by_groups,
}
