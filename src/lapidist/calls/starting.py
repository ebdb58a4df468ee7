"""How repeated calls with arrays beside their matrices are launched, once nothing but addresses and numbers
is new. They go straight into kernels' parameters, or through what was prepared where a product takes several
launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.backends.gpu.launcher import AS_IT_IS, Operands, Scalars, Start, Written
from lapidist.backends.gpu.passes import Left, PassLaunch, Rooms, kernels_of
from lapidist.backends.gpu.workspaces import Room
from lapidist.frameworks.arrays import Operand
from lapidist.planning.before_passes import Before, made_before
from lapidist.planning.second_passes import RESULT, VALUES
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.fused import FusedOperands
    from lapidist.calls.prepared import Part, Prepared

UNSIGNED = (1 << 64) - 1
D = 2  # place among the tensors of a call, which begin with A and B
MEMBERS = 5  # words of an epilogue's operand, the first of which is its address or number


class Starting(NamedTuple):
    """`bring` is given addresses of all tensors and the numbers of an epilogue. It makes the last that
    `start` takes, after addresses of A, B, C and D, alpha and beta, and a stream. `of_d`: whether D's
    address is a part of that."""

    bring: Callable[[Sequence[int], Sequence[float]], Any]
    start: Callable[[Operands, Scalars, int, Any], None]
    of_d: bool


class Sources(NamedTuple):
    """Which tensor each address is of, by its place in a call; 0: of none. `fused`: of an epilogue's
    operands; None where it is a number. `further`: results beside D, which are the last tensors."""

    pointers: ExtraPointers
    fused: tuple[int | None, ...]
    further: int


def started_through(
    ready: Prepared, fused: FusedOperands | None, sources: Sources, actual: ExtraPointers, tensors: int
) -> Starting:
    """`actual`: the addresses of the call that was checked; `tensors`: of how many."""
    if fused is not None and fused.passes():
        return followed(ready, fused, sources, actual, tensors)
    return launched(ready, ready.parts, sources, actual)


def launched(
    ready: Prepared, parts: list[Part], sources: Sources, actual: ExtraPointers, *own: list[Part]
) -> Starting:
    """`own`: those to launch, where they must stay."""
    if len(parts) == 1 and parts[0].kernel is not None and not any(parts[0].skipped[:4]):
        return straight(parts[0], sources, actual)

    def bring(at: Sequence[int], numbers: Sequence[float]) -> ExtraPointers:
        return filled(sources, at, numbers)

    def start(operands: Operands, scalars: Scalars, stream: int, brought: ExtraPointers) -> None:
        ready.start(*operands, scalars, stream, brought, *own)

    return Starting(bring, start, D in sources.fused)


def filled(sources: Sources, at: Sequence[int], numbers: Sequence[float], left: Any = ()) -> ExtraPointers:
    """With addresses and numbers; `left`: where second passes find what they read."""
    others, more = iter(numbers), (0, *at[1:])
    own = [next(others) if place is None else more[place] for place in sources.fused]
    return ExtraPointers._make((*[more[place] for place in sources.pointers[:-1]], (*own, *left)))


# ---- straight into the parameters ----


def straight(part: Part, sources: Sources, actual: ExtraPointers) -> Starting:
    """Of a call of one launch. Where each address goes is found once; what else is there, such as strides,
    is written when a thread first launches it."""
    plan, kernel, skipped = part
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
    swap, start = plan.problem.transposed, kernel.kept_start()

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


class Brought:
    """What is launched at some addresses. `placed`: the same with the room of the last call. Another thread
    may replace it: each goes on with the one that it made itself."""

    __slots__ = ("at", "numbers", "placed")

    def __init__(self, at: Sequence[int], numbers: Sequence[float]) -> None:
        self.at, self.numbers = at, numbers
        self.placed: tuple[Room, Any, list[PassLaunch]] | None = None


class PassStep(NamedTuple):
    """One launch of a second pass: places of what it reads, of its last result, of what it writes. They count
    what a product leaves, the room between steps, and results, in that order."""

    start: Start
    reads: int
    last: int
    writes: int


def followed(
    ready: Prepared, fused: FusedOperands, sources: Sources, actual: ExtraPointers, tensors: int
) -> Starting:
    """The product as other calls have it, then all passes. What it leaves them stands behind all tensors."""
    parts, ordinal = ready.parts, ready.like.device  # at once: others may come to take their place
    before = made_before(part.plan for part in parts)
    left, read = Left.of(fused, before), len(fused.sources + fused.slots)
    steps, between = steps_after(fused, before, ordinal)
    among_all = sources._replace(fused=(*sources.fused, *range(tensors, tensors + read)))
    product = launched(ready, parts, among_all, actual, parts)
    if left.is_none and not steps:  # the product makes it all, and writes nothing there
        nowhere = (0,) * read
        return Starting(lambda at, numbers: product.bring((*at, *nowhere), numbers), product.start, True)
    rooms, further = Rooms(left, ordinal), tensors - sources.further
    free, another, start_product, bring_product = rooms.free, rooms.another, product.start, product.bring
    last: tuple[Any, tuple[int, ...], tuple[int, ...]] = None, (), ()  # a room, and what is where in it

    def placed_in(room: Room, brought: Brought) -> tuple[Room, Any, list[PassLaunch]]:
        nonlocal last
        of_room, addresses, lying = last
        if of_room is not room:
            values, slots, first = left.placed(room)
            addresses = (*values, *slots)
            lying = (*addresses, *[first + place for place in between])
            last = room, addresses, lying
        at = brought.at
        at_all = (*lying, at[D], *at[further:])
        launches = [
            (start, (at_all[reads], at_all[result], 0, at_all[writes]))
            for start, reads, result, writes in steps
        ]
        return room, bring_product((*at, *addresses), brought.numbers), launches

    def start(operands: Operands, scalars: Scalars, stream: int, brought: Brought) -> None:
        of_stream = free(stream)
        try:
            room = of_stream.pop()
        except IndexError:
            room = another()
        placed = brought.placed
        if placed is None or placed[0] is not room:
            placed = brought.placed = placed_in(room, brought)
        start_product(operands, scalars, stream, placed[1])
        for launch, of_pass in placed[2]:
            launch(of_pass, AS_IT_IS, stream)
        of_stream.append(room)

    return Starting(Brought, start, True)


def steps_after(fused: FusedOperands, before: Before, ordinal: int) -> tuple[list[PassStep], list[int]]:
    """And what lies in the room between steps: so many bytes into it."""
    read, written = [*fused.sources, *fused.slots], fused.written
    every = [(values, stored, kernels_of(each, ordinal)) for each, values, stored in fused.passes(before)]
    between = sorted({place for *_, steps in every for step in steps for place in step[1:] if place >= 0})
    steps = []
    for values, stored, kernels in every:
        results = len(read) + len(between)
        first, last = (results + place_of(each, written) for each in (stored[0], stored[-1]))
        known = {place: len(read) + number for number, place in enumerate(between)}
        known |= {VALUES: place_of(values, read), RESULT: first}
        for kernel, reads, writes in kernels:
            steps.append(PassStep(kernel.kept_start(), known[reads], last, known[writes]))
    return steps, between


def place_of(operand: Operand, among: Sequence[Operand]) -> int:
    return next(place for place, each in enumerate(among) if each is operand)
