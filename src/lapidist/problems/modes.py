"""Routing of rows and columns, and alpha and beta in memory: what strides and two numbers cannot say.

`Modes` is part of the Problem, and what its kernel is compiled for. `ExtraPointers` are the addresses of one
call, including those of factors (scaling.py). modes.cuh is the device side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lapidist.problems.ragged import FixedCuts, Ragged

# addresses of an array batch: among the kernel's parameters, or in arrays on the GPU
IN_LAUNCH, IN_MEMORY = (1, 2)
OF_ALL, OF_EACH = 1, 2  # index arrays: one for all matrices of a batch, or a row for each of them
INDEX_TYPES = {"int32": "int", "int64": "long long"}  # in device code


class Group(NamedTuple):
    """Rows (or columns) of D in groups of `extent`: groups are `step` elements apart, rows of a group
    `stride`.
    """

    extent: int
    step: int
    stride: int


@dataclass(frozen=True, slots=True)
class Modes:
    """gather_ and scatter_ are 0, OF_ALL or OF_EACH. `index`: the type of all index arrays. `groups`: D's
    rows and columns, if D is permuted. `arrays`: 0, IN_LAUNCH or IN_MEMORY. `guarded`: a number in memory
    says whether anything is done, at alpha's address. `ragged`: an extent that is cut into groups.
    """

    gather_a: int = 0
    gather_b: int = 0
    scatter_rows: int = 0
    scatter_cols: int = 0
    index: str = "int32"
    groups: tuple[Group, Group] | None = None
    arrays: int = 0
    scalars: bool = False
    guarded: bool = False
    ragged: Ragged | None = None

    @property
    def picked(self) -> tuple[int, int, int, int]:
        return self.gather_a, self.gather_b, self.scatter_rows, self.scatter_cols

    @property
    def of_each(self) -> bool:
        """Whether each matrix of a batch has its own indices."""
        return OF_EACH in self.picked

    def transposed(self) -> Modes:
        """The modes of D' = B' A'."""
        return replace(
            self,
            gather_a=self.gather_b,
            gather_b=self.gather_a,
            scatter_rows=self.scatter_cols,
            scatter_cols=self.scatter_rows,
            groups=self.groups and self.groups[::-1],
            ragged=self.ragged and self.ragged.transposed(),
        )

    @property
    def routes(self) -> bool:
        """Whether anything but groups of a ragged extent differs from matrices as they lie."""
        return self != PLAIN and replace(self, ragged=None, index=PLAIN.index) != PLAIN

    @property
    def fixed_cuts(self) -> FixedCuts | None:
        """Those of k in every tile of groups."""
        return None if self.ragged is None else self.ragged.cuts

    def cuts(self, extent: str) -> bool:
        """Whether this extent ("m", "n" or "k") is cut into groups."""
        return self.ragged is not None and self.ragged.extent == extent

    def defines(self) -> dict[str, object]:
        """The macros of modes.cuh. Plain problems get none, so that their binaries are shared."""
        used = {
            "GATHER_A": self.gather_a,
            "GATHER_B": self.gather_b,
            "SCATTER_ROWS": self.scatter_rows,
            "SCATTER_COLS": self.scatter_cols,
            "PERMUTED": self.groups is not None,
            "ARRAYS": self.arrays,
            "SCALARS": self.scalars,
            "GUARDED": self.guarded,
            "RAGGED": 0 if self.ragged is None else self.ragged.number,
        }
        if not any(used.values()):
            return {}
        cuts = self.fixed_cuts
        fixed = {} if cuts is None else {"FIXED_PARTS": cuts.parts, "FROM_ZERO": int(cuts.from_zero)}
        return {**{name: int(on) for name, on in used.items()}, **fixed, "Index": INDEX_TYPES[self.index]}

    def __str__(self) -> str:
        words = {
            "rows of A gathered": self.gather_a,
            "columns of B gathered": self.gather_b,
            "rows of D scattered": self.scatter_rows,
            "columns of D scattered": self.scatter_cols,
            "by indices of each matrix": self.of_each,
            "D permuted": self.groups is not None,
            "lists of arrays": self.arrays == IN_LAUNCH,
            "lists of addresses": self.arrays == IN_MEMORY,
            "alpha and beta from memory": self.scalars,
            "a guard in memory": self.guarded,
            str(self.ragged): self.ragged is not None,
        }
        return ", ".join(word for word, on in words.items() if on)


PLAIN = Modes()


class ExtraPointers(NamedTuple):
    """Addresses of index arrays, scalars, factors and ends of groups; 0: there is none.

    Their order counts: `modes` takes the first six, `scales` the next two, `fused` is the last.
    `in_order_of`, `values`, `members` and `sources_of` (calls/repeat/with_arrays.py) rely on it.
    """

    a_rows: int = 0
    b_cols: int = 0
    d_rows: int = 0
    d_cols: int = 0
    alpha: int = 0
    beta: int = 0
    scale_a: int = 0
    scale_b: int = 0
    ends: int = 0
    fused: tuple[Any, ...] = ()  # an epilogue's operands: addresses of arrays, or numbers

    def in_order_of(self, transposed: bool) -> ExtraPointers:
        """In the problem's order of A and B, which is exchanged if it computes the transposed product."""
        if not transposed:
            return self
        exchanged = (self.b_cols, self.a_rows, self.d_cols, self.d_rows)
        scalars = self.alpha, self.beta
        return ExtraPointers(*exchanged, *scalars, self.scale_b, self.scale_a, self.ends, self.fused)

    def values(self, transposed: bool) -> dict[str, tuple[int, ...]]:
        """The words of each kernel parameter that has such addresses."""
        addresses = self.in_order_of(transposed)
        return {"modes": addresses[:6], "scales": addresses[6:8], "ragged": (addresses.ends,)}


NO_POINTERS = ExtraPointers()


@lru_cache(maxsize=256)
def members(modes: Modes) -> tuple[int, ...]:
    """modes.cuh's struct Modes, with zeros in place of addresses."""
    rows, cols = modes.groups or (Group(1, 0, 0), Group(1, 0, 1))
    return (*NO_POINTERS[:6], rows.extent, rows.step, cols.extent, cols.step, cols.stride)
