"""The blocks of docs/ladder.md and docs/wgmma.md that are not prose.

They quote a rung's file, and the times and counts of its Records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.dtypes import short_name
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS, kernel_named
from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.cells import number, percent, shape
from lapidist_lab.bench.publish.record_views import UNIT_WORDS, RunRecords
from lapidist_lab.bench.publish.tables import Table

KERNEL_BLOCK = re.compile(r"<!-- kernel:(\w+) -->\n.*?<!-- kernel:end -->", re.DOTALL)
RUNG_BLOCK = re.compile(r"<!-- rung:(\w+) -->\n.*?<!-- rung:end -->", re.DOTALL)
COUNTS_BLOCK = re.compile(r"<!-- counts-(\w+):begin -->\n.*?<!-- counts-\1:end -->", re.DOTALL)
HEADER_FIELD = re.compile(r"^// (Lesson|Change|Predicts): +((?:.*\n)(?://  +\S.*\n)*)", re.MULTILINE)
SLOTS = 4  # warp instructions that an SM starts a cycle
LANES = 32
PRODUCT = 16 * 8 * 16  # multiplications of one m16n8k16
COUNTED_SHAPE = (256, 256, 256)
COUNTS = ("rung", "instructions", "turns", "sectors")
FMA_HEADS = (*COUNTS, "slots by turns", "slots by instructions")
PRODUCT_HEADS = (*COUNTS, "bytes from and to the L2")
MAIN_TYPE, MAIN_SIZE = "float16", 4096  # of the rungs on tensor cores


Timed = Mapping[tuple[str, str], Sequence[Record]]  # by kernel and type


def worklog(text: str, run_records: RunRecords) -> str:
    """The page with its blocks written anew."""
    timed = sustained(run_records)
    text = RUNG_BLOCK.sub(lambda match: rung_block(match[1], timed), text)
    text = KERNEL_BLOCK.sub(lambda match: kernel_block(match[1], timed), text)
    return COUNTS_BLOCK.sub(lambda match: counts_block(match[1], run_records), text)


def rung_block(name: str, timed: Timed) -> str:
    number_of = {kernel.name: position for position, kernel in enumerate(RUNGS, 1)}
    kernel = next(kernel for kernel in RUNGS if kernel.name == name)
    words = header_fields(kernel)
    lines = [f"**{number_of[name]:02d} {name}.** {words['Lesson']}", ""]
    lines += [f"- Change: {words['Change']}", f"- Predicted: {words['Predicts']}"]
    return f"<!-- rung:{name} -->\n" + "\n".join(lines) + measured(kernel, timed) + "\n<!-- rung:end -->"


def kernel_block(name: str, timed: Timed) -> str:
    """The line of a kernel beside the ladder, with its speeds."""
    kernel = kernel_named(name)
    head = f"- `{name}`, {kernel.idea}"
    return f"<!-- kernel:{name} -->\n{head}{measured(kernel, timed)}\n<!-- kernel:end -->"


def header_fields(kernel: Kernel) -> dict[str, str]:
    """Lesson, Change and Predicts of the kernel's file, each as one line."""
    source = (CUDA_SOURCES / kernel.source).read_text(encoding="utf-8")
    words = {
        match[1]: " ".join(match[2].replace("//", " ").split()) for match in HEADER_FIELD.finditer(source)
    }
    return {name: text[0].upper() + text[1:] if name == "Lesson" else text for name, text in words.items()}


# ---- times ----


def measured(kernel: Kernel, timed: Timed) -> str:
    """The end of a list: a table of speeds, or that there are none yet."""
    rows = speeds(kernel, timed)
    if not rows:
        return "\n- Measured: not yet."
    unit, cells = UNIT_WORDS[rows[0].unit or "fma"], [speed_cells(r, kernel, timed) for r in rows]
    if {cell[0] for cell in cells} == {"fp32"}:
        cells = [["-", *cell[1:]] for cell in cells]
    heads = [
        "type",
        "product",
        "TFLOP/s",
        "% of cuBLAS",
        f"% of the limit of {unit}",
        "times the rung before",
    ]
    return f"\n- Measured:\n\n{Table(heads, cells, ('product',)).filled().markdown()}"


def speeds(kernel: Kernel, timed: Timed) -> list[Record]:
    """The rows of a kernel to show: shapes on which the ladder was climbed, or of tensor cores' rungs the
    squares in half and the main one in other types."""
    if "float32" in kernel.types.maths:
        rows = timed.get((kernel.name, "float32"), [])
        return [r for r in rows if RUNGS[0] is kernel or step_to(r, kernel, timed)]
    halves = [r for r in timed.get((kernel.name, MAIN_TYPE), []) if r.m == r.n == r.k]
    more_types = [math for math in kernel.types.maths if math != MAIN_TYPE]
    return halves + [
        r for math in more_types for r in timed.get((kernel.name, math), []) if r.m == r.n == r.k == MAIN_SIZE
    ]


def speed_cells(record: Record, kernel: Kernel, timed: Timed) -> list[str]:
    of_unit = percent(record.unit_share) if record.unit_share and record.unit != "fma" else "-"
    named = [short_name(record.dtype), shape(record), three_digits(record.tflops)]
    # Rungs on CUDA cores are compared with cuBLAS and with each other alone.
    return [*named, percent(record.ratio), of_unit, step_to(record, kernel, timed) or "-"]


def three_digits(value: float | None) -> str:
    """The number with three digits; whole from a thousand on, where .3g would write powers of ten."""
    return number(value, ".0f" if value is not None and value >= 1000 else ".3g")


def step_to(record: Record, kernel: Kernel, timed: Timed) -> str:
    """How many times as fast as the rung before on the same product; empty where that was not measured."""
    position = RUNGS.index(kernel) if kernel in RUNGS else 0
    below = timed.get((RUNGS[position - 1].name, record.dtype), []) if position else []
    for other in below:
        if (other.m, other.n, other.k) == (record.m, record.n, record.k) and other.seconds and record.seconds:
            return f"{other.seconds / record.seconds:.2f}"
    return ""


def sustained(run_records: RunRecords) -> Timed:
    """Sustained records of each kernel in each type, smallest shape first."""
    rows: dict[tuple[str, str], list[Record]] = {}
    for record, _ in sorted(run_records, key=lambda row: row[0].m * row[0].n * row[0].k):
        if record.mode == "sustained" and record.tflops is not None:
            rows.setdefault((record.kernel, record.dtype), []).append(record)
    return rows


# ---- counts ----


def counts_block(name: str, run_records: RunRecords) -> str:
    """The table of counts: `fp32` of the rungs on CUDA cores, `fp16` of those on tensor cores."""
    heads, cells = (FMA_HEADS, fma_cells) if name == "fp32" else (PRODUCT_HEADS, product_cells)
    rows = list(counted_rows(name, run_records))
    shown = Table(heads, [[f"{at:02d} {record.kernel}", *cells(record)] for at, record, _ in rows]).markdown()
    sources = {f"`results/{run.name}`, PTX of NVRTC {run.conditions.nvrtc}" for *_, run in rows}
    text = f"{shown}\nFrom {', '.join(sorted(sources))}.\n" if rows else "Not counted yet.\n"
    return f"<!-- counts-{name}:begin -->\n{text}<!-- counts-{name}:end -->"


def counted_rows(name: str, run_records: RunRecords) -> Iterator[tuple[int, Record, Run]]:
    """The machine's counts of rungs with the rung's number, lowest first."""
    counted = [row for row in run_records if row[0].mode == "machine" and row[0].warp_instructions]
    for position, kernel in enumerate(RUNGS, 1):
        if ("float32" in kernel.types.maths) != (name == "fp32"):
            continue
        for record, run in counted:
            key = (record.kernel, short_name(record.dtype), record.m, record.n, record.k)
            if key == (kernel.name, name, *COUNTED_SHAPE):
                yield position, record, run


def fma_cells(record: Record) -> list[str]:
    """Counts for each fma of a warp."""
    fmas = record.m * record.n * record.k / LANES
    instructions, turns = (record.warp_instructions or 0) / fmas, (record.shared_turns or 0.0) / fmas
    cells = [f"{instructions:.2f}", f"{turns:.3f}", f"{(record.global_sectors or 0.0) / fmas:.3f}"]
    return [*cells, f"{1 / max(1.0, SLOTS * turns):.0%}", f"{1 / max(1.0, instructions):.0%}"]


def product_cells(record: Record) -> list[str]:
    """Counts for each m16n8k16, whichever instruction multiplies it."""
    multiplications = record.m * record.n * record.k
    products = multiplications / PRODUCT
    instructions, turns = (record.warp_instructions or 0) / products, (record.shared_turns or 0.0) / products
    moved = (record.bytes_per_flop or 0.0) * 2 * PRODUCT
    sectors = (record.global_sectors or 0.0) / products
    return [f"{instructions:.2f}", f"{turns:.2f}", f"{sectors:.2f}", f"{moved:.0f}"]
