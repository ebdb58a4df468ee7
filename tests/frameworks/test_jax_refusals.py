"""What lapidist.jax refuses, while JAX traces: errors in words, before anything runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lapidist

pytestmark = pytest.mark.frameworks
A, B, SCALE = np.ones((2, 3), "f4"), np.ones((3, 4), "f4"), np.ones(2, "f4")
Call = Callable[[Any, Any], Any]  # of JAX and lapidist.jax


def small(array: Any) -> Any:
    return array.astype("float8_e4m3fn")


@lapidist.epilogue
def based(acc: Any, base: lapidist.Tile) -> Any:
    return acc + base


@lapidist.epilogue
def scaled(acc: Any, scale: lapidist.Scalar) -> Any:
    return acc * scale


BASED = based(base=np.ones((2, 2), "f4"))
CALLS: dict[str, Call] = {  # by the words of the error
    "b: must be an array of JAX or NumPy; got PackedWeight. Multiply by it with lapidist.matmul": (
        lambda jax, ours: ours.matmul(A, lapidist.quantised.pack(np.ones((64, 8)), "int8"))
    ),
    "preferred_element_type: must be float32 or .* for .* float32; got int8": lambda jax, ours: jax.jit(
        lambda a, b: ours.matmul(a, b, preferred_element_type="int8")
    )(A, B),
    "preferred_element_type: must be one of .*; got 'float33'": lambda jax, ours: ours.ragged_dot(
        A, B[None], np.array([2]), None, "float33"
    ),
    "out_dtype: must be float32 or .* for operands of float32; got int8": lambda jax, ours: ours.gemm(
        A, B, out_dtype="int8"
    ),
    "b: element type must be that of a, float32; got float16": lambda jax, ours: jax.jit(ours.matmul)(
        A, B.astype("f2")
    ),
    "b: element type must be that of a, complex64; got float16": lambda jax, ours: ours.matmul(
        A.astype("c8"), B.astype("f2")
    ),
    "alpha: must be a real number; got complex": lambda jax, ours: ours.gemm(A, B, alpha=1j),
    "alpha: must be real, as the result of gram": lambda jax, ours: ours.gram(A.astype("c8"), alpha=1j),
    "c: element type must be that of the output ": lambda jax, ours: ours.gemm(A.astype("c8"), B, A, beta=1),
    'trans_a: must be True, False or "C"; got .H.*"C" conjugates': lambda jax, ours: ours.gemm(
        A.astype("c8"), B, trans_a="H"
    ),
    'precision: "3m" is a way to multiply complex numbers; a is float32': lambda jax, ours: jax.jit(
        lambda a, b: ours.matmul(a, b, precision="3m")
    )(A, B),
    "epilogue: bias has the Row bias, by which .* differ": lambda jax, ours: ours.gram(
        A, epilogue=lapidist.epilogues.bias(bias=np.ones(2, "f4"))
    ),
    "epilogue: based has the Tile base, which may differ": lambda jax, ours: ours.gram(A, epilogue=BASED),
    "symmetric: names Tile operands of based; got 'bias'": lambda jax, ours: ours.gram(
        A, epilogue=BASED, symmetric=("base", "bias")
    ),
    "symmetric: names Tile operands of an epilogue; .* no epilogue": lambda jax, ours: ours.gram(
        A, symmetric=("base",)
    ),
    r"symmetric: the result must be square; a \(2, 3\) times b \(3, 4\)": lambda jax, ours: jax.jit(
        lambda a, b: ours.matmul(a, b, symmetric=True)
    )(A, B),
    r"symmetric: the result must be square; .* gives \(\)": lambda jax, ours: ours.matmul(
        A[0], A[0], symmetric=True
    ),
    "symmetric: must be True or False, or the names": lambda jax, ours: ours.matmul(A, A.T, symmetric="yes"),
    "symmetric: must be known while JAX traces": lambda jax, ours: jax.jit(
        lambda known: ours.matmul(A, A.T, symmetric=known)
    )(True),
    "symmetric: is for real numbers; got complex64": lambda jax, ours: ours.matmul(
        A.astype("c8"), A.T.astype("c8"), symmetric=True
    ),
    "symmetric: takes matrices and numbers alone; got factors": lambda jax, ours: ours.matmul(
        small(A), small(A.T), scale_a=SCALE, symmetric=True
    ),
    "epilogue: bias has the Row bias, by which .* differ; got symmetric=True": lambda jax, ours: ours.matmul(
        A, A.T, epilogue=lapidist.epilogues.bias(bias=np.ones(2, "f4")), symmetric=True
    ),
    r"epilogue: based has the Tile base.*name it: symmetric=\('base',\)": lambda jax, ours: ours.matmul(
        A, A.T, epilogue=BASED, symmetric=True
    ),
    r"symmetric: names Tile operands of an epilogue; got \('base',\) and no": lambda jax, ours: ours.matmul(
        A, A.T, symmetric=("base",)
    ),
    "scale: must be real, as the result of gram .* got 2j": lambda jax, ours: ours.gram(
        A.astype("c8"), epilogue=scaled(scale=2j)
    ),
    "scale: must be real, as the result of gram .* got complex64": lambda jax, ours: jax.jit(
        lambda scale: ours.gram(A.astype("c8"), epilogue=scaled(scale=scale))
    )(np.complex64(1)),
    "epilogue: of complex numbers must add": lambda jax, ours: ours.linear(
        A.astype("c8"), A.astype("c8"), activation="relu"
    ),
    "bias: must be of complex64, float32; got int32": lambda jax, ours: ours.matmul(
        A.astype("c8"), B.astype("c8"), epilogue=lapidist.epilogues.bias(bias=np.ones(4, "i4"))
    ),
    "scale_a: is for 8-bit floats; a is complex64": lambda jax, ours: ours.matmul(
        A.astype("c8"), B, scale_a=2.0
    ),
    "lhs: .*complex64": lambda jax, ours: ours.ragged_dot(
        A.astype("c8"), B[None].astype("c8"), np.ones(1, "i4")
    ),
    'precision: "tf32" is a way to multiply float32; a is complex128': lambda jax, ours: jax.enable_x64(True)(
        lambda: ours.matmul(A.astype("c16"), B.astype("c16"), precision="tf32")
    )(),
    "a: element type must be one of.*int32": lambda jax, ours: ours.matmul(A.astype("i4"), B),
    "a: must be an array of JAX or NumPy; got list": lambda jax, ours: ours.matmul([[1.0]], B),
    "b: must be an array of JAX or NumPy; got NoneType": lambda jax, ours: ours.gemm(A, None),
    "b: must have as many rows as a": lambda jax, ours: jax.jit(ours.matmul)(A, B.T),
    "b: must have as many rows as a ": lambda jax, ours: jax.jit(ours.gemm)(A, A),
    "a: must have at least 2 dimensions": lambda jax, ours: ours.gemm(A[0], B),
    "a: must have at least 1 dimension": lambda jax, ours: ours.matmul(A[0, 0, ...], B),
    "c: must broadcast": lambda jax, ours: ours.gemm(A, B, A, beta=1),
    "c: element type must be that of the output": lambda jax, ours: ours.gemm(A, B, np.ones(4, "f2"), beta=1),
    "c: .*beta|beta: .*c": lambda jax, ours: ours.gemm(A, B, beta=1),
    "weight: must have as many columns": lambda jax, ours: jax.jit(ours.linear)(A, B),
    "weight: must have as many rows": lambda jax, ours: ours.linear(A, B.T, trans_weight=False),
    "weight: must have 1 or 2 dimensions": lambda jax, ours: ours.linear(A, A[None]),
    "input: must have at least 1": lambda jax, ours: ours.linear(A[0, 0, ...], A),
    "bias: must broadcast": lambda jax, ours: ours.linear(A, B.T, A),
    "input: element type": lambda jax, ours: ours.linear(A.astype("i4"), B.T.astype("i4")),
    "alpha: must be known while JAX traces; got a .*Tracer": lambda jax, ours: jax.jit(
        lambda x: ours.gemm(A, B, alpha=x)
    )(2.0),
    "beta: must be known while JAX traces": lambda jax, ours: jax.jit(
        lambda x: ours.gemm(A, B, A[:, :1], beta=x)
    )(2.0),
    "trans_b: must be known while JAX traces": lambda jax, ours: jax.jit(ours.gemm)(A, A, trans_b=True),
    "dtype: must be float8_e4m3fn or float8_e5m2; got float16": lambda jax, ours: ours.linear(
        A, A, dtype="f2"
    ),
    "factors: must be .rows. or .blocks.": lambda jax, ours: ours.linear(
        A, A, dtype="e4m3", factors="columns"
    ),
    "weight: must have as many columns ": lambda jax, ours: ours.linear(A, B, dtype="e4m3"),
    "trans_weight: must be known": lambda jax, ours: jax.jit(ours.linear)(A, A, trans_weight=True),
    "promote: must be known": lambda jax, ours: jax.jit(ours.matmul)(small(A), small(B), promote=True),
    "alpha: must be a real number": lambda jax, ours: ours.gemm(A, B, alpha="2"),
    'trans_a: must be True, False or "C"': lambda jax, ours: ours.gemm(A, B, trans_a=1),
    "precision: ": lambda jax, ours: ours.matmul(A, B, precision="highest"),
    'precision: "emulated" is a way to multiply float32': lambda jax, ours: ours.matmul(
        A.astype("f2"), B.astype("f2"), precision="emulated"
    ),
    "precision: .*float16": lambda jax, ours: ours.matmul(A.astype("f2"), B.astype("f2"), precision="tf32"),
    "out_dtype: ": lambda jax, ours: ours.matmul(A, B, out_dtype="int8"),
    "out_dtype, preferred_element_type: are two names": lambda jax, ours: ours.matmul(
        A, B, out_dtype="float32", preferred_element_type="bfloat16"
    ),
    'device: must be "machine"': lambda jax, ours: ours.matmul(A, B, device="gpu"),
    "scale_a: .*8-bit": lambda jax, ours: ours.matmul(A, B, scale_a=SCALE),
    "scale_a: must be one factor": lambda jax, ours: ours.matmul(
        small(A), small(B), scale_a=np.ones(7, "f4")
    ),
    "scale_a: factors must be float32": lambda jax, ours: jax.jit(
        lambda s: ours.matmul(small(A), small(B), scale_a=s)
    )(SCALE.astype("f2")),
    "a, b: 8-bit floats with factors have no gradient": lambda jax, ours: jax.grad(
        lambda a: ours.matmul(small(a), small(B), scale_a=SCALE).sum()
    )(jax.numpy.asarray(A)),
    "scale_a, scale_b: jax.vmap maps over rows of a": lambda jax, ours: jax.vmap(
        lambda b: ours.matmul(small(A), b, scale_a=SCALE)
    )(small(jax.numpy.asarray(B))[None]),
    "scale_a, scale_b: jax.vmap maps over rows of a ": lambda jax, ours: jax.vmap(
        lambda a, scale: ours.matmul(a, small(B), scale_b=scale)
    )(small(jax.numpy.ones((2, 2, 3))), np.ones((2, 4), "f4")),
}


@pytest.mark.parametrize("words", CALLS)
def test_errors_are_told_while_jax_traces(words: str) -> None:
    jax, ours = importlib.import_module("jax"), importlib.import_module("lapidist.jax")
    with pytest.raises(lapidist.LapidistError, match=words.strip()):
        CALLS[words](jax, ours)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dot", "Write lapidist.jax.matmul"),
        ("grouped", "Write lapidist.jax.ragged_dot"),
        ("mattmul", "Write lapidist.jax.matmul$"),
    ],
)
def test_names_of_jax_say_what_stands_for_them(name: str, words: str) -> None:
    ours = importlib.import_module("lapidist.jax")
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. {words}"):
        getattr(ours, name)


@pytest.mark.parametrize(
    ("function", "keyword", "words"),
    [
        ("gemm", "transpose_a", "Write trans_a=$"),
        ("matmul", "out", "JAX has no arrays to write to$"),
        ("linear", "dtypes", "Write dtype=$"),
        ("ragged_dot", "sizes", "Write group_sizes=$"),
    ],
)
def test_an_unknown_keyword_of_a_function_for_jax_names_the_right_one(
    function: str, keyword: str, words: str
) -> None:
    ours = importlib.import_module("lapidist.jax")
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'.*{words}"):
        getattr(ours, function)(*[A] * (3 if function == "ragged_dot" else 2), **{keyword: None})


def test_symbols_in_place_of_sizes(jax: Any, ours: Any) -> None:
    (n,) = importlib.import_module("jax.export").symbolic_shape("n")
    a, b = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((n, 3), (3, 4)))
    for call in (ours.matmul, lambda a, b: ours.gemm(b, a, trans_a=True, trans_b=True)):
        with pytest.raises(
            lapidist.ShapeError, match=r"[ab]: must have sizes that are known .* got \(n, 3\)"
        ):
            importlib.import_module("jax.export").export(jax.jit(call))(a, b)
