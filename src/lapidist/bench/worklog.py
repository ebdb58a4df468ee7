"""The blocks of docs/ladder.md that are not prose: what a rung's file says, what its Records say, what the machine counts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from lapidist.bench.cases import shape_words
from lapidist.bench.record import Record, Run
from lapidist.bench.tables import number, percent
from lapidist.compiler import CUDA_SOURCES
from lapidist.errors import RefusalError
from lapidist.kernels import RUNGS, Kernel

RUNG_BLOCK = re.compile(r"<!-- rung:(\w+) -->\n.*?<!-- rung:end -->", re.DOTALL)
COUNTS_BLOCK = re.compile(r"<!-- counts:begin -->\n.*?<!-- counts:end -->", re.DOTALL)
HEADER_FIELD = re.compile(r"^// (Lesson|Change|Predicts): +((?:.*\n)(?://  +\S.*\n)*)", re.MULTILINE)
COUNTED_SIZE = 256
SLOTS = 4  # warp instructions that an SM starts a cycle

Found = Sequence[tuple[Record, Run]]


def worklog(text: str, found: Found) -> str:
    """docs/ladder.md with its blocks as they should be."""
    text = RUNG_BLOCK.sub(lambda match: rung_block(match[1], found), text)
    return COUNTS_BLOCK.sub(lambda _: f"<!-- counts:begin -->\n{counts_table()}<!-- counts:end -->", text)


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


def counts_table() -> str:
    """For each fma of a warp: other instructions, turns of shared memory, sectors of global memory, and what they allow."""
    heads = ["rung", "instructions", "turns", "sectors", "fma slots that the turns leave", "that the instructions leave"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for position, kernel in enumerate(RUNGS, 1):
        instructions, turns, sectors = counted(kernel)
        cells = [f"{position:02d} {kernel.name}", f"{instructions:.2f}", f"{turns:.3f}", f"{sectors:.3f}"]
        cells += [f"{1 / max(1.0, SLOTS * turns):.0%}", f"{1 / max(1.0, instructions):.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def counted(kernel: Kernel) -> tuple[float, float, float]:
    """Warp instructions, shared turns and global sectors for each warp fma, on the machine."""
    from lapidist import machine
    from lapidist.arrays import operand_of
    from lapidist.prepare import Arguments, Gemm

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((COUNTED_SIZE, COUNTED_SIZE)).astype("float32") for _ in range(2))
    out = np.empty_like(a)
    arguments = Arguments(a, b, None, out, False, False, False, 1.0, 0.0)
    plan = Gemm(arguments, "machine", kernel.name, None).plan
    if plan is None:
        raise RefusalError(f"{kernel.name}: nothing to count on the host")
    counts = machine.run(plan.launch(arguments.a, arguments.b, None, operand_of(out, "out"), 1.0, 0.0)).counts
    if counts is None:
        raise RefusalError(f"{kernel.name}: the machine did not count")
    fmas = COUNTED_SIZE**3 / 32
    shared, loads = counts.shared_load, counts.global_load
    return (
        counts.warp_instructions / fmas,
        (shared.requests * shared.per_request + counts.shared_store.requests * counts.shared_store.per_request) / fmas,
        loads.requests * loads.per_request / fmas,
    )
