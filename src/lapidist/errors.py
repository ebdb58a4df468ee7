"""Every error that lapidist raises on purpose.

LapidistError
├── ShapeError(ValueError)        extents that do not fit together
├── StrideError(ValueError)       memory layouts an argument may not have
├── DTypeError(TypeError)         element types that no kernel takes
├── ArgumentError(ValueError)     any other value outside its rule
├── DeviceError(RuntimeError)     a GPU, driver or framework that is missing or does not match
├── CompileError(RuntimeError)    NVRTC refused a kernel; carries its log
├── LaunchError(RuntimeError)     the driver refused or lost a launch
└── RefusalError(ValueError)      no kernel takes this problem; carries each kernel's reason

A message names the argument, the rule, the value it got and the way out, in that order.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from sys import is_finalizing
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
MOST_SHOWN = 100  # letters of a value in an error; parts of it: a tenth
NO_DESCRIPTOR = os.strerror(errno.EMFILE)


class LapidistError(Exception):
    """Base of all errors raised by lapidist."""


class ShapeError(LapidistError, ValueError):
    """The extents of the arguments do not fit together."""


class StrideError(LapidistError, ValueError):
    """An argument's memory layout breaks a rule: strides, alignment or overlap."""


class DTypeError(LapidistError, TypeError):
    """An element type, or a mix of them, that no kernel takes."""


class ArgumentError(LapidistError, ValueError):
    """A value outside the rule of its argument."""


class DeviceError(LapidistError, RuntimeError):
    """A GPU, driver, library or framework is missing, too old, not the same for all arguments, or cannot be
    loaded by a process that ends or has no file descriptor left.
    """


class CompileError(LapidistError, RuntimeError):
    """NVRTC refused a kernel; `log` holds all of the compiler's words, the message their beginning."""

    SHOWN_LINES = 30

    def __init__(self, message: str, log: str = "") -> None:
        lines = log.splitlines()
        hidden = len(lines) - self.SHOWN_LINES
        shown = lines[: self.SHOWN_LINES] + ([f"… {hidden} more lines in .log"] if hidden > 0 else [])
        super().__init__("\n".join([message, *shown]))
        self.log = log


class LaunchError(LapidistError, RuntimeError):
    """The driver refused a launch, or a launch failed while it ran."""


class RefusalError(LapidistError, ValueError):
    """No kernel takes the problem; the message lists each kernel with its reason."""


def shown(value: object) -> str:
    """A value as errors quote it, in some words. Arrays have a shape in place of numbers, which may lie on a
    GPU.
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    from reprlib import Repr

    short = Repr()
    short.maxstring = short.maxother = short.maxlong = MOST_SHOWN
    short.maxlist = short.maxtuple = short.maxset = short.maxdict = MOST_SHOWN // 10
    return short.repr(value)


# ---- what may befall any call, wherever it is ----


def explained(function: Function) -> Function:
    """Errors in words where the process itself is at its end, or at its limit of open files."""

    @wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return function(*args, **more)
        except Exception as error:
            words = words_of_process(error)
            if words is None:
                raise
            raise DeviceError(words) from error

    return cast(Function, call)


def words_of_process(error: Exception) -> str | None:
    """None: the error is about something else. NVRTC and loaders of libraries quote the system's words."""
    if is_finalizing() and not isinstance(error, LapidistError):
        return (
            "interpreter: must be running, as modules may have to be loaded; got a call while it shuts down."
            " Multiply earlier, in a close() say, or by atexit"
        )
    if NO_DESCRIPTOR in str(error):
        return (
            "file descriptors: some must be free, as code and kernels are read from files; got too few, as"
            f" `ulimit -n` allows {most_open_files()}. Close files, or raise that limit"
        )
    return None


def most_open_files() -> str:
    return str(os.sysconf("SC_OPEN_MAX")) if hasattr(os, "sysconf") else "no more"


def no_attribute(module: str, name: str, names: Iterable[str], ways_out: Mapping[str, str]) -> AttributeError:
    """The error for a name that a module does not have: what is written here, or the name that is like it."""
    words = f"module {module!r} has no attribute {name!r}"
    if name in ways_out:
        return AttributeError(f"{words}. {ways_out[name]}")
    if name.startswith("_"):
        return AttributeError(words)
    from difflib import get_close_matches

    close = get_close_matches(name, [*names], 1, 0.7)
    return AttributeError(f"{words}. Write {module}.{close[0]}" if close else words)


# ---- what torch.compile cannot follow ----


def not_in_graphs(public: str, instead: str = "") -> Callable[[Function], Function]:
    """Let torch.compile end its graph at a function, as torch.compiler.disable does, without importing torch.

    Dynamo quotes the reason where fullgraph=True allows no end: what the `public` call does, and what to
    write instead."""

    def mark(function: Function) -> Function:
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
            f"lapidist.{public} reads addresses and launches kernels itself. In what is compiled write"
            f" {instead or f'lapidist.torch.{public}'}, an operator that torch.compile follows"
        )
        return function

    return mark
