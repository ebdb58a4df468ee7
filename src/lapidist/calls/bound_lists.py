"""The checked operands of lists: arrays, or Pointers. Products of one geometry go together in a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from lapidist.calls import argument_rules
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of
from lapidist.calls.list_overlap import require_disjoint_calls
from lapidist.calls.operation import Operation
from lapidist.calls.part import with_alignment
from lapidist.errors import ArgumentError, DTypeError, LapidistError, ShapeError
from lapidist.frameworks.arrays import Operand
from lapidist.frameworks.new_arrays import handed_over
from lapidist.launch import ARRAYS_AT_ONCE
from lapidist.problems.modes import IN_LAUNCH, IN_MEMORY, Modes
from lapidist.problems.pointers import Pointers
from lapidist.problems.problem import GRID_BATCH_LIMIT, Problem

MATRICES = ("a", "b", "c", "out")  # the arguments that are lists, as errors name them


class Bundle(NamedTuple):
    """The products of one geometry, by their numbers in the lists. `problem` is that of one of them."""

    problem: Problem
    numbers: Sequence[int]


class ListLaunch(NamedTuple):
    """`problem`: that of all products of the launch, as a batch. `addresses`: of A, B, C and D of each
    product, or where these addresses start.
    """

    problem: Problem
    numbers: Sequence[int]
    addresses: tuple[int, ...]


def batch_of(a: Any, b: Any, c: Any, out: Any, operation: Operation) -> Listed | Pointed:
    """The checked batch: all lists of arrays or all Pointers, of one length."""
    require_lists(a, b, c, {"out": out})
    return Pointed(a, b, c, out, operation) if isinstance(a, Pointers) else Listed(a, b, c, out, operation)


class Listed:
    """Lists of arrays. Without `out`, new arrays are allocated."""

    at_once = ARRAYS_AT_ONCE
    extras: tuple[Operand, ...] = ()

    def __init__(
        self,
        a: Sequence[Any],
        b: Sequence[Any],
        c: Sequence[Any] | None,
        out: Sequence[Any] | None,
        operation: Operation,
    ) -> None:
        lists = {"a": a, "b": b, **({"c": c} if c is not None else {})}
        lists |= {"out": out} if out is not None else {}
        require_as_many({name: len(values) for name, values in lists.items()})
        none = [None] * len(a)
        products = zip(a, b, c or none, out or none, strict=True)
        self.calls = bound_products([partial(Bound, *matrices, operation) for matrices in products], MATRICES)
        for call in self.calls:
            if call.out is None:
                call.out = output_of(call)[1]
        self.bundles = bundles_of(self.calls)
        self.like, self.problem = self.calls[0].like, self.bundles[0].problem
        self.scalars = self.calls[0].alpha_beta
        self.no_kernel, self._is_new = self.calls[0].no_kernel, not out
        if out:
            require_disjoint_calls(self.calls)

    @property
    def result(self) -> list[Any]:
        written = [call.deliver(call.out.owner) for call in self.calls if call.out is not None]
        return [handed_over(array, self.like) for array in written] if self._is_new else written

    @cached_property
    def launches(self) -> list[ListLaunch]:
        """Each bundle's launches. Lists of addresses are padded to their full length."""
        return [
            self._launch(problem, numbers[start : start + self.at_once])
            for problem, numbers in self.bundles
            for start in range(0, len(numbers), self.at_once)
        ]

    def _launch(self, problem: Problem, numbers: Sequence[int]) -> ListLaunch:
        rows, padding = [], (0,) * (self.at_once - len(numbers))
        for call in map(self.calls.__getitem__, numbers):
            assert call.out is not None
            factors = (call.b, call.a) if problem.transposed else (call.a, call.b)
            rows.append(
                [*(operand.pointer for operand in factors), (call.c or call.out).pointer, call.out.pointer]
            )
        addresses = tuple(address for column in zip(*rows, strict=True) for address in (*column, *padding))
        return ListLaunch(in_a_batch(problem, len(numbers)), numbers, addresses)

    def calls_of(self, launch: ListLaunch) -> Sequence[Bound]:
        return [self.calls[number] for number in launch.numbers]

    def on_host(self) -> None:
        for call in self.calls:
            assert call.out is not None
            call.multiply_on_host(call.out)


class Pointed:
    """Pointers. Their checks and problem come from a Bound of matrices that stand for one product."""

    at_once = GRID_BATCH_LIMIT

    def __init__(
        self, a: Pointers, b: Pointers, c: Pointers | None, out: Pointers | None, operation: Operation
    ) -> None:
        if out is None:
            raise ArgumentError(
                "out: must be given where matrices are given by their addresses; got None. Pass Pointers to"
                " write to"
            )
        self._pointers, self._operation, self.result = (
            (a, b, c if operation.beta else None, out),
            operation,
            out,
        )
        arguments = {
            name: matrix for name, matrix in zip(MATRICES, self._pointers, strict=True) if matrix is not None
        }
        if operation.routing.check_indices:
            for name, matrix in arguments.items():
                matrix.check(name)
        self._lists = {name: matrix.list_of(name) for name, matrix in arguments.items()}
        count = require_as_many({name: matrix.shape[0] for name, matrix in self._lists.items()})
        self.like = self._lists["a"]
        matrices = {
            name: matrix.matrix(name, number) for number, (name, matrix) in enumerate(arguments.items(), 1)
        }
        if c is out and "c" in matrices:
            matrices["c"] = matrices["out"]
        call = Bound(matrices["a"], matrices["b"], matrices.get("c"), matrices["out"], operation)
        self.stand_in, self.count = call, count
        self.problem = replace(call.problem(), modes=Modes(arrays=IN_MEMORY))
        self.bundles = [Bundle(self.problem, range(count))]
        self.no_kernel, self.scalars = call.no_kernel, call.alpha_beta

    @property
    def extras(self) -> tuple[Operand, ...]:
        """The arrays of addresses, which the kernel reads."""
        return tuple(self._lists.values())

    @cached_property
    def launches(self) -> list[ListLaunch]:
        ((problem, numbers),) = self.bundles
        a, b, out = (self._lists[name] for name in ("a", "b", "out"))
        first, second = (b, a) if problem.transposed else (a, b)
        lists = first, second, self._lists.get("c", out), out
        parts = [numbers[start : start + self.at_once] for start in range(0, len(numbers), self.at_once)]
        return [
            ListLaunch(in_a_batch(problem, len(part)), part, tuple(x.pointer + 8 * part[0] for x in lists))
            for part in parts
        ]

    def calls_of(self, launch: ListLaunch) -> Sequence[Bound]:
        """The matrices at the addresses, where these lie in host memory."""
        numbers = launch.numbers
        a, b, c, out = (
            None if x is None else x.on_host(name)[numbers[0] : numbers[-1] + 1]
            for name, x in zip(MATRICES, self._pointers, strict=True)
        )
        assert a is not None
        assert b is not None
        return Listed(a, b, c, out, self._operation).calls

    def on_host(self) -> None:
        for launch in self.launches:
            for call in self.calls_of(launch):
                assert call.out is not None
                call.multiply_on_host(call.out)


def in_a_batch(problem: Problem, count: int) -> Problem:
    return problem.with_batch((count,), [(0,)] * len(problem.matrices()))


def bundles_of(calls: Sequence[Bound]) -> list[Bundle]:
    """The products of each geometry, with the alignment that all of them have."""
    require_one_place(calls)
    require_one_type(calls)
    problems = [call.problem() for call in calls]
    require_matrices(problems)
    numbers_by_geometry: dict[Problem, list[int]] = {}
    for number, problem in enumerate(problems):
        numbers_by_geometry.setdefault(problem.unaligned(), []).append(number)
    bundles = []
    for numbers in numbers_by_geometry.values():
        bits = min(matrix.alignment for number in numbers for matrix in problems[number].matrices())
        common = with_alignment(problems[numbers[0]], bits)
        bundles.append(Bundle(replace(common, modes=Modes(arrays=IN_LAUNCH)), numbers))
    return bundles


# ---- rules ----


def require_lists(a: Any, b: Any, c: Any, outputs: dict[str, Any]) -> None:
    """Either all are lists or all are Pointers."""
    arguments = {"a": a, "b": b, "c": c, **outputs}
    for name, values in arguments.items():
        require_list_of_arrays(name, values)
    kind, words = (Pointers, "Pointers") if isinstance(a, Pointers) else ((list, tuple), "a list of arrays")
    for name, values in arguments.items():
        if (values is not None or name == "b") and not isinstance(values, kind):
            raise ArgumentError(
                f"{name}: must be {words}, as a is; got {type(values).__name__}. Pass one for each"
                " product, [b, b] say, or call gemm for one product"
            )


def require_list_of_arrays(name: str, values: Any) -> None:
    """A nested list of numbers is one array to NumPy, so it is not taken for a list of matrices."""
    first = values[0] if isinstance(values, (list, tuple)) and values else None
    if isinstance(first, (int, float, complex, list, tuple)):
        raise ArgumentError(
            f"{name}: gemm takes a list for a batch of matrices, each an array; got a list of"
            f" {type(first).__name__}s. Make one array of it with numpy.asarray; sizes"
            " alone are planned by `lapidist plan --mnk`"
        )


def require_as_many(counts: dict[str, int]) -> int:
    for name, count in counts.items():
        if count != counts["a"]:
            raise ShapeError(
                f"{name}: must have as many arrays as a, {counts['a']}; got {count}. Pass one for each"
                " product"
            )
    return counts["a"]


def bound_products(binds: Sequence[Callable[[], Bound]], lists: Sequence[str]) -> list[Bound]:
    """All products, checked. Errors say the number of the product, as an index where the argument is one of
    the `lists`.
    """
    bound: list[Bound] = []
    for bind in binds:
        try:
            bound.append(bind())
        except LapidistError as error:
            names, number = str(error).partition(":")[0].split(", "), len(bound)
            numbered = [f"{name}[{number}]" if name in lists else name for name in names]
            if number and numbered == names:
                numbered.append(f"product {number}")
            error.args = (str(error).replace(", ".join(names), ", ".join(numbered), 1),)
            raise
    return bound


def require_one_place(calls: Sequence[Bound]) -> None:
    """All products lie where the first one does. Each call was checked by itself."""
    first = replace(calls[0].a, name="a[0]")
    for number, call in enumerate(calls):
        argument_rules.require_same_device(replace(call.a, name=f"a[{number}]"), first)


def require_one_type(calls: Sequence[Bound]) -> None:
    """All products are of the first one's types."""
    types = [f"{call.a.dtype} x {call.b.dtype} to {call.d_dtype}" for call in calls]
    for number, words in enumerate(types):
        if words != types[0]:
            raise DTypeError(
                f"a[{number}], b[{number}], out[{number}]: must have the types of product 0, {types[0]}; got"
                f" {words}. Convert them, or call gemm for the products of each type"
            )


def require_matrices(problems: Sequence[Problem]) -> None:
    for number, problem in enumerate(problems):
        if problem.batch:
            raise ShapeError(
                f"a[{number}], b[{number}]: lists are of matrices; got batches of {problem.batch}. Call gemm"
                " for each of them"
            )
