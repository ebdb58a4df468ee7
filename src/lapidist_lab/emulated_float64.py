"""float64 products on int8 tensor cores (Ozaki's scheme II, residue_products.py), as launches: a prototype.

    remainders of A, of B -> one int8 product for each modulus -> the float64 result

Results hold what integers of `bits` keep of an element beside the largest of its line. So this stays in the
lab, and no keyword of Lapidist reaches it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import lapidist
from lapidist.build.compiler import compile_kernel
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import backend_for, output_of
from lapidist.calls.kernel_choice import OPEN, Choices
from lapidist.calls.operation import Operation
from lapidist.errors import ArgumentError, DTypeError, ShapeError
from lapidist.frameworks.arrays import Operand, operand_of
from lapidist.frameworks.new_arrays import empty
from lapidist.launch import AS_IT_IS, Launch, ParameterBlock
from lapidist_lab.residue_products import moduli

THREADS, VECTOR = 256, 16
FEWEST, MOST_MODULI = 12, 16  # integers of more moduli have more than 62 bits
MOST_K = (1 << 17) - 1  # sums of products of remainders, 2^14 at most, fit in 32 bits
REMAINDERS = ParameterBlock(
    [
        *((name, "pointer") for name in "ABD"),
        *((name, "i64") for name in ("line_step", "k_step")),
        *((name, "i32") for name in ("lines", "k", "padded", "weighted")),
        ("most", "f64"),
    ]
)
JOIN = ParameterBlock(
    [
        *((name, "pointer") for name in "ABD"),
        *((name, "i32") for name in ("rows", "columns")),
        *((name, "i64") for name in ("d_row", "d_col")),
    ]
)


@lru_cache(maxsize=64)
def launch_of(
    name: str,
    blocks: int,
    count: int,
    numbers: tuple[tuple[str, Any], ...],
    architecture: str,
    assembled: bool,
) -> Launch:
    parameters = JOIN if name == "join_remainders" else REMAINDERS
    defines = {"THREADS": THREADS, "MODULI": count}
    binary = compile_kernel(f"emulated/{name}.cu", name, defines, architecture, assembled=assembled)
    content = bytes(parameters.pack(dict(numbers)))
    return Launch(
        binary, (blocks, 1, 1), (THREADS, 1, 1), content, parameters=parameters, patches=parameters.patches()
    )


def multiplied(a: Any, b: Any, count: int = 15, device: int | str | None = None, out: Any = None) -> Any:
    """a @ b of two float64 matrices, by `count` moduli, with arrays of one kind in any layout."""
    if not FEWEST <= count <= MOST_MODULI:
        raise ArgumentError(f"count: must be from {FEWEST} to {MOST_MODULI}; got {count}. Take 15")
    choices = OPEN if device is None else Choices(device)
    bound = Call(a, b, None, out, Operation(), choices).bound()
    require_matrices(bound)
    backend, (m, n), k = backend_for(bound, choices), bound.shape, bound.a.shape[-1]
    padded = -(-k // VECTOR) * VECTOR

    def new(shape: tuple[int, ...], dtype: str) -> Operand:
        return operand_of(empty(shape, bound.like, dtype), "between launches")

    def launch(name: str, blocks: int, numbers: dict[str, Any], *operands: Operand) -> None:
        how = backend.chip.architecture, backend.compiles
        kernel = launch_of(name, blocks, count, tuple(numbers.items()), *how)
        at = dict(zip("ABD", operands, strict=True))
        backend.launch_alone(kernel, at, AS_IT_IS, bound.like.framework, None)

    exponents = new((m + n,), "int32")
    of_rows, of_columns = (operand_of(x, "exponents") for x in (exponents.owner[:m], exponents.owner[m:]))
    left, right = new((count, m, padded), "int8"), new((count, n, padded), "int8")
    most = math.log2(math.prod(moduli(count)) // 2) / 2 - 0.5  # room for what rounding adds
    for operand, lines, strides, its_exponents, to in (
        (bound.a, m, bound.a.strides, of_rows, left),
        (bound.b, n, bound.b.strides[::-1], of_columns, right),
    ):
        numbers: dict[str, float] = {
            "line_step": strides[0],
            "k_step": strides[1],
            "lines": lines,
            "k": k,
            "padded": padded,
        }
        numbers |= {"weighted": int(to is left), "most": most}
        launch("remainders", lines, numbers, operand, its_exponents, to)
    sums = new((count, m, n), "int32")
    lapidist.gemm(left.owner, right.owner, trans_b=True, out=sums.owner, out_dtype="int32", device=device)
    result, d = output_of(bound)
    numbers = {"rows": m, "columns": n, "d_row": d.strides[0], "d_col": d.strides[1]}
    launch("join_remainders", m * -(-n // THREADS), numbers, sums, exponents, d)
    return bound.deliver(result)


def require_matrices(bound: Bound) -> None:
    if bound.a.dtype != "float64":
        raise DTypeError(f"a: remainders stand for float64; got {bound.a.dtype}. Use lapidist.matmul")
    (m, n), k = bound.shape[-2:], bound.a.shape[-1]
    if len(bound.shape) > 2 or 0 in (m, n) or not 0 < k <= MOST_K:
        raise ShapeError(
            f"a, b: must be two matrices with 1 <= k <= {MOST_K}; got {bound.a.shape} and {bound.b.shape}."
            " Use lapidist.matmul"
        )
