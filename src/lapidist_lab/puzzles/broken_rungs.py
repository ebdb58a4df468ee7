"""The puzzles: rungs of the ladder, each with one thing taken out by a small edit of its source.

No source is copied. A puzzle is the rung's own file with `edits` made, so it follows the ladder when that
changes; an edit whose text is gone raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.errors import ArgumentError
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS, kernel_named

Edit = tuple[str, str]  # text of the rung, which stands there once, and what the puzzle has in its place
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Puzzle:
    """`goal` is what the mended source does, without saying how; `hints` say more, one after the other.
    `shapes` are the products that it is tried with: the first one is counted."""

    rung: str
    missing: str
    goal: str
    hints: tuple[str, ...]
    edits: tuple[Edit, ...]
    shapes: tuple[Shape, ...]
    math: str = "float32"

    @property
    def kernel(self) -> Kernel:
        return kernel_named(self.rung)

    @property
    def number(self) -> int:
        return RUNGS.index(self.kernel) + 1

    @property
    def file_name(self) -> str:
        return self.kernel.source.rpartition("/")[2]

    def rung_source(self) -> str:
        return (CUDA_SOURCES / self.kernel.source).read_text(encoding="utf-8")

    def source(self) -> str:
        """The rung with its edits. The rung's header, which tells the answer, gives way to the puzzle's."""
        return "\n".join([*self.header(), *without_header(broken(self.rung_source(), self.edits))])

    def header(self) -> list[str]:
        lines = [f"Puzzle {self.number:02d}: {self.goal}", "", *self.kernel_lines()]
        return [f"// {line}".rstrip() for line in lines]

    def kernel_lines(self) -> list[str]:
        return [
            f"One thing is missing from this rung ({self.rung}). Mend it here, then ask the machine:",
            f"  lapidist puzzle {self.number:02d}            what is wrong, and where",
            f"  lapidist puzzle {self.number:02d} --hint 1   the first of {len(self.hints)} hints",
        ]


def broken(source: str, edits: Sequence[Edit]) -> str:
    for old, new in edits:
        if source.count(old) != 1:
            raise ValueError(f"the rung has {source.count(old)} places like {old!r}; an edit needs one")
        source = source.replace(old, new)
    return source


def without_header(source: str) -> list[str]:
    """The lines behind the comment that a rung begins with."""
    lines = source.split("\n")
    return lines[next(number for number, line in enumerate(lines) if not line.startswith("//")) :]


def puzzle_named(name: str) -> Puzzle:
    """A puzzle by its rung's number or name, as `05`, `5` or `padded_tile`."""
    wanted = re.sub(r"^0+(?=\d)", "", name)
    for puzzle in PUZZLES:
        if wanted in (str(puzzle.number), puzzle.rung):
            return puzzle
    listed = ", ".join(f"{puzzle.number:02d}" for puzzle in PUZZLES)
    raise ArgumentError(f"PUZZLE: must be one of {listed}; got {name!r}. `lapidist puzzle` lists them")


PUZZLES = (
    Puzzle(
        "shared_tile",
        "a barrier",
        "every thread multiplies from the tile that belongs to this step.",
        (
            "Follow two warps through two steps: a fast one, and one that is still multiplying.",
            "A fast warp stores the next tile while a slow one reads this one.",
            "The last line of the loop must keep everyone until all have read the tile: __syncthreads().",
        ),
        (
            (
                "\n    __syncthreads();  // everyone is done with the tile before the next one overwrites it",
                "",
            ),
        ),
        ((32, 64, 64), (45, 37, 77)),
    ),
    Puzzle(
        "padded_tile",
        "the padding",
        "a warp reads its 32 elements of Bs in one turn.",
        (
            "The results are right. Look at the turns that shared memory takes for a load of Bs.",
            "Lane n reads Bs[n][k]. In which of the 32 banks does row n begin?",
            "A row that is one element longer moves the next row on by a bank: Bs[BN][BK + 1].",
        ),
        (("T Bs[BN][BK + 1];", "T Bs[BN][BK];"),),
        ((32, 64, 64), (45, 37, 77)),
    ),
    Puzzle(
        "vector_loads",
        "the guard of an edge",
        "a tile that hangs over the right edge of B loads no element outside of B.",
        (
            "The product of 64 columns is right. The one of 37 loads what lies outside of B.",
            "Where does the thread at column 36 of 37 load its four elements from?",
            "b_first must lie in its row: clamp4(tile_col + b_col, N - 1). Then b_last = N - 1 - b_first.",
        ),
        (
            (
                "b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;",
                "b_first = tile_col + b_col, b_last = 3;",
            ),
        ),
        ((32, 64, 64), (45, 37, 77)),
    ),
    Puzzle(
        "double_buffer",
        "the change of buffers",
        "one barrier a step is enough, as a warp stores to the buffer that nobody reads.",
        (
            "Which buffer is written in this step, and which one do slow warps still read?",
            "There are two buffers, and one of them is never used.",
            "`stage` must change from step to step: for (...; k0 += BK, stage ^= 1).",
        ),
        (("k0 < K; k0 += BK, stage ^= 1)", "k0 < K; k0 += BK)"),),
        ((128, 128, 40), (70, 132, 29)),
    ),
    Puzzle(
        "async_pipeline",
        "a wait that is long enough",
        "a tile is read when its copies have landed, and the other copies stay on their way.",
        (
            "cp_async_wait<n> returns when at most n groups of copies are still under way.",
            "There is a group for each of STAGES - 1 tiles. The tile to be read is the oldest of them.",
            "In the loop the wait leaves STAGES - 2 groups under way, and no fewer.",
        ),
        (
            (
                "cp_async_wait<STAGES - 2>();\n        __syncthreads();",
                "cp_async_wait<STAGES - 1>();\n        __syncthreads();",
            ),
        ),
        ((128, 128, 72), (70, 132, 53)),
    ),
    Puzzle(
        "tma_tiles",
        "a swizzle",
        "a thread finds an element of A where TMA put it.",
        (
            "TMA wrote the rows of A with their 16-byte pieces exchanged. Which row is right as it is?",
            "Piece p of row r lies at p ^ r % 8. Rows of a thread differ in r % 8 by LANES_M.",
            "const int place = k ^ (lane_row + m % 2 * LANES_M) * 16 / sizeof(T), which counts elements.",
        ),
        (
            (
                "const int place = k ^ (lane_row + m % 2 * LANES_M) * 16 / static_cast<int>(sizeof(T));",
                "const int place = k;",
            ),
        ),
        ((128, 128, 160), (70, 132, 100)),
    ),
    Puzzle(
        "producer_warp",
        "a meeting of lanes",
        "a stage is given back when all lanes of a warp have read it.",
        (
            "One lane speaks for its warp. What does it know of the other 31?",
            "Lanes of a warp need not run together: one may be behind in its reads.",
            "Before lane 0 arrives at empty[freed], the warp must meet: __syncwarp().",
        ),
        (("\n    __syncwarp();  // all lanes have read the tile", ""),),
        ((256, 128, 192), (70, 132, 100)),
    ),
    Puzzle(
        "mma_swizzled",
        "a barrier before memory has another use",
        "the results of a warp do not overwrite a tile that another warp still reads.",
        (
            "The tiles are read until the last step. What lies in the same shared memory afterwards?",
            "`patch` begins where the tile of A does. The last step of the loop ends without a barrier.",
            "__syncthreads() stands between the loop and the first store to `patch`.",
        ),
        (("\n  __syncthreads();  // everyone is done with the last tiles before D overwrites them", ""),),
        ((128, 128, 128), (70, 136, 72)),
        "float16",
    ),
    Puzzle(
        "wgmma_tma",
        "a wait for the tensor cores",
        "a stage is filled again only when the products that read it are done.",
        (
            "wgmma is asynchronous: the four instructions return before they have read the stage.",
            "A barrier of threads says nothing of products that are still under way.",
            "Move products_wait<0>() from behind the loop to behind products_commit(), before the barrier.",
        ),
        (
            ("\n    products_wait<0>();", ""),
            ("  sums_arrive(sums);", "  products_wait<0>();\n  sums_arrive(sums);"),
        ),
        ((128, 256, 384), (70, 264, 320)),
        "float16",
    ),
    Puzzle(
        "wgmma_specialised",
        "a phase",
        "the producer waits for a stage only where a consumer has still to give it back.",
        (
            "Nobody goes on: who waits, for which barrier, and who would have to arrive there?",
            "At first all stages are empty, and no consumer ever said so.",
            "A wait for the phase before the first returns at once: the producer's parity begins with 1.",
        ),
        (("int parity = 1;", "int parity = 0;"),),
        ((128, 256, 384), (70, 264, 320)),
        "float16",
    ),
)
