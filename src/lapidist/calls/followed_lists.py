"""Lists of products with an epilogue. Each product is a launch of its own, with its own operands and results.
All are checked before the first launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.call import Call
from lapidist.calls.destination import backend_for, multiply_on_host, require_choices
from lapidist.calls.executable import Gemm
from lapidist.calls.list_overlap import require_calls_apart
from lapidist.calls.lists import ArrayGemm, require_alike, require_as_many, require_lists, require_one_place
from lapidist.calls.operation import Operation
from lapidist.calls.remembered import BESIDE, remember, with_arrays
from lapidist.calls.repeat.shape import beside, key_beside
from lapidist.errors import ArgumentError, ShapeError, explained
from lapidist.frameworks.streams import require_stream

if TYPE_CHECKING:
    from lapidist.epilogues.steps import Function

Matrices = tuple[Any, Any, Any, Any]  # a, b, c and out of one product


class SuccessiveGemm(ArrayGemm):
    """Products with an epilogue, one after another. The epilogue's operands belong to the plan."""

    def __init__(self, call: Call) -> None:
        calls, workspace = calls_of(call), call.choices.workspace
        self._products = [Gemm(bound, call.choices) for bound in checked_together(calls)]
        super().__init__(self._products[0].problem, self._products[0].place)
        self._operation = call.operation
        self._workspace = None if workspace is None else argument_rules.workspace_of(workspace)
        self.plans = [product.plan for product in self._products if product.plan is not None]

    @property
    def workspace_bytes(self) -> int:
        return max(each.workspace_bytes for each in self._products)

    def __str__(self) -> str:
        count, first = len(self._products), self._products[0]
        return f"{count} products of lists, one after another; the first one is\n{first}"

    def execute(self, a: Any, b: Any, c: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        function = function_of(self._operation)
        given = matrices_of(a, b, c, out, function)
        count = len(self._products)
        if len(given) != count:
            raise ShapeError(
                f"a: must have as many arrays as were planned, {count}; got {len(given)}. Make a new plan"
            )
        if out is None:  # if a later product fails, earlier ones have only written new arrays
            found = []
            for each, matrices in zip(self._products, given, strict=True):
                result = each.execute_again(*matrices, stream)
                if result is None:
                    break
                found.append(result)
            else:
                return side_by_side(found, function)
        every = [each.checked(*matrices) for each, matrices in zip(self._products, given, strict=True)]
        require_results_apart(every, self._workspace)
        require_stream(stream)
        launches = zip(self._products, every, given, strict=True)
        return side_by_side([each.run_checked(x, *own, stream) for each, x, own in launches], function)


@explained
def multiplied(call: Call) -> Any:
    """The products of a call whose operands are lists."""
    call = call.of_lists()
    function = function_of(call.operation)
    if call.of_none:
        return side_by_side([], function)
    calls = calls_of(call)
    found = again_without_checks(calls) if call.out is None else None
    if found is None:
        found = checked_and_run(calls, checked_together(calls))
    return side_by_side(found, function)


# ---- what each product is given ----


def function_of(operation: Operation) -> Function:
    assert operation.epilogue is not None
    return operation.epilogue.function


def calls_of(call: Call) -> list[Call]:
    """A Call for each product."""
    given = call.operation.epilogue
    assert given is not None
    each = matrices_of(call.a, call.b, call.c, call.out, given.function)
    lists = {name: value for name, value in given.values.items() if isinstance(value, (list, tuple))}
    for name, values in lists.items():
        if len(values) != len(each):
            raise ShapeError(
                f"{name}: must be one operand for all products, or a list with one for each, {len(each)}; got"
                f" a list of {len(values)}. Pass as many as a has arrays"
            )
    calls = []
    for number, (a, b, c, out) in enumerate(each):
        own = {name: values[number] for name, values in lists.items()}
        followed_by = given._replace(values={**given.values, **own})
        operation = call.operation._replace(epilogue=followed_by)
        calls.append(replace(call, a=a, b=b, c=c, out=out, operation=operation, mode=None))
    return calls


def matrices_of(a: Any, b: Any, c: Any, out: Any, function: Function) -> list[Matrices]:
    outputs = outputs_of(out, function)
    require_lists(a, b, c, outputs)
    given = {"a": a, "b": b, "c": c, **outputs}
    count = require_as_many({name: len(values) for name, values in given.items() if values is not None})
    none = [None] * count
    every = [none if each is None else each for each in outputs.values()]
    of_several = none if out is None else list(zip(*every, strict=True))
    outs = every[0] if len(every) == 1 else of_several
    return list(zip(a, b, none if c is None else c, outs, strict=True))


def outputs_of(out: Any, function: Function) -> dict[str, Any]:
    """The lists of outputs, by their names in errors."""
    count = len(function.results)
    if count == 1 or out is None:
        return {"out": out}
    if not isinstance(out, tuple) or len(out) != count:
        got = f"{len(out)} of them" if isinstance(out, tuple) else type(out).__name__
        raise ArgumentError(
            f"out: must be a tuple of {count} lists of arrays, one for each value that {function.name}"
            f" returns; got {got}. Leave it out for new ones"
        )
    return {f"out[{place}]": each for place, each in enumerate(out)}


def side_by_side(results: Sequence[Any], function: Function) -> Any:
    """The list of results; a tuple of lists if a product has several results."""
    count = len(function.results)
    if count == 1:
        return list(results)
    return tuple([each[place] for each in results] for place in range(count))


# ---- checks and launches ----


def checked_together(calls: Sequence[Call]) -> list[Bound]:
    """The checked bound of all products, which must have one device, geometry and type."""
    every = [call.bound() for call in calls]
    require_one_place(every)
    problems = [bound.problem() for bound in every]
    require_alike([replace(problem, fused=None) for problem in problems])
    require_results_apart(every, calls[0].choices.workspace)
    # Two plans divide a workspace differently: one would leave sums where the other has its flags.
    if calls[0].choices.workspace is not None and any(problem != problems[0] for problem in problems):
        raise ArgumentError(
            "workspace: serves lists with an epilogue whose arrays all have the same strides and alignment;"
            " these differ. Leave it out"
        )
    return every


def require_results_apart(every: Sequence[Bound], workspace: Any) -> None:
    """Outputs that the caller passed must not overlap what other products read or write."""
    given = [operand for bound in every for operand in bound.results]
    if given:
        require_calls_apart(every)
    if workspace is not None:
        room = argument_rules.workspace_of(workspace)
        for out in given:
            argument_rules.require_no_overlap(out, room)


def again_without_checks(calls: Sequence[Call]) -> list[Any] | None:
    """All products by the fast path of the first. If a later one is refused, earlier ones have only written
    new arrays. None: the full path must check them.
    """
    key = key_beside(calls[0])
    again = None if key is None else BESIDE.get(key)
    if again is None:
        return None
    found: list[Any] = []
    for call in calls:
        result = again(call.a, call.b, call.c, None, beside(call.operation), call.stream)
        if result is None:
            return None
        found.append(result)
    return found


def checked_and_run(calls: Sequence[Call], every: Sequence[Bound]) -> list[Any]:
    """Plan all products, launch them, and make the fast path of the next call."""
    first, stream = calls[0], calls[0].stream
    require_stream(stream)
    backend = backend_for(every[0], first.choices)
    if not backend.plans:
        require_choices(first.choices, backend)
        return [multiply_on_host(bound) for bound in every]
    from lapidist.calls.planned_products import prepared

    ready = [prepared(bound, first.choices, stream) for bound in every]
    met, ready[0].met = ready[0].met, True
    found = [each.run(bound, stream) for each, bound in zip(ready, every, strict=True)]
    key = key_beside(first) if met and first.out is None else None
    again = None if key is None else with_arrays().fast_path_beside(ready[0], every[0], first, found[0])
    if again is not None:
        remember(BESIDE, key, again)
    return found
