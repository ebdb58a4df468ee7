"""What all products of a call over several ranks share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from lapidist.dtypes import IEEE, Precision, name_of
from lapidist.frameworks.new_arrays import torch_dtype

# words of torch.distributed and of lapidist.gemm, without case and underscores, and what is meant by them
OTHER_NAMES = {
    **dict.fromkeys(("processgroup", "pg", "groupname", "mesh", "devicemesh", "tpgroup"), "Write group="),
    **dict.fromkeys(("scatterdim", "gatherdim", "axis"), "Write dim="),
    **dict.fromkeys(("transposeb", "transb"), "Write trans_b="),
    **dict.fromkeys(("dtype", "outputdtype"), "Write out_dtype="),
    "asyncop": "Leave it out: the call is ordered on the current stream, as a product is",
    "out": "Leave it out: the result is a new tensor",
    "transa": "Leave it out: a's rows lie on ranks, or its columns. Pass a.T",
    "activation": "Pass an epilogue: epilogue=lapidist.epilogues.relu, say",
}


def type_named(out_dtype: Any) -> Any:
    """torch's type, of which callers may write the name."""
    if not isinstance(out_dtype, str):
        return out_dtype
    return torch_dtype(name_of(out_dtype, "out_dtype"))


# Of an operand of more dimensions than two: the one that ranks share, and over what its rows run.
Split = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments of lapidist.gemm, and how k is cut."""

    trans_b: bool = False
    out_dtype: Any = None
    precision: Precision = IEEE
    invariant: bool | None = None
    chunks: int | None = None  # of this rank's k, whose sums a tree adds; None: k as it is
    of_columns: bool = False  # chunks are of the result's columns instead
    device: str | None = None
    split: Split | None = None
    gradients: str = ""  # of which operands they are recorded, where going back they are exchanged

    @property
    def sums_chunks(self) -> bool:
        return self.chunks is not None and not self.of_columns

    @property
    def is_usual(self) -> bool:
        return self.out_dtype is self.invariant is self.chunks is None and self.precision == IEEE

    def described(self) -> str:
        """Those that are not as usual."""
        names = (field.name for field in fields(self))
        changed = [name for name in names if getattr(self, name) != getattr(USUAL, name)]
        return ", ".join(f"{name}={getattr(self, name)}" for name in changed)


USUAL = Options()
