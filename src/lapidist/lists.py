"""Products of lists of arrays in few launches: BLAS' "array" batches. The arrays lie anywhere, but all in the same way.

Their addresses travel as kernel parameters, 64 products a launch: nothing is allocated or copied, and a graph may capture it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from lapidist import checks
from lapidist.api import require_choices, types_wanted
from lapidist.arguments import Arguments
from lapidist.arrays import HOST, empty, on_host
from lapidist.config import Config
from lapidist.driver import GpuKernel, query_device
from lapidist.errors import ArgumentError, ShapeError
from lapidist.host import multiply
from lapidist.kernel import Kernel
from lapidist.kernels import kernel_named
from lapidist.launch import ARRAYS_AT_ONCE
from lapidist.modes import Modes
from lapidist.plans import Plan, Scratch, make_plan
from lapidist.prepare import MACHINE, choose_place, choose_stream, finish_for, machine_device
from lapidist.problem import Problem
from lapidist.sharing import AUTO, Sharing

KERNELS_KEPT = 256


def gemm_lists(
    a: Sequence[Any],
    b: Sequence[Any],
    c: Sequence[Any] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Sequence[Any] | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: Any = None,
    acc_dtype: Any = None,
    precision: str = "ieee",
    kernel: str | int | Kernel | None = None,
    config: Config | None = None,
    split_k: int | str = AUTO,
    stream: Any = None,
    device: int | str | None = None,
) -> list[Any]:
    """out[i] = alpha op(a[i]) op(b[i]) + beta c[i], for matrices of one shape, one layout and one type. Returns the list."""
    alpha, beta = checks.require_scalar("alpha", alpha), checks.require_scalar("beta", beta)
    require_choices(device, kernel, config)
    count = require_lists(a, b, c, out)
    if not count:
        return []
    wanted, form = types_wanted(out_dtype, acc_dtype, precision), (trans_a, trans_b, False, alpha, beta)
    calls = []
    for i in range(count):
        first = Arguments(a[i], b[i], c[i] if c else None, out[i] if out else None, *form, wanted)
        target = out[i] if out else empty(first.result_shape, first.a, first.out_dtype)
        calls.append(first if out else first.again(a[i], b[i], c[i] if c else None, target))
    place = choose_place(calls[0].a.device, device)
    if place not in (HOST, MACHINE) and calls[0].a.device == HOST:
        raise ArgumentError("device: lists of host arrays are not copied to a GPU. Copy them there first")
    if place == HOST:
        for call in calls:
            on_the_host(call)
    else:
        row = None if kernel is None else kernel_named(kernel)
        in_launches(calls, place, row, config, Sharing(split_k=split_k), stream)
    return [call.out.owner for call in calls if call.out is not None]


def require_lists(a: Sequence[Any], b: Sequence[Any], c: Sequence[Any] | None, out: Sequence[Any] | None) -> int:
    """How many products; all lists must have so many."""
    for name, values in (("a", a), ("b", b), ("c", c), ("out", out)):
        if values is not None and not isinstance(values, (list, tuple)):
            raise ArgumentError(f"{name}: must be a list of arrays; got {type(values).__name__}. Call gemm for one product")
        if values is not None and len(values) != len(a):
            raise ShapeError(f"{name}: must have as many arrays as a, {len(a)}; got {len(values)}. Pass one for each product")
    return len(a)


def common_problem(calls: Sequence[Arguments]) -> Problem:
    """What one product is, with the alignment that all of them have."""
    problems = [call.problem() for call in calls]
    for number, problem in enumerate(problems):
        if problem.unaligned() != problems[0].unaligned():
            raise ShapeError(
                f"a, b, c, out: must have the same shapes, strides and types in each product; number 0 is {problems[0]}, "
                f"number {number} is {problem}. Sort them into lists of their own"
            )
    if problems[0].batch:
        raise ShapeError(f"a, b: lists are of matrices; got batches of {problems[0].batch}. Call gemm for each of them")
    bits = min(matrix.alignment for problem in problems for matrix in problem.matrices())
    first = problems[0]
    a, b, d = (replace(matrix, alignment=bits) for matrix in (first.a, first.b, first.d))
    common = replace(first, a=a, b=b, d=d, c=first.c and replace(first.c, alignment=bits), modes=Modes(arrays=True))
    return replace(common, in_place=all(problem.in_place for problem in problems))


def in_launches(
    calls: Sequence[Arguments], place: int | str, kernel: Kernel | None, config: Config | None, sharing: Sharing, stream: Any
) -> None:
    """64 products at a time."""
    common = common_problem(calls)
    numbers = calls[0].alpha, calls[0].beta
    for start in range(0, len(calls), ARRAYS_AT_ONCE):
        part = calls[start : start + ARRAYS_AT_ONCE]
        problem = common.with_batch((len(part),), [(0,)] * len(common.matrices()))
        addresses = lists_of(part, problem)
        if isinstance(place, int):
            handle = choose_stream(stream, part[0].a.framework, place)
            ready = kernel_for(problem, place, kernel, config, sharing, *numbers)
            if ready is not None:
                ready.start_lists(struct.pack(f"={len(addresses)}Q", *addresses), handle)
            finish_for(part[0].a.framework, handle)
        else:
            plan = make_plan(problem, machine_device(), kernel, config, sharing)
            on_the_machine(plan, part, addresses)


def lists_of(calls: Sequence[Arguments], problem: Problem) -> tuple[int, ...]:
    """Addresses of all A, B, C and D, each list filled up to its full length."""
    rows = []
    for call in calls:
        assert call.out is not None
        factors = (call.b, call.a) if problem.transposed else (call.a, call.b)
        rows.append([*(operand.pointer for operand in factors), (call.c or call.out).pointer, call.out.pointer])
    padding = (0,) * (ARRAYS_AT_ONCE - len(rows))
    return tuple(address for column in zip(*rows, strict=True) for address in (*column, *padding))


@lru_cache(maxsize=KERNELS_KEPT)
def kernel_for(
    problem: Problem, ordinal: int, kernel: Kernel | None, config: Config | None, sharing: Sharing, alpha: float, beta: float
) -> GpuKernel | None:
    """Planned and loaded once; None where there is nothing to compute."""
    plan = make_plan(problem, query_device(ordinal), kernel, config, sharing)
    return None if plan.is_empty else GpuKernel(plan, ordinal, alpha if problem.k else 0.0, beta)


def on_the_machine(plan: Plan, calls: Sequence[Arguments], addresses: tuple[int, ...]) -> None:
    from lapidist import machine

    if plan.is_empty:
        return
    first, scratch = calls[0], Scratch(plan)
    assert first.out is not None
    others = [operand for call in calls[1:] for operand in (call.a, call.b, call.c, call.out) if operand is not None]
    alpha = first.alpha if plan.problem.k else 0.0
    operands = first.a, first.b, first.c, first.out
    launch = plan.launch(*operands, alpha, first.beta, workspace=scratch, extras=tuple(others))
    block = plan.kernel.signature.block(plan.problem)
    content = bytearray(launch.arguments)
    struct.pack_into(f"={len(addresses)}Q", content, block.offsets["lists"], *addresses)
    machine.run(replace(launch, arguments=bytes(content)))
    scratch.require_zero_flags()


def on_the_host(call: Arguments) -> None:
    assert call.out is not None
    c = None if call.c is None else on_host(call.c)
    multiply(on_host(call.a), on_host(call.b), c, on_host(call.out), call.alpha, call.beta, call.accumulator, call.precision)
