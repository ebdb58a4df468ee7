"""The blocks of docs/ladder.md that are not prose: what a rung's file says, and what its Records say: times
and counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lapidist.bench.protocol.cases import shape_words
from lapidist.bench.protocol.record import Record, Run
from lapidist.bench.publish.tables import number, percent
from lapidist.bench.publish.views import UNIT_WORDS
from lapidist.build.compiler import CUDA_SOURCES
from lapidist.dtypes import short_name
from lapidist.kernels.registry import RUNGS, kernel_named
from lapidist.kernels.row import Kernel

KERNEL_BLOCK = re.compile(r"<!-- kernel:(\w+) -->\n.*?<!-- kernel:end -->", re.DOTALL)
RUNG_BLOCK = re.compile(r"<!-- rung:(\w+) -->\n.*?<!-- rung:end -->", re.DOTALL)
COUNTS_BLOCK = re.compile(r"<!-- counts:begin -->\n.*?<!-- counts:end -->", re.DOTALL)
HEADER_FIELD = re.compile(r"^// (Lesson|Change|Predicts): +((?:.*\n)(?://  +\S.*\n)*)", re.MULTILINE)
SLOTS = 4  # warp instructions that an SM starts a cycle
LANES = 32
COUNTED_SHAPE = (256, 256, 256)
MAIN_TYPE, MAIN_SIZE = "float16", 4096  # of the rungs on tensor cores

Found = Sequence[tuple[Record, Run]]


def worklog(text: str, found: Found) -> str:
    """docs/ladder.md with its blocks as they should be."""
    text = RUNG_BLOCK.sub(lambda match: rung_block(match[1], found), text)
    text = KERNEL_BLOCK.sub(lambda match: kernel_block(match[1], found), text)
    return COUNTS_BLOCK.sub(
        lambda _: f"<!-- counts:begin -->\n{counts_table(found)}<!-- counts:end -->", text
    )


def rung_block(name: str, found: Found) -> str:
    number_of = {kernel.name: position for position, kernel in enumerate(RUNGS, 1)}
    kernel = next(kernel for kernel in RUNGS if kernel.name == name)
    words = header_fields(kernel)
    lines = [f"**{number_of[name]:02d} {name}.** {words['Lesson']}", ""]
    lines += [
        f"- Change: {words['Change']}",
        f"- Predicted: {words['Predicts']}",
        f"- Measured: {measured(kernel, found)}",
    ]
    return f"<!-- rung:{name} -->\n" + "\n".join(lines) + "\n<!-- rung:end -->"


def kernel_block(name: str, found: Found) -> str:
    """One line for a kernel beside the ladder."""
    kernel = kernel_named(name)
    return f"<!-- kernel:{name} -->\n- {name}, {kernel.idea}: {measured(kernel, found)}\n<!-- kernel:end -->"


def header_fields(kernel: Kernel) -> dict[str, str]:
    """Lesson, Change and Predicts as the kernel's file has them, each as one line."""
    source = (CUDA_SOURCES / kernel.source).read_text()
    return {
        match[1]: " ".join(match[2].replace("//", " ").split()) for match in HEADER_FIELD.finditer(source)
    }


def measured(kernel: Kernel, found: Found) -> str:
    """Speed, share of the vendor's and step from the rung before, on every shape that the ladder of float was
    climbed on. Kernels on tensor cores have every square of half, and the main one in the other types."""
    if "float32" in kernel.types.maths:
        rows = [
            r
            for r in rows_of(kernel.name, "float32", found)
            if RUNGS[0] is kernel or step_to(r, kernel, found)
        ]
        return (
            "; ".join(speed_words(r) + step_to(r, kernel, found) for r in rows) + "." if rows else "not yet."
        )
    halves = [r for r in rows_of(kernel.name, MAIN_TYPE, found) if r.m == r.n == r.k]
    others = [math for math in kernel.types.maths if math != MAIN_TYPE]
    rows = [r for math in others for r in rows_of(kernel.name, math, found) if r.m == r.n == r.k == MAIN_SIZE]
    sentences = []
    if halves:
        steps = "; ".join(speed_words(r) + step_to(r, kernel, found) for r in halves)
        sentences.append(f"in {short_name(MAIN_TYPE)} {steps}.")
    if rows:
        types = ", ".join(
            f"{short_name(r.dtype)} {three_digits(r.tflops)} ({percent(r.ratio)})" for r in rows
        )
        sentences.append(f"At {MAIN_SIZE}^3 in other types, TFLOP/s and % of cuBLAS: {types}.")
    return " ".join(sentences) or "not yet."


def three_digits(value: float | None) -> str:
    """Whole numbers from a thousand on, where .3g would write powers of ten."""
    return number(value, ".0f" if value is not None and value >= 1000 else ".3g")


def speed_words(record: Record) -> str:
    shares = (
        f"{percent(record.ratio)} % of cuBLAS" if record.ratio is not None else "cuBLAS has no such product"
    )
    if record.unit_share and record.m == MAIN_SIZE and record.unit != "fma":
        shares += f", {percent(record.unit_share)} % of the limit of {UNIT_WORDS[record.unit or '']}"
    return f"{shape_words(record.m, record.n, record.k)} {three_digits(record.tflops)} TFLOP/s, {shares}"


def step_to(record: Record, kernel: Kernel, found: Found) -> str:
    """How much faster than the rung before on the same product; nothing where that was not measured."""
    position = RUNGS.index(kernel) if kernel in RUNGS else 0
    below = rows_of(RUNGS[position - 1].name, record.dtype, found) if position else []
    for other in below:
        if (other.m, other.n, other.k) == (record.m, record.n, record.k) and other.seconds and record.seconds:
            return f", {other.seconds / record.seconds:.2f}x the rung before"
    return ""


def rows_of(name: str, math: str, found: Found) -> list[Record]:
    """Sustained records of a kernel in one type, smallest shape first."""
    rows = [
        r
        for r, _ in found
        if (r.kernel, r.mode, r.dtype) == (name, "sustained", math) and r.tflops is not None
    ]
    return sorted(rows, key=lambda r: r.m * r.n * r.k)


# ---- counts ----


def counts_table(found: Found) -> str:
    """For each fma of a warp: instructions, turns of shared memory, sectors of global memory, and what they
    allow.
    """
    heads = [
        "rung",
        "instructions",
        "turns",
        "sectors",
        "fma slots that the turns leave",
        "that the instructions leave",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    sources = set()
    for position, kernel in enumerate(RUNGS, 1):
        for record, run in found:
            counted = (record.kernel, record.mode, record.dtype, record.m, record.n, record.k)
            if counted == (kernel.name, "machine", "float32", *COUNTED_SHAPE) and record.warp_instructions:
                lines.append(f"| {position:02d} {kernel.name} | " + " | ".join(counts_cells(record)) + " |")
                sources.add(f"`results/{run.name}`, PTX of NVRTC {run.conditions.nvrtc}")
    return "\n".join(lines) + f"\n\nFrom {', '.join(sorted(sources))}.\n" if sources else "Not counted yet.\n"


def counts_cells(record: Record) -> list[str]:
    fmas = record.m * record.n * record.k / LANES
    instructions, turns = (record.warp_instructions or 0) / fmas, (record.shared_turns or 0.0) / fmas
    cells = [f"{instructions:.2f}", f"{turns:.3f}", f"{(record.global_sectors or 0.0) / fmas:.3f}"]
    return [*cells, f"{1 / max(1.0, SLOTS * turns):.0%}", f"{1 / max(1.0, instructions):.0%}"]
