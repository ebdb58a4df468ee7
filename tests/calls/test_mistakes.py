"""Mistakes of new users: each refusal says what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.calls.keywords import MEANT, OF_GEMM, argument_names
from lapidist.commands.logged_products import read_shapes
from lapidist.commands.options import require_layout
from lapidist.device import chip
from lapidist.dtypes import math_named
from lapidist.errors import ArgumentError, DTypeError, RefusalError, ShapeError
from lapidist.planning.plans import make_plan
from lapidist.problems.problem import dense_problem

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
    (lapidist.matmul, "group_sizes", r"lapidist.grouped takes offsets="),
    (lapidist.gemm, "offsets", r"lapidist.grouped takes offsets="),
    (lapidist.quantised.pack, "group_size", r"Write group=32, 64 or 128"),
    (lapidist.quantised.pack, "bits", r'Write format="int4"'),
    (lapidist.quantised.pack, "zero_pints", r"Write zero_points=$"),
    (lapidist.quantised.matmul, "trans_b", r"pack the weight as \(k, n\)$"),
    (lapidist.quantised.matmul, "decoded", r"Write decode=$"),
    (lapidist.matmul, "colour", r"It takes out, out_dtype, "),
    (lapidist.plan, "m", r"Leave it out: shapes of the arrays say it$"),
    (lapidist.plan, "chip", r"lapidist plan --mnk M,N,K --chip h200"),
    (lapidist.plan, "transB", r"Write trans_b=$"),
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
    for function in (lapidist.matmul, lapidist.gemm, lapidist.grouped, lapidist.plan):
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
    (lambda: biased(factor=B[0]), ArgumentError, r"Write bias=$"),
    (lambda: biased(bias=B[0], factor=B[0]), ArgumentError, r"Leave it out$"),
    (
        lambda: lapidist.matmul(A, B, epilogue=biased(bias=A[:, 0])),
        ShapeError,
        r"got \(4,\). A value for each row is an operand annotated lapidist.Column$",
    ),
    (lambda: lapidist.matmul(A, B, epilogue=biased(bias=A)), ShapeError, "Pass one of that shape$"),
    (
        lambda: lapidist.plan(A, B, kernel="wmgma", device="machine"),
        ArgumentError,
        "got 'wmgma'. Write wgmma,",
    ),
    (
        lambda: lapidist.matmul(PACKED, A),
        DTypeError,
        r"a: must be an array here; got PackedWeight. Write the weight behind the rows",
    ),
    (lambda: lapidist.warm("bf16"), AttributeError, "`lapidist warm` compiles ahead"),
    (
        lambda: lapidist.quantised.pack(A[0], "int4"),
        ShapeError,
        r"got shape \(5,\)\. Pass a matrix, or a stack",
    ),
    (lambda: read_shapes(Path(__file__).parent), ArgumentError, "Name a file in it$"),
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
    (lambda: lapidist.quantised.pack(A[:0], "int4"), ShapeError, r"got shape \(0, 5\)\. Pass a matrix"),
    (
        lambda: lapidist.quantised.matmul(PACKED, A),
        ArgumentError,
        r"Write the weight behind them: matmul\(x, w",
    ),
    (lambda: lapidist.grouped([A], [B]), ArgumentError, "lists of arrays are multiplied by gemm"),
    (lambda: lapidist.gemm([A, A], B), ArgumentError, r"Pass one for each product, \[b, b\] say"),
    (lambda: lapidist.matmul(A, B, precision="high"), ArgumentError, r'"high" is "tf32"$'),  # type: ignore[arg-type]
    (lambda: lapidist.matmul(A, B, device="cpu:0"), ArgumentError, 'Write device="host"$'),
    (lambda: lapidist.matmul(A, B, device="mps"), ArgumentError, "Leave it out, and NumPy multiplies"),
    (
        lambda: lapidist.matmul(A, lapidist.PreparedWeight(B, device="machine")),
        DTypeError,
        r"Write b\.matmul\(\.\.\.\)$",
    ),
    (lambda: lapidist.CHIPS["H200"], KeyError, "'H200' is no short name of a chip. Write one of v100, a100,"),
    (lambda: chip("b200"), ArgumentError, "Name the one most like yours$"),
    (lambda: math_named("fp8"), ArgumentError, "Write e4m3 or e5m2$"),
    (lambda: math_named("half"), ArgumentError, "Write fp16$"),
    (lambda: require_layout("nt"), ArgumentError, "The first letter is A's: .* BLAS' nt is rc$"),
    (
        lambda: read_shapes(Path("none.jsonl")),
        ArgumentError,
        "Run the program with LAPIDIST_SHAPES=none.jsonl",
    ),
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
        ("float16", 'Write a type as a string: out_dtype="float16", say$'),
        ("tf32", 'Write it as a string: precision="tf32", say$'),
        ("int4", r'Write lapidist.quantised.pack\(weight, "int4"\), say$'),
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


@pytest.mark.parametrize(
    ("name", "words"),
    [("quantize", r"pack\(weight,"), ("dequantize", r"unpack\(packed\)$"), ("from_gtpq", "from_gptq$")],
)
def test_names_of_quantisers_say_what_stands_for_them(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Write lapidist.quantised.{words}"):
        getattr(lapidist.quantised, name)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("astype", r"Write lapidist\.cast\("),
        ("sum", r"Write lapidist\.row_sum\("),
        ("relu", r"Write lapidist\.relu\("),
        ("matmul", "Use arithmetic, comparisons and"),
    ],
)
def test_methods_of_arrays_are_functions_in_an_epilogue(method: str, words: str) -> None:
    def function(acc: Any) -> Any:
        return getattr(acc, method)()

    with pytest.raises(ArgumentError, match=rf"no attribute '{method}', at .*\. {words}"):
        lapidist.matmul(A, B, epilogue=lapidist.epilogue(function)())


def test_chips_are_found_as_their_boxes_spell_them() -> None:
    assert chip("RTX 4090") is chip("rtx4090") is lapidist.CHIPS["rtx4090"]


def test_a_chip_that_is_too_old_is_not_told_to_convert() -> None:
    with pytest.raises(RefusalError, match="No kernel is for so old a GPU"):
        make_plan(dense_problem(64, 64, 64, "float16"), chip("v100"))
