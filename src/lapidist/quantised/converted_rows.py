"""Rows of e4m3 as bfloat16, exactly: kernels of 16 bits multiply codes by small groups' factors, not sums."""

from __future__ import annotations

import math
from functools import lru_cache

from lapidist.backends.backend import Backend
from lapidist.build.compiler import compile_kernel
from lapidist.dtypes import TYPES
from lapidist.frameworks.arrays import operand_of
from lapidist.frameworks.new_arrays import empty
from lapidist.launch import AS_IT_IS, Launch
from lapidist.quantised.activations import Activations, aligned
from lapidist.quantised.kernel_parameters import CONVERTED
from lapidist.quantised.number_formats import VECTOR_BYTES
from lapidist.quantised.ways import E4M3, WIDER

THREADS = 128


def converted(activations: Activations, backend: Backend) -> Activations:
    """The same rows in a new array; their factors stay apart."""
    x = aligned(activations.x, activations.x.shape[-1])
    rows = operand_of(empty(x.shape, x, WIDER), "x")
    launch = converting(math.prod(x.shape) // VECTOR_BYTES, backend.chip.architecture, backend.compiles)
    backend.launch_alone(launch, {"A": x, "D": rows}, AS_IT_IS, x.framework, None)
    return activations._replace(x=rows)


@lru_cache(maxsize=256)
def converting(vectors: int, architecture: str, assembled: bool = True) -> Launch:
    """The launch that writes so many vectors of e4m3 as bfloat16."""
    binary = compile_kernel(
        "quantised/converted.cu",
        "converted",
        {"THREADS": THREADS, "X": TYPES[E4M3].c_type, "T": TYPES[WIDER].c_type},
        architecture,
        assembled=assembled,
    )
    return Launch(
        binary,
        (-(-vectors // THREADS), 1, 1),
        (THREADS, 1, 1),
        bytes(CONVERTED.pack({"vectors": vectors})),
        overlaps=True,
        parameters=CONVERTED,
        patches=CONVERTED.patches(),
    )
