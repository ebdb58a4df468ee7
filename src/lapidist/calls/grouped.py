"""grouped: many products of one shape but for one extent, whose lengths lie in device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lapidist.calls.call import Call, FewBits
from lapidist.calls.full_path import multiplied, with_arrays
from lapidist.calls.kernel_choice import OPEN, Choices, checked
from lapidist.calls.operation import (
    OPEN_BLOCKS,
    USUAL_TYPES,
    Factors,
    Groups,
    Operation,
    Routing,
    epilogue_checked,
    is_invariant,
    types_named,
)
from lapidist.calls.repeat import ARRAY_PATHS
from lapidist.dtypes import IEEE, Precision
from lapidist.errors import explained, not_in_graphs

if TYPE_CHECKING:
    from lapidist.build.compile_policy import Compiling
    from lapidist.config import Config
    from lapidist.kernels.kernel import Kernel

Array = TypeVar("Array")


@not_in_graphs("grouped")
def grouped(
    a: Array,
    b: Any,
    offsets: Any = None,
    c: Any = None,
    *,
    counts: Any = None,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    out: Any = None,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    acc_dtype: Any = None,
    precision: Precision = "ieee",
    scale_a: Any = None,
    scale_b: Any = None,
    promote: bool | None = None,
    gather_a: Any = None,
    scatter_d: Any = None,
    epilogue: Any = None,
    invariant: bool | None = None,
    expected_rows: int | None = None,
    check_offsets: bool = False,
    kernel: str | int | Kernel | None = None,
    config: Config | None = None,
    stream: Any = None,
    device: int | str | None = None,
    compile: Compiling | None = None,
    **unknown: NoReturn,
) -> Array:
    """Products of groups, in one launch. Where groups end is read on the device when the kernel runs.

    Parameters
    ----------
    a, b : arrays of one framework
        Their shapes say what the groups share. Rows, as of a layer's experts: a (total, k) and b (groups, k,
        n) give (total, n). Columns: a (groups, m, k) and b (k, total) give (m, total). Or k, as in gradients
        of weights: a (m, total) and b (total, n) give (groups, m, n).
    offsets : array of int32 or int64, optional
        Where each group ends, in rising order: a running sum of lengths. Lengths themselves, if they happen
        to rise, are taken for ends. A group may be empty. What lies behind the last one is neither read nor
        written.
    c : array, optional
        As in `gemm`; with b (total, n), beta = 1 adds to gradients.
    counts : array of int32 or int64, optional
        In place of offsets, for a (groups, most, k): how many rows of each matrix there are.
    alpha, beta, out, trans_a, trans_b, out_dtype, acc_dtype, precision, scale_a, scale_b, promote
        As in `gemm`. Factors of a group's own matrix stand behind its number: scale_b (groups, n), say.
        With counts, scale_a may be (groups, most). Of gathered rows, it has those of a as it lies.
    gather_a, scatter_d : array of the type of offsets, optional
        As in `gemm`: tokens by their indices, in the order of the groups, and rows of out.
    epilogue : epilogue with its operands, optional
        As in `gemm`. Of rows and columns, results are not reduced. An operand for each column may have a row
        for each group.
    invariant : bool, optional
        As in `matmul`. Otherwise blocks may share the k of a tile, so bits depend on the lengths of groups.
    expected_rows : int, optional
        How long most groups are, which helps to choose a kernel. Without it, all are taken as even.
    check_offsets : bool
        Whether to look at the ends, and at indices, first, which waits for the GPU. Without it, ends that
        fall or lie outside give other results, but no access outside of the arrays.
    kernel, config, stream, device, compile
        As in `gemm`.

    Returns
    -------
    array
        `out`, or a new one, in which rows of no group are not set.

    Raises
    ------
    LapidistError
        Of arguments that do not fit, before anything runs; no array was changed.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> tokens, experts = np.ones((5, 2), np.float32), np.float32([[[1], [2]], [[3], [4]]])
    >>> lapidist.grouped(tokens, experts, np.int32([2, 5])).ravel()
    array([3., 3., 7., 7., 7.], dtype=float32)
    """
    if unknown:
        from lapidist.calls.keywords import unexpected

        raise unexpected(grouped, unknown)
    types = USUAL_TYPES
    if (out_dtype is not None or acc_dtype is not None) or (promote is not None or precision is not IEEE):
        types = types_named(out_dtype, acc_dtype, precision, promote)
    if invariant is not None or OPEN_BLOCKS:
        types = types_named(out_dtype, acc_dtype, precision, promote, is_invariant(invariant))
    ends, only_counts = (counts, True) if offsets is None else (offsets, False)
    usual = kernel is None and config is None and device is None and compile is None
    usual = usual and (expected_rows is None or expected_rows.__class__ is int)
    if ARRAY_PATHS and usual and check_offsets is False and (offsets is None or counts is None):
        values = gather_a, None, scatter_d, alpha, beta, scale_a, scale_b, ends
        flags = trans_a, trans_b, False, (only_counts, expected_rows)
        fast_path = with_arrays().repeated_with_arrays
        result = fast_path(ARRAY_PATHS, a, b, c, out, values, epilogue, flags, types, stream)
        if result is not None:
            return result  # type: ignore[no-any-return]
    return grouped_by_name(locals())  # type: ignore[no-any-return]


@explained
def grouped_by_name(arguments: dict[str, Any]) -> Any:
    """The full path of grouped, whose arguments these are."""
    named = arguments
    choices = Choices(**{name: named[name] for name in ("device", "kernel", "config", "compile")})
    operation = Operation(
        trans_a=named["trans_a"],
        trans_b=named["trans_b"],
        alpha=named["alpha"],
        beta=named["beta"],
        types=named["types"],
        routing=Routing(
            named["gather_a"], None, named["scatter_d"], check_indices=named["check_offsets"] is True
        ),
        factors=Factors(named["scale_a"], named["scale_b"]),
        epilogue=epilogue_checked(named["epilogue"]),
        groups=Groups(named["offsets"], named["counts"], named["expected_rows"], named["check_offsets"]),
    )
    if isinstance(named["b"], FewBits):
        return FewBits.grouped(operation, named)
    choices = OPEN if choices == OPEN else checked(choices)
    return multiplied(
        Call(named["a"], named["b"], named["c"], named["out"], operation, choices, named["stream"])
    )
