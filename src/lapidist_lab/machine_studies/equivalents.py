"""Mutants that behave as the kernel does in every schedule: to miss them is right. Each rule says why."""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.machine.ptx.syntax_tree import Instruction


@dataclass(frozen=True)
class Rule:
    """Holds for an instruction of one source line, in kernels with a certain text in their PTX."""

    source: str  # file
    line: str  # what stands in the statement, or in the comment above it
    ptx: str
    why: str
    opcode: str = ""  # of this one only
    within: str = ""  # what stands in a line that this one was inlined at


MEETS_ALL_BLOCKS = "fence.proxy.async.global"
D_BY_THE_COPY_ENGINE = "cp.async.bulk.wait_group"
INIT = (
    "where blocks pack, who orders copies meets all of them, and fences the proxies, before anyone uses an"
    " mbarrier"
)
RULES = (
    Rule(
        "packing/packing.cuh",
        "always; but it parts",
        "",
        "the condition always holds, and parts loads from shifts for the assembler",
    ),
    Rule("wgmma.cu", "else if (!PACKS) __syncthreads", MEETS_ALL_BLOCKS, INIT),
    Rule(
        "overlap.cuh",
        "griddepcontrol.wait",
        MEETS_ALL_BLOCKS,
        "a launch whose blocks meet begins after the last one has ended",
    ),
    *(
        Rule(
            source,
            "the patch is read before it is filled again",
            "",
            "behind the last patch nothing is filled again",
        )
        for source in (
            "22_wmma_shared.cu",
            "23_mma_swizzled.cu",
            "24_mma_multistage.cu",
            "25_mma_tma.cu",
            "wmma_beta_first.cu",
        )
    ),
    Rule(
        "28_wgmma_rounds.cu",
        "while (tiles.next())",
        "",
        "a launch has no more blocks than tiles: each block has a first one",
        "bra",
    ),
    Rule(
        "wmma_beta_first.cu",
        "the tile before is done with shared memory",
        "",
        "there is a block for each tile: nobody used shared memory before",
    ),
    Rule(
        "gemm/mma/finish.cuh",
        "all threads have read the last tile",
        "f64.f64.f64.f64",
        "the loop's last barrier stands behind the last read whose value is used; what is read after it is"
        " dropped",
    ),
    Rule(
        "packing/packing.cuh",
        "matrix < batch.matrices(); ++matrix",
        "",
        "a batch has a matrix at least",
        "bra",
    ),
    Rule(
        "packing/transposed.cuh",
        "for (; item < tiles;",
        "",
        "past the last square nothing exists, and nothing is packed behind B",
        "bra",
        "pack<B_N_MAJOR",
    ),
    Rule(
        "packing/transposed.cuh",
        "for (int i = 0; apart >> i; ++i)",
        "",
        "the body asks again for each piece",
        "bra",
    ),
    Rule(
        "packing/transposed.cuh",
        "if (!(apart >> i & 1)",
        "",
        "pieces that came whole would leave once more",
        "bra",
    ),
    Rule(
        "packing/transposed.cuh",
        "if (e + j < exist) target",
        D_BY_THE_COPY_ENGINE,
        "rows of D are whole pieces of 16 bytes, and B has as many columns: they end with four that are asked"
        " for together",
        "bra",
    ),
    Rule(
        "gemm/wgmma/multiply.cuh",
        "all lanes have read the stage",
        "",
        "of the two steps in a turn of the loop, the warp meets in the other one too, behind the same reads",
        "bar",
        "if (step > tiles.begin)",
    ),
    Rule(
        "gemm/wgmma/produce.cuh",
        "stages are freed in order",
        "",
        "stages come back in order: the last wait is for all of them",
    ),
    Rule(
        "share/flags.cuh",
        'if (threadIdx.x == 0) asm volatile("st.relaxed',
        "",
        "all threads would store the same zero",
        "bra",
    ),
    Rule(
        "share/sharing.cuh",
        "each_piece<THREADS>(workspace.slots, unit.slot, sums, owned, LeavePiece<Sum>()",
        "",
        "a block that finishes a tile would leave its sums in a slot that nobody reads any more",
    ),
)


def equivalent(i: Instruction, ptx: str) -> str:
    """Why nothing changes without this instruction; "" if no rule says so."""
    for rule in RULES:
        if (
            rule.ptx in ptx
            and rule.opcode in ("", i.opcode)
            and any(rule.source == file and rule.line in text for file, text in source_lines(i))
            and any(rule.within in text for _, text in source_lines(i))
        ):
            return rule.why
    return ""


def source_lines(i: Instruction) -> list[tuple[str, str]]:
    """(file, text) of the instruction's statement, and of those that it was inlined at."""
    statements = []
    for place in i.site.source.replace("inlined at ", "").split(", "):
        file, _, number = place.rpartition(":")
        text = read_source(file)
        if text and number.isdigit() and int(number) <= len(text):
            statements.append((file, statement(text, int(number) - 1)))
    return statements


def statement(lines: list[str], index: int) -> str:
    """The statement that goes on from this line, behind the comment above it."""
    first, last = index, index
    while first and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    while last + 1 < len(lines) and not lines[last].split("//")[0].rstrip().endswith((";", "{", "}", ":")):
        last += 1
    return " ".join(line.strip().removeprefix("// ") for line in lines[first : last + 1])


def read_source(file: str) -> list[str]:
    for folder in ("", "ladder", "detours", "gemm"):
        path = CUDA_SOURCES / folder / file
        if path.is_file():
            return path.read_text().splitlines()
    return []
