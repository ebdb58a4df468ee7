"""Whether rows keep their bits: what a caller says of one product, or of all in a `with` block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType

from lapidist.calls.number_rules import require_flag
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import HOST

_ASKED: ContextVar[bool] = ContextVar("lapidist.invariant", default=False)
# The open blocks of all threads and tasks. While it is empty no call reads the context, which takes 40 ns.
OPEN_BLOCKS: list[invariant] = []


class invariant:
    """A `with` block: in it, products keep the bits of a row whatever other rows there are.

    It holds for the thread or task that opened it, for calls that do not say `invariant` themselves.
    `invariant(False)` takes it back.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a, b = np.ones((8, 64), np.float16), np.ones((64, 8), np.float16)
    >>> with lapidist.invariant():
    ...     all_rows = lapidist.matmul(a, b, device="machine")
    ...     first_row = lapidist.matmul(a[:1], b, device="machine")
    >>> bool((all_rows[:1] == first_row).all())
    True
    """

    def __init__(self, on: bool = True) -> None:
        require_flag("on", on)
        self._on = bool(on)
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> invariant:
        self._tokens.append(_ASKED.set(self._on))
        OPEN_BLOCKS.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        OPEN_BLOCKS.remove(self)
        _ASKED.reset(self._tokens.pop())


def is_invariant(argument: object) -> bool:
    """What one call asks for: its argument, or what the block around it says."""
    if argument is None:
        return _ASKED.get()
    require_flag("invariant", argument)
    return bool(argument)


def require_no_schedule(invariant: bool, schedule: str | None) -> None:
    """`schedule`: the argument by which the caller decides how blocks share k, if there is one."""
    if invariant and schedule is not None:
        raise ArgumentError(
            f"{schedule}: cuts k in another way than invariant=True does for every number of rows; got both."
            " Leave one of them out"
        )


def require_a_kernel(invariant: bool, place: int | str) -> None:
    """NumPy's order of sums depends on the number of rows."""
    if invariant and place == HOST:
        raise ArgumentError(
            "invariant: holds for kernels, and NumPy multiplies arrays on the host; got such arrays. Pass"
            ' device="machine", or arrays on a GPU'
        )
