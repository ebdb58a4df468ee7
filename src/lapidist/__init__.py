"""Dense matrix multiply on NVIDIA GPUs, from Python: D = alpha op(A) op(B) + beta C.

Public names load on first use, so that `import lapidist` costs next to nothing. __init__.pyi has their types.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lapidist.errors import explained as _explained
from lapidist.errors import no_attribute as _no_attribute

__version__ = "0.2.0"

_HOME = {
    "api": "gemm gemm_lists matmul",
    "config": "Config",
    "contractions.einsum": "einsum tensordot",
    "device": "CHIPS Device",
    "epilogues.expressions": "Column Row Scalar Tile",
    "epilogues.functions": (
        "absolute cast ceil clamp dropout erf exp floor gelu gelu_slope log maximum minimum relu rint rsqrt "
        "sigmoid silu sqrt tanh trunc where"
    ),
    "epilogues.reductions": (
        "all_max all_sum amax column_amax column_max column_sum row_amax row_max row_sum"
    ),
    "epilogues.results": "Output Pair Quantised",
    "epilogues.tracing": "epilogue",
    "errors": (
        "ArgumentError CompileError DTypeError DeviceError LapidistError LaunchError RefusalError "
        "ShapeError StrideError"
    ),
    "dtypes": "Accuracy",
    "calls.grouped": "grouped",
    "calls.symmetric": "gram",
    "calls.invariance": "invariant",
    "calls.lists": "ArrayGemm",
    "calls.planned_call": "plan",
    "calls.prepared_weights": "PreparedWeight",
    "problems.pointers": "Pointers",
    "calls.executable": "Gemm",
    "kernels.registry": "KERNELS kernel_named",
    "planning.sum_orders": "SumOrder",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

_PACKAGES = "epilogues", "quantised", "verify"  # of public names

# what is written otherwise here: in a function, and ready-made
_WAYS_OUT = {
    **dict.fromkeys(
        ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "fp8", "fp16", "bf16", "fp32", "fp64"),
        'Write a type as a string: out_dtype="float16", say',
    ),
    **dict.fromkeys(("tf32", "emulated"), 'Write it as a string: precision="tf32", say'),
    **dict.fromkeys(("int4", "mxfp4", "nvfp4"), 'Write lapidist.quantised.pack(weight, "int4"), say'),
    "gelu_tanh": 'Write lapidist.gelu(x, "tanh"), or pass lapidist.epilogues.gelu_tanh',
    **dict.fromkeys(("dot", "mm", "bmm", "mv"), "Write lapidist.matmul, which takes matrices and batches"),
    **dict.fromkeys(("addmm", "baddbmm"), "Write lapidist.gemm(a, b, c, alpha=, beta=)"),
    **dict.fromkeys(
        ("sgemm", "dgemm", "hgemm", "cgemm", "zgemm"), "Write lapidist.gemm, which takes all types"
    ),
    **dict.fromkeys(("syrk", "herk"), "Write lapidist.gram(a)"),
    **dict.fromkeys(("grouped_gemm", "grouped_mm", "ragged_dot"), "Write lapidist.grouped(a, b, offsets)"),
    **dict.fromkeys(("quantized", "quantize", "quantise"), "Write lapidist.quantised.pack(weight, format)"),
    **dict.fromkeys(("linear", "mlp", "swap", "Linear"), "Import lapidist.torch, which has it"),
    **{name: f"Import lapidist.{name} first" for name in ("torch", "jax", "distributed", "machine")},
    "GemmUniversal": "Write lapidist.gemm, or lapidist.plan for a product that is planned once",
    **dict.fromkeys(("warm", "precompile"), "`lapidist warm` compiles ahead, by the command line"),
    "jit": "Kernels are compiled at their first call; `lapidist warm` compiles ahead",
}

__all__ = sorted(_MODULE_OF, key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return _loaded(name)
    module = _MODULE_OF.get(name)
    if module is None:
        raise _no_attribute("lapidist", name, (*_MODULE_OF, *_PACKAGES), _WAYS_OUT)
    value = getattr(_loaded(module), name)
    globals()[name] = value
    return value


@_explained
def _loaded(module: str) -> Any:
    return import_module(f"lapidist.{module}")


def __dir__() -> list[str]:
    return sorted(__all__)
