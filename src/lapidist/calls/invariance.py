"""A `with` block in which products keep the bits of rows."""

from __future__ import annotations

from contextvars import Token
from types import TracebackType

from lapidist.calls.number_rules import require_flag
from lapidist.calls.operation import IN_BLOCK, OPEN_BLOCKS


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
        OPEN_BLOCKS.append(self)
        self._tokens.append(IN_BLOCK.set(self._on))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        IN_BLOCK.reset(self._tokens.pop())
        OPEN_BLOCKS.remove(self)
