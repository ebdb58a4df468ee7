"""The public calls matmul and gemm: the fast path of a repeated call, else a Call, which is checked."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import numpy as np

from lapidist.backends.host_at_once import gemm_at_once, product_at_once
from lapidist.calls.call import Call, FewBits, Mode
from lapidist.calls.full_path import (
    multiplied,
    multiplied_by_name,
    planned_products,
    repeated,
    repeated_by_name,
)
from lapidist.calls.kernel_choice import OPEN, Choices, checked
from lapidist.calls.operation import (
    OF_MATMUL,
    OPEN_BLOCKS,
    USUAL_TYPES,
    Factors,
    Operation,
    Types,
    epilogue_checked,
    is_invariant,
    types_named,
)
from lapidist.calls.repeat import ARRAY_PATHS, MATRIX_PATHS, ROWS
from lapidist.calls.repeat.scalars import NUMBERS, scalars_key
from lapidist.calls.repeat.shape import key_of_gemm, key_of_product, key_of_rows
from lapidist.config import AUTO
from lapidist.dtypes import IEEE, Precision
from lapidist.frameworks.arrays import HasShape
from lapidist.launch import AS_IT_IS
from lapidist.problems.pointers import Pointers

if TYPE_CHECKING:
    from lapidist.build.compile_policy import Compiling
    from lapidist.config import Config
    from lapidist.kernels.kernel import Kernel
    from lapidist.schedule import Schedule
    from lapidist.schedule.sharing_choice import Reduction, ScheduleName

Array = TypeVar("Array")
Matrices = TypeVar("Matrices", bound=HasShape | list[Any] | tuple[Any, ...] | Pointers)


# modules that are imported by the first call that needs them
@cache
def half_products() -> Any:
    from lapidist.calls import symmetric

    return symmetric


def matmul(
    a: Array,
    b: Any,
    /,
    out: Any = None,
    *,
    out_dtype: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    scale_a: Any = None,
    scale_b: Any = None,
    promote: bool | None = None,
    epilogue: Any = None,
    symmetric: bool | tuple[str, ...] = False,
    triangle: Literal["lower", "upper"] | None = None,
    invariant: bool | None = None,
    stream: Any = None,
    device: int | str | None = None,
    compile: Compiling | None = None,
    **unknown: NoReturn,
) -> Array:
    """The product a @ b, as numpy.matmul has it: vectors, broadcast batches, any strides.

    Arrays of torch, CuPy or JAX run on their GPU, on their framework's current stream. Host arrays run in
    NumPy, which also takes the types that no kernel does, two types, lists and subclasses.

    Parameters
    ----------
    a, b : arrays of one framework
        Their last two dimensions are matrices, those before them a batch. b may be a weight of few bits
        (`lapidist.quantised`).
    out : array, optional
        Where the result goes; it may have any strides. A tuple, where an epilogue has several results.
    out_dtype : dtype, optional
        The result's type. Without it, it is that of a and b, int32 for 8-bit integers, float32 for 8-bit
        floats.
    acc_dtype : dtype, optional
        The type in which sums are kept: "float16" is a choice for float16.
    precision : {"ieee", "tf32", "emulated", "emulated_any_range", "3m"} or Accuracy
        "tf32" lets tensor cores round float32 factors to 10 bits. "emulated" multiplies float32 matrices by
        slices on int8 tensor cores, for random numbers within 2^-21 of the product of magnitudes.
        "emulated_any_range" is as near as a float32 sum, by fp16, or bfloat16 for numbers of many sizes.
        "3m" makes three real products of complex matrices. An Accuracy takes the fastest that holds its bits.
    scale_a, scale_b : number or float32 array, optional
        Factors of 8-bit floats: one, one for each row of a (column of b), or one for 1 x 128 or 128 x 128
        elements along k. scale_a: also of int8, where b is a weight of few bits.
    promote : bool, optional
        Whether sums leave the tensor core every 128 of k at least: of 8-bit floats, of which it keeps 14
        bits, or of 16-bit floats. Factors that change along k imply it.
    epilogue : epilogue with its operands, optional
        What becomes of each sum before it is stored: a function of `lapidist.epilogue`. Where that returns
        several values, so does `matmul`.
    symmetric : bool or names
        Whether the caller knows that the result is symmetric: half of it is computed, and mirrored. An
        epilogue must treat (i, j) and (j, i) alike; its Tile operands, named here, must be symmetric.
    triangle : {"lower", "upper"}, optional
        Of a symmetric result, the half to write, as in `gram`.
    invariant : bool, optional
        Whether a row of the result has the same bits whatever other rows there are. Without it, a block of
        `lapidist.invariant()` says so.
    stream : stream or int, optional
        Where the product is queued, if not on the framework's current stream.
    device : {"gpu", "machine", "host"} or int, optional
        Where host arrays are multiplied: a GPU, the PTX machine, NumPy.
    compile : {"background", "wait", "never"}, optional
        What a call on a GPU does whose best kernel is not compiled: run another one that gives the same
        bits, wait, or never compile. Without it, LAPIDIST_COMPILE says so.

    Returns
    -------
    array
        `out`, or a new array of a's framework. A tuple of them, where an epilogue has several results.

    Raises
    ------
    LapidistError
        Of arguments that do not fit, before anything runs; no array was changed.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a, b = np.ones((2, 3), np.float32), np.full((3, 2), 2, np.float32)
    >>> lapidist.matmul(a, b)
    array([[6., 6.],
           [6., 6.]], dtype=float32)

    The same by the kernel that a GPU would run, in the PTX machine:

    >>> float(lapidist.matmul(a, b, device="machine")[0, 0])
    6.0
    """
    if unknown:
        from lapidist.calls.keywords import unexpected

        raise unexpected(matmul, unknown)
    if isinstance(b, FewBits):
        refused = precision, acc_dtype, scale_b, promote, symmetric or None, triangle, invariant, compile
        return b.matmul(a, b, out, refused, scale_a, out_dtype, epilogue, stream, device)
    types = USUAL_TYPES
    if (out_dtype is not None or acc_dtype is not None) or (promote is not None or precision is not IEEE):
        types = types_named(out_dtype, acc_dtype, precision, promote)
    if invariant is not None or OPEN_BLOCKS:
        types = types_named(out_dtype, acc_dtype, precision, promote, is_invariant(invariant))
    if symmetric is not False or triangle is not None:
        return half_products().matmul_symmetric(locals(), types)
    if device is None and compile is None:
        result = None
        if scale_a is not None or scale_b is not None or epilogue is not None:
            if ARRAY_PATHS:
                values = None, None, None, DEFAULT_ALPHA, DEFAULT_BETA, scale_a, scale_b, None
                result = repeated(ARRAY_PATHS, a, b, None, out, values, epilogue, OF_MATMUL, types, stream)
        elif type(a) is type(b) is np.ndarray:
            result = product_at_once(a, b, out) if types is USUAL_TYPES and stream is None else None
        else:
            key = key_of_product(a, b, out, types)
            try:
                fast_path = MATRIX_PATHS.get(key)
            except TypeError:  # a compiler's symbols for sizes have no hash
                fast_path = None
            if fast_path is not None:
                result = fast_path(a, b, None, out, AS_IT_IS, stream)
            elif ROWS and out is None:
                result = planned_products().of_new_rows(a, b, key_of_rows(a, b, False, types), key, stream)
        if result is not None:
            return result
    choices = OPEN if device is compile is None else checked(Choices(device, compile=compile))
    factors = Factors(scale_a, scale_b)
    operation = Operation(vectors=True, types=types, factors=factors, epilogue=epilogue_checked(epilogue))
    return multiplied(Call(a, b, None, out, operation, choices, stream))


def gemm(
    a: Matrices,
    b: Any,
    c: Any = None,
    *,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    out: Any = None,
    trans_a: bool | Literal["C"] = False,
    trans_b: bool | Literal["C"] = False,
    out_dtype: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    scale_a: Any = None,
    scale_b: Any = None,
    promote: bool | None = None,
    gather_a: Any = None,
    gather_b: Any = None,
    scatter_d: Any = None,
    permuted: bool = False,
    check_indices: bool = False,
    epilogue: Any = None,
    invariant: bool | None = None,
    mode: Mode | None = None,
    kernel: str | int | Kernel | None = None,
    config: Config | None = None,
    schedule: ScheduleName | Schedule = AUTO,
    split_k: int | Literal["auto"] = AUTO,
    reduction: Reduction | None = None,
    deterministic: bool = True,
    avail_sms: int | None = None,
    workspace: Any = None,
    stream: Any = None,
    device: int | str | None = None,
    compile: Compiling | None = None,
    **unknown: NoReturn,
) -> Matrices:
    """The product alpha op(a) op(b) + beta c, in BLAS terms.

    beta = 0 never reads c, alpha = 0 never reads a and b.

    Parameters
    ----------
    a, b : arrays of one framework, lists of arrays, or Pointers
        Matrices, or batches of them. Those of a list may have any shapes.
    c : array, optional
        Of the output's type; it broadcasts to the output, and may be the output itself.
    alpha, beta : number or array of one element
        Whole numbers for 8-bit integers; complex ones for complex arrays.
    out : array, optional
        Where the result goes.
    trans_a, trans_b : bool or "C"
        Whether op transposes the last two dimensions; "C" conjugates, too.
    out_dtype, acc_dtype, precision, scale_a, scale_b, promote
        As in `matmul`.
    gather_a, gather_b : array of int32 or int64, optional
        Indices of the rows of a, of the columns of b, in every matrix of a batch or, with the batch's
        dimensions before them, each for one.
    scatter_d : array of int32 or int64, optional
        Indices of the rows of out (and c) that take the result. A row that is named twice gets elements of
        either result.
    permuted : bool
        Whether out has two dimensions for its rows and two for its columns: (m1, m0, n1, n0), of any
        strides, with m = m1 m0 and n = n1 n0. Those of a batch come before.
    check_indices : bool
        Whether every call looks at all indices before the launch, and refuses those that are out of range and
        rows that scatter_d names twice. Without it, indices on a GPU are not looked at; those on the host
        must be in range.
    epilogue : epilogue with its operands, optional
        As in `matmul`, after alpha, factors and beta c. Its operands lie as c does. Of lists, an operand is
        one for all products, or a list with one for each.
    invariant : bool, optional
        As in `matmul`: rows of the result.
    mode : {"gemm", "batched", "array"}, optional
        What a, b, c, out and the result are: matrices, stacks of matrices, or lists (of arrays, or Pointers).
        Without it the arguments say so; with it they are held to it.
    kernel : str, int or Kernel, optional
        A kernel's name or a rung's number, in place of the planner's choice. `lapidist kernels` lists them.
    config : Config, optional
        The knobs of that kernel.
    schedule : {"auto", "data_parallel", "stream_k"} or Schedule
        How blocks share the work.
    split_k : int or "auto"
        Into how many parts k is cut.
    reduction : {"turnstile", "cluster", "separate", "atomic"}, optional
        How the partial sums of a shared tile are brought together.
    deterministic : bool
        Whether equal calls must give equal bits.
    avail_sms : int, optional
        How many of the chip's SMs to plan for; without it, all.
    workspace : array, optional
        At least `plan(...).workspace_bytes` of zeros, fit for the next call with the same plan.
    stream, device, compile
        As in `matmul`; with a `workspace` the call waits, as its plan has that room.

    Returns
    -------
    array, or list of arrays
        `out`, or a new one.

    Raises
    ------
    LapidistError
        Of arguments that do not fit, before anything runs; no array was changed.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a, b, c = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2))
    >>> lapidist.gemm(a, b, c, alpha=2.0, beta=10.0, trans_b=True)
    array([[12., 16.],
           [14., 18.]])
    """
    types, result = USUAL_TYPES, None
    if (out_dtype is not None or acc_dtype is not None) or (promote is not None or precision is not IEEE):
        types = types_named(out_dtype, acc_dtype, precision, promote)
    if invariant is not None or OPEN_BLOCKS:
        types = types_named(out_dtype, acc_dtype, precision, promote, is_invariant(invariant))
    if (
        (mode is None and kernel is None and config is None and workspace is None and device is None)
        and (reduction is None and avail_sms is None and compile is None and permuted is False)
        and (check_indices is False and schedule is AUTO and split_k is AUTO and deterministic is True)
        and (trans_a.__class__ is trans_b.__class__ is bool and not unknown)
    ):
        if (
            (scale_a is None and scale_b is None and gather_a is None and gather_b is None)
            and (scatter_d is None and epilogue is None)
            and (alpha.__class__ in NUMBERS and beta.__class__ in NUMBERS)
        ):
            result = gemm_fast_path(a, b, c, out, alpha, beta, trans_a, trans_b, types, stream)
        elif ARRAY_PATHS:
            return repeated_by_name(locals())
    return multiplied_by_name(locals()) if result is None else result


# The default objects themselves: a comparison by identity then tells that a caller gave no alpha or beta.
DEFAULT_ALPHA, DEFAULT_BETA = ((gemm.__kwdefaults__ or {})[name] for name in ("alpha", "beta"))
UNSCALED, UNSCALED_KEY = (DEFAULT_ALPHA, DEFAULT_BETA), scalars_key(DEFAULT_ALPHA, DEFAULT_BETA)
# the last alpha and beta that were given, the pair of them, and its part of the key
_last_numbers = DEFAULT_ALPHA, DEFAULT_BETA, UNSCALED, UNSCALED_KEY


def gemm_fast_path(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    alpha: Any,
    beta: Any,
    trans_a: Any,
    trans_b: Any,
    types: Types,
    stream: Any,
) -> Any:
    """The fast path of gemm, of numbers and bools alone. None: the full path must check the call."""
    global _last_numbers
    if type(a) is type(b) is np.ndarray:
        usual = types is USUAL_TYPES and stream is None
        return gemm_at_once(a, b, c, out, (alpha, beta, trans_a, trans_b)) if usual else None
    if alpha is DEFAULT_ALPHA and beta is DEFAULT_BETA:
        scalars, numbers = UNSCALED, UNSCALED_KEY
    else:
        last_alpha, last_beta, scalars, numbers = _last_numbers
        if alpha is not last_alpha or beta is not last_beta:
            scalars, numbers = (alpha, beta), scalars_key(alpha, beta)
            _last_numbers = alpha, beta, scalars, numbers
    key = key_of_gemm(a, b, c, out, trans_a, trans_b, numbers, types)
    try:
        fast_path = MATRIX_PATHS.get(key)
    except TypeError:  # likewise
        return None
    if fast_path is not None:
        return fast_path(a, b, c, out, scalars, stream)
    if c is not None or out is not None or trans_a or scalars is not UNSCALED or not ROWS:
        return None
    return planned_products().of_new_rows(a, b, key_of_rows(a, b, trans_b, types), key, stream)


def gemm_lists(a: Any, b: Any, c: Any = None, *, out: Any = None, **more: Any) -> Any:
    """`gemm` in its array mode: out[i] = alpha op(a[i]) op(b[i]) + beta c[i].

    Parameters
    ----------
    a, b, c, out : lists of arrays, or Pointers
        Matrices of one type. Products of one shape and layout go together in a launch.
    more
        What `gemm` takes else.

    Returns
    -------
    list of arrays

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> results = lapidist.gemm_lists([np.eye(2), 2 * np.eye(2)], [np.ones((2, 2))] * 2)
    >>> [float(result[0, 0]) for result in results]
    [1.0, 2.0]
    """
    return gemm(a, b, c, out=out, mode="array", **more)
