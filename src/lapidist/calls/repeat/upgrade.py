"""Whether a better kernel has come: a fast path counts its calls, and looks when they are used up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.planning.fallback_kernels import CALLS_BETWEEN

if TYPE_CHECKING:
    from lapidist.backends.gpu.list_kernels import PartKernel
    from lapidist.calls.prepared import Prepared


class Upgrade(NamedTuple):
    """`calls`: how many come before the next look; 0: the kernel is final. `look` returns how many calls may
    follow; 0: the fast path ends for good, and the full path makes another. `captured` takes the stream: a
    graph must not keep a kernel that is not final.
    """

    calls: int
    look: Callable[[], int]
    captured: Callable[[Any], bool]


FINAL = Upgrade(0, int, bool)  # neither is called


def upgrade_of(ready: Prepared) -> Upgrade:
    if ready.settled:
        return FINAL
    return Upgrade(max(1, ready.countdown), partial(ready.look_for_upgrade, ready.kernel), ready.is_captured)


def upgrade_of_lists(launched: Sequence[PartKernel]) -> Upgrade:
    """The full path looks, at once."""
    waiting = [part_kernel for part_kernel in launched if not part_kernel.settled]

    def look() -> int:
        for part_kernel in waiting:
            part_kernel.countdown = 0
        return 0

    if not waiting:
        return FINAL
    return Upgrade(CALLS_BETWEEN, look, partial(waiting[0].backend.is_captured, framework="torch"))
