"""`lapidist warm` compiles ahead of need."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapidist.commands.lab import lab_module
from lapidist.commands.options import (
    File,
    Json,
    Layout,
    Products,
    ThisChip,
    Types,
    device_named,
    require_layout,
)
from lapidist.commands.products import Product, parse_mnk, read_products
from lapidist.commands.progress import progress
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.device import Device
    from lapidist.planning.plans import Plan
    from lapidist.planning.warm import Build, Built

EXAMPLES = ("warm --dtype bf16", "warm --mnk 300,520,200 --chip h100", "warm --log served.jsonl")
LONGEST = 4  # of the compilations: so many are named


def warm(
    dtype: Types = "fp16,bf16,fp32",
    mnk: Products = None,
    file: File = None,
    layout: Layout = "rr",
    chip: ThisChip = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="compilers at once; one for each core by default")
    ] = None,
    ordinary: Annotated[
        bool, typer.Option("--ordinary", help="besides, what is best for squares, layers, ragged products")
    ] = False,
    products: Annotated[
        int, typer.Option("--random", min=0, help="so many products of random extents besides")
    ] = 0,
    with_c: Annotated[
        bool, typer.Option("--with-c", help="beta C in every product: kernels of their own")
    ] = False,
    log: Annotated[
        Path | None, typer.Option(help="compile what a program's calls loaded: LAPIDIST_KERNELS' file")
    ] = None,
    as_json: Json = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", help="write a file of Records into this folder; needs the lab", metavar="DIR"
        ),
    ] = None,
) -> None:
    """Compile ahead of need, into the cache.

    Of each type the few binaries that serve every shape within some percent of the best one; or what is best
    for the products given, or what a program's calls loaded.
    """
    if log is not None:
        raise typer.Exit(int(warm_logged(log, jobs, as_json) > 0))
    from lapidist.dtypes import math_named
    from lapidist.planning import warm as ahead
    from lapidist.problems.problem import dense_problem
    from lapidist.writable import require_folder

    require_layout(layout)
    warming = None
    if record is not None:
        require_folder("--record", record)
        warming = lab_module("bench.studies.warming", "warm --record (a file of Records)")
    device, failures, rows = device_named(chip), 0, list[Any]()
    for type_name in dtype.split(","):
        math, cases = math_named(type_name), cases_of(mnk, file, type_name)
        problems = [dense_problem(*case.extents, case.math, layout) for case in cases]
        problems += (ahead.ordinary(math) if ordinary else []) + ahead.anything(math, products)
        problems = [ahead.with_c_like_d(problem) if with_c else problem for problem in problems]
        plans = [] if cases else ahead.covering_plans(math, device, with_c)
        warmed = warm_type(type_name, plans + ahead.plans_of(problems, device), device, with_c, jobs)
        print(json.dumps(warmed.as_data) if as_json else warmed)
        failures += len(warmed.failed)
        rows += [] if warming is None else warming.rows_of(warmed, as_json)
    if warming is not None:
        warming.save(record, dtype, device, rows)
    raise typer.Exit(int(bool(failures)))


def cases_of(mnk: Products, file: File, type_name: str) -> list[Product]:
    """The products that were named or listed in a file."""
    listed = read_products(file, type_name) if file is not None else []
    return [parse_mnk(text, type_name) for text in mnk or ()] + listed


def warm_logged(path: Path, jobs: int | None, as_json: bool) -> int:
    """How many kernels of the log could not be compiled."""
    from lapidist.build.kernel_log import read_orders
    from lapidist.build.workers import compile_all
    from lapidist.planning.warm import compilers

    orders, start = read_orders(path), time.perf_counter()
    with progress(len(orders), "compiling") as step:
        answers = compile_all(orders, jobs or compilers(), step)
    errors = [answer.error for answer in answers if answer.error]
    seconds = time.perf_counter() - start
    if as_json:
        print(json.dumps({"kernels": len(orders), "failed": errors, "seconds": seconds}))
    else:
        print(f"{len(orders) - len(errors)} of {len(orders)} logged kernels are compiled; {seconds:.1f} s")
        print(*(f"  {error}" for error in errors), sep="\n", end="\n" if errors else "")
    return len(errors)


@dataclass(frozen=True, slots=True)
class Warmed:
    """One type's configurations, compiled."""

    dtype: str  # as the user calls it
    device: Device
    plans: int
    with_c: bool  # whether every product adds a C
    built: Sequence[Built]
    compilers: int  # at once
    seconds: float

    @property
    def failed(self) -> list[Built]:
        return [built for built in self.built if built.error]

    @property
    def fresh(self) -> list[Built]:
        return [built for built in self.built if built.seconds and not built.error]

    @property
    def longest(self) -> list[Built]:
        return sorted(self.fresh, key=lambda built: -built.seconds)[:LONGEST]

    @property
    def words(self) -> str:
        return f"{self.plans} plans" + (" with C" if self.with_c else "")

    @property
    def as_data(self) -> dict[str, Any]:
        return {
            "dtype": self.dtype,
            "chip": self.device.name,
            "plans": self.plans,
            "configurations": len(self.built),
            "compiled": len(self.fresh),
            "failed": {built.build.kernel: built.error for built in self.failed},
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        counts = Counter(built.build.kernel for built in self.built).most_common()
        kernels = ", ".join(f"{count} of {name}" for name, count in counts)
        head = (
            f"{self.dtype}: {self.words} for {self.device.name} use {len(self.built)} configurations:"
            f" {kernels}"
        )
        cached = len(self.built) - len(self.fresh) - len(self.failed)
        lines = [head, f"  {len(self.fresh)} were compiled, {cached} were there; {self.seconds:.1f} s"]
        if self.fresh:
            lines.append(
                f"  the longest took {self.longest[0].seconds:.2f} s: {tile_words(self.longest[0].build)}"
            )
        return "\n".join(lines + [f"  {built.build.kernel}: {built.error}" for built in self.failed])


def tile_words(build: Build) -> str:
    macros = dict(build.macros)
    return f"{build.kernel}, {macros.get('BM')} x {macros.get('BN')} x {macros.get('BK')}"


def warm_type(dtype: str, plans: Sequence[Plan], device: Device, with_c: bool, jobs: int | None) -> Warmed:
    from lapidist.planning.warm import build_all, builds_of, compilers, is_cached

    start = time.perf_counter()
    if not plans:
        raise ArgumentError(
            f"--chip: must be one that some kernel runs on; got {device.name} for {dtype}. Choose another"
        )
    processes, builds = jobs or compilers(), builds_of(plans)
    with progress(sum(not is_cached(build) for build in builds), f"compiling {dtype}") as step:
        built = build_all(builds, processes, step)
    return Warmed(dtype, device, len(plans), with_c, built, processes, time.perf_counter() - start)
