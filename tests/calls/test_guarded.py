"""Launches that another one may switch off: a number in memory, which the kernel reads."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.calls.bound import Bound
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Operation, Types
from lapidist.calls.prepared import Prepared
from lapidist.dtypes import numpy_dtype
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import operand_of


def ready(kernel: str, dtype: str, guard: np.ndarray, d: np.ndarray) -> tuple[Prepared, Bound]:
    a, b = (np.ones(shape, numpy_dtype(dtype)) for shape in ((40, 64), (64, 48)))
    types = Types(out_dtype="float32")
    bound = Bound(a, b, None, d, Operation(types=types, guard=operand_of(guard, "guard")))
    return Prepared(bound, "machine", Choices(None)._replace(kernel=kernel)), bound


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [("wgmma", "bfloat16"), ("wgmma", "float16"), ("mma", "bfloat16"), ("simt", "float32")],
)
def test_a_guard_of_zero_changes_nothing(kernel: str, dtype: str) -> None:
    guard, d = np.zeros(1, np.float32), np.full((40, 48), 7, np.float32)
    product, bound = ready(kernel, dtype, guard, d)
    product.run(bound)
    assert (d == 7).all()
    guard[0] = 1  # the same launch looks anew
    product.run(bound)
    assert (d == 64).all()


@pytest.mark.parametrize("kernel", ["sgemm", "small"])
def test_kernels_without_guards_refuse(kernel: str) -> None:
    with pytest.raises(RefusalError, match="a guard in memory"):
        ready(kernel, "float32", np.zeros(1, np.float32), np.zeros((40, 48), np.float32))
