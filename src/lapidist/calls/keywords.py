"""What a call says of a keyword that it does not take: the word that is meant here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

TORCH_OUT = "The result is a new tensor; lapidist.matmul, gemm and grouped write into out="
ACCURACY = "Write precision=lapidist.Accuracy(bits) for float32, or leave it out"
ENDS = "Write offsets=, where each group ends: the running sum of the sizes, as cumsum has it"
LAYOUT = "Leave it out: an array's own strides say it"
EPILOGUE = "Pass an epilogue: epilogue=lapidist.epilogues."
NO_EPILOGUE = "Apply it to the result: this product takes no epilogue"
SCALED = "Write lapidist.torch.scaled(a, b, scale_a, scale_b)"
NO_GROUPS = "lapidist.grouped takes offsets=, where each group ends"

# words of BLAS, NumPy, torch, CUTLASS and cuBLASLt, as they are compared: without case and underscores
MEANT = {
    "transa": "trans_a",
    "transposea": "trans_a",
    "transb": "trans_b",
    "transposeb": "trans_b",
    "c": "c",
    "d": "out",
    "dst": "out",
    "output": "out",
    "dtype": "out_dtype",
    "outputdtype": "out_dtype",
    "outtype": "out_dtype",
    "preferredelementtype": "out_dtype",
    "accumulator": "acc_dtype",
    "acctype": "acc_dtype",
    "accumulatordtype": "acc_dtype",
    "computetype": "precision",
    "allowtf32": "precision",
    "inputprecision": "precision",
    "scalea": "scale_a",
    "scaleb": "scale_b",
    "splitkslices": "split_k",
    "splitk": "split_k",
    "tile": "config",
    "tileshape": "config",
    "stages": "config",
    "backend": "device",
    "act": "activation",
    "nonlinearity": "activation",
    "act_fn": "activation",
    **dict.fromkeys(("ascale", "scaleinput", "inputscale"), "scale_a"),
    **dict.fromkeys(("bscale", "scaleweight", "weightscale"), "scale_b"),
}
WAYS_OUT = {
    "bias": f"{EPILOGUE}bias(bias=...)",
    "activation": f"{EPILOGUE}relu, say",
    "act": f"{EPILOGUE}relu, say",
    "residual": f"{EPILOGUE}residual(residual=...)",
    "epilogue": f"{EPILOGUE}relu, say",
    "where": "Leave it out: that is numpy.matmul's alone",
    "axes": "Leave it out: move axes with numpy.moveaxis first",
    "axis": "Leave it out: move axes with numpy.moveaxis first",
    "casting": "Leave it out, or name the result's type with out_dtype=",
    "order": "Leave it out, or pass an array of that order as out=",
    **dict.fromkeys(("lda", "ldb", "ldc", "ldd", "layout", "layouta", "layoutb", "stridea"), LAYOUT),
    **dict.fromkeys(("m", "n", "k"), "Leave it out: shapes of the arrays say it"),
    **dict.fromkeys(("mnk", "chip"), "Leave it out; `lapidist plan --mnk M,N,K --chip h200` takes both"),
    "alignment": "Leave it out: addresses and strides say it",
    **dict.fromkeys(("accuracy", "tolerance", "rtol", "atol", "bits"), ACCURACY),
    **dict.fromkeys(("groupsizes", "sizes", "splits", "batchsizes", "msplits", "offsets"), ENDS),
    "out": TORCH_OUT,
    "triangle": "gram and matmul(symmetric=True) take it, and write one half of a symmetric result",
    "symmetric": "lapidist.matmul and gram take it, and compute half of a symmetric result",
    "device": "Tensors are multiplied where they are; lapidist.matmul(device=) takes others",
}
OF_GEMM = frozenset(["alpha", "beta", "c", "kernel", "config", "schedule", "split_k", "workspace", "mode"])


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def unexpected(
    function: Callable[..., Any], unknown: Mapping[str, Any], ways_out: Mapping[str, str] | None = None
) -> TypeError:
    """The error for keywords that a function does not take. Python's own kind, as callers that try a keyword
    expect. `ways_out`: of a function that is no product, by words without case and underscores."""
    name, names = next(iter(unknown)), argument_names(function)
    if ways_out is not None:
        return TypeError(
            f"{no_keyword(function.__name__, name)}. {ways_out.get(plain(name)) or nearest(name, names)}"
        )
    frameworks = "torch", "jax"
    within = next((name for name in frameworks if f".{name}." in (function.__module__ or "")), "")
    home = f"lapidist.{within}" if within else "lapidist"
    return unexpected_of(function.__name__, names, home, unknown)


def unexpected_of(function: str, names: list[str], home: str, unknown: Mapping[str, Any]) -> TypeError:
    name = next(iter(unknown))
    return TypeError(f"{no_keyword(function, name)}. {way_out(name, names, home)}")


def no_keyword(function: str, name: str) -> str:
    return f"{function}() got an unexpected keyword argument {name!r}"


def argument_names(function: Callable[..., Any]) -> list[str]:
    plain_kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(function).parameters
    return [name for name, parameter in parameters.items() if parameter.kind in plain_kinds]


def may_take(count: int, function: Any) -> bool:
    """Whether it may be called with so many arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:  # a function in C that does not say
        return True
    except TypeError:
        return False
    return True


def way_out(name: str, names: list[str], home: str) -> str:
    """What to write in place of a keyword."""
    by_plain_name = {plain(argument): argument for argument in names}
    meant = by_plain_name.get(plain(name)) or MEANT.get(plain(name), "")
    if meant in names:
        return f"Write {meant}="
    if name == "out" and home == "lapidist.jax":
        return "Leave it out: JAX has no arrays to write to"
    if meant.startswith("scale_") and home == "lapidist.torch":
        return SCALED
    if plain(name) in WAYS_OUT:
        return possible(WAYS_OUT[plain(name)], names)
    if meant.startswith("trans_"):
        return f"Write {home}.gemm({meant}=), or pass {meant[-1]}.T"
    if (meant or name) in OF_GEMM and not get_close_matches(name, names, 1):
        return f"lapidist.gemm takes {meant or name}="
    return nearest(name, names)


def possible(way: str, names: list[str]) -> str:
    """The way out for a function that takes these arguments."""
    if way.startswith(EPILOGUE) and "epilogue" not in names:
        return nearest("bias", names) if way == WAYS_OUT["bias"] and "up_bias" in names else NO_EPILOGUE
    if way == ENDS and "offsets" not in names:
        return "Write group_sizes=" if "group_sizes" in names else NO_GROUPS
    return way


def nearest(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, 1)
    return f"Write {close[0]}=" if close else f"It takes {', '.join(names)}"
