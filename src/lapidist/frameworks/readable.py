"""Errors that a caller's object raises when it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from lapidist.errors import DTypeError, LapidistError

Look = TypeVar("Look", bound=Callable[[Any, str], Any])


def readable(look: Look) -> Look:
    """What an object raises that is looked at, by its attributes say, in words that name the argument."""

    @wraps(look)
    def named(array: Any, name: str) -> Any:
        try:
            return look(array, name)
        except (LapidistError, MemoryError, ImportError):
            raise
        except Exception as error:
            raise DTypeError(
                f"{name}: must be an array that can be read; got {type(array).__name__}, which raised"
                f" {type(error).__name__} ({error}). Pass its numbers in an array of NumPy or torch"
            ) from error

    return cast(Look, named)
