"""What a caller chose of device, kernel, config and schedule, checked before it becomes part of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.calls import argument_rules
from lapidist.config import Config
from lapidist.dtypes import integer
from lapidist.errors import ArgumentError, shown

if TYPE_CHECKING:
    from lapidist.build.compile_policy import Compiling
    from lapidist.kernels.kernel import Kernel
    from lapidist.schedule.sharing_choice import Sharing


class Choices(NamedTuple):
    """The caller's choices; None leaves one open."""

    device: int | str | None = None
    kernel: str | int | Kernel | None = None  # its name, a rung's number, or itself
    config: Config | None = None
    sharing: Sharing | None = None
    workspace: Any = None
    compile: Compiling | None = None  # None: as the environment says

    @property
    def of_kernel(self) -> tuple[Kernel | None, Config | None, Sharing]:
        """The choices that the planner is given."""
        from lapidist.schedule.sharing_choice import PLANNED

        sharing = self.sharing or PLANNED
        if self.kernel is None:
            return None, self.config, sharing
        from lapidist.kernels.registry import kernel_named

        return kernel_named(self.kernel), self.config, sharing


OPEN = Choices()


def checked(choices: Choices) -> Choices:
    """The same choices, after their types were checked: a key must not hold anything else."""
    kernel, config = choices.kernel, choices.config
    require_place(choices.device)
    argument_rules.require_compile(choices.compile)
    if config is not None and not isinstance(config, Config):
        raise ArgumentError(
            "config: must be a lapidist.Config; got"
            f" {shown(config)}. For example Config(64, 64, 16, 32, 32, 8, 4)"
        )
    if kernel is not None and not is_kernel(kernel):
        raise ArgumentError(
            "kernel: must be a kernel's name or a rung's number; got"
            f" {shown(kernel)}. Leave it out to let the"
            " planner choose"
        )
    return choices


def is_kernel(kernel: object) -> bool:
    """Whether it names a kernel, or is one."""
    if isinstance(kernel, str) or integer(kernel) is not None:
        return True
    from lapidist.kernels.kernel import Kernel

    return isinstance(kernel, Kernel)


def require_place(device: object) -> None:
    is_object = type(device).__name__.lower() == "device"  # of torch, CuPy
    if device is not None and not (isinstance(device, str) or is_object or integer(device) is not None):
        raise ArgumentError(
            f'device: must be "gpu", a GPU\'s number, "machine" or "host"; got {shown(device)}. Leave it out'
        )
