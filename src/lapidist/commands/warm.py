"""`lapidist warm` compiles ahead of need."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lapidist.commands.lab import lab_module
from lapidist.commands.options import (
    TYPES,
    File,
    Json,
    Layout,
    Products,
    ThisChip,
    device_named,
    one_of,
    require_layout,
)
from lapidist.commands.products import Product, parse_mnk, read_products
from lapidist.commands.progress import progress
from lapidist.errors import ArgumentError, CompileError, LapidistError

if TYPE_CHECKING:
    from lapidist.device import Device
    from lapidist.planning.logged_shapes import LoggedParts, LoggedPass
    from lapidist.planning.plans import Plan
    from lapidist.planning.warm import Build, Built

EXAMPLES = (
    "warm --dtype bf16",
    "warm --mnk 300,520,200 --chip h100",
    "warm --model ./Llama-3.1-8B --tokens 1,16,512,4096",
    "warm --shapes served.jsonl",
    "warm --dtype bf16 --into ./binaries",
    "warm --dtype bf16 --chip h100 --wheel ./dist",
)
LONGEST = 4  # of the compilations: so many are named
USUAL_TYPES = "fp16,bf16,fp32"
TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # of a wheel that is being made
TYPE_OF_MODEL = "--model: without --dtype, the type that its config.json names"

WarmTypes = Annotated[
    str,
    typer.Option(
        "--dtype",
        help=f"one or more of {', '.join(TYPES)}, separated by commas; by default {USUAL_TYPES}, or the type"
        " of the model",
        metavar="TYPES",
        autocompletion=one_of(TYPES),
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", help="a transformer: its folder, or its name in the hub's cache", metavar="MODEL"
    ),
]
Tokens = Annotated[
    str,
    typer.Option(
        help="rows of the model's products, separated by commas; by default 1 to 8192", metavar="ROWS"
    ),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="compilers at once; one for each core by default")]
Ordinary = Annotated[
    bool, typer.Option("--ordinary", help="besides, what is best for squares, layers, ragged products")
]
Random = Annotated[int, typer.Option("--random", min=0, help="so many products of random extents besides")]
WithC = Annotated[bool, typer.Option("--with-c", help="beta C in every product: kernels of their own")]
Shapes = Annotated[
    Path | None, typer.Option(help="compile what a program's calls asked for: LAPIDIST_SHAPES' file")
]
Into = Annotated[
    Path | None,
    typer.Option("--into", help="into this folder alone, as for an image or a share", metavar="DIR"),
]
Wheel = Annotated[
    Path | None, typer.Option("--wheel", help="pack them as a wheel, in this folder", metavar="DIR")
]
RecordInto = Annotated[
    Path | None,
    typer.Option("--record", help="write a file of Records into this folder; needs the lab", metavar="DIR"),
]


def warm(
    dtype: WarmTypes = "",
    mnk: Products = None,
    file: File = None,
    model: ModelName = None,
    tokens: Tokens = "",
    layout: Layout = "rr",
    chip: ThisChip = None,
    jobs: Jobs = None,
    ordinary: Ordinary = False,
    products: Random = 0,
    with_c: WithC = False,
    shapes: Shapes = None,
    into: Into = None,
    wheel: Wheel = None,
    as_json: Json = False,
    record: RecordInto = None,
) -> None:
    """Compile ahead of need, into the cache.

    Of each type the few binaries that serve every shape within some percent of the best one; or what is best
    for the products given, for a model's linear layers, or for what a program's calls asked for.
    """
    from lapidist.writable import require_folder

    if wheel is not None:
        require_folder("--wheel", wheel)
    if into is not None or wheel is not None:
        compile_into(into or temporary_folder())
    if shapes is not None:
        end(warm_shapes(shapes, chip, jobs, as_json), wheel, chip or "shapes")
    from lapidist.dtypes import math_named
    from lapidist.planning import warm as ahead
    from lapidist.problems.problem import dense_problem

    require_layout(layout)
    warming = None
    if record is not None:
        require_folder("--record", record)
        warming = lab_module("bench.studies.warming", "warm --record (a file of Records)")
    named, layers = layers_and_type(model, tokens)
    dtype = dtype or (math_named(named, TYPE_OF_MODEL) if named else USUAL_TYPES)
    device, failures, rows = device_named(chip), 0, list[Any]()
    for type_name in dtype.split(","):
        math, cases = math_named(type_name), cases_of(mnk, file, type_name)
        problems = [dense_problem(*case.extents, case.math, layout) for case in cases]
        problems += (ahead.ordinary(math) if ordinary else []) + ahead.anything(math, products)
        problems = [ahead.with_c_like_d(problem) if with_c else problem for problem in problems]
        problems += ahead.linear_problems(layers, math, with_c)
        plans = [] if cases or layers else ahead.covering_plans(math, device, with_c)
        warmed = warm_plans(type_name, plans + ahead.plans_of(problems, device), device, with_c, jobs)
        print(json.dumps(warmed.as_data) if as_json else warmed)
        failures += len(warmed.failed)
        rows += [] if warming is None else warming.rows_of(warmed, as_json)
    if warming is not None:
        warming.save(record, dtype, device, rows)
    end(failures, wheel, device.name)


def temporary_folder() -> Path:
    """Where what a wheel packs is compiled, unless --into says it: gone with the command."""
    folder = tempfile.TemporaryDirectory(prefix="lapidist-wheel-")
    TEMPORARY.append(folder)
    return Path(folder.name) / "binaries"


def end(failures: int, wheel: Path | None, chip: str) -> NoReturn:
    """Pack the wheel that was asked for, if nothing failed, and end with the exit code."""
    if wheel is not None and not failures:
        from lapidist.build.folder import cache_directory
        from lapidist.commands.binaries_wheel import write_wheel

        print(write_wheel(cache_directory(), wheel, chip), file=sys.stderr)
    while TEMPORARY:
        TEMPORARY.pop().cleanup()
    raise typer.Exit(int(failures > 0))


def compile_into(folder: Path) -> None:
    """Make the folder the only one of the cache, so that it holds all that is compiled. A new one can be
    read by all users: an image is filled as root.
    """
    from lapidist.build.folder import VARIABLE, make_directory
    from lapidist.build.ownership import objection
    from lapidist.writable import require_folder

    if os.pathsep in str(folder):
        raise ArgumentError(
            f"--into: must not contain {os.pathsep!r}, which stands between folders; got {str(folder)!r}."
            " Name another one"
        )
    refusal = objection(folder)
    if refusal is not None:
        raise ArgumentError(f"--into: must be a folder of yours; {refusal}. Or name another one")
    if not folder.exists():
        try:
            make_directory(folder)
            folder.chmod(0o755)
        except OSError as error:
            rule = f"must be a folder that can be made; {str(folder)!r} cannot ({error.strerror})"
            raise ArgumentError(f"--into: {rule}. Name another one") from error
    require_folder("--into", folder)
    os.environ[VARIABLE] = str(folder.absolute())


def cases_of(mnk: Products, file: File, type_name: str) -> list[Product]:
    """The products that were named or listed in a file."""
    listed = read_products(file, type_name) if file is not None else []
    return [parse_mnk(text, type_name) for text in mnk or ()] + listed


def layers_and_type(model: str | None, tokens: str) -> tuple[str | None, list[tuple[int, int, int]]]:
    """The type of a model's weights, and rows, outputs and inputs of its layers."""
    if model is None:
        if tokens:
            raise ArgumentError(f"--tokens: belongs to --model; got {tokens!r} and no model. Name one, too")
        return None, []
    from lapidist.commands.model_layers import model_of
    from lapidist.planning.warm import ROWS

    read, rows = model_of(model), rows_named(tokens) if tokens else ROWS
    return read.dtype, [(count, layer.outputs, layer.inputs) for layer in read.layers for count in rows]


def rows_named(tokens: str) -> list[int]:
    words = tokens.split(",")
    if not all(word.strip().isdecimal() and 1 <= int(word) < 2**31 for word in words):
        raise ArgumentError(
            f"--tokens: must be whole numbers of at least 1, separated by commas; got {tokens!r}. Write for"
            " example 1,16,512"
        )
    return [int(word) for word in words]


def warm_shapes(path: Path, chip: str | None, jobs: int | None, as_json: bool) -> int:
    """The number of kernels that could not be compiled for the shapes of a log. `chip`: in place of the chips
    that the log names.
    """
    from lapidist.commands.logged_products import read_shapes
    from lapidist.device import chip as device_of
    from lapidist.planning.logged_shapes import LoggedParts, LoggedPass
    from lapidist.visible import visible

    by_device: dict[Device, list[Plan]] = {}
    passes: dict[str, list[tuple[LoggedPass | LoggedParts, Device]]] = {}
    for logged in read_shapes(path):
        device = logged.chip if chip is None else device_of(chip)
        if isinstance(logged, LoggedPass | LoggedParts):
            words = "second passes" if isinstance(logged, LoggedPass) else "passes of emulated products"
            passes.setdefault(words, []).append((logged, device))
            continue
        try:
            plan = logged.plan(device)
        except LapidistError as error:  # another chip lacks the unit
            print(f"left out: {visible(str(error).splitlines()[0])}", file=sys.stderr)
        else:
            by_device.setdefault(device, []).append(plan)
    if not by_device:
        raise ArgumentError(
            f"--shapes: must hold a product that some kernel takes; {str(path)!r} has none. Run a program"
            " with LAPIDIST_SHAPES set, or choose another --chip"
        )
    failures = sum(warm_passes(words, of_kind, as_json) for words, of_kind in passes.items())
    for device, plans in by_device.items():
        types = ",".join(dict.fromkeys(plan.problem.math for plan in plans))
        with_c = any(plan.problem.c is not None for plan in plans)
        warmed = warm_plans(types, plans, device, with_c, jobs)
        print(json.dumps(warmed.as_data) if as_json else warmed)
        failures += len(warmed.failed)
    return failures


def warm_passes(words: str, passes: Sequence[tuple[LoggedPass | LoggedParts, Device]], as_json: bool) -> int:
    """The number of passes whose kernels could not be compiled. They have few kernels; `words` say which."""
    start, errors = time.perf_counter(), []
    with progress(len(passes), f"compiling {words}") as step:
        for logged, device in passes:
            try:
                logged.compile(device)
            except CompileError as error:
                errors.append(str(error))
            step(logged.words)
    seconds = time.perf_counter() - start
    if as_json:
        print(json.dumps({words.replace(" ", "_"): len(passes), "failed": errors, "seconds": seconds}))
    else:
        compiled = len(passes) - len(errors)
        print(f"{compiled} of {len(passes)} {words} have their kernels; {seconds:.1f} s")
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
        return how_many(self.plans, "plan") + (" with C" if self.with_c else "")

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
        built = how_many(len(self.built), "configuration")
        head = f"{self.dtype}: {self.words} for {self.device.name} use {built}: {kernels}"
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


def warm_plans(dtype: str, plans: Sequence[Plan], device: Device, with_c: bool, jobs: int | None) -> Warmed:
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


def how_many(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
