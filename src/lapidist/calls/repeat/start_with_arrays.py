"""Launches for repeated calls with arrays apart from their matrices, once only addresses and numbers are new.
A single launch writes them straight into kernel parameters; several go through Prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lapidist.backends.gpu.launcher import Start, Written
from lapidist.backends.gpu.second_pass_launches import PassLaunch, PassWorkspace, Rooms, kernels_of
from lapidist.backends.gpu.workspaces import Room
from lapidist.calls.repeat.addresses import D
from lapidist.calls.repeat.start import Starting
from lapidist.frameworks.arrays import Operand
from lapidist.launch import AS_IT_IS, Operands, Scalars
from lapidist.planning.in_kernel_reductions import InKernelWork, in_kernel_work
from lapidist.planning.second_passes import RESULT, VALUES
from lapidist.problems.modes import ExtraPointers

if TYPE_CHECKING:
    from lapidist.calls.epilogue_operands import EpilogueOperands
    from lapidist.calls.prepared import PlannedPart, Prepared

UNSIGNED = (1 << 64) - 1
MEMBERS = 5  # words of an epilogue's operand; the first is its address or number


class Sources(NamedTuple):
    """For each address that a kernel takes, the index of its tensor in the call; 0: none. `fused`: for the
    epilogue's operands; None marks a number. `further`: how many results follow D; they are the last tensors.
    """

    pointers: ExtraPointers
    fused: tuple[int | None, ...]
    further: int


def started_through(
    ready: Prepared, fused: EpilogueOperands | None, sources: Sources, actual: ExtraPointers, tensors: int
) -> Starting:
    """`actual`: the addresses of the checked call; `tensors`: how many it has."""
    if fused is not None and fused.passes():
        return followed(ready, fused, sources, actual, tensors)
    return launched(ready, ready.parts, sources, actual)


def launched(
    ready: Prepared,
    parts: list[PlannedPart],
    sources: Sources,
    actual: ExtraPointers,
    *fixed_parts: list[PlannedPart],
) -> Starting:
    """`fixed_parts`: the parts to launch, if those must not change with `ready`."""
    if len(parts) == 1 and parts[0].kernel is not None and not any(parts[0].skipped[:4]):
        return straight(parts[0], sources, actual)

    def bring(at: Sequence[int], numbers: Sequence[float]) -> ExtraPointers:
        return filled(sources, at, numbers)

    def start(operands: Operands, scalars: Scalars, stream: int, brought: ExtraPointers) -> None:
        ready.start(*operands, scalars, stream, brought, *fixed_parts)

    return Starting(bring, start, D in sources.fused)


def filled(sources: Sources, at: Sequence[int], numbers: Sequence[float], sums: Any = ()) -> ExtraPointers:
    """The addresses and numbers that kernels take. `sums`: addresses of what second passes read."""
    constants, more = iter(numbers), (0, *at[1:])
    operands = [next(constants) if place is None else more[place] for place in sources.fused]
    return ExtraPointers._make((*[more[place] for place in sources.pointers[:-1]], (*operands, *sums)))


# ---- straight into the parameters ----


def straight(part: PlannedPart, sources: Sources, actual: ExtraPointers) -> Starting:
    """A call of one launch. The parameter word of each address is found once. Constant words, such as
    strides, are written when a thread first launches it.
    """
    plan, kernel, skipped = part
    assert kernel is not None
    patches, fused = kernel.launch.patches, plan.problem.fused
    constant = plan.call_parameters(actual, skipped[4:])
    addressed: list[tuple[int, int, int]] = []  # parameter word, index of the tensor, byte offset
    for name, of_tensors in sources.pointers.values(plan.problem.transposed).items():
        if name in patches:
            first = patches[name].offset // 8
            addressed += [(first + member, place, 0) for member, place in enumerate(of_tensors) if place]
    of_numbers: list[tuple[int, Any]] = []  # parameter word, function from a number to its bits
    if fused is not None and "epilogue" in constant and "epilogue" in patches:
        first, words = patches["epilogue"].offset // 8, constant["epilogue"]
        for number, (fed, place) in enumerate(zip(fused.operands, sources.fused, strict=True)):
            word = MEMBERS * number
            if place is None:
                of_numbers.append((first + word, fed.bits))
            elif place:
                addressed.append((first + word, place, words[word] - actual.fused[number]))

    def bring(at: Sequence[int], numbers: Sequence[float]) -> Written:
        words = [(word, at[place] + ahead) for word, place, ahead in addressed]
        if of_numbers:
            pairs = zip(of_numbers, numbers, strict=True)
            words += [(word, bits(number) & UNSIGNED) for (word, bits), number in pairs]
        return Written(constant, words)

    return Starting(bring, kernel.repeated_start(), D in sources.fused, plan.problem.transposed)


# ---- with second passes ----


class Brought:
    """The arguments of one launch. `placed`: the same with the workspace of the last call. Another thread may
    replace it, so each call goes on with the value that it made itself.
    """

    __slots__ = ("at", "numbers", "placed")

    def __init__(self, at: Sequence[int], numbers: Sequence[float]) -> None:
        self.at, self.numbers = at, numbers
        self.placed: tuple[Room, Any, list[PassLaunch]] | None = None


class PassStep(NamedTuple):
    """One launch of a second pass, with the indices of what it reads, of its result's factors, and of what it
    writes. They count what the product leaves, then workspace between steps, then results.
    """

    start: Start
    reads: int
    factors: int
    writes: int


def followed(
    ready: Prepared, fused: EpilogueOperands, sources: Sources, actual: ExtraPointers, tensors: int
) -> Starting:
    """The product, then all second passes. The addresses of what they read follow those of all tensors."""
    parts, ordinal = ready.parts, ready.like.device  # read once: another thread may replace `ready.parts`
    before = in_kernel_work(part.plan for part in parts)
    sources_in_room, read = PassWorkspace.of(fused, before), len(fused.sources + fused.slots)
    steps, between = steps_after(fused, before, ordinal)
    among_all = sources._replace(fused=(*sources.fused, *range(tensors, tensors + read)))
    product = launched(ready, parts, among_all, actual, parts)
    start_product, bring_product = product.start, product.bring
    assert bring_product is not None
    if sources_in_room.is_none and not steps:  # the product does everything itself
        nowhere = (0,) * read
        return product._replace(bring=lambda at, numbers: bring_product((*at, *nowhere), numbers), of_d=True)
    rooms, further = Rooms(sources_in_room, ordinal), tensors - sources.further
    ends = sources.pointers.ends
    free, another = rooms.free, rooms.another
    # a workspace, addresses in it that the product writes, and all addresses in it
    last: tuple[Any, tuple[int, ...], tuple[int, ...]] = None, (), ()

    def placed_in(room: Room, brought: Brought) -> tuple[Room, Any, list[PassLaunch]]:
        nonlocal last
        of_room, addresses, lying = last
        if of_room is not room:
            values, slots, first = sources_in_room.placed(room)
            addresses = (*values, *slots)
            lying = (*addresses, *[first + place for place in between])
            last = room, addresses, lying
        at = brought.at
        at_all = (*lying, at[D], *at[further:])
        launches = [
            (start, (at_all[reads], at_all[factors], at[ends], at_all[writes]))
            for start, reads, factors, writes in steps
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

    return Starting(Brought, start, True, product.exchanged)


def steps_after(
    fused: EpilogueOperands, before: InKernelWork, ordinal: int
) -> tuple[list[PassStep], list[int]]:
    """The launches of second passes, and the byte offsets of what they leave for each other in the
    workspace.
    """
    read, written = [*fused.sources, *fused.slots], fused.written
    every = [(values, stored, kernels_of(then, ordinal)) for then, values, stored in fused.passes(before)]
    between = sorted({place for *_, steps in every for step in steps for place in step[1:] if place >= 0})
    steps = []
    for values, stored, kernels in every:
        results = len(read) + len(between)
        first, factors = (results + place_of(then, written) for then in (*stored, *stored)[:2])
        indices = {place: len(read) + number for number, place in enumerate(between)}
        indices |= {VALUES: place_of(values, read), RESULT: first}
        for kernel, reads, writes in kernels:
            steps.append(PassStep(kernel.repeated_start(), indices[reads], factors, indices[writes]))
    return steps, between


def place_of(operand: Operand, among: Sequence[Operand]) -> int:
    return next(place for place, candidate in enumerate(among) if candidate is operand)
