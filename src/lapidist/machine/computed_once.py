"""An attribute that is computed at its first use.

Before Python 3.12 functools.cached_property holds a lock meanwhile: in a process that is forked while
another thread computes, the child waits for that thread for ever. Here two threads may compute the same
value twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazily(Generic[T]):
    def __init__(self, find: Callable[[Any], T]) -> None:
        self.find, self.name, self.__doc__ = find, find.__name__, find.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazily[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> T | lazily[T]:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.find(instance)
        return value
