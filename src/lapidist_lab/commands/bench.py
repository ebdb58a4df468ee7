"""`lapidist bench`: a command for each list of products, and for each other thing that is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapidist.commands.options import File, Json, Layout, Products, Type, examples, require_layout
from lapidist.commands.sections import WholeSentences
from lapidist_lab.commands.options import (
    Csv,
    Gpu,
    Html,
    Kernels,
    OtherLayouts,
    Place,
    Plot,
    Records,
    Rounds,
    Seed,
    Skip,
    Sustained,
)
from lapidist_lab.commands.run_target import (
    chosen_cases,
    measure_instead,
    measure_on_gpu,
    names_in,
    numbers_in,
    perform,
    present,
    require_place,
    require_rounds,
)

if TYPE_CHECKING:
    from lapidist_lab.bench.protocol.cases import Case, Part
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.ladder_runs import Work

app = typer.Typer(
    cls=WholeSentences,
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples("bench squares --dtype bf16", "bench corpus --count 50", "bench launch"),
)
LISTS = {
    "ladder": "the products of the ladder's pages",
    "sweep": "m = n = 128 to 16384, k = 1024",
    "squares": "m = n = k = 512 to 16384",
    "types": "m = n = k = 1024 to 8192, to compare types",
    "ragged": "ten products with odd sides",
    "layers": "a language model's linear layers, decode to prefill",
}
CORPUS_SEED = 2301
Count = Annotated[int | None, typer.Option(min=1, help="at most so many cases")]
Marlin = Annotated[Path | None, typer.Option(help="a checkout of IST-DASLab/marlin", metavar="DIR")]
CublasLt = Annotated[Path | None, typer.Option(help="a libcublasLt.so of CUDA 13.3 or later", metavar="FILE")]
Short = Annotated[bool, typer.Option("--short", help="turns of 2 ms, for hundreds of products")]


def listing(name: str, words: str) -> Callable[..., None]:
    """The command that measures one list."""

    def command(
        dtype: Type = "fp32",
        device: Place = "auto",
        kernel: Kernels = "lapidist",
        as_json: Json = False,
        csv: Csv = None,
        plot: Plot = None,
        html: Html = None,
        record: Records = None,
        sustained: Sustained = True,
        short: Short = False,
        rounds: Rounds = None,
        count: Count = None,
        skip: Skip = 0,
        layout: OtherLayouts = None,
    ) -> None:
        from lapidist_lab.bench.protocol.cases import Part

        ways = layout.split(",") if layout else []
        parts = [Part(count, skip, layout=required(way)) for way in ways] or [Part(count, skip)]
        cases = [case for part in parts for case in chosen_cases([name], None, None, dtype, part)]
        words = [name, *([str(skip)] if skip else []), *ways]
        outputs = outputs_of(words, cases, as_json, csv, plot, html, record)
        measure(cases, device, kernel, timing(sustained, short), rounds, outputs)

    command.__doc__ = f"Measure {words}."
    return command


for _name, _words in LISTS.items():
    app.command(_name, epilog=examples(f"bench {_name} --dtype bf16 --json"))(listing(_name, _words))


@app.command(
    epilog=examples("bench cases --mnk 300,520,200 --mnk 64,4096,4096", "bench cases --file list.json")
)
def cases(
    mnk: Products = None,
    file: File = None,
    dtype: Type = "fp32",
    device: Place = "auto",
    kernel: Kernels = "lapidist",
    as_json: Json = False,
    csv: Csv = None,
    plot: Plot = None,
    html: Html = None,
    record: Records = None,
    sustained: Sustained = True,
    short: Short = False,
    rounds: Rounds = None,
) -> None:
    """Measure products of your own."""
    from lapidist.errors import ArgumentError
    from lapidist_lab.bench.protocol.cases import Part

    if not mnk and file is None:
        rule = "must name a product, or --file a list of them; got none"
        raise ArgumentError(f"--mnk: {rule}. For example --mnk 4096,4096,1024")
    chosen = chosen_cases(None, mnk, file, dtype, Part())
    outputs = outputs_of(["cases"], chosen, as_json, csv, plot, html, record)
    measure(chosen, device, kernel, timing(sustained, short), rounds, outputs)


@app.command(
    epilog=examples(
        "bench corpus --dtype bf16",
        "bench corpus --count 100 --skip 100 --record results",
        "bench corpus --dtype fp16 --multiple 16 --layout rc",
    )
)
def corpus(
    dtype: Type = "fp32",
    device: Place = "auto",
    kernel: Kernels = "lapidist",
    as_json: Json = False,
    csv: Csv = None,
    html: Html = None,
    record: Records = None,
    sustained: Sustained = True,
    short: Short = False,
    rounds: Rounds = None,
    count: Annotated[int, typer.Option(min=1, help="so many products")] = 300,
    skip: Skip = 0,
    seed: Seed = CORPUS_SEED,
    multiple: Annotated[int, typer.Option(min=1, help="round m, n and k to multiples of this")] = 1,
    layout: Layout = "rr",
) -> None:
    """Measure random products, m, n and k log-uniform in [128, 8192].

    Ragged ones are also measured with their sides padded by hand, some of them rounded up.
    """
    from lapidist_lab.bench.protocol.cases import NEIGHBOUR_EVERY, Part

    part = Part(count, skip, seed, multiple, required(layout))
    drawn = chosen_cases(["corpus"], None, None, dtype, part)
    aligned = [case.neighbour for case in drawn[::NEIGHBOUR_EVERY]] if multiple == 1 else []
    words = ["corpus", str(skip), *([f"x{multiple}"] if multiple > 1 else []), layout]
    outputs = outputs_of(words, drawn, as_json, csv, None, html, record)
    mode = "short" if short else f"corpus {timing(sustained, False)}"
    measure(drawn, device, kernel, mode, rounds, outputs, part, aligned)


def undivided_study(subject: str, help: str) -> None:
    """The command of a study that is measured at once."""

    @app.command(subject, help=help, epilog=examples(f"bench {subject}", f"bench {subject} --record results"))
    def command(
        device: Gpu = "gpu", as_json: Json = False, csv: Csv = None, html: Html = None, record: Records = None
    ) -> None:
        instead(subject, device, as_json, csv, html, record)


undivided_study("launch", "Measure what the host takes: launches, first calls, import.")
undivided_study("shapes", "Measure calls of new shapes, and a served model's requests.")
undivided_study("limits", "Measure each unit's own limit: fma, mma.sync, wgmma.")
undivided_study("layouts", "Measure the types of wgmma in all four layouts of A and B.")
undivided_study("served", "Measure what it costs a served model that rows keep their bits.")
undivided_study("decode", "Measure decode of a model whose weights have few bits.")


def in_parts(subject: str, help: str) -> None:
    """The command of a study whose cases are numbered, so that a part of them can be measured."""

    @app.command(
        subject, help=help, epilog=examples(f"bench {subject}", f"bench {subject} --count 2 --record results")
    )
    def command(
        device: Gpu = "gpu",
        as_json: Json = False,
        csv: Csv = None,
        html: Html = None,
        record: Records = None,
        count: Count = None,
        skip: Skip = 0,
    ) -> None:
        from lapidist_lab.bench.protocol.cases import Part

        instead(subject, device, as_json, csv, html, record, Part(count, skip))


in_parts("default", 'Measure the default\'s kernels beside those of compile="wait".')
in_parts("mma", "Measure the kernel on mma.sync beside CUTLASS's (CUTLASS_HOME).")
in_parts("batches", "Measure batches of products in bursts, beside torch.bmm.")
in_parts("epilogue", "Measure epilogues beside the product alone and torch's kernels.")
in_parts("emulated", "Measure emulated float32, and its errors, beside cuBLAS.")
in_parts("invariant", "Measure what it costs that rows keep their bits.")
in_parts("complex", "Measure products of complex numbers, beside cuBLAS.")
in_parts("experts", "Measure packed experts, whose rows are gathered or scattered.")
in_parts("symmetric", "Measure symmetric products by half their tiles, beside others.")


@app.command("few_bits", epilog=examples("bench few_bits", "bench few_bits --count 2 --marlin ../marlin"))
def few_bits(
    device: Gpu = "gpu",
    as_json: Json = False,
    csv: Csv = None,
    html: Html = None,
    record: Records = None,
    count: Count = None,
    skip: Skip = 0,
    marlin: Marlin = None,
) -> None:
    """Measure weights of few bits, beside bfloat16 and peers."""
    from lapidist_lab.bench.protocol.cases import Part

    instead("few_bits", device, as_json, csv, html, record, Part(count, skip), marlin)


@app.command(epilog=examples("bench scaled", "bench scaled --count 4"))
def scaled(
    device: Gpu = "gpu",
    as_json: Json = False,
    csv: Csv = None,
    html: Html = None,
    record: Records = None,
    count: Annotated[int | None, typer.Option(min=1, help="at most so many pairs")] = None,
    skip: Skip = 0,
    sustained: Sustained = True,
) -> None:
    """Measure 8-bit floats with factors, in every form."""
    from lapidist_lab.bench.protocol.cases import Part

    subject = "scaled" if sustained else "scaled-burst"
    instead(subject, device, as_json, csv, html, record, Part(count, skip))


@app.command(
    epilog=examples(
        "bench grouped",
        "bench grouped --case mixtral --rows 8192",
        "bench grouped --dtype e4m3 --rows 64,32768",
        "bench grouped --cublaslt ../nvidia/cu13/lib/libcublasLt.so.13",
    )
)
def grouped(
    device: Gpu = "gpu",
    as_json: Json = False,
    csv: Csv = None,
    html: Html = None,
    record: Records = None,
    dtype: Annotated[str, typer.Option(help="bf16, or e4m3 (forward alone)", metavar="TYPE")] = "bf16",
    case: Annotated[
        str | None,
        typer.Option(help="one or more of mixtral, qwen3, deepseek; by default all", metavar="NAMES"),
    ] = None,
    way: Annotated[
        str | None, typer.Option(help="one or more of forward, data, weights", metavar="NAMES")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="of all groups together", metavar="NUMBERS")] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="how rows are shared out: even, zipf, one (all in one group)", metavar="NAMES"),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="at most so many cases")] = None,
    skip: Skip = 0,
    cublaslt: CublasLt = None,
) -> None:
    """Measure products of groups, as of experts, beside torch's.

    Options with commas name several. Without --way, --rows and --lengths the usual ones are measured, which
    takes three to four minutes.
    """
    from lapidist.dtypes import math_named, short_name
    from lapidist_lab.bench.protocol.cases import Part
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies import grouped_products
    from lapidist_lab.bench.studies.group_cases import Selection
    from lapidist_lab.bench.studies.ladder_runs import place_of

    math, numbers = math_named(dtype), numbers_in("--rows", rows)
    selection = Selection(names_in(case), names_in(way), numbers, names_in(lengths), math, Part(count, skip))
    selection.cases()  # its options are checked before a GPU is looked for
    name = "-".join(["bench-grouped", short_name(math), *([str(skip)] if skip else [])])
    outputs = Outputs(as_json, csv, None, html, record, name)
    measure = partial(grouped_products.measure, selection=selection, cublaslt=cublaslt)
    measure_on_gpu("grouped", present(place_of(device)), outputs, measure)


def required(layout: str) -> str:
    require_layout(layout)
    return layout


def timing(sustained: bool, short: bool) -> str:
    return "short" if short else "sustained" if sustained else "burst"


def outputs_of(
    words: list[str],
    cases: list[Case],
    as_json: bool,
    csv: Path | None,
    plot: Path | None,
    html: Path | None,
    record: Path | None,
) -> Outputs:
    """The type stands behind the list's name in the name of the file."""
    from lapidist.dtypes import short_name
    from lapidist_lab.bench.publish.output_files import Outputs

    name = "-".join(["bench", words[0], short_name(cases[0].math), *words[1:]])
    return Outputs(as_json, csv, plot, html, record, name)


def measure(
    cases: list[Case],
    device: str,
    kernel: str | None,
    mode: str,
    rounds: int | None,
    outputs: Outputs,
    drawn: Part | None = None,
    aligned: list[Case] | None = None,
) -> None:
    from lapidist_lab.bench.studies.ladder_runs import place_of

    padded = drawn is not None and drawn.multiple == 1
    works = works_of(cases, kernel, mode, padded) + works_of(aligned or [], kernel, mode, False)
    words = drawn.words if drawn is not None else ""
    place = require_place(present(place_of(device)))
    perform(works, place, mode, require_rounds(rounds), outputs, words, named=True)


def works_of(cases: list[Case], kernel: str | None, mode: str, padded: bool) -> list[Work]:
    """`ladder` names all kernels of a type. Machine code is read of a few products, not of hundreds."""
    from lapidist_lab.bench.protocol import contenders
    from lapidist_lab.bench.studies.ladder_runs import Work

    names, few = None if kernel == "ladder" else kernel, mode in ("sustained", "burst")
    return [Work(case, tuple(contenders.choose(names, False, case.math, few)), padded) for case in cases]


def instead(
    subject: str,
    device: str,
    as_json: bool,
    csv: Path | None,
    html: Path | None,
    record: Path | None,
    part: Part | None = None,
    marlin: Path | None = None,
) -> None:
    from lapidist_lab.bench.protocol.cases import Part
    from lapidist_lab.bench.publish.output_files import Outputs
    from lapidist_lab.bench.studies.ladder_runs import place_of

    outputs = Outputs(as_json, csv, None, html, record, f"bench-{subject}")
    measure_instead(subject, present(place_of(device)), outputs, part or Part(), marlin)
