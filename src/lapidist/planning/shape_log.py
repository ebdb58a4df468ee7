"""Which products a program's calls ask of a GPU, in a file from which `lapidist warm` compiles.

LAPIDIST_SHAPES names the file. Each product is a line of JSON (logged_shapes.py), written when a process
plans it for the first time. So are second passes and passes of emulated products. Several processes may
write to one file.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from lapidist.build.folder import warn_once

if TYPE_CHECKING:
    from lapidist.device import Device
    from lapidist.planning.emulated_passes import Parts
    from lapidist.planning.plans import Plan
    from lapidist.planning.second_passes import Pass

VARIABLE = "LAPIDIST_SHAPES"


def log_shape(plan: Plan) -> None:
    """Write down what the plan was made for, if a file is named. A repeated call does not come here."""
    path = os.environ.get(VARIABLE)
    if path and not plan.is_empty:
        from lapidist.planning.logged_shapes import LoggedShape, line_of  # slow to import, seldom needed

        append(path, line_of(LoggedShape.of(plan)))


def log_pass(second_pass: Pass, device: Device) -> None:
    """Write down a second pass of an epilogue, whose kernels a product's plan does not have."""
    path = os.environ.get(VARIABLE)
    if path:
        from lapidist.planning.logged_shapes import LoggedPass, line_of

        append(path, line_of(LoggedPass(device, second_pass)))


def log_parts(parts: Parts, device: Device) -> None:
    """Write down what float32 is cut into, by passes whose kernels a product's plan does not have."""
    path = os.environ.get(VARIABLE)
    if path:
        from lapidist.planning.logged_shapes import LoggedParts, line_of

        append(path, line_of(LoggedParts(device, parts.macro)))


@lru_cache(maxsize=4096)
def append(path: str, line: str) -> None:
    """Append the line, once in a process. A file that cannot be written costs no call."""
    try:
        with open(path, "ab", buffering=0) as file:
            file.write(line.encode() + b"\n")  # at once, so lines of processes do not mix
    except OSError as error:
        warn_once(f"{VARIABLE}: no shape is logged: {error}")
