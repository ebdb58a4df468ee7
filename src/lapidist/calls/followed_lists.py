"""Lists of products with an epilogue, or whose rows keep their bits. Each product is a launch of its own,
with its own operands and results. All are checked before the first launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lapidist.backends.selection import choose_place
from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.bound_lists import (
    MATRICES,
    bound_products,
    require_as_many,
    require_lists,
    require_matrices,
    require_one_place,
    require_one_type,
)
from lapidist.calls.call import Call
from lapidist.calls.destination import backend_for, multiply_on_host, require_choices
from lapidist.calls.executable import Gemm
from lapidist.calls.list_overlap import require_disjoint_calls
from lapidist.calls.lists import ArrayGemm
from lapidist.calls.operation import Operation
from lapidist.calls.repeat import ARRAY_PATHS, remember
from lapidist.calls.repeat.shape import extra_values, key_with_arrays
from lapidist.errors import ArgumentError, ShapeError, explained
from lapidist.frameworks.arrays import HOST
from lapidist.frameworks.streams import require_stream

if TYPE_CHECKING:
    from lapidist.calls.prepared import Prepared
    from lapidist.epilogues.steps import Function

Matrices = tuple[Any, Any, Any, Any]  # a, b, c and out of one product
OfComplex = Callable[[Any, Bound, Call], Any]


class SuccessiveGemm(ArrayGemm):
    """Products one after another. The operands of an epilogue belong to the plan."""

    def __init__(self, call: Call, of_complex: Callable[[Bound, Call], Any]) -> None:
        """`of_complex`: how products of complex numbers are planned."""
        calls, workspace = calls_of(call), call.choices.workspace
        every = checked_together(calls, lists_in(call.operation, call.out))
        place = choose_place(every[0].a.device, call.choices.device)
        if every[0].is_of_halves:
            from lapidist.calls.complex_halves import require_kernels

            for bound in every:
                require_kernels(bound, place)
        if every[0].takes_complex and place != HOST:
            products = [of_complex(bound, each) for bound, each in zip(every, calls, strict=True)]
        else:
            products = [Gemm(bound, call.choices) for bound in every]
        self._products = products
        super().__init__(every[0].problem(), place)
        self._operation = call.operation
        self._workspace = None if workspace is None else argument_rules.workspace_of(workspace)
        self.plans = [product.plan for product in self._products if product.plan is not None]

    @property
    def workspace_bytes(self) -> int:
        return max(product.workspace_bytes for product in self._products)

    def __str__(self) -> str:
        count, first = len(self._products), self._products[0]
        return f"{count} products of lists, one after another; the first one is\n{first}"

    def execute(self, a: Any, b: Any, c: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        function = function_of(self._operation)
        operands_of = matrices_of(a, b, c, out, function)
        count = len(self._products)
        if len(operands_of) != count:
            raise ShapeError(
                f"a: must have as many arrays as were planned, {count}; got {len(operands_of)}. Make"
                " a new plan"
            )
        if out is None:  # if a later product fails, earlier ones have only written new arrays
            results = []
            for product, matrices in zip(self._products, operands_of, strict=True):
                result = product.execute_repeated(*matrices, stream)
                if result is None:
                    break
                results.append(result)
            else:
                return side_by_side(results, function)
        products = zip(self._products, operands_of, strict=True)
        binds = [partial(product.checked, *matrices) for product, matrices in products]
        every = bound_products(binds, lists_in(self._operation, out))
        require_disjoint_results(every, self._workspace)
        require_stream(stream)
        launches = zip(self._products, every, operands_of, strict=True)
        return side_by_side(
            [product.run_checked(x, *operands, stream) for product, x, operands in launches], function
        )


@explained
def multiplied(call: Call, of_complex: OfComplex) -> Any:
    """The products of a call whose operands are lists. `of_complex`: how complex numbers are multiplied."""
    call = call.of_lists()
    function = function_of(call.operation)
    if call.of_none:
        return side_by_side([], function)
    calls = calls_of(call)
    results = repeated_unchecked(calls) if call.out is None else None
    if results is None:
        every = checked_together(calls, lists_in(call.operation, call.out))
        results = checked_and_run(calls, every, of_complex)
    return side_by_side(results, function)


# ---- what each product is given ----


def function_of(operation: Operation) -> Function | None:
    return None if operation.epilogue is None else operation.epilogue.function


def count_of(function: Function | None) -> int:
    """How many results a product has."""
    return 1 if function is None else len(function.results)


def calls_of(call: Call) -> list[Call]:
    """A Call for each product."""
    epilogue = call.operation.epilogue
    products = matrices_of(call.a, call.b, call.c, call.out, function_of(call.operation))
    if epilogue is None:
        return [replace(call, a=a, b=b, c=c, out=out, mode=None) for a, b, c, out in products]
    lists = {name: value for name, value in epilogue.values.items() if isinstance(value, (list, tuple))}
    for name, values in lists.items():
        if len(values) != len(products):
            raise ShapeError(
                f"{name}: must be one operand for all products, or a list with one for each, {len(products)};"
                f" got a list of {len(values)}. Pass as many as a has arrays"
            )
    calls = []
    for number, (a, b, c, out) in enumerate(products):
        values_of_product = {name: values[number] for name, values in lists.items()}
        followed_by = epilogue._replace(values={**epilogue.values, **values_of_product})
        operation = call.operation._replace(epilogue=followed_by)
        calls.append(replace(call, a=a, b=b, c=c, out=out, operation=operation, mode=None))
    return calls


def lists_in(operation: Operation, out: Any) -> list[str]:
    """The arguments that hold an array for each product."""
    epilogue = operation.epilogue
    values = {} if epilogue is None else epilogue.values
    operands = [name for name, value in values.items() if isinstance(value, (list, tuple))]
    return [*MATRICES, *outputs_of(out, function_of(operation)), *operands]


def matrices_of(a: Any, b: Any, c: Any, out: Any, function: Function | None) -> list[Matrices]:
    outputs = outputs_of(out, function)
    require_lists(a, b, c, outputs)
    lists = {"a": a, "b": b, "c": c, **outputs}
    count = require_as_many({name: len(values) for name, values in lists.items() if values is not None})
    none = [None] * count
    every = [none if array is None else array for array in outputs.values()]
    of_several = none if out is None else list(zip(*every, strict=True))
    outs = every[0] if len(every) == 1 else of_several
    return list(zip(a, b, none if c is None else c, outs, strict=True))


def outputs_of(out: Any, function: Function | None) -> dict[str, Any]:
    """The lists of outputs, by their names in errors."""
    count = count_of(function)
    if function is None or count == 1 or out is None:
        return {"out": out}
    if not isinstance(out, tuple) or len(out) != count:
        got = f"{len(out)} of them" if isinstance(out, tuple) else type(out).__name__
        raise ArgumentError(
            f"out: must be a tuple of {count} lists of arrays, one for each value that {function.name}"
            f" returns; got {got}. Leave it out for new ones"
        )
    return {f"out[{place}]": arrays for place, arrays in enumerate(out)}


def side_by_side(results: Sequence[Any], function: Function | None) -> Any:
    """The list of results; a tuple of lists if a product has several results."""
    count = count_of(function)
    if count == 1:
        return list(results)
    return tuple([products_results[place] for products_results in results] for place in range(count))


# ---- checks and launches ----


def checked_together(calls: Sequence[Call], lists: Sequence[str]) -> list[Bound]:
    """The checked bound of all products, which must have one device and one type. `lists`: the names of
    arguments that hold an array for each product.
    """
    every = bound_products([call.bound for call in calls], lists)
    require_one_place(every)
    require_one_type(every)
    problems = [bound.problem() for bound in every]
    require_matrices(problems)
    require_disjoint_results(every, calls[0].choices.workspace)
    # Two plans divide a workspace differently: one would leave sums where the other has its flags.
    if calls[0].choices.workspace is not None and any(problem != problems[0] for problem in problems):
        raise ArgumentError(
            "workspace: serves lists with an epilogue whose products all have the same shapes, strides and"
            " alignment; these differ. Leave it out"
        )
    return every


def require_disjoint_results(every: Sequence[Bound], workspace: Any) -> None:
    """Outputs that the caller passed must not overlap what other products read or write."""
    results = [operand for bound in every for operand in bound.results]
    if results:
        require_disjoint_calls(every)
    if workspace is not None:
        room = argument_rules.workspace_of(workspace)
        for out in results:
            argument_rules.require_no_overlap(out, room)


def repeated_unchecked(calls: Sequence[Call]) -> list[Any] | None:
    """Each product by the fast path of the one before, or its own. If a later one is refused, earlier ones
    have only written new arrays. None: the full path must check them.
    """
    if calls[0].operation.epilogue is None:
        return None
    results: list[Any] = []
    fast_path = None
    for call in calls:
        arguments = call.a, call.b, call.c, None, extra_values(call.operation), call.stream
        result = None if fast_path is None else fast_path(*arguments)
        if result is None:
            key, before = key_with_arrays(call) if is_of_types(call, calls[0]) else None, fast_path
            fast_path = None if key is None else ARRAY_PATHS.get(key)
            result = None if fast_path is None or fast_path is before else fast_path(*arguments)
        if result is None:
            return None
        results.append(result)
    return results


def is_of_types(call: Call, first: Call) -> bool:
    """Whether two products have one place and one type, as the full path requires."""
    if call is first:
        return True
    pairs = ((call.a, first.a, "device"), (call.a, first.a, "dtype"), (call.b, first.b, "dtype"))
    return all(getattr(x, name, None) == getattr(y, name, None) for x, y, name in pairs)


def checked_and_run(calls: Sequence[Call], every: Sequence[Bound], of_complex: OfComplex) -> list[Any]:
    """Plan all products, launch them, and make the fast paths of the next call."""
    first, stream = calls[0], calls[0].stream
    require_stream(stream)
    if every[0].takes_complex:
        return [of_complex(None, bound, call) for bound, call in zip(every, calls, strict=True)]
    backend = backend_for(every[0], first.choices)
    if not backend.plans:
        require_choices(first.choices, backend)
        return [multiply_on_host(bound) for bound in every]
    from lapidist.calls.planned_products import prepared

    ready = [prepared(bound, first.choices, stream) for bound in every]
    numbers = reversed(range(len(ready)))
    repeated = {id(ready[number]): number for number in numbers if ready[number].was_called}
    for product in ready:
        product.was_called = True
    results = [product.run(bound, stream) for product, bound in zip(ready, every, strict=True)]
    has_path = first.out is None and first.operation.epilogue is not None
    for number in repeated.values() if has_path else ():
        remember_path(ready[number], every[number], calls[number], results[number])
    return results


def remember_path(ready: Prepared, bound: Bound, call: Call, result: Any) -> None:
    """Make the fast path of products like this one."""
    from lapidist.calls.repeat.with_arrays import fast_path_with_arrays

    key = key_with_arrays(call)
    path = None if key is None else fast_path_with_arrays(ready, bound, call, result)
    if path is not None:
        remember(ARRAY_PATHS, key, path)
