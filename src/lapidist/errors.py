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
    """A GPU, driver, library or framework is missing, too old, or not the same for all arguments."""


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
