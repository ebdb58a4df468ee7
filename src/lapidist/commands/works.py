"""From options of the command line to work, and where it is done: on a GPU, in the machine, or by the
compiler alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.bench.cases import Case, Part
    from lapidist.bench.climb import Work
    from lapidist.bench.outputs import Outputs

NO_GPU = "no GPU was found, so nothing was timed:"
IN_MACHINE = f"{NO_GPU} the kernels run in the PTX machine, which judges and counts"
COMPILED = (
    f"{NO_GPU} the kernels are compiled and counted (--device machine runs them, best at sizes up to 512)"
)
MACHINE_FLOPS = 2 * 512**3  # more takes the machine minutes for a ladder


def one_case(size: str | None, mnk: str | None, dtype: str, default: int) -> Case:
    from lapidist.bench.cases import case_of, parse_mnk

    if mnk is not None and size is not None:
        raise ArgumentError(
            f"--size: must be left away when --mnk is given; got {size} and {mnk}. Give one of them"
        )
    if mnk is not None:
        return parse_mnk(mnk, dtype)
    try:
        extent = default if size is None else int(size)
    except ValueError:
        raise ArgumentError(f"--size: must be a whole number; got {size!r}. Write for example 4096") from None
    return case_of(extent, extent, extent, dtype, "--size")


def chosen_cases(
    lists: list[str] | None, mnk: list[str] | None, file: Path | None, dtype: str, part: Part
) -> list[Case]:
    from lapidist.bench.cases import named, parse_mnk, read_cases

    cases = named(lists or (), dtype, part)
    cases += [parse_mnk(each, dtype) for each in mnk or []]
    cases += read_cases(file, dtype) if file is not None else []
    if lists and not cases:
        raise ArgumentError(f"--skip: must leave something of {', '.join(lists)}; got {part.skip}. Skip less")
    return cases or named(("squares",), dtype, part)


def sweep_works(climbed: Case) -> list[Work]:
    """The sweep for some rungs, without the case that is climbed anyway."""
    from lapidist.bench.cases import named
    from lapidist.bench.climb import SWEEP_KERNELS, Work
    from lapidist.bench.contenders import KernelContender, choose

    few = tuple(each for each in choose(None, False, climbed.math) if each.name in SWEEP_KERNELS)
    return [
        Work(case, (*few, KernelContender(None, climbed.math)))
        for case in named(("sweep",), climbed.math)
        if case != climbed
    ]


def present(place: int | str) -> int | str:
    """The first GPU for "gpu", which stays a word where there is none."""
    from lapidist.backends.gpu.driver import gpu_count

    return 0 if place == "gpu" and gpu_count() else place


def chosen_instead(modes: Sequence[str], products: object) -> str | None:
    """What is measured in place of products, if anything is."""
    if not modes:
        return None
    if len(modes) > 1:
        raise ArgumentError(
            f"{modes[1]}: is measured in place of products, as {modes[0]} is; got both. Give one of them"
        )
    if products:
        raise ArgumentError(
            f"{modes[0]}: is measured in place of products; got {products} as well. Leave one of them away"
        )
    return modes[0].removeprefix("--")


def require_rounds(rounds: int | None) -> int | None:
    if rounds is not None and rounds < 1:
        raise ArgumentError(
            f"--rounds: must be at least 1; got {rounds}. Leave it away for the protocol's own"
        )
    return rounds


def perform(
    works: list[Work], place: int | str, mode: str, rounds: int | None, outputs: Outputs, drawn: str = ""
) -> None:
    """Measure where it can be done; without a GPU say so, and do what is left."""
    from lapidist.backends.gpu.driver import require_gpu
    from lapidist.bench import climb as runs

    outputs.require_writable()
    if isinstance(place, int):
        require_gpu(place)
        conditions, records = runs.on_gpu(works, place, mode, rounds, outputs.keep, drawn)
    elif place == "machine" or all(work.case.flops <= MACHINE_FLOPS for work in works):
        if place != "machine":
            note(IN_MACHINE)
        largest = max(works, key=lambda work: work.case.flops).case
        if largest.flops > MACHINE_FLOPS:
            times = f"{largest.shape} is {largest.flops / MACHINE_FLOPS:.0f} times that"
            note(f"the machine takes seconds for a kernel at 512^3; {times}")
        conditions, records = runs.in_machine(works, rounds or 1)
    else:
        note(COMPILED)
        conditions, records = runs.compile_only(works)
    outputs.write(conditions, records)


def measure_instead(what: str, place: int | str, outputs: Outputs, part: Part) -> None:
    """Host costs, the limits of the units, all layouts, or 8-bit floats with factors, a part of them: of a
    GPU only.
    """
    from lapidist.backends.gpu.driver import require_gpu
    from lapidist.bench import launches, layouts, limits, scaled

    outputs.require_writable()
    if place == "machine":
        raise ArgumentError(
            f"--device: --{what} measures a GPU and its driver; got 'machine'. Leave --device away"
        )
    ordinal = place if isinstance(place, int) else 0
    require_gpu(ordinal)
    if what == "scaled":
        return outputs.write(*scaled.measure(ordinal, outputs.keep, part))
    measure = {"launch": launches.measure, "limits": limits.measure, "layouts": layouts.measure}[what]
    return outputs.write(*measure(ordinal, outputs.keep))


def note(text: str) -> None:
    print(text, file=sys.stderr)
