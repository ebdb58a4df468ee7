"""The blocks of docs/ladder.md that are not prose: what a rung's file says, and what its Records say: times and counts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lapidist.bench.cases import shape_words
from lapidist.bench.record import Record, Run
from lapidist.bench.tables import number, percent
from lapidist.compiler import CUDA_SOURCES
from lapidist.kernel import Kernel
from lapidist.kernels import RUNGS

RUNG_BLOCK = re.compile(r"<!-- rung:(\w+) -->\n.*?<!-- rung:end -->", re.DOTALL)
COUNTS_BLOCK = re.compile(r"<!-- counts:begin -->\n.*?<!-- counts:end -->", re.DOTALL)
HEADER_FIELD = re.compile(r"^// (Lesson|Change|Predicts): +((?:.*\n)(?://  +\S.*\n)*)", re.MULTILINE)
SLOTS = 4  # warp instructions that an SM starts a cycle
LANES = 32

Found = Sequence[tuple[Record, Run]]


def worklog(text: str, found: Found) -> str:
    """docs/ladder.md with its blocks as they should be."""
    text = RUNG_BLOCK.sub(lambda match: rung_block(match[1], found), text)
    return COUNTS_BLOCK.sub(lambda _: f"<!-- counts:begin -->\n{counts_table(found)}<!-- counts:end -->", text)


def rung_block(name: str, found: Found) -> str:
    number_of = {kernel.name: position for position, kernel in enumerate(RUNGS, 1)}
    kernel = next(kernel for kernel in RUNGS if kernel.name == name)
    words = header_fields(kernel)
    lines = [f"**{number_of[name]:02d} {name}.** {words['Lesson']}", ""]
    lines += [f"- Change: {words['Change']}", f"- Predicted: {words['Predicts']}", f"- Measured: {measured(kernel, found)}"]
    return f"<!-- rung:{name} -->\n" + "\n".join(lines) + "\n<!-- rung:end -->"


def header_fields(kernel: Kernel) -> dict[str, str]:
    """Lesson, Change and Predicts as the kernel's file has them, each as one line."""
    source = (CUDA_SOURCES / kernel.source).read_text()
    return {match[1]: " ".join(match[2].replace("//", " ").split()) for match in HEADER_FIELD.finditer(source)}


def measured(kernel: Kernel, found: Found) -> str:
    """Every shape that the whole ladder was climbed on: speed, share of the vendor's, step from the rung before."""
    position = RUNGS.index(kernel)
    below = RUNGS[position - 1].name if position else None
    parts = []
    for record in rows_of(kernel.name, found):
        step = ""
        for other in rows_of(below, found) if below else []:
            if (other.m, other.n, other.k) == (record.m, record.n, record.k) and other.seconds and record.seconds:
                step = f", {other.seconds / record.seconds:.2f}x the rung before"
        if step or position == 0:
            words = shape_words(record.m, record.n, record.k)
            parts.append(f"{words} {number(record.tflops, '.3g')} TFLOP/s, {percent(record.ratio)} % of cuBLAS{step}")
    return "; ".join(parts) + "." if parts else "not yet."


def rows_of(name: str | None, found: Found) -> list[Record]:
    """Sustained float records of a kernel, smallest shape first."""
    rows = [r for r, _ in found if (r.kernel, r.mode, r.dtype) == (name, "sustained", "float32") and r.tflops is not None]
    return sorted(rows, key=lambda r: r.m * r.n * r.k)


# ---- counts ----


def counts_table(found: Found) -> str:
    """For each fma of a warp: instructions, turns of shared memory, sectors of global memory, and what they allow."""
    heads = ["rung", "instructions", "turns", "sectors", "fma slots that the turns leave", "that the instructions leave"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    sources = set()
    for position, kernel in enumerate(RUNGS, 1):
        for record, run in found:
            if (record.kernel, record.mode, record.dtype) == (kernel.name, "machine", "float32") and record.warp_instructions:
                lines.append(f"| {position:02d} {kernel.name} | " + " | ".join(counts_cells(record)) + " |")
                sources.add(f"`results/{run.name}`, PTX of NVRTC {run.conditions.nvrtc}")
    return "\n".join(lines) + f"\n\nFrom {', '.join(sorted(sources))}.\n" if sources else "Not counted yet.\n"


def counts_cells(record: Record) -> list[str]:
    fmas = record.m * record.n * record.k / LANES
    instructions, turns = (record.warp_instructions or 0) / fmas, (record.shared_turns or 0.0) / fmas
    cells = [f"{instructions:.2f}", f"{turns:.3f}", f"{(record.global_sectors or 0.0) / fmas:.3f}"]
    return [*cells, f"{1 / max(1.0, SLOTS * turns):.0%}", f"{1 / max(1.0, instructions):.0%}"]
