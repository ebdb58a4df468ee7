"""plan: what gemm would run, decided once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

from lapidist.backends.selection import choose_place
from lapidist.build.compile_policy import NEVER, WAIT
from lapidist.calls import argument_rules
from lapidist.calls.named_arguments import call_of
from lapidist.config import AUTO
from lapidist.dtypes import Precision
from lapidist.errors import ShapeError, explained, not_in_graphs
from lapidist.frameworks.arrays import HOST
from lapidist.problems.pointers import Pointers

if TYPE_CHECKING:
    from lapidist.calls.bound import Bound
    from lapidist.calls.bound_lists import Pointed
    from lapidist.calls.call import Call, Mode
    from lapidist.calls.complex_plan import ComplexGemm
    from lapidist.calls.executable import Gemm
    from lapidist.calls.lists import ArrayGemm
    from lapidist.config import Config
    from lapidist.frameworks.arrays import HasShape
    from lapidist.kernels.kernel import Kernel
    from lapidist.schedule import Schedule
    from lapidist.schedule.sharing_choice import Reduction, ScheduleName


@not_in_graphs("plan", "lapidist.torch.matmul")
@explained
def plan(
    a: HasShape | list[Any] | tuple[Any, ...] | Pointers,
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
    offsets: Any = None,
    counts: Any = None,
    expected_rows: int | None = None,
    check_offsets: bool = False,
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
    device: int | str | None = None,
    compile: Literal["wait", "never"] | None = None,
    **unknown: NoReturn,
) -> Gemm | ArrayGemm | ComplexGemm:
    """What `gemm` would run on these arrays, decided once.

    Parameters
    ----------
    a, b, c, ...
        Those of `gemm`. The arrays may be any of the geometry that calls will have.
    offsets, counts, expected_rows, check_offsets
        As in `grouped`. The plan keeps the array, and reads it in each run.
    compile : {"wait", "never"}, optional
        What is planned keeps its kernel, so it waits for it, or takes one that is there.

    Returns
    -------
    Gemm, ArrayGemm or ComplexGemm
        Its `execute(a, b, c, out)` runs it again and again; print it for the reasons.

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a, b = np.ones((96, 64), np.float32), np.ones((64, 32), np.float32)
    >>> product = lapidist.plan(a, b, device="machine", kernel="thread_tile")
    >>> product
    <lapidist.Gemm ...thread_tile...>
    >>> float(product.execute(a, b)[0, 0])
    64.0
    """
    if unknown:
        from lapidist.calls.keywords import unexpected

        raise unexpected(plan, unknown)
    argument_rules.require_compile(compile, (WAIT, NEVER))
    return planned(call_of({name: value for name, value in locals().items() if name != "unknown"}))


def planned(call: Call) -> Gemm | ArrayGemm | ComplexGemm:
    """The plan of a call whose choices were checked. A module is imported by the first call that needs it."""
    if call.is_of_lists:
        from lapidist.calls.bound_lists import Pointed, batch_of
        from lapidist.calls.lists import ListGemm

        call = call.of_lists()
        if call.of_none:
            raise ShapeError(
                "a, b: must hold an array each to plan for; got empty lists. Pass those of a call"
            )
        if call.is_successive:
            from lapidist.calls.followed_lists import SuccessiveGemm

            return SuccessiveGemm(call, complex_plan)
        batch = batch_of(call.a, call.b, call.c, call.out, call.operation)
        place = choose_place(batch.like.device, call.choices.device)
        if isinstance(batch, Pointed) and batch.stand_in.is_complex and place != HOST:
            return complex_plan(batch, call)
        return ListGemm(batch, call.operation, call.choices)
    bound = call.bound()
    place = choose_place(bound.a.device, call.choices.device)
    if bound.is_of_halves:
        from lapidist.calls import complex_halves

        complex_halves.require_kernels(bound, place)
    if bound.takes_complex and place != HOST:
        return complex_plan(bound, call)
    from lapidist.calls.executable import Gemm

    return Gemm(bound, call.choices)


def complex_plan(bound: Bound | Pointed, call: Call) -> ComplexGemm:
    from lapidist.calls.complex_plan import ComplexGemm

    return ComplexGemm(bound, call)
