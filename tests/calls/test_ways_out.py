"""Ways out of a refusal that a user can follow: what the message says is done, and works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
import lapidist.distributed
import lapidist.quantised
import lapidist.verify
from lapidist.errors import ArgumentError, DTypeError, RefusalError, ShapeError

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


@pytest.mark.parametrize("kind", ["Scalar", "Row", "Column", "Tile"])
def test_what_annotates_operands_is_not_called(kind: str) -> None:
    words = rf"{kind}: annotates an operand of an epilogue; got .* Write def f\(acc, x: lapidist.{kind}\)"
    with pytest.raises(ArgumentError, match=words):
        getattr(lapidist, kind)(B[0])


def test_the_only_operand_of_an_epilogue_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"must have operands bias; got 'b'\. Write bias="):
        lapidist.epilogues.bias(b=B[0])


def test_a_product_in_place_of_a_function_of_rows() -> None:
    with pytest.raises(
        ArgumentError, match=r"function: must be called with rows; got ndarray\. Pass lambda x"
    ):
        lapidist.verify.invariant(A, B)
    assert lapidist.verify.invariant(lambda x: np.stack([(row[:, None] * B).sum(0) for row in x]), A)


def test_packed_weights_are_told_apart_from_arrays() -> None:
    weight = np.ones((64, 8), np.float32)
    with pytest.raises(DTypeError, match=r"packed: must be a PackedWeight; got ndarray\. Pass what pack"):
        lapidist.quantised.unpack(weight)
    with pytest.raises(AttributeError, match=r"T: .* Write lapidist.quantised.pack\(weight.T"):
        _ = lapidist.quantised.pack(weight, "int4").T


def test_a_config_that_is_refused_may_be_left_out() -> None:
    with pytest.raises(
        RefusalError, match=r"config: simt does not take .*\n.*33x64\n  Correct it, or leave config="
    ):
        lapidist.gemm(A, B, kernel="simt", config=lapidist.Config(33, 64, 16, 32, 32, 8, 4), device="machine")
