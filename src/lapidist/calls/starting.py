"""How repeated calls with arrays beside their matrices are launched, once nothing but addresses and numbers
is new: straight into a kernel's parameters, or through what was prepared, where launches are several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.backends.gpu.launcher import Operands, Scalars, Written
from lapidist.backends.gpu.passes import Left, room_for, start_pass
from lapidist.backends.gpu.workspaces import in_a_row
from lapidist.frameworks.arrays import Operand
from lapidist.planning.before_passes import EVERY, Before, made_before
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.fused import FusedOperands
    from lapidist.calls.prepared import Prepared

UNSIGNED = (1 << 64) - 1
D = 2  # place among the tensors of a call, which begin with A and B
MEMBERS = 5  # words of an epilogue's operand, the first of which is its address or number


class Starting(NamedTuple):
    """`bring`, given addresses of all tensors and the numbers of an epilogue: what `start` takes as the last
    of (addresses of A, B, C and D, alpha and beta, stream, what is brought). `of_d`: whether D's address is a
    part of that."""

    bring: Callable[[Sequence[int], Sequence[float]], Any]
    start: Callable[[Operands, Scalars, int, Any], None]
    of_d: bool


class Sources(NamedTuple):
    """Which tensor each address is of, by its place in a call; 0: of none. `fused`: of an epilogue's
    operands; None where it is a number."""

    pointers: ExtraPointers
    fused: tuple[int | None, ...]


def started_through(
    ready: Prepared, fused: FusedOperands | None, sources: Sources, actual: ExtraPointers, further: int
) -> Starting:
    """`actual`: the addresses of the call that was checked; `further`: results beside D."""
    if fused is not None and fused.passes():
        return followed(ready, Following(fused, ready.like.device), sources, further)
    if ready.kernel is None or any(ready.parts[0].skipped[:4]):
        return Starting(lambda at, numbers: filled(sources, at, numbers), through(ready), D in sources.fused)
    return straight(ready, sources, actual)


def filled(sources: Sources, at: Sequence[int], numbers: Sequence[float], left: Any = ()) -> ExtraPointers:
    """With addresses and numbers; `left`: where second passes find what they read."""
    others, more = iter(numbers), (0, *at[1:])
    own = [next(others) if place is None else more[place] for place in sources.fused]
    return ExtraPointers._make((*[more[place] for place in sources.pointers[:-1]], (*own, *left)))


def through(ready: Prepared) -> Callable[[Operands, Scalars, int, Any], None]:
    def start(operands: Operands, scalars: Scalars, stream: int, brought: ExtraPointers) -> None:
        ready.start(*operands, scalars, stream, brought)

    return start


# ---- straight into the parameters ----


def straight(ready: Prepared, sources: Sources, actual: ExtraPointers) -> Starting:
    """Of a call of one launch. Where each address goes is found once; what else is there, such as strides,
    is written when a thread first launches it."""
    plan, kernel, skipped = ready.parts[0]
    assert kernel is not None
    patches, fused = kernel.launch.patches, plan.problem.fused
    constant = plan.brought(actual, skipped[4:])
    addressed: list[tuple[int, int, int]] = []  # of a word, of a tensor, bytes from its address
    for name, of_tensors in sources.pointers.values(plan.problem.transposed).items():
        if name in patches:
            first = patches[name].offset // 8
            addressed += [(first + member, place, 0) for member, place in enumerate(of_tensors) if place]
    of_numbers: list[tuple[int, Any]] = []  # of a word, what makes one of a number
    if fused is not None and "epilogue" in constant and "epilogue" in patches:
        first, words = patches["epilogue"].offset // 8, constant["epilogue"]
        for number, (fed, place) in enumerate(zip(fused.operands, sources.fused, strict=True)):
            word = MEMBERS * number
            if place is None:
                of_numbers.append((first + word, fed.bits))
            elif place:
                addressed.append((first + word, place, words[word] - actual.fused[number]))
    swap, start = plan.problem.transposed, kernel.start_beside

    def bring(at: Sequence[int], numbers: Sequence[float]) -> Written:
        words = [(word, at[place] + ahead) for word, place, ahead in addressed]
        if of_numbers:
            pairs = zip(of_numbers, numbers, strict=True)
            words += [(word, bits(number) & UNSIGNED) for (word, bits), number in pairs]
        return Written(constant, words)

    def start_exchanged(operands: Operands, scalars: Scalars, stream: int, written: Written) -> None:
        a, b, c, d = operands
        start((b, a, c, d), scalars, stream, written)

    return Starting(bring, start_exchanged if swap else start, D in sources.fused)


# ---- with second passes ----


class Following:
    """Second passes of a call, as far as they do not change; results are known by their places."""

    def __init__(self, fused: FusedOperands, ordinal: int) -> None:
        self.left, self.ordinal = {before: Left.of(fused, before) for before in EVERY}, ordinal
        read = [*fused.sources, *fused.slots]
        self.passes = {
            before: [
                (
                    each,
                    place_of(values, read),
                    place_of(stored[0], fused.written),
                    place_of(stored[-1], fused.written),
                )
                for each, values, stored in fused.passes(before)
            ]
            for before in EVERY
        }
        self.known = [each.pointer for each in read]

    def start(
        self, launch: Callable[[Sequence[int]], None], results: Sequence[int], stream: int, before: Before
    ) -> None:
        """The product by `launch`, given where it leaves what they read; then all of them."""
        with in_a_row():
            placed = room_for(self.left[before], self.ordinal, stream)
            left = [*placed.values, *placed.slots]
            launch(left)
            for each, values, first, last in self.passes[before]:
                ends = results[first], results[last]
                start_pass(each, left[values], ends, placed.room, self.ordinal, stream)


def place_of(operand: Operand, among: Sequence[Operand]) -> int:
    return next(place for place, each in enumerate(among) if each is operand)


def followed(ready: Prepared, following: Following, sources: Sources, further: int) -> Starting:
    def bring(at: Sequence[int], numbers: Sequence[float]) -> tuple[ExtraPointers, list[int]]:
        return filled(sources, at, numbers), [at[D], *at[len(at) - further :]]

    def start(operands: Operands, scalars: Scalars, stream: int, brought: Any) -> None:
        (pointers, results), parts = brought, ready.parts

        def launch(left: Sequence[int]) -> None:
            more = pointers._replace(fused=(*pointers.fused, *left))
            ready.start(*operands, scalars, stream, more, parts)

        following.start(launch, results, stream, made_before(part.plan for part in parts))

    return Starting(bring, start, True)
