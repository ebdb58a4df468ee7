"""Mistakes of new users: each refusal says what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls.keywords import MEANT, OF_GEMM, argument_names
from lapidist.errors import ArgumentError, DTypeError, ShapeError

A, B = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
PACKED = lapidist.quantised.pack(np.ones((64, 64), np.float32), "int4")


@lapidist.epilogue
def biased(acc: Any, bias: lapidist.Row) -> Any:
    return acc + bias


KEYWORDS: list[tuple[Callable[..., Any], str, str]] = [
    (lapidist.gemm, "transB", r"Write trans_b=$"),
    (lapidist.gemm, "transpose_a", r"Write trans_a=$"),
    (lapidist.gemm, "C", r"Write c=$"),
    (lapidist.gemm, "D", r"Write out=$"),
    (lapidist.gemm, "split_k_slices", r"Write split_k=$"),
    (lapidist.gemm, "lda", "strides say it"),
    (lapidist.gemm, "tile", r"Write config=$"),
    (lapidist.gemm, "epilog", r"Write epilogue=$"),
    (lapidist.grouped, "transB", r"Write trans_b=$"),
    (lapidist.matmul, "trans_b", r"Write lapidist.gemm\(trans_b=\), or pass b.T$"),
    (lapidist.matmul, "dtype", r"Write out_dtype=$"),
    (lapidist.matmul, "kernel", r"lapidist.gemm takes kernel=$"),
    (lapidist.matmul, "bias", r"epilogue=lapidist.epilogues.bias\(bias=...\)$"),
    (lapidist.matmul, "activation", r"epilogue=lapidist.epilogues.relu, say$"),
    (lapidist.matmul, "axes", "numpy.moveaxis"),
    (lapidist.matmul, "backend", r"Write device=$"),
    (lapidist.matmul, "a_scale", r"Write scale_a=$"),
    (lapidist.matmul, "weight_scale", r"Write scale_b=$"),
    (lapidist.matmul, "accuracy", r"Write precision=lapidist.Accuracy\(bits\)"),
    (lapidist.grouped, "group_sizes", r"Write offsets=, where each group ends: the running sum"),
    (lapidist.quantised.pack, "group_size", r"Write group=32, 64 or 128"),
    (lapidist.quantised.pack, "bits", r'Write format="int4"'),
    (lapidist.quantised.pack, "zero_pints", r"Write zero_points=$"),
    (lapidist.quantised.matmul, "trans_b", r"pack the weight as \(k, n\)$"),
    (lapidist.quantised.matmul, "decoded", r"Write decode=$"),
    (lapidist.matmul, "colour", r"It takes out, out_dtype, "),
]


@pytest.mark.parametrize(("function", "keyword", "words"), KEYWORDS, ids=lambda value: str(value)[:20])
def test_an_unknown_keyword_names_the_right_one(
    function: Callable[..., Any], keyword: str, words: str
) -> None:
    """As Python's own error, which callers catch that try a keyword."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'.*{words}"):
        function(A, B, **{keyword: None})


def test_words_of_others_mean_arguments_that_there_are() -> None:
    gemm = argument_names(lapidist.gemm)
    assert set(gemm) >= OF_GEMM
    assert set(MEANT.values()) <= {*gemm, "activation"}


def test_type_checkers_still_refuse_unknown_keywords() -> None:
    for function in (lapidist.matmul, lapidist.gemm, lapidist.grouped):
        parameters = inspect.signature(function).parameters.values()
        assert [p.annotation for p in parameters if p.kind is p.VAR_KEYWORD] == ["NoReturn"]


VALUES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: lapidist.matmul(A, B, epilogue="relu"),
        ArgumentError,
        r"Write epilogue=lapidist.epilogues.relu$",
    ),
    (
        lambda: lapidist.matmul(A, B, epilogue=lambda x: x),
        ArgumentError,
        r"epilogue=lapidist.epilogue\(f\)\(\)",
    ),
    (
        lambda: lapidist.matmul(A, B, epilogue=np.tanh),
        ArgumentError,
        "lapidist.epilogues has ready-made ones",
    ),
    (lambda: biased(bais=B[0]), ArgumentError, r"Write bias=$"),
    (lambda: biased(factor=B[0]), ArgumentError, r"Leave it out$"),
    (lambda: lapidist.epilogue(np.tanh), ArgumentError, r"lapidist.relu\(acc\), say$"),  # type: ignore[arg-type]
    (lambda: lapidist.matmul(A, B, out=[[0] * 6] * 4), DTypeError, r"Pass the array that takes the result$"),
    (lambda: lapidist.matmul(A, B, out=(A,)), DTypeError, "a tuple of them where an epilogue has several"),
    (lambda: lapidist.matmul(2.0, B), DTypeError, "A factor is alpha= of gemm"),
    (lambda: lapidist.matmul(None, B), DTypeError, "Pass one, or leave the argument out"),
    (lambda: lapidist.plan(4, 5, 6), DTypeError, "lapidist plan --mnk"),
    (lambda: lapidist.plan(A, B, device="H200"), ArgumentError, "lapidist plan --mnk M,N,K --chip h200"),
    (
        lambda: lapidist.matmul([[1.0], [2.0, 3.0]], B),
        ArgumentError,
        r"Rows must have one length; .*gemm\(\[",
    ),
    (lambda: lapidist.quantised.pack(A, "int4"), ShapeError, r"got 4\. Pad it, or keep it .*swap\(where=\)"),
    (
        lambda: lapidist.quantised.matmul(PACKED, A),
        ArgumentError,
        r"Write the weight behind them: matmul\(x, w",
    ),
    (lambda: lapidist.grouped([A], [B]), ArgumentError, "lists of arrays are multiplied by gemm"),
]


@pytest.mark.parametrize(("call", "kind", "words"), VALUES)
def test_a_wrong_value_says_what_to_pass(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("device", ["cuda:0", "gpu:0", "CUDA:0"])
def test_devices_as_torch_names_them_are_numbers(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lapidist.backends.gpu import driver
    from lapidist.backends.selection import choose_place
    from lapidist.frameworks.arrays import HOST

    asked: list[int] = []
    monkeypatch.setattr(driver, "require_gpu", asked.append)
    assert choose_place(HOST, device) == 0
    assert asked == [0]


def test_a_gpu_that_is_not_the_arrays_is_told() -> None:
    from lapidist.backends.selection import choose_place

    with pytest.raises(ArgumentError, match="the arrays are on GPU 1, not 0"):
        choose_place(1, "cuda:0")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, "Write lapidist.matmul, which takes") for name in ("mm", "bmm")),
        ("addmm", r"Write lapidist.gemm\(a, b, c, alpha=, beta=\)$"),
        ("linear", "Import lapidist.torch, which has it$"),
        ("GemmUniversal", "Write lapidist.gemm, or"),
        ("sgemm", "Write lapidist.gemm, which takes all types$"),
        ("grouped_gemm", r"Write lapidist.grouped\(a, b, offsets\)$"),
        ("quantized", r"Write lapidist.quantised.pack\("),
        ("einsun", "Write lapidist.einsum$"),
        ("epilogue_", "Write lapidist.epilogue$"),
    ],
)
def test_names_of_other_libraries_say_what_stands_for_them(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. {words}"):
        getattr(lapidist, name)


def test_names_that_are_like_none_or_private_are_plainly_refused() -> None:
    """Tools ask every module for names of their own, `__wrapped__` say: they get Python's words."""
    for name in ("__wrapped__", "_einsum", "colour"):
        with pytest.raises(AttributeError, match=rf"^module 'lapidist' has no attribute '{name}'$"):
            getattr(lapidist, name)


def test_a_ready_made_epilogue_that_is_not_there_is_written_as_a_function() -> None:
    with pytest.raises(AttributeError, match=r"under @lapidist\.epilogue$"):
        lapidist.epilogues.leaky_relu  # noqa: B018
    with pytest.raises(AttributeError, match=r"Write lapidist\.epilogues\.bias_gelu$"):
        lapidist.epilogues.bias_glu  # noqa: B018


def test_a_device_may_be_an_object_of_its_framework() -> None:
    class device:
        def __str__(self) -> str:
            return "cpu"

    assert (lapidist.matmul(A, B, device=device()) == A @ B).all()
    with pytest.raises(ArgumentError, match='device: must be "gpu"'):
        lapidist.matmul(A, B, device=1.5)  # type: ignore[arg-type]
