"""From options of the command line to work, and where it is done: on a GPU, in the machine, or by the
compiler alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lapidist.commands.products import parse_mnk, product_of, read_products
from lapidist.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from lapidist_lab.bench.protocol.cases import Case, Part
    from lapidist_lab.bench.protocol.record import Conditions, Record
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.ladder_runs import Keep, Work

log = logging.getLogger("lapidist.lab")  # a child of the command line's, which has levels and a handler
MACHINE_SIZE = 256  # m = n = k in the machine, if no size is named
STOPPED = 130  # what shells call a process that Ctrl-C ended
NO_GPU = "no GPU was found, so nothing was timed:"
IN_MACHINE = f"{NO_GPU} the kernels run in the PTX machine, which judges and counts"
COMPILED = (
    f"{NO_GPU} the kernels are compiled and counted (--device machine runs them, best at sizes up to 512)"
)
MACHINE_FLOPS = 2 * 512**3  # more takes the machine minutes for a ladder


def one_case(size: str | None, mnk: str | None, dtype: str, default: int) -> Case:
    from lapidist_lab.bench.protocol.cases import Case

    if mnk is not None and size is not None:
        raise ArgumentError(
            f"--size: must be left out when --mnk is given; got {size} and {mnk}. Give one of them"
        )
    if mnk is not None:
        return Case(*parse_mnk(mnk, dtype))
    try:
        extent = default if size is None else int(size)
    except ValueError:
        raise ArgumentError(f"--size: must be a whole number; got {size!r}. Write for example 4096") from None
    return Case(*product_of(extent, extent, extent, dtype, "--size"))


def chosen_cases(
    lists: list[str] | None, mnk: list[str] | None, file: Path | None, dtype: str, part: Part
) -> list[Case]:
    from lapidist_lab.bench.protocol.cases import Case, named

    cases = named(lists or (), dtype, part)
    cases += [Case(*parse_mnk(text, dtype)) for text in mnk or []]
    cases += [Case(*product) for product in read_products(file, dtype)] if file is not None else []
    if lists and not cases:
        raise ArgumentError(f"--skip: must leave something of {', '.join(lists)}; got {part.skip}. Skip less")
    return cases or named(("squares",), dtype, part)


def sweep_works(climbed: Case) -> list[Work]:
    """The sweep for some rungs, without the case that is climbed anyway."""
    from lapidist_lab.bench.protocol.cases import named
    from lapidist_lab.bench.protocol.contenders import KernelContender, choose
    from lapidist_lab.bench.studies.ladder_runs import SWEEP_KERNELS, Work

    few = tuple(rung for rung in choose(None, False, climbed.math) if rung.name in SWEEP_KERNELS)
    return [
        Work(case, (*few, KernelContender(None, climbed.math)))
        for case in named(("sweep",), climbed.math)
        if case != climbed
    ]


def names_in(text: str | None) -> list[str] | None:
    """Names with commas between; None where the option was left out."""
    return None if text is None else [name.strip() for name in text.split(",")]


def numbers_in(option: str, text: str | None) -> list[int] | None:
    if text is None:
        return None
    numbers = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if min(numbers) < 1:
        raise ArgumentError(
            f"{option}: must be whole numbers from 1 on, with commas between; got {text!r}. Write for example"
            " 64,8192"
        )
    return numbers


def present(place: int | str) -> int | str:
    """The first GPU for "auto", which stays a word where there is none."""
    from lapidist.backends.gpu.driver import gpu_count

    return 0 if place == "auto" and gpu_count() else place


def require_place(place: int | str) -> int | str:
    """A GPU's number or "machine"; a DeviceError where "auto" finds no GPU, as nothing could be measured."""
    from lapidist.backends.gpu.driver import require_gpu

    if place == "auto":
        try:
            require_gpu(0)
        except DeviceError as error:
            raise DeviceError(f"{error}. Or name --device machine, which judges and counts") from error
    return place


def require_rounds(rounds: int | None) -> int | None:
    if rounds is not None and rounds < 1:
        raise ArgumentError(
            f"--rounds: must be at least 1; got {rounds}. Leave it out for the protocol's own"
        )
    return rounds


def perform(
    works: list[Work],
    place: int | str,
    mode: str,
    rounds: int | None,
    outputs: Outputs,
    drawn: str = "",
    named: bool = False,
    machine_mode: str = "machine",
) -> None:
    """Measure where it can be done; without a GPU say so, and do what is left. `named`: the kernels were
    chosen by name, so that a refusal is a failure. `machine_mode`: what is measured there.
    """
    from lapidist.backends.gpu.driver import require_gpu
    from lapidist_lab.bench.studies import ladder_runs as runs

    outputs.require_writable()
    if isinstance(place, int):
        require_gpu(place)
        with finishing(outputs):
            outputs.write(*runs.on_gpu(works, place, mode, rounds, outputs.keep, drawn))
    elif place == "machine" or all(work.case.flops <= MACHINE_FLOPS for work in works):
        if place != "machine":
            log.warning(IN_MACHINE)
        largest = max(works, key=lambda work: work.case.flops).case
        if largest.flops > MACHINE_FLOPS:
            times = f"{largest.shape} is {largest.flops / MACHINE_FLOPS:.0f} times that"
            log.warning(f"the machine takes seconds for a kernel at 512^3; {times}")
        with finishing(outputs):
            outputs.write(*runs.in_machine(works, rounds or 1, outputs.keep, machine_mode))
    else:
        log.warning(COMPILED)
        with finishing(outputs):
            outputs.write(*runs.compile_only(works, outputs.keep))
    require_right(outputs, named)


@contextmanager
def finishing(outputs: Outputs) -> Iterator[None]:
    """Ctrl-C keeps and prints the rows that are finished."""
    try:
        yield
    except KeyboardInterrupt:
        outputs.write_finished()
        log.warning(f"stopped; {len(outputs.finished)} rows were finished")
        raise typer.Exit(STOPPED) from None


def require_right(outputs: Outputs, named: bool = True) -> None:
    """Exit with 1 after a wrong result, and where a kernel that was `named` refuses its product."""
    from lapidist_lab.bench.publish.cells import refusal_of

    refused = named and any(refusal_of(row) is not None for row in outputs.finished)
    if refused or any(row.wrong for row in outputs.finished):
        raise typer.Exit(1)


def measure_on_gpu(
    subject: str,
    place: int | str,
    outputs: Outputs,
    measure: Callable[[int, Keep], tuple[Conditions, list[Record]]],
) -> None:
    """What only a GPU and its driver can be measured for."""
    from lapidist.backends.gpu.driver import require_gpu

    outputs.require_writable()
    if place == "machine":
        raise ArgumentError(
            f"--device: must be a GPU, since bench {subject} measures it and its driver; got 'machine'. Leave"
            " --device out"
        )
    ordinal = place if isinstance(place, int) else 0
    require_gpu(ordinal)
    with finishing(outputs):
        outputs.write(*measure(ordinal, outputs.keep))
    require_right(outputs)


def measure_instead(
    subject: str, place: int | str, outputs: Outputs, part: Part, marlin: Path | None = None
) -> None:
    """Host costs, the limits of the units, all layouts; batches, 8-bit floats with factors, epilogues, or mma
    beside CUTLASS's, a part of them: of a GPU only.
    """
    from lapidist_lab.bench.studies import (
        batched_products,
        complex_products,
        default_kernels,
        emulated_products,
        epilogue_costs,
        few_bits,
        few_bits_experts,
        few_bits_model,
        invariant_products,
        launch_costs,
        limits,
        new_shapes,
        operand_layouts,
        scaled_products,
        served_model,
        symmetric_products,
        tensor_cores,
    )

    measures: dict[str, Callable[[int, Keep], tuple[Conditions, list[Record]]]] = {
        "launch": launch_costs.measure,
        "shapes": new_shapes.measure,
        "default": partial(default_kernels.measure, part=part),
        "limits": limits.measure,
        "layouts": operand_layouts.measure,
        "batches": partial(batched_products.measure, part=part),
        "scaled": partial(scaled_products.measure, part=part),
        "scaled-burst": partial(scaled_products.measure, part=part, mode=scaled_products.BURST_MODE),
        "emulated": partial(emulated_products.measure, part=part),
        "invariant": partial(invariant_products.measure, part=part),
        "served": served_model.measure,
        "complex": partial(complex_products.measure, part=part),
        "few_bits": partial(few_bits.measure, part=part, marlin=marlin),
        "experts": partial(few_bits_experts.measure, part=part),
        "decode": few_bits_model.measure,
        "symmetric": partial(symmetric_products.measure, part=part),
        "epilogue": partial(epilogue_costs.measure, part=part),
        "mma": partial(tensor_cores.measure, part=part),
    }
    measure_on_gpu(subject, place, outputs, measures[subject])
