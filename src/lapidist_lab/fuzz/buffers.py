"""One piece of memory, of a framework and a place, that holds all arrays of a call. One copy in, one copy
out, and one comparison shows what was written where."""

from __future__ import annotations

import importlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from lapidist.dtypes import size_of
from lapidist_lab.fuzz.memory_layouts import Array, View, element

REGION = 256  # bytes: what frameworks align their arrays to
POISON = 0xFF  # NaN in every floating type


class Arena(ABC):
    """Memory for all arrays of a call. `image` is what `load` copies in; poison lies between regions."""

    def __init__(self, views: Iterable[View]) -> None:
        rooms: dict[str, int] = {}
        for view in views:
            rooms[view.region] = max(rooms.get(view.region, 0), view.room * size_of(view.dtype))
        self.at, end = {}, REGION
        for region, room in rooms.items():
            self.at[region] = end
            end += -(-room // REGION) * REGION + REGION
        self.image = aligned_bytes(end)
        self.image.fill(POISON)
        self.address = 0

    def array_in(self, memory: Array, view: View) -> Array:
        """The view's array in the image, or in bytes from `fetch`."""
        return view.of(memory, self.at[view.region])

    def private_stream(self) -> AbstractContextManager[Any]:
        """In which a framework with streams works on one of its own."""
        return nullcontext()

    @abstractmethod
    def load(self) -> None: ...

    @abstractmethod
    def fetch(self) -> Array: ...

    @abstractmethod
    def array(self, view: View) -> Any: ...


class NumpyArena(Arena):
    def __init__(self, views: Iterable[View]) -> None:
        super().__init__(views)
        self.memory = aligned_bytes(self.image.size)
        self.address = self.memory.ctypes.data

    def load(self) -> None:
        self.memory[...] = self.image

    def fetch(self) -> Array:
        return self.memory.copy()

    def array(self, view: View) -> Array:
        return self.array_in(self.memory, view)


class TorchArena(Arena):
    def __init__(self, views: Iterable[View], device: str) -> None:
        super().__init__(views)
        self.torch = importlib.import_module("torch")
        warnings.filterwarnings("ignore", "ComplexHalf support")  # which is not torch's here
        self.padded = self.torch.empty(self.image.size + REGION, dtype=self.torch.uint8, device=device)
        self.skipped = -self.padded.data_ptr() % REGION  # torch's arrays on the host start on 64 bytes
        self.memory = self.padded[self.skipped : self.skipped + self.image.size]
        self.address = self.memory.data_ptr()

    def private_stream(self) -> AbstractContextManager[Any]:
        return self.torch.cuda.stream(self.torch.cuda.Stream()) if self.padded.is_cuda else nullcontext()

    def load(self) -> None:
        self.memory.copy_(self.torch.from_numpy(self.image))

    def fetch(self) -> Array:
        copied: Array = self.memory.cpu().numpy()
        return copied.copy()

    def array(self, view: View) -> Any:
        size = size_of(view.dtype)
        typed = self.padded.view(getattr(self.torch, view.dtype))
        return typed.as_strided(
            view.shape, view.strides, (self.skipped + self.at[view.region]) // size + view.start
        )


class CupyArena(Arena):
    def __init__(self, views: Iterable[View]) -> None:
        super().__init__(views)
        self.cupy = importlib.import_module("cupy")
        self.memory = self.cupy.empty(self.image.size, self.cupy.uint8)
        self.address = self.memory.data.ptr

    def load(self) -> None:
        self.memory.set(self.image)

    def fetch(self) -> Array:
        copied: Array = self.memory.get()
        return copied

    def array(self, view: View) -> Any:
        size = size_of(view.dtype)
        start = self.memory.data + self.at[view.region] + view.start * size
        steps = tuple(stride * size for stride in view.strides)
        return self.cupy.ndarray(view.shape, element(view.dtype), memptr=start, strides=steps)


class JaxArena(Arena):
    """Arrays of JAX own their memory, and nobody writes to it. Preallocation would take most of a GPU's."""

    def __init__(self, views: Iterable[View], place: str) -> None:
        super().__init__(views)
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.jax = importlib.import_module("jax")
        self.device = self.jax.devices("gpu" if place == "gpu" else "cpu")[0]

    def load(self) -> None:
        self.loaded = self.image.copy()

    def fetch(self) -> Array:
        return self.loaded

    def array(self, view: View) -> Any:
        return self.jax.device_put(self.array_in(self.loaded, view).copy(), self.device)


def aligned_bytes(count: int) -> Array:
    padded = np.empty(count + REGION, np.uint8)
    skipped = -padded.ctypes.data % REGION
    return padded[skipped : skipped + count]


def arena_of(framework: str, place: str, views: Iterable[View]) -> Arena:
    if framework == "torch":
        return TorchArena(views, "cuda" if place == "gpu" else "cpu")
    if framework == "jax":
        return JaxArena(views, place)
    return {"numpy": NumpyArena, "cupy": CupyArena}[framework](views)


def fetched(array: Any, dtype: str) -> Array:
    """The array as NumPy's, whatever its framework."""
    if type(array).__module__ == "torch":
        torch = importlib.import_module("torch")
        raw = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return raw.view(element(dtype)).reshape(tuple(array.shape))
    return array.get() if hasattr(array, "get") else np.asarray(array)
