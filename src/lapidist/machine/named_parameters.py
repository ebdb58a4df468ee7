"""Whether a launch names the parameters that its kernel takes."""

from __future__ import annotations

from lapidist.errors import ArgumentError
from lapidist.launch import Launch
from lapidist.machine.ptx.syntax_tree import Kernel


def require_named_alike(launch: Launch, kernel: Kernel) -> None:
    """A driver takes an address for each parameter. So a struct must have one name, not one a member."""
    named, taken = launch.parameters.offsets, [each.offset for each in kernel.parameters.values()]
    if named and [*named.values()] != taken:
        raise ArgumentError(
            f"parameters: {kernel.name} takes {len(taken)}, which begin at {taken}; the launch names"
            f" {len(named)}: {named}. Give each parameter of the kernel one name"
        )
