"""The source text of a fast path, generated for one layout of call: which arrays and numbers it has.

It is most of what a planned launch costs on the host, so it is flat. A Python call takes as long as reading
an attribute of a tensor, 50 to 100 ns. Picking arrays out in loops took a fifth of a call's time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lapidist.calls.repeat.addresses import C, D, pairs_written

# What the text is given: tests, makers of results, the launch, and `last_call`, the last one that passed.
NAMES = (
    "alike, alike_by_parts, new, results_of, bits, distances, numbers_of, bring, start, recorded, stream_of,"
    " handle_of, count_write, refused, look, captured, until_look, last_call"
)
# how an array tells its address
POINTERS = {"torch": "data_ptr()", "cupy": "data.ptr", "numpy": '__array_interface__["data"][0]'}


class CallLayout(NamedTuple):
    """`values`: how many come beside the matrices; `arrays` and `numbers`: which of them are what."""

    values: int
    arrays: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    has_c: bool = False
    separate_c: bool = False  # C is read, and is not D
    in_place: bool = False  # C is D
    further: int = 0  # results beside D
    exchanged: bool = False  # the kernel's A is B
    brings: bool = False  # addresses and numbers beside the matrices reach the kernel
    brings_d: bool = False  # D's is among them
    counts: bool = False  # calls until a better kernel is looked for
    framework: str = "torch"
    on_host: bool = False

    @property
    def unpacked(self) -> bool:
        """Whether values are looked at one by one. alpha and beta alone are one pair."""
        return self.values > 2

    @property
    def tensors(self) -> list[str]:
        """Their names in the text."""
        separate_c = ["c"] if self.separate_c else []
        return ["a", "b", "d", *separate_c, *(f"x{place}" for place in self.arrays), *self.results]

    @property
    def results(self) -> list[str]:
        return [f"r{number}" for number in range(self.further)]


def text_of(layout: CallLayout) -> str:
    tensors, allocation = layout.tensors, "d = new() if is_new else out"
    written, result = "(d,)", "d"
    if layout.further:
        allocation = f"d, {', '.join(layout.results)} = results = results_of(out)"
        written, result = "tuple(x for x in out if x is not None)", "results"
    pointer, of_torch = POINTERS[layout.framework], layout.framework == "torch"
    addresses = ", ".join(f"{tensor}.{pointer}" for tensor in tensors)
    brought, numbers = ", last[4]" if layout.brings else "", numbers_to_keep(layout)
    recorded = "        if recorded():\n            return None\n" if of_torch else ""
    counted = f"        if not is_new:\n            count_write({written})\n" if of_torch else ""
    return f"""
def written({NAMES}):
    {names_of("b", len(tensors))} = bits
    {pairs_of(layout)} = distances
    def replay(a, b, c, out, values, stream):
        nonlocal last_call, until_look
{counting(layout)}        try:
{unpacking(layout)}            is_new = out is None
            {allocation}
            if {"c is not d or " if layout.in_place else ""}not ({compared(layout)}):
                return None
            at = {addresses}
            last = last_call
            if at != last[0] or {changed(layout, "last[1]")}:
{checked(layout)}                last_call = last = at, {numbers}, operands, scalars, brought, fused
        except refused:
            return None
{recorded}        start(last[2], last[3], {"None" if layout.on_host else STREAM}{brought})
{counted}        return {result}

    return replay
"""


STREAM = "stream_of() if stream is None else handle_of(stream)"


def names_of(letter: str, count: int) -> str:
    return listed([f"{letter}{number}" for number in range(count)])


def listed(names: Sequence[str]) -> str:
    return f"({''.join(f'{name}, ' for name in names)})"


def pairs_of(layout: CallLayout) -> str:
    count = len(pairs_written(len(layout.tensors), layout.further))
    return listed([f"(l{number}, h{number})" for number in range(count)])


def counting(layout: CallLayout) -> str:
    """From the last look on, and while a graph is captured, the full path makes another fast path."""
    text = ""
    if layout.counts:
        text = """        if until_look > 0:
            until_look = 0 if captured(stream) else until_look - 1 or look()
        if until_look <= 0:
            return None
"""
    if layout.on_host:
        text += "        if stream is not None:\n            return None\n"
    return text


def unpacking(layout: CallLayout) -> str:
    if not layout.unpacked:  # a C that beta = 0 does not read may be anything
        return "            if c is None:\n                return None\n" if layout.has_c else ""
    every = [f"x{place}" for place in range(layout.values)]
    nones = [name for place, name in enumerate(every) if place not in (*layout.arrays, *layout.numbers)]
    missing = f" or not ({' is '.join([*nones, 'None'])})" if nones else ""
    return f"""            {listed(every)} = values
            if c is {"" if layout.has_c else "not "}None{missing}:
                return None
"""


def compared(layout: CallLayout) -> str:
    if layout.framework == "cupy":
        return "alike(a, b) and (is_new or alike_by_parts(d))"
    tensors = ", ".join(layout.tensors)
    return f"alike({tensors}) or alike_by_parts({tensors})"


def numbers_to_keep(layout: CallLayout) -> str:
    """What later calls compare their numbers with."""
    return listed([f"x{place}" for place in layout.numbers]) if layout.unpacked else "values"


def changed(layout: CallLayout, before: str) -> str:
    """Whether a number may be another one: mostly it is the same object."""
    if not layout.unpacked:
        return f"values is not {before}"
    return " or ".join(
        [f"x{place} is not {before}[{number}]" for number, place in enumerate(layout.numbers)] or ["False"]
    )


def checked(layout: CallLayout) -> str:
    """What a call must obey whose addresses or numbers are others. Another thread may replace `last_call`."""
    lines = ["before, numbers, operands, scalars, brought, fused = last", "if at != before:"]
    lines += [f"    {line}" for line in checked_addresses(layout)]
    same = changed(layout, "numbers")
    if not layout.unpacked:  # equal numbers in another tuple
        same += " and values != numbers"
    lines += [f"anew = {same}", "if anew:"]
    lines += ["    checked = numbers_of(values)", "    if checked is None:", "        return None"]
    lines += ["    scalars, fused = checked"]
    if layout.brings:
        first = D if layout.brings_d else D + 1
        lines += [f"if anew or brought is None or at[{first}:] != before[{first}:]:"]
        lines += ["    brought = bring(at, fused)"]
    return "".join(f"                {line}\n" for line in lines)


def checked_addresses(layout: CallLayout) -> list[str]:
    count = len(layout.tensors)
    indices = [f"p{number}" for number in range(count)]
    pairs = pairs_written(count, layout.further)
    forbidden = [f"l{number} < p{out} - p{other} < h{number}" for number, (out, other) in enumerate(pairs)]
    wrong = [f"not ({' and '.join(indices)})"]
    if not layout.on_host:
        wrong += [f"({' | '.join(f'p{number} ^ b{number}' for number in range(count))}) & 15"]
    wrong += [f"not is_new and ({' or '.join(forbidden)})"]
    a, b = ("p1", "p0") if layout.exchanged else ("p0", "p1")
    c = f"p{C if layout.separate_c else D}"
    return [
        f"{listed(indices)} = at",
        f"if {' or '.join(wrong)}:",
        "    return None",
        f"operands = {a}, {b}, {c}, p{D}",
    ]


@lru_cache(maxsize=256)
def written_out(layout: CallLayout) -> Callable[..., Any]:
    """A function that takes the values of NAMES, in their order, and returns the fast path."""
    space: dict[str, Any] = {}
    exec(compile(text_of(layout), f"<{layout}>", "exec"), space)
    return space["written"]  # type: ignore[no-any-return]
