"""Mutants of the seam: each breaks one line of it, and the result is wrong or the machine stops."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lapidist
from fused_cases import judge_finished, of_all_kinds, operands, watch
from lapidist.build import compiler
from lapidist.dtypes import numpy_dtype
from lapidist.errors import LapidistError
from lapidist.kernels.wgmma.configs import tile
from lapidist.planning import binaries, second_passes

CONFIG = tile("bfloat16", 64, 96, 3)
WGMMA: dict[str, Any] = {"kernel": "wgmma", "config": CONFIG, "split_k": 1}
PAIRED: dict[str, Any] = {"kernel": "simt", "paired": True}
MOST: dict[str, Any] = {**WGMMA, "most": True}
COLUMNS: dict[str, Any] = {**WGMMA, "over": "column"}
ROWS: dict[str, Any] = {**WGMMA, "config": tile("bfloat16", 64, 64, 3), "over": "row"}
LEFT: dict[str, Any] = {"kernel": "mma", "over": "row"}
SPLIT: dict[str, Any] = {**WGMMA, "split_k": 2, "reduction": "cluster"}
SEAM, OPERANDS, LARGEST = "epilogue.cuh", "epilogue_operands.cuh", "epilogue_largest.cuh"
NAMES = "epilogue_of_tile", "vector_io", "finish", "reduce_in_epilogue"
BY_ROW = "second/reduce_rows.cu"
FRAGMENTS, PIECES, FINISH, JOINED = (f"gemm/wgmma/{name}.cuh" for name in NAMES)
MUTANTS: list[tuple[str, str, str, dict[str, Any]]] = [
    (OPERANDS, "ByRow ? spot.row * o.row : 0", "0", {"kernel": "simt"}),
    (OPERANDS, "ByCol ? spot.col[0] * o.col", "ByCol ? spot.col[0]", {"kernel": "simt"}),
    (SEAM, "row < M ? row : M - 1", "row", WGMMA),
    (SEAM, "const int last = Both && N % 2 == 0 ? N - 2 : N - 1", "const int last = N + 8", WGMMA),
    (OPERANDS, "(o.at) + inner * o.inner", "(o.at) + 0 * o.inner", WGMMA),
    (PIECES, "h * NEXT_ROW", "0", WGMMA),
    (PIECES, "fetch_two<PAIRS>(row + row_of(pair % 2)", "fetch_two<PAIRS>(row", WGMMA),
    (FRAGMENTS, "store_two<TOGETHER>(row + row_of(pair % 2)", "store_two<TOGETHER>(row", WGMMA),
    (SEAM, "apply(second, fetched, results, 1)", "apply(second, fetched, results, 0)", WGMMA),
    (SEAM, "fetch<false, Pairs>(row, col / 2)", "fetch<false, Pairs>(row, col)", {**WGMMA, "paired": True}),
    (SEAM, "store<false, Pairs>(row, col / 2,", "store<false, Pairs>(row, col,", PAIRED),
    (OPERANDS, "2 * spot.col[0] + 1", "2 * spot.col[0]", PAIRED),
    (SEAM, "EPILOGUE_PAIRS ? N / 2 : N", "N", PAIRED),
    (SEAM, "apply<V>({first, second}", "apply<V>({second, first}", PAIRED),
    (SEAM, "|| row >= M || col >= N", "|| col >= N", WGMMA),
    (SEAM, "|| row >= M || col >= N", "|| row >= M", WGMMA),
    (OPERANDS, "line[spot.col[0] * o.col] = from", "line[spot.col[0]] = from", {"kernel": "simt"}),
    (FRAGMENTS, "turns.ahead[0][i] = fetched[i]", "turns.ahead[0][i] = turns.ahead[0][i]", WGMMA),
    (FINISH, "function.template finish<D_COLS / 2>(mine, row, col);", "", SPLIT),
    (FINISH, "function.finish_all(turns, sums, warp_row, tiles.col);", "", WGMMA),
    (LARGEST, "found < word ? word : found", "word", MOST),
    (LARGEST, "x != x ? 0xffffffffu : bits >> 31 ? ~bits", "bits >> 31 ? bits", MOST),
    (OPERANDS, "if (TwoOfPair || (Both && both)) kept", "if (Both && both) kept", {**PAIRED, "most": True}),
    (OPERANDS, "if (TwoOfPair || (Both && both)) kept", "kept", MOST),
    ("second/largest.cu", "A[slot] = 0;", "", MOST),
    ("second/largest.cu", "parts[threadIdx.x] < parts", "parts[threadIdx.x] > parts", MOST),
    ("second/reduce.cu", "half >= WIDTH", "half > WIDTH", MOST),
    ("second/reduce.cu", "(outer * length + first) * inner", "first * inner", MOST),
    ("second/reduce.cu", "if (place < count)", "if (place <= count)", MOST),
    (JOINED, "own[h] = exists[h] ?", "own[h] = true ?", COLUMNS),
    (JOINED, "mine[i] = Kind::joined(own[0], own[1])", "mine[i] = own[0]", COLUMNS),
    (
        JOINED,
        "upper ? mine[i] : mine[i + Count / 2], Far",
        "upper ? mine[i + Count / 2] : mine[i], Far",
        COLUMNS,
    ),
    (JOINED, "first + upper * (Count / 2)", "first", COLUMNS),
    (JOINED, "(mine, 0, row < of.M,", "(mine, 0, true,", COLUMNS),
    (JOINED, "stores && at < columns", "stores", COLUMNS),
    (JOINED, "row / 16 * to.row", "row / 32 * to.row", COLUMNS),
    (OPERANDS, "Operation == 1 ? -infinity() : 0", "0", COLUMNS),
    (OPERANDS, "Operation == 2 ? absolute(value) : value", "value", COLUMNS),
    (JOINED, "if (col + (begin + AT_ONCE) * 4 > columns())", "if (false)", ROWS),
    (JOINED, "threadIdx.x % 4 * 2 + e >= columns()", "threadIdx.x % 4 * 2 >= columns()", ROWS),
    (JOINED, "of_pair<Kind>(values[pair + 2])", "of_pair<Kind>(values[pair])", ROWS),
    (JOINED, "return Kind::joined(values[0], values[1]);", "return values[0];", ROWS),
    (JOINED, "lower ? mine[2 * g] : mine[2 * g + 1], 2)", "lower ? mine[2 * g + 1] : mine[2 * g], 2)", ROWS),
    (
        JOINED,
        "mine[g] = Kind::joined(lower ? mine[2 * g + 1] : mine[2 * g], theirs)",
        "mine[g] = theirs",
        ROWS,
    ),
    (JOINED, "!odd ? mine[SIXTEENS - 1] : mine[0], 1)", "!odd ? mine[SIXTEENS - 1] : mine[0], 2)", ROWS),
    (JOINED, "= Kind::joined(own, theirs)", "= own", ROWS),
    (JOINED, "const int group = col / 16 + odd", "const int group = col / 16", ROWS),
    (JOINED, "at = row + of.row_of(lower)", "at = row + of.row_of(0)", ROWS),
    (JOINED, "at < of.M &&", "", ROWS),
    (JOINED, "&& group * 16 < columns()", "", ROWS),
    (BY_ROW, "place < count ? from[place]", "true ? from[place]", LEFT),
    (BY_ROW, "__shfl_xor_sync(0xffffffffu, found, 1)", "0", LEFT),
    (BY_ROW, "__shfl_xor_sync(0xffffffffu, found, far)", "found", LEFT),
    (BY_ROW, "parts[turn * LANES + threadIdx.x]", "parts[turn * LANES]", LEFT),
    ("tensor.cuh", "IF_EPILOGUE(, m, n + e)", "IF_EPILOGUE(, m, n)", {"kernel": "mma"}),
]


@lapidist.epilogue
def and_sums(
    acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, one: lapidist.Scalar
) -> Any:
    return of_all_kinds(acc, row=row, column=column, tile=tile, one=one), acc


@lapidist.epilogue
def of_pairs(
    acc: lapidist.Pair, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, one: lapidist.Scalar
) -> Any:
    both = of_all_kinds(acc.first, row=row, column=column, tile=tile, one=one)
    return both, lapidist.Pair(acc.second, acc.first)


@lapidist.epilogue
def most(acc: Any, row: lapidist.Row) -> Any:
    return acc, lapidist.all_max(acc * row), lapidist.amax(row), lapidist.column_sum(acc)


@lapidist.epilogue
def most_of_pairs(acc: lapidist.Pair, row: lapidist.Row) -> Any:
    two = lapidist.Pair(acc.first - 1000, row)
    return acc.first, lapidist.all_max(two), lapidist.amax(row), lapidist.column_sum(acc.first)


@lapidist.epilogue
def of_columns(acc: Any, row: lapidist.Row) -> Any:
    least, most = lapidist.column_max(acc - row), lapidist.column_amax(2 * acc)
    return 3 * acc, lapidist.column_sum(acc), least, most


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the device code, which is compiled in place of it."""
    copy = tmp_path / "cuda"
    shutil.copytree(compiler.CUDA_SOURCES, copy)
    monkeypatch.setattr(compiler, "CUDA_SOURCES", copy)
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "cache"))
    known = compiler.header_fingerprint, compiler.include_paths, second_passes.steps_of
    for each in known:
        each.cache_clear()
    binaries.forget()
    yield copy
    for each in known:
        each.cache_clear()
    binaries.forget()


def most_is_right(paired: bool, how: dict[str, Any]) -> bool:
    """Of negative values; the largest ones lie at the edges, and what lies beyond is larger."""
    n = 54 if paired else 107
    row = np.full(n, -9.0, np.float32)
    row[[1, -1]] = -3, -4
    dtype = numpy_dtype("float32" if how["kernel"] == "simt" else "bfloat16")
    a, b = np.ones((2, 70, 32), dtype), np.ones((2, 32, 2 * n if paired else n), dtype)
    b[1] = 2
    given = (most_of_pairs if paired else most)(row=row)
    _, largest, size, sums = lapidist.gemm(a, b, epilogue=given, device="machine", **how)
    return (largest, size) == (-3.0 if paired else -96.0, 9.0) and bool(np.all(sums.T == [32 * 70, 64 * 70]))


@lapidist.epilogue
def of_rows(acc: Any, row: lapidist.Row) -> Any:
    return 3 * acc, lapidist.row_sum(acc), lapidist.row_max(acc - row), lapidist.row_amax(2 * acc)


def lines_are_right(rng: np.random.Generator, over: str, how: dict[str, Any]) -> bool:
    """Whole numbers, all of them negative: what is no row or column of D would be larger."""
    dtype = numpy_dtype("bfloat16")
    a, b = rng.integers(1, 4, (70, 32)).astype(dtype), -rng.integers(1, 4, (32, 105)).astype(dtype)
    given = (of_columns if over == "column" else of_rows)(row=np.full(105, 1000, np.float32))
    expected = lapidist.gemm(a, b, epilogue=given)
    found = lapidist.gemm(a, b, epilogue=given, device="machine", **how)
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def is_right(
    rng: np.random.Generator, *, paired: bool = False, most: bool = False, over: str = "", **how: Any
) -> bool:
    """A batch, edges in both directions, operands of each kind, one of them by columns."""
    if most or over:
        return most_is_right(paired, how) if most else lines_are_right(rng, over, how)
    function, d_cols = (of_pairs, 53) if paired else (and_sums, 106)
    m, n, k, batch = 70, 106, 160, (2,)
    dtype = numpy_dtype("float32" if how["kernel"] == "simt" else "bfloat16")
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((*batch, m, k), (*batch, k, n)))
    values = operands(rng, m, d_cols, batch)
    values["tile"] = np.asfortranarray(values["tile"])
    out = np.zeros((*batch, m, d_cols), dtype), np.zeros((*batch, n, m), dtype).swapaxes(-1, -2)
    lapidist.gemm(a, b, out=out, epilogue=function(**values), device="machine", **how)
    return all(judge_finished(d, function, values, a, b, result=place).ok for place, d in enumerate(out))


@pytest.mark.survey  # as mutants are: tests of each family say in `make test` that it is right
@pytest.mark.parametrize(
    "how", [{"kernel": "simt"}, {"kernel": "mma"}, WGMMA, SPLIT, PAIRED, MOST, COLUMNS, ROWS, LEFT], ids=str
)
def test_unbroken_it_is_right(rng: np.random.Generator, how: dict[str, Any]) -> None:
    assert is_right(rng, **how)


@pytest.mark.survey
@pytest.mark.parametrize(("file", "line", "broken", "how"), MUTANTS, ids=[each[1] for each in MUTANTS])
def test_a_mutant_is_found(
    rng: np.random.Generator, sources: Path, file: str, line: str, broken: str, how: dict[str, Any]
) -> None:
    text = (sources / file).read_text()
    assert text.count(line) == 1
    (sources / file).write_text(text.replace(line, broken))
    try:
        found = not is_right(rng, **how)
    except LapidistError as error:
        found = any(word in str(error) for word in ("outside", "memory", "slots"))
    assert found


@pytest.mark.survey
def test_a_missing_barrier_is_found(
    rng: np.random.Generator, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch(monkeypatch, passes=True)
    text = (sources / BY_ROW).read_text()
    assert text.count("__syncthreads();") == 1
    (sources / BY_ROW).write_text(text.replace("__syncthreads();", ""))
    with pytest.raises(LapidistError, match="race"):
        is_right(rng, **LEFT)
