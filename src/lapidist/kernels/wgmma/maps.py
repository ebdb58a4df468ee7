"""TMA's maps of A, B and D for the wgmma kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lapidist.config import Config
from lapidist.dtypes import TF32, size_of
from lapidist.kernels.clipped_maps import cut_by_groups
from lapidist.kernels.tma_alignment import (
    L2_LINE,
    TMA_ALIGNMENT,
    Lines,
    along_k,
    batch_steps,
    line,
    nothing_at,
)
from lapidist.kernels.wgmma.operands import (
    copies_out,
    lines_of,
    packed,
    packed_bytes,
    packed_lines,
    rows_copied_out,
    transposed_d,
)
from lapidist.kernels.wgmma.tiles import ROW_BYTES, boxes, patch_of, read_once
from lapidist.launch import TensorMap
from lapidist.problems.matrix import Matrix
from lapidist.problems.problem import Problem

ROUNDED = {TF32: "tfloat32"}  # TMA rounds float32 to tf32
SKEWED_ROWS = 128  # shifted rows need an A with so many: as many as the largest tile has
SKEWED_STEP = 1 << 27  # most elements from row to row: eight rows are counted in 32 bits
SKEWED_BYTES = ROW_BYTES + 16  # bytes of a shifted row, with those before its start


def operand_map(
    problem: Problem,
    matrix: Matrix,
    address: int,
    lines: Lines,
    box: tuple[int, int],
    ranks: int,
    packs: bool = False,
    once: bool = False,
) -> TensorMap:
    """The map of an operand or of its packed copy, in which matrices follow each other."""
    count, length, step = lines
    size, dtype = size_of(problem.dtype), ROUNDED.get(problem.math, problem.dtype)
    steps = [step * size if count > 1 and length > 0 else TMA_ALIGNMENT]
    extents = [max(1, length), max(1, count)]
    packed_stride = count * step
    for extent, stride in batch_steps(problem, matrix)[: ranks - 2]:
        extents.append(extent if stride else 1)
        steps.append((packed_stride if packs and stride else stride) * size or TMA_ALIGNMENT)
        packed_stride *= extents[-1]
    together = L2_LINE if once else 2 * L2_LINE  # L2 promotion by pairs of lines makes a stream 5 % slower
    return TensorMap(address, dtype, tuple(extents), tuple(steps), (*box, *(1,) * (ranks - 2)), 128, together)


def family_maps(problem: Problem, config: Config, at: Mapping[str, int], peers: int) -> dict[str, TensorMap]:
    """Maps for gemm/wgmma.cu: batches of matrices; packed operands lie in the workspace."""
    lines, packs, starts = packed_lines(problem), packed(problem), [at["A"], at["B"]]
    free = at["workspace"]
    for index, nbytes in enumerate(packed_bytes(problem)):
        if packs[index]:
            starts[index] = free
            free += nbytes
    a_box, b_box = boxes(problem, config)
    a_once, b_once = read_once(problem, config)
    b_map = operand_map(problem, problem.b, starts[1], lines[1], b_box, 4, packs[1], b_once)
    if problem.skewed:
        a_map, d_map = skewed_maps(problem, config, at["A"])
        return {"a_map": a_map, "b_map": b_map, "d_map": d_map}
    a_map = operand_map(problem, problem.a, starts[0], lines[0], a_box, 4, packs[0], a_once)
    d_map = (
        output_map(problem, config, at["D"], 4, peers)
        if copies_out(problem)
        else nothing_at(at["D"], a_map)  # the kernel does not use it
    )
    maps = {"a_map": a_map, "b_map": b_map, "d_map": d_map, **maps_of_owners(problem, d_map)}
    return cut_by_groups(maps, problem.modes.ragged)


def maps_of_owners(problem: Problem, d_map: TensorMap) -> dict[str, TensorMap]:
    """D's map, cut into the rows of each owner."""
    if problem.owners is None:
        return {}
    (columns, total, *batch), rows = d_map.shape, problem.owners.rows
    return {
        f"owner {place}": replace(
            d_map, address=address, shape=(columns, min(rows, total - place * rows), *batch)
        )
        for place, address in enumerate(problem.owners.addresses)
    }


def skewed_maps(problem: Problem, config: Config, address: int) -> tuple[TensorMap, TensorMap]:
    """Maps of A's rows in groups of eight, from the multiple of 16 bytes before A. A line of the map is a
    group, from its first row to the end of its last one; the start of a box selects the row.

    The first map is for rows that exist in the last, incomplete group, the second for the others.
    """
    (count, length, step), size = lines_of(problem)[0], size_of(problem.dtype)
    eights, remainder = divmod(count, 8)
    skew = address % TMA_ALIGNMENT // size

    def of_rows(last: int, lines: int) -> TensorMap:
        extents, steps = (
            (skew + last * step + length, lines, 1, 1),
            (8 * step * size, TMA_ALIGNMENT, TMA_ALIGNMENT),
        )
        box = (SKEWED_BYTES // size, config.bm // 8, 1, 1)
        return TensorMap(address - address % TMA_ALIGNMENT, problem.dtype, extents, steps, box, 0)

    fewer = of_rows(7, eights)
    return (of_rows(remainder - 1, eights + 1) if remainder else fewer), fewer


def rung_maps(problem: Problem, config: Config, at: Mapping[str, int]) -> dict[str, TensorMap]:
    """Maps for the rungs: single matrices. Blocks of a cluster load whole slabs of an N-major B."""
    a_lines, b_lines = lines_of(problem)
    b_box = (config.bk, config.bn // config.cluster_m) if along_k(problem.b, False) else (64, config.bk)
    a_map = operand_map(problem, problem.a, at["A"], a_lines, (config.bk, config.bm), 2)
    return {
        "a_map": a_map,
        "b_map": operand_map(problem, problem.b, at["B"], b_lines, b_box, 2),
        # Rungs read C into registers, so patches are as without C. Where threads store D its map is not used.
        "d_map": output_map(replace(problem, c=None), config, at["D"], 2)
        if rows_copied_out(problem)
        else nothing_at(at["D"], a_map),
    }


def output_map(problem: Problem, config: Config, address: int, ranks: int, peers: int = 1) -> TensorMap:
    size, (width, height) = size_of(problem.out_dtype), patch_of(problem, config, peers)
    count, length, step = line(problem.d, not transposed_d(problem))
    steps = [step * size if count > 1 else TMA_ALIGNMENT]
    extents = [max(1, length), max(1, count)]
    for extent, stride in batch_steps(problem, problem.d)[: ranks - 2]:
        extents.append(extent)
        steps.append(stride * size or TMA_ALIGNMENT)
    box = (width, height, *(1,) * (ranks - 2))
    return TensorMap(address, problem.out_dtype, tuple(extents), tuple(steps), box, width * size)
