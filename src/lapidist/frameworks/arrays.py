"""Arrays of any framework, seen as pointer, shape, strides, type and place.

Attributes of torch, NumPy, CuPy and JAX are read directly (0.2 microseconds each for torch and NumPy).
Anything else comes in through DLPack or `__cuda_array_interface__`, which cuda.core understands. No framework
is imported that the caller has not."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from itertools import zip_longest
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from lapidist.dtypes import PART_OF, size_of
from lapidist.errors import ArgumentError, DeviceError, DTypeError, LapidistError

REASONABLE_WORK = 10_000  # of NumPy's, to tell whether two arrays share an element: milliseconds
HOST = -1  # device number of arrays in host memory
META = -2  # of torch's tensors without numbers
Look = TypeVar("Look", bound=Callable[[Any, str], Any])


class HasShape(Protocol):
    """An array of any framework."""

    @property
    def shape(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Operand:
    """One array of the caller. Strides count elements; `device` is the GPU's number, HOST or META."""

    name: str  # the argument it came as: errors quote it
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    framework: str
    owner: Any
    writable: bool = True
    conjugated: bool = False  # its numbers are the conjugates of those in memory

    @property
    def place(self) -> str:
        return {HOST: "host memory", META: "torch's meta device"}.get(self.device, f"GPU {self.device}")

    @property
    def span(self) -> tuple[int, int]:
        """First and one-past-last byte that the elements touch."""
        size = size_of(self.dtype)
        if 0 in self.shape:
            return self.pointer, self.pointer
        first = last = self.pointer
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                first += (extent - 1) * stride * size
            else:
                last += (extent - 1) * stride * size
        return first, last + size

    def overlaps(self, other: Operand) -> bool:
        """Whether they share a byte. Matrices side by side in one buffer do not, though each spans the
        other's memory.
        """
        if self.device != other.device:
            return False
        (start, end), (other_start, other_end) = self.span, other.span
        return start < other_end and other_start < end and shares_memory(self, other)

    def outline(self) -> np.ndarray[Any, Any]:
        """An array at the same addresses, to be reckoned with and never read."""
        size = size_of(self.dtype)
        steps = tuple(stride * size for stride in self.strides)
        description = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": self.shape,
            "strides": steps,
            "data": (self.pointer, True),
        }
        return np.asarray(Outlined(description))

    def transposed(self) -> Operand:
        shape, strides = self.shape, self.strides
        return self.viewed((*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2]))

    def conjugate(self) -> Operand:
        """The same memory; real numbers are their own conjugates."""
        return replace(self, conjugated=self.dtype in PART_OF and not self.conjugated)

    def viewed(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Operand:
        """The same memory under another shape."""
        name, at, dtype, device = self.name, self.pointer, self.dtype, self.device
        how = self.framework, self.owner, self.writable, self.conjugated
        return Operand(name, at, shape, strides, dtype, device, *how)

    def alone(self) -> Operand:
        """The same description without the array, so that nothing of a caller's is kept alive."""
        at = self.name, self.pointer, self.shape, self.strides, self.dtype, self.device
        return Operand(*at, self.framework, None, self.writable, self.conjugated)


class Outlined:
    """Memory in NumPy's terms."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.__array_interface__ = description


def shares_memory(one: Operand, other: Operand) -> bool:
    """Whether two arrays share an element; True where an exact answer would take long."""
    try:
        return np.shares_memory(one.outline(), other.outline(), max_work=REASONABLE_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def framework_of(array: Any) -> str:
    """torch, numpy, cupy, jax, or other (whatever speaks DLPack or `__cuda_array_interface__`)."""
    root = type(array).__module__.partition(".")[0]
    if root in ("torch", "numpy", "cupy"):
        return root
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    return "jax" if root in ("jaxlib", "jax") else "other"


def readable(look: Look) -> Look:
    """A function that looks at arrays, whose errors name the argument, also those that the array raises."""

    @wraps(look)
    def named(array: Any, name: str) -> Any:
        try:
            return look(array, name)
        except (LapidistError, MemoryError, ImportError):
            raise
        except Exception as error:
            if type(array).__module__ in ("numpy", "torch") and not isinstance(error, RuntimeError):
                raise  # theirs raise nothing else, so a signal's handler did: a timeout, say
            raise DTypeError(
                f"{name}: must be an array that can be read; got {type(array).__name__}, which raised"
                f" {type(error).__name__} ({error}). Pass its numbers in an array of NumPy or torch"
            ) from error

    return cast(Look, named)


@readable
def operand_of(array: Any, name: str) -> Operand:
    """The description of `array`, without a copy; an Operand is returned as it is."""
    if isinstance(array, Operand):
        return array
    framework = framework_of(array)
    if framework == "torch":
        return of_torch(array, name)
    if isinstance(array, np.ndarray):
        return of_numpy(array, name)
    if isinstance(array, (int, float, complex, list, tuple, np.generic)) or array is None:
        from lapidist.frameworks.no_arrays import array_instead

        got = type(array).__name__
        raise DTypeError(f"{name}: must be an array; got {got}. {array_instead(array, name)}")
    if framework == "cupy" and hasattr(array, "data"):
        return of_cupy(array, name)
    return of_jax(array, name) if framework == "jax" else of_interface(array, name, framework)


def of_torch(tensor: Any, name: str) -> Operand:
    """A tensor whose numbers mean their negatives is copied as they are meant, one of conjugates is not."""
    from lapidist.frameworks.tensor_rules import require_memory

    require_memory(tensor, name)
    negated = tensor.is_neg()
    if negated:
        tensor = tensor.resolve_neg()
    dtype = str(tensor.dtype)[6:]
    conjugated = dtype in PART_OF and tensor.is_conj()
    device = HOST if tensor.device.type == "cpu" else (tensor.device.index or 0)
    return Operand(
        name,
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.stride(),
        dtype,
        device,
        "torch",
        tensor,
        not (negated or conjugated),
        conjugated,
    )


def require_no_mask(array: object, name: str) -> None:
    if isinstance(array, np.ma.MaskedArray):
        raise DTypeError(
            f"{name}: must be a plain array; a masked one would lose its mask. Fill it first with .filled()"
        )


def of_numpy(array: np.ndarray[Any, Any], name: str) -> Operand:
    require_no_mask(array, name)
    size = array.dtype.itemsize
    if not size:
        raise DTypeError(
            f"{name}: must hold numbers; got {array.dtype.str!r}, whose elements have no size. Convert it"
            " first"
        )
    if not array.dtype.isnative:
        raise DTypeError(
            f"{name}: must have this computer's byte order; got {array.dtype.str!r}. "
            "Convert it with .astype(array.dtype.newbyteorder('='))"
        )
    if any(stride % size for stride in array.strides):
        raise DTypeError(
            f"{name}: strides must be whole elements of {size} bytes; got {array.strides} bytes. "
            "Copy it with numpy.ascontiguousarray"
        )
    strides = tuple(stride // size for stride in array.strides)
    if not array.size and 0 in strides:  # NumPy's word for an array without elements, not a broadcast
        strides = contiguous_strides(array.shape)
    flags = array.flags
    return Operand(
        name, array.ctypes.data, array.shape, strides, array.dtype.name, HOST, "numpy", array, flags.writeable
    )


def of_jax(array: Any, name: str) -> Operand:
    """JAX has no stream to join, so its own work on the array must be done before ours starts."""
    import jax

    if isinstance(array, jax.core.Tracer):
        raise DTypeError(
            f"{name}: must hold numbers when lapidist is called; got a {type(array).__name__} of jax.jit,"
            " grad or vmap. lapidist.jax has products for what JAX traces; or call this one outside of it, or"
            " by jax.pure_callback"
        )
    if not isinstance(array, jax.Array):  # ShapeDtypeStruct, say
        raise DTypeError(
            f"{name}: must be an array of JAX, which holds numbers; got {type(array).__name__}. Make one with"
            " jax.numpy.zeros(shape, dtype)"
        )
    if not isinstance(array.dtype, np.dtype):
        raise DTypeError(
            f"{name}: must hold numbers; got random keys, {array.dtype}. Pass jax.random.key_data(array)"
        )
    if array.is_deleted():
        raise ArgumentError(
            f"{name}: must hold its numbers; this array of JAX was deleted, by .delete() or donate_argnums of"
            " jax.jit. Copy it before, or do not donate it"
        )
    devices = array.devices()
    if len(devices) != 1:
        raise DeviceError(
            f"{name}: must be on one device; got one spread over {len(devices)}. Gather it with"
            " jax.device_put"
        )
    array.block_until_ready()
    device = next(iter(devices))
    ordinal = HOST if device.platform == "cpu" else device.local_hardware_id
    strides = contiguous_strides(array.shape)
    return Operand(
        name,
        array.unsafe_buffer_pointer(),
        array.shape,
        strides,
        array.dtype.name,
        ordinal,
        "jax",
        array,
        False,
    )


def of_cupy(array: Any, name: str) -> Operand:
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        raise DTypeError(
            f"{name}: strides must be whole elements of {size} bytes; got {array.strides} bytes. Copy it"
        )
    strides = tuple(stride // size for stride in array.strides)
    return Operand(
        name, array.data.ptr, array.shape, strides, array.dtype.name, array.device.id, "cupy", array
    )


def of_interface(array: Any, name: str, framework: str) -> Operand:
    """Through DLPack or `__cuda_array_interface__`, by cuda.core, ordered on the legacy default stream."""
    from cuda.core.utils import StridedMemoryView

    try:
        view = StridedMemoryView.from_any_interface(third_version(array), stream_ptr=-1)
        at, shape, dtype = view.ptr, tuple(view.shape), view.dtype.name
        strides = tuple(view.strides or contiguous_strides(shape))
        device, writable = view.device_id if view.is_device_accessible else HOST, not view.readonly
    except MemoryError:
        raise
    except Exception as error:  # whatever its methods raise, or cuda.core of what they return
        why, multiplies = str(error) or type(error).__name__, hasattr(array, "matmul")  # PreparedWeight
        way_out = f"Write {name}.matmul(...)" if multiplies else "Make it an array of one of them"
        way_out = getattr(array, "WAY_OUT", way_out)  # of few bits
        raise DTypeError(
            f"{name}: must be a NumPy, torch, CuPy or JAX array or speak DLPack or __cuda_array_interface__;"
            f" got {type(array).__name__} ({why}). {way_out}"
        ) from error
    return Operand(name, at, shape, strides, dtype, device, framework, array, writable)


class Described:
    """An array through the description of its interface alone."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = description


def third_version(array: Any) -> Any:
    """cuda.core reads version 3 of the CUDA array interface; version 2 (torch's, say) only lacks the stream
    to wait for.
    """
    description = getattr(array, "__cuda_array_interface__", None)
    if description is None or description["version"] >= 3 or hasattr(array, "__dlpack__"):
        return array
    return Described({**description, "version": 3, "stream": None})


def broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Two shapes that fit, as one. numpy.broadcast_shapes stops at 32 dimensions."""
    pairs = list(zip_longest(reversed(first), reversed(second), fillvalue=1))
    return tuple(y if x == 1 else x for x, y in reversed(pairs))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 2:
        return shape[1], 1
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def evenly(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """How many elements it is from one to the next, through all of these dimensions; None: not always as
    many."""
    step, covered = 0, 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 1:
            continue
        if covered == 1:
            step = stride
        elif stride != step * covered:
            return None
        covered *= extent
    return step
