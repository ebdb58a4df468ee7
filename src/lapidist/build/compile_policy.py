"""What a call does while its best kernel is not compiled: LAPIDIST_COMPILE, or `compile=`."""

from __future__ import annotations

import os
from typing import Final, Literal

Compiling = Literal["background", "wait", "never"]
VARIABLE = "LAPIDIST_COMPILE"
BACKGROUND: Final = "background"  # another kernel of the same SumOrder runs until then
WAIT: Final = "wait"  # the call waits for it
NEVER: Final = "never"  # only compiled kernels may run
WAYS: dict[str, Compiling] = {BACKGROUND: BACKGROUND, WAIT: WAIT, NEVER: NEVER}


def way_of_environment() -> Compiling:
    """The variable's value; if it is misspelt, a log line says so, and the default counts."""
    text = os.environ.get(VARIABLE, "").strip().lower()
    if text and text not in WAYS:
        from lapidist.build.folder import warn_once

        warn_once(f"{VARIABLE}: must be one of {', '.join(WAYS)}; got {text!r}. {BACKGROUND} serves")
    return WAYS.get(text, BACKGROUND)


def way_of(way: Compiling | None) -> Compiling:
    """On Windows calls wait: no process compiles beside them."""
    chosen = way or way_of_environment()
    from lapidist.build.portable_files import WINDOWS

    return WAIT if WINDOWS and chosen == BACKGROUND else chosen


def kept_way(choice: Compiling | None) -> Compiling:
    """The way of plans, and of calls while a graph is captured. They keep the kernel that they start with, so
    they wait for it.
    """
    way = way_of(choice)
    return WAIT if way == BACKGROUND else way
