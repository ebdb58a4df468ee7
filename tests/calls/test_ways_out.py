"""Ways out of a refusal that a user can follow: what the message says is done, and works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
import lapidist.distributed
import lapidist.verify
from lapidist.errors import ArgumentError, ShapeError

A, B = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32)
EXPERTS = np.ones((2, 8, 6), np.float32)


def test_the_highest_precision_has_a_name_here() -> None:
    with pytest.raises(ArgumentError, match='others\' "highest" is "ieee", their "high" is "tf32"'):
        lapidist.matmul(A, B, precision="highest")
    assert (lapidist.matmul(A, B, precision="ieee") == 8).all()


@pytest.mark.parametrize("flag", ["t", "H", "yes", 1])
def test_flags_of_transposing_list_all_their_values(flag: Any) -> None:
    with pytest.raises(ArgumentError, match='trans_a: must be True, False or "C"; got'):
        lapidist.gemm(A, B, trans_a=flag)
    assert lapidist.gemm(A.T.copy(), B, trans_a="C").shape == (4, 6)


def test_lengths_of_groups_one_after_another_are_summed() -> None:
    lengths = np.array([3, 1])
    with pytest.raises(ShapeError, match="have offsets, the cumsum of their lengths"):
        lapidist.grouped(A, EXPERTS, counts=lengths)
    assert (lapidist.grouped(A, EXPERTS, np.cumsum(lengths)) == 8).all()


def test_a_bias_of_groups_is_told_its_shape() -> None:
    ends = np.array([2, 4])

    def biased(rows: int) -> Any:
        bias = lapidist.epilogues.bias(bias=np.ones((rows, 6), np.float32))
        return lapidist.grouped(A, EXPERTS, ends, epilogue=bias)

    with pytest.raises(
        ShapeError, match=r"shape \(6,\), or with the batch before it, \(2, 6\); got \(3, 6\)"
    ):
        biased(3)
    assert (biased(2) == 9).all()


def test_sizes_alone_are_planned_by_the_command() -> None:
    with pytest.raises(ArgumentError, match="sizes alone are planned by `lapidist plan --mnk`"):
        lapidist.plan((300, 520), (520, 200))


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (lapidist.verify, "check", r"Write lapidist.verify.report\(a, b, d\)"),
        (lapidist.verify, "invarient", "Write lapidist.verify.invariant"),
        (lapidist.distributed, "matmul", "Write all_gather_matmul, matmul_reduce_scatter or"),
        (lapidist.distributed, "all_gather_mm", "Write lapidist.distributed.all_gather_matmul"),
        (lapidist.distributed, "all_reduce", "Write it of torch.distributed"),
    ],
)
def test_names_from_elsewhere_are_told_those_here(module: Any, name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(module, name)
