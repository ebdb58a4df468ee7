"""What the arrays of launches hold before they run, to be put back before another run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lapidist.launch import Launch


class Contents:
    """The contents of all arrays that these launches touch."""

    def __init__(self, launches: Iterable[Launch]) -> None:
        memory = [m for launch in launches for m in (*launch.memory, *launch.variables)]
        owners = {id(m.owner): m.owner for m in memory if isinstance(m.owner, np.ndarray)}
        self.arrays: Sequence[np.ndarray] = list(owners.values())
        self.before = [array.copy() for array in self.arrays]

    def put_back(self) -> None:
        for array, content in zip(self.arrays, self.before, strict=True):
            if array.flags.writeable:
                np.copyto(array, content)
