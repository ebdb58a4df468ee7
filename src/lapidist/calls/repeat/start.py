"""The launch of a repeated call that takes nothing but its matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lapidist.calls.prepared import Prepared


class Starting(NamedTuple):
    """`bring` takes the addresses of all tensors and the epilogue's numbers, and makes the last argument of
    `start`; None: there is none. `start` takes addresses of A, B, C and D, alpha and beta, a stream, and
    that. `of_d`: whether that depends on D's address. `exchanged`: `start` takes B before A.
    """

    bring: Callable[[Sequence[int], Sequence[float]], Any] | None
    start: Callable[..., None]
    of_d: bool
    exchanged: bool = False


def plainly_started(ready: Prepared) -> Starting:
    assert ready.kernel is not None
    exchanged = ready.parts[0].plan.problem.transposed
    return Starting(None, ready.kernel.repeated_start(), of_d=False, exchanged=exchanged)
