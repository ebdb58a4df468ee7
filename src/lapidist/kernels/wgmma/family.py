"""The family wgmma (gemm/wgmma.cu), for Hopper's own tensor-core instruction (sm_90a): what it takes, its
macros, its registry row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lapidist.config import Config, Knobs
from lapidist.dtypes import FP8, TF32
from lapidist.kernels import halves
from lapidist.kernels.clipped_maps import refuse_cut_lines, refuse_many_lines
from lapidist.kernels.kernel import Kernel, Listed, Types
from lapidist.kernels.macros import batched, epilogue, tensor_types
from lapidist.kernels.parameters import OPERANDS, SCALES, SCHEDULE, SIZES, Parameters
from lapidist.kernels.rules import hopper as rules
from lapidist.kernels.rules.hopper import INTEGERS
from lapidist.kernels.rules.layout_rules import refuse_batch, refuse_strided
from lapidist.kernels.tma_alignment import line
from lapidist.kernels.wgmma.config_list import family_configs
from lapidist.kernels.wgmma.configs import tile
from lapidist.kernels.wgmma.group_parts import group_macros, parts_of_tiles, tiles_handed_on
from lapidist.kernels.wgmma.maps import family_maps
from lapidist.kernels.wgmma.operands import (
    EITHER_WAY,
    by_registers,
    c_lies,
    copies_out,
    few_rows,
    grouped_columns,
    groups,
    joins_values,
    lines_of,
    mn_major,
    packed,
    quantises,
    rows_copied_out,
    scatters,
    scratch,
    transposed,
    transposed_d,
)
from lapidist.kernels.wgmma.registers import config_macros
from lapidist.kernels.wgmma.shared import leaves_room, wgmma_shared
from lapidist.kernels.wgmma.tiles import PATCH_ROWS, stores_both_halves, tiles_of_triangle
from lapidist.kernels.wgmma.warpgroups import Warpgroups
from lapidist.launch import MOST_OWNERS, TensorMap
from lapidist.problems.modes import PLAIN
from lapidist.problems.problem import COPIED, Problem
from lapidist.problems.ragged import DEPTH, ROWS

MATHS = (*EITHER_WAY, TF32, *INTEGERS, *FP8)
MAPS: Parameters = (("a_map", "tensormap"), ("b_map", "tensormap"))


class Wgmma(Warpgroups):
    takes_groups = True
    awaits_rows = True
    has_owners = True
    parameters: Parameters = (
        *SIZES,
        ("batch", "i32"),
        ("batches", "i32"),
        ("alpha", "scalar"),
        ("beta", "scalar"),
        *MAPS,
        ("d_map", "tensormap"),
        *((letter, "pointer") for letter in OPERANDS),
        *((f"{letter}_{step}", "i64") for letter in "ab" for step in ("line", "inner", "outer")),
        *((f"c_{step}", "i64") for step in ("row", "col", "inner", "outer")),
        *((f"d_{step}", "i64") for step in ("line", "inner", "outer")),
        *SCHEDULE,
        SCALES,
        ("order", "order"),
    )

    # ---- what follows from a problem ----

    def refuse(self, problem: Problem) -> str | None:
        return (
            refuse_strided("D", problem.d)
            or refuse_batch(problem)
            or refuse_backwards(problem)
            or refuse_strided("A", problem.a)
            or refuse_strided("B", problem.b)
            or refuse_groups(problem)
            or refuse_arrivals(problem)
            or refuse_owners(problem)
        )

    def takes_modes(self, problem: Problem) -> bool:
        """Rows that groups cut may be gathered from A, and scattered to D, as tokens of experts are. A guard
        stands alone.
        """
        modes = problem.modes
        if modes.guarded:
            return not replace(modes, guarded=False).routes
        return modes.cuts(ROWS) and not replace(modes, gather_a=0, scatter_rows=0).routes

    def macros(self, problem: Problem) -> Mapping[str, object]:
        pack_a, pack_b = (
            2 if transposes else int(packs)
            for packs, transposes in zip(packed(problem), transposed(problem), strict=True)
        )
        packing = {"A_M_MAJOR": int(mn_major(problem)[0]), "PACK_A": pack_a, "PACK_B": pack_b}
        unusual = {
            "D_M_MAJOR": int(transposed_d(problem)),
            "A_SKEWED": int(problem.skewed),
            "A_ROWS": few_rows(problem),
        }
        return {
            **rung_macros(problem),
            "D_COPY_ENGINE": int(copies_out(problem)),
            **packing,
            **{name: value for name, value in unusual.items() if value},
            **batched(problem),
            **c_lies(problem),
            **epilogue(problem),
            **groups(problem),
            **({} if problem.arrivals is None else {"ARRIVALS": 1 + problem.transposed}),
            **({} if problem.owners is None else {"OWNERS": len(problem.owners.addresses)}),
            **problem.scaling.defines(),
            **problem.modes.defines(),
        }

    def constants(self, problem: Problem) -> Mapping[str, Any]:
        """The strides between lines of A, B and D, and the outer extent of a batch."""
        (_, _, a_line), (_, _, b_line) = lines_of(problem)
        d_line = line(problem.d, not transposed_d(problem))[2]
        owners = problem.owners
        return {
            "a_line": a_line,
            "b_line": b_line,
            "d_line": d_line,
            "batches": problem.batch[0] if len(problem.batch) > 1 else 1,
            **({} if owners is None else {"owners": (owners.rows, owners.first)}),
        }

    def scratch(self, problem: Problem) -> tuple[int, int]:
        return scratch(problem)

    # ---- what follows from a config ----

    def maps(
        self, problem: Problem, config: Config, at: Mapping[str, int], peers: int
    ) -> Mapping[str, TensorMap]:
        return family_maps(problem, config, at, peers)

    def config_macros(self, problem: Problem, config: Config, scheduled: bool) -> Mapping[str, object]:
        macros = {**config_macros(problem, config, scheduled), **group_macros(problem, config)}
        if problem.arrivals is not None and not scheduled:
            # tiles in the order in which rows arrive, which are columns if A and B are exchanged
            return {**macros, "ALONG_M": int(config.exchanged)}
        if scheduled or tiles_of_triangle(problem, config) is None:
            return macros
        twice = stores_both_halves(problem, config)
        by_elements = {"BOTH_HALVES": 2} if twice and problem.triangle == COPIED else {}
        return {**macros, **halves.macros(problem, config, twice), **by_elements}

    def parts_of_tiles(self, problem: Problem, config: Config) -> int:
        return parts_of_tiles(problem, config)

    def tiles_handed_on(self, problem: Problem, blocks: int) -> int:
        return tiles_handed_on(problem, blocks)

    def puts_sums_aside(self, problem: Problem) -> bool:
        """Registers keep them."""
        return False

    def shared_bytes(self, problem: Problem, config: Knobs) -> Any:
        return wgmma_shared(problem, config)

    def quantises(self, problem: Problem, config: Config, peers: int) -> bool:
        return quantises(problem) and peers == 1 and config.bn % grouped_columns(problem) == 0

    def joins_values(self, problem: Problem) -> bool:
        return joins_values(problem)

    def leaves_room(self, problem: Problem, config: Knobs) -> Any:
        return leaves_room(problem, config)


def refuse_backwards(problem: Problem) -> str | None:
    if any(step < 0 for matrix in problem.matrices() for step in matrix.batch_strides):
        return "TMA steps forward from matrix to matrix; a batch stride is negative"
    if any(step < 0 for _, _, step in lines_of(problem)):
        return "TMA steps forward from line to line; a stride of A or B is negative"
    return None


def refuse_groups(problem: Problem) -> str | None:
    """Boxes of TMA end with a group only between lines of the map: groups must not cut the direction in which
    elements are adjacent.
    """
    modes = problem.modes
    if modes.ragged is None:
        return None
    many = refuse_many_lines(modes.ragged)
    if many is not None:
        return many
    if any(packed(problem)) or by_registers(problem):
        return "A and B are packed, or pass registers, before it knows groups; their lines start anywhere"
    if modes.gather_a and problem.math == TF32:
        return "it gathers rows as they lie; TMA rounds float32 on its way"
    if modes.scatter_rows and not scatters(problem):
        return "it scatters rows of D that are made of 16 bytes, without C and without further results"
    across = refuse_cut_lines(problem, modes.ragged, mn_major(problem))
    if across is not None:
        return across
    if not modes.cuts(DEPTH) and copies_out(problem) and transposed_d(problem) == modes.cuts(ROWS):
        return f"TMA cuts D between its lines; {modes.ragged} cut them, as they lie"
    return None


def refuse_arrivals(problem: Problem) -> str | None:
    """The thread that loads A and B waits for rows, and loads them as they lie."""
    if problem.arrivals is None:
        return None
    if problem.batch or problem.modes != PLAIN or problem.triangle:
        return "it waits for rows of A of one plain product"
    if packed(problem)[problem.transposed] or problem.skewed:
        return "A is packed, or shifted, before it knows which rows are there; its lines start anywhere"
    return None


def refuse_owners(problem: Problem) -> str | None:
    """TMA stores lines of D, which must be the caller's rows, to the map of their owner."""
    if problem.owners is None:
        return None
    if problem.batch or problem.modes != PLAIN or problem.triangle or problem.skewed or not problem.k:
        return "it stores rows of one plain product at their owners"
    if len(problem.owners.addresses) > MOST_OWNERS:
        return f"a launch has maps of {MOST_OWNERS} owners at most; there are {len(problem.owners.addresses)}"
    if problem.c is not None or problem.fused is not None:
        return "owners get sums as they are, without C and without functions of them"
    if not copies_out(problem) or transposed_d(problem) != problem.transposed:
        return "TMA stores rows of D that start on multiples of 16 bytes"
    together = PATCH_ROWS * (4 if problem.transposed else 1)
    if problem.owners.rows % together:
        return f"TMA stores {together} rows at once, which have one owner; it has {problem.owners.rows}"
    return None


def rung_macros(problem: Problem) -> Mapping[str, object]:
    """Macros for the types, for a B that is contiguous along n, and for how D is stored."""
    return {
        **tensor_types(problem),
        "B_N_MAJOR": int(mn_major(problem)[1]),
        "D_COPY_ENGINE": int(rows_copied_out(problem)),
    }


FAMILY_TYPES = Types(MATHS, mixed=True, outputs=True, promoted=True, factors=True)
WGMMA_FAMILY = Kernel(
    "wgmma",
    "production",
    "gemm/wgmma.cu",
    "Hopper: every layout and alignment, batches; tiles to fit",
    Wgmma(),
    tile("float16", 128, 256, 4),
    0.95,
    (9, 0),
    tuned=Listed(MATHS, family_configs),
    overlaps=True,
    persistent=1,
    types=FAMILY_TYPES,
    unit="wgmma",
    reductions=("turnstile", "cluster"),
    rules=rules.FAMILY,
    free_order=True,
    worth=0.95,
)
