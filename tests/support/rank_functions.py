"""Epilogues of products over several ranks, with gradients: against float64 on one rank."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard, distribute_tensor

import lapidist
from lapidist import quantised
from lapidist.distributed.group_facts import members_of
from lapidist.errors import ArgumentError, LapidistError, LaunchError, ShapeError
from parallel_ranks import ROWS, K, N, equal, part, ways_of
from torch_processes import in_processes

ours = importlib.import_module("lapidist.distributed")
gelu = torch.nn.functional.gelu


@lapidist.epilogue
def gated(
    acc: Any, row: lapidist.Row, column: lapidist.Column, tile: lapidist.Tile, s: lapidist.Scalar
) -> Any:
    return lapidist.gelu(acc + row) * column + s * tile


@lapidist.epilogue
def pairs(acc: lapidist.Pair) -> Any:
    return lapidist.silu(acc.first) * acc.second


@lapidist.epilogue
def several(acc: Any, row: lapidist.Row) -> Any:
    hidden = lapidist.gelu(acc + row)
    return hidden, acc, lapidist.row_sum(hidden), lapidist.column_sum(hidden)


def gated_in_torch(acc: Any, row: Any, column: Any, tile: Any, s: Any) -> Any:
    return gelu(acc + row) * column[..., None] + s * tile


def several_in_torch(acc: Any, row: Any) -> Any:
    hidden = gelu(acc + row)
    return hidden, acc, hidden.sum(-1), hidden.flatten(0, -2).sum(0)


def pairs_in_torch(acc: Any) -> Any:
    return torch.nn.functional.silu(acc[..., ::2]) * acc[..., 1::2]


def near(result: Any, expected: Any) -> None:
    assert result.shape == expected.shape
    torch.testing.assert_close(result.double(), expected.double(), rtol=2e-4, atol=2e-4)


def random(*shape: int) -> Any:
    return torch.randn(shape).requires_grad_()


def own(tensor: Any, dim: int | None) -> Any:
    """This rank's part, or all of it, as a leaf."""
    return (tensor if dim is None else part(tensor, dim)).detach().clone().requires_grad_()


class Case:
    """A layer's product in float64 on one rank, its function, and gradients."""

    def __init__(self, leading: tuple[int, ...], k: int, n: int) -> None:
        self.x, self.w, self.bias = random(*leading, k), random(n, k), random(n)
        self.operands = {
            "row": random(n),
            "column": random(*leading),
            "tile": random(*leading, n),
            "s": random(1),
        }

    def expected(self, function: Any, names: tuple[str, ...], bias: bool) -> tuple[Any, Any, Any]:
        leaves = [self.x, self.w, *([self.bias] if bias else []), *(self.operands[name] for name in names)]
        wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
        x, w, *others = wide
        acc = torch.nn.functional.linear(x, w, others.pop(0) if bias else None)
        results = function(acc, **dict(zip(names, others, strict=True)))
        results = results if isinstance(results, tuple) else (results,)
        return results, [torch.randn_like(result) for result in results], wide


# dimensions along which an operand lies over ranks: of columns of the result, and of rows
OF_COLUMNS = {"row": 0, "column": None, "tile": -1, "s": None}
FUNCTIONS = (
    (gated, gated_in_torch, ("row", "column", "tile", "s")),
    (pairs, pairs_in_torch, ()),
    (several, several_in_torch, ("row",)),
)


def columns(leading: tuple[int, ...], sequence: int | None) -> None:
    """This rank's columns: results, and gradients, those of what all ranks have summed over ranks."""
    ranks = torch.distributed.get_world_size()
    case = Case(leading, K, 2 * N)
    for function, in_torch, names in FUNCTIONS:
        results, gs, wide = case.expected(in_torch, names, True)
        of_all = torch.autograd.grad(results, wide, gs)
        x = own(case.x, sequence)
        w, bias = own(case.w, 0), own(case.bias, 0)
        operands = {name: own(case.operands[name], OF_COLUMNS[name]) for name in names}
        call = {"sequence_dim": sequence, "epilogue": function(**operands)}
        found = ours.column_parallel_linear(x, w, bias, **call)
        found = found if isinstance(found, tuple) else (found,)
        # a sum over columns is this rank's term
        summed = [function is several and index == 2 for index in range(len(results))]
        mine = [g if whole else part(g, -1) for g, whole in zip(gs, summed, strict=True)]
        for result, expected, whole in zip(found, results, summed, strict=True):
            if whole:
                result = result.detach().contiguous().clone()
                torch.distributed.all_reduce(result)
            near(result, expected if whole else part(expected, -1))
        back = torch.autograd.grad(found, (x, w, bias, *operands.values()), [g.float() for g in mine])
        places = (sequence, 0, 0, *(OF_COLUMNS[name] for name in names))
        for number, (gradient, expected, place) in enumerate(zip(back, of_all, places, strict=True)):
            if number > 2 and place is None:  # each rank has a term of it
                gradient = gradient.contiguous().clone()
                torch.distributed.all_reduce(gradient)
            near(gradient, expected if place is None else part(expected, place))
        with torch.no_grad():
            again = ours.column_parallel_linear(x, w, bias, **call)
        for result, expected in zip(again if isinstance(again, tuple) else (again,), found, strict=True):
            near(result, expected)
    assert ranks > 1


def rows(leading: tuple[int, ...], sequence: int | None) -> None:
    """The sum over ranks with its bias: all of it, or this rank's part along `sequence`."""
    case = Case(leading, K, 2 * N)
    of_rows = {"row": None, "column": sequence, "tile": sequence, "s": None}
    for function, in_torch, names in FUNCTIONS:
        results, gs, wide = case.expected(in_torch, names, True)
        if function is several and sequence is not None:  # of this rank's rows alone
            results, gs = results[:3], gs[:3]
        of_all = torch.autograd.grad(results, wide, gs)
        x, w, bias = own(case.x, -1), own(case.w, 1), own(case.bias, None)
        operands = {name: own(case.operands[name], of_rows[name]) for name in names}
        call = {"sequence_dim": sequence, "epilogue": function(**operands)}
        found = ours.row_parallel_linear(x, w, bias, **call)
        found = (found if isinstance(found, tuple) else (found,))[: len(results)]
        mine = [g if sequence is None else part(g, sequence) for g in gs]
        for result, expected in zip(found, results, strict=True):
            near(result, expected if sequence is None else part(expected, sequence))
        back = torch.autograd.grad(found, (x, w, bias, *operands.values()), [g.float() for g in mine])
        places = (-1, 1, None, *(of_rows[name] for name in names))
        for number, (gradient, expected, place) in enumerate(zip(back, of_all, places, strict=True)):
            if number > 2 and place is None and sequence is not None:
                gradient = gradient.contiguous().clone()
                torch.distributed.all_reduce(gradient)
            near(gradient, expected if place is None else part(expected, place))
        with torch.no_grad():
            again = ours.row_parallel_linear(x, w, bias, **call)
        for result, expected in zip(again if isinstance(again, tuple) else (again,), found, strict=False):
            near(result, expected)


def products(way: str | None) -> None:
    """Several matrices with a function each, one without; sums of chunks; parts that are not equal."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    a, b, row = random(ROWS, K), random(K, N), random(N)
    acc = a.double() @ b.double()
    silu = torch.nn.functional.silu(acc + row.double())
    shard, matrix, operand = own(a, 0), own(b, None), own(row, None)
    first, second = ours.all_gather_matmul(
        shard, [matrix, matrix], epilogue=[added(row=operand), None], bias=[None, operand], way=way
    )
    near(first, silu)
    near(second, acc + row.double())
    g = torch.randn(ROWS, N)
    found = torch.autograd.grad((first, second), (shard, matrix, operand), (g, g))
    right = torch.autograd.grad((silu, acc + row.double()), (a, b, row), (g.double(), g.double()))
    near(found[0], ranks * part(right[0], 0))
    near(found[1], right[1])
    near(found[2], right[2])
    extent = 2 * ranks - 1
    whole = random(extent, K)
    parts = whole.detach().chunk(ranks)
    mine = (parts[rank] if rank < len(parts) else whole.detach()[:0]).clone().requires_grad_()
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            summed = ours.all_gather_matmul(
                mine, matrix, extent=extent, epilogue=several(row=operand), way=way
            )
        for result, expected in zip(
            summed, several_in_torch(whole.double() @ b.double(), row.double()), strict=True
        ):
            near(result, expected)


@lapidist.epilogue
def added(acc: Any, row: lapidist.Row) -> Any:
    return lapidist.silu(acc + row)


def chunks_and_types() -> None:
    """The function gets what is not rounded yet; gradients of bfloat16 whose results are of float32."""
    a, b = (torch.randn(shape).bfloat16() for shape in ((8, 96), (96, N)))
    x, w = own(a, 1), own(b, 0)
    in_chunks = [{"chunks": 4}] if torch.distributed.get_world_size() in (2, 4) else []
    for how in (*in_chunks, {"out_dtype": torch.float32}):
        result = ours.matmul_all_reduce(x, w, epilogue=added(row=torch.ones(N)), **how)
        acc = a.double() @ b.double() + 1
        expected = torch.nn.functional.silu(acc)
        torch.testing.assert_close(result.double(), expected, rtol=2e-2, atol=2e-2)
        g = torch.ones_like(result)
        found = torch.autograd.grad(result, (x, w), g)
        slope = torch.sigmoid(acc) * (1 + acc * (1 - torch.sigmoid(acc)))
        for gradient, right in zip(
            found, (part(slope @ b.double().T, 1), part(a.double().T @ slope, 0)), strict=True
        ):
            assert gradient.dtype == torch.bfloat16
            torch.testing.assert_close(gradient.double(), right, rtol=5e-2, atol=0.3)


def of_complex_numbers() -> None:
    """Gradients are products with conjugates."""
    x, w = (torch.randn(shape, dtype=torch.complex64).requires_grad_() for shape in ((ROWS, K), (N, K)))
    expected = torch.nn.functional.linear(x, w)
    g = torch.randn_like(expected)
    of_x, of_w = torch.autograd.grad(expected, (x, w), g)
    shard, mine = own(x, 0), own(w, 0)
    result = ours.column_parallel_linear(shard, mine, sequence_dim=0)
    found = torch.autograd.grad(result, (shard, mine), part(g, 1))
    torch.testing.assert_close(found, (part(of_x, 0), part(of_w, 0)), rtol=1e-4, atol=1e-4)
    left, right = own(x, 1), own(w, 1)
    found = torch.autograd.grad(ours.row_parallel_linear(left, right), (left, right), g)
    torch.testing.assert_close(found, (part(of_x, 1), part(of_w, 1)), rtol=1e-4, atol=1e-4)


def wrong_use() -> None:
    x, w = random(ROWS, K), random(N, K)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            with pytest.raises(
                ShapeError, match=r"row: must have a value for each column of D, shape \(18,\)"
            ):
                ours.row_parallel_linear(x, w, epilogue=added(row=torch.ones(N + 1)))
            with pytest.raises(ArgumentError, match=r"epilogue: must be a function of @lapidist\.epilogue"):
                ours.row_parallel_linear(x, w, epilogue=torch.nn.functional.gelu)
            with pytest.raises(ArgumentError, match="epilogue: must be a list of 2, one for each b"):
                ours.column_parallel_linear(x, [w, w], epilogue=added(row=torch.ones(N)))
    with pytest.raises(ArgumentError, match="scale_a, scale_b: must be None where gradients are recorded"):
        ours.matmul_all_reduce(x, w.T, scale_a=2.0)


def packed_operands(x: Any) -> Iterator[tuple[str, Any]]:
    """Packed weights have layers over ranks, and no calls."""
    packed = quantised.pack(torch.ones(K, 8), "int4", group=64)
    for name, call in (
        ("b", ours.all_gather_matmul),
        ("b", ours.matmul_all_reduce),
        ("weight", ours.column_parallel_linear),
        ("weight", ours.row_parallel_linear),
    ):
        words = (
            rf"{name}: must be a tensor; got PackedWeight. Take layers of lapidist.torch.swap\(model, mesh"
        )
        yield words, partial(call, x, packed)


def other_extents() -> tuple[int, int]:
    """As many rows on all ranks, which run over other extents."""
    return (2, ROWS // 2) if torch.distributed.get_rank() else (ROWS // 2, 2)


def other_dim() -> int:
    return int(torch.distributed.get_rank() > 0)


def refused_operands() -> None:
    """In words of the call, before anything travels."""
    x, w = torch.ones(ROWS, K), torch.ones(N, K)
    mesh = torch.distributed.device_mesh.init_device_mesh(
        x.device.type, (torch.distributed.get_world_size(),)
    )
    split = distribute_tensor(x, mesh, [Shard(0)], src_data_rank=None)
    other = torch.distributed.new_group([0])
    for words, call in (
        (
            "a_shard: must be this rank's own tensor; got a DTensor",
            lambda: ours.all_gather_matmul(split, w.T),
        ),
        (
            "dim: must be a dimension before the last one; got 'rows'",
            lambda: ours.all_gather_matmul(x, w.T, dim="rows"),
        ),
        ("sequence_dim: must be a dimension before", lambda: ours.row_parallel_linear(x, w, sequence_dim=7)),
        (r"bias: must have .* shape \(18,\); got \(5,\)", lambda: ours.row_parallel_linear(x, w, w[0, :5])),
        (
            r"bias: must have .* shape \(18,\); got \(5,\)",
            lambda: ours.column_parallel_linear(x, w, w[0, :5]),
        ),
        ("bias: must be of the result's type", lambda: ours.row_parallel_linear(x, w, torch.ones(N).half())),
        ("out_dtype: must be one of float16", lambda: ours.matmul_all_reduce(x, w.T, out_dtype="flat32")),
        *packed_operands(x),
        ("b: must have a matrix; got an empty list", lambda: ours.all_gather_matmul(x, [])),
        ("weight: must have a matrix; got an empty list", lambda: ours.column_parallel_linear(x, [])),
        # of gradients alone, without sequence_dim
        ("way: must be one that .* got 'push'", lambda: ours.column_parallel_linear(x, w, way="push")),
        (
            r"split=\(0, \(6, 2\)\) on rank 0; .*split=\(0, \(2, 6\)\) on rank 1",
            lambda: ours.matmul_all_reduce(x.view(*other_extents(), K), w.T),
        ),
        (
            r"split=\(0, \(6, 2\)\) on rank 0; .*split=\(1, \(6, 2\)\) on rank 1",
            lambda: ours.all_gather_matmul(x.view(*other_extents(), K), w.T, dim=other_dim()),
        ),
    ):
        with pytest.raises(LapidistError, match=words):
            call()
    if torch.distributed.get_rank() == 0:  # alone: nobody would answer an exchange
        eighths, row = torch.ones(ROWS, K, dtype=torch.int8), added(row=torch.ones(N))
        with pytest.raises(LapidistError, match="epilogue: must follow sums of floats; a is int8"):
            ours.matmul_all_reduce(eighths, torch.ones(K, N, dtype=torch.int8), epilogue=row)
        for dim in (None, 0):
            with pytest.raises(LapidistError, match=r"row: must have a value for each column of D"):
                ours.row_parallel_linear(x[:6], w, sequence_dim=dim, epilogue=added(row=torch.ones(N + 1)))
        residual = lapidist.epilogues.residual(residual=torch.ones(7, N))
        with pytest.raises(LapidistError, match="residual: must have a value for each element of D"):
            ours.matmul_reduce_scatter(x[:6], w.T, epilogue=residual)
    if torch.distributed.get_rank():
        with pytest.raises(
            ArgumentError, match="group: must have this rank as a member; got a group without rank"
        ):
            ours.all_gather_matmul(x, w.T, other)
    near(ours.matmul_all_reduce(x[:, :0], w.T[:0], out_dtype="float32"), torch.zeros(ROWS, N))
    assert ours.plan("all_gather_matmul", 64, 64, 64, dtype=torch.bfloat16).exchange.dtype == "bfloat16"
    lt, model = importlib.import_module("lapidist.torch"), torch.nn.Sequential(torch.nn.Linear(K, N))
    for words, how in (
        (
            "plan: must name layers of the model; got '1'",
            {"mesh": mesh, "plan": {"0": "columns", "1": "rows"}},
        ),
        ("plan: must give names .* got list", {"mesh": mesh, "plan": ["0"]}),
        ("mesh: must be .* of one dimension; got int", {"mesh": 2, "plan": {"0": "columns"}}),
    ):
        with pytest.raises(ArgumentError, match=words):
            lt.swap(model, **how)


def late_ranks_are_told() -> None:
    """Behind the last call, too."""
    ours.synchronize()
    group = torch.distributed.new_group()

    def late() -> None:
        raise LaunchError("rank 1 did not come")

    members_of(group).peer_memory = SimpleNamespace(memory=SimpleNamespace(require_none_late=late))
    with pytest.raises(LaunchError, match="rank 1 did not come"):
        ours.synchronize(group)


class Layers(torch.nn.Module):  # type: ignore[misc]
    """Functions in a compiler's graph."""

    def forward(self, x: Any, up: Any, down: Any, row: Any, tile: Any) -> tuple[Any, ...]:
        hidden = ours.column_parallel_linear(x, up, row, sequence_dim=1, epilogue=pairs())
        total = ours.row_parallel_linear(hidden, down, sequence_dim=1, epilogue=scaled_tile(tile=tile))
        first, second = ours.all_gather_matmul(
            x, [up, up], dim=1, trans_b=True, bias=[None, row], epilogue=[None, added(row=row)]
        )
        return (
            total,
            first,
            second,
            ours.matmul_all_reduce(hidden, down, trans_b=True, chunks=2, epilogue=relu),
        )


@lapidist.epilogue
def scaled_tile(acc: Any, tile: lapidist.Tile) -> Any:
    return acc * tile


@lapidist.epilogue
def relu(acc: Any) -> Any:
    return lapidist.relu(acc)


def in_graphs() -> None:
    shapes = (2, 4, 8), (16, 8), (6, 8), (16,), (2, 4, 6)
    calls = [random(*shape) for shape in shapes]
    copies = [tensor.detach().clone().requires_grad_() for tensor in calls]
    model = Layers()
    expected, results = model(*calls), torch.compile(model, fullgraph=True, backend="aot_eager")(*copies)
    for result, right in zip(results, expected, strict=True):
        near(result, right)
    gradients = [
        torch.autograd.grad(sum(result.square().sum() for result in found), tensors)
        for found, tensors in ((expected, calls), (results, copies))
    ]
    for found, right in zip(*gradients, strict=True):
        near(found, right)


def functions_of_ranks(device: str) -> None:
    torch.set_default_device(device)
    torch.manual_seed(0)
    for leading, sequences in (((ROWS,), (None, 0)), ((2, ROWS), (None, 1))):
        for sequence in sequences:
            columns(leading, sequence)
            rows(leading, sequence)
    for way in ways_of("push"):
        products(way)
    chunks_and_types()
    of_complex_numbers()
    wrong_use()
    refused_operands()
    late_ranks_are_told()


def products_under_autocast(device: str) -> None:
    """Operands are cast as torch.matmul's, also of what is recorded; their gradients have their types."""
    torch.set_default_device(device)
    torch.manual_seed(5)
    x, w, bias = torch.randn(ROWS, K), torch.randn(N, K).requires_grad_(), torch.randn(N)
    narrow, w_narrow = x.bfloat16(), w.detach().bfloat16()
    calls = (ours.all_gather_matmul, 0), (ours.matmul_reduce_scatter, 1), (ours.matmul_all_reduce, 1)
    for forth, dim in calls:
        mine, matrix = (x, w) if dim == 0 else (part(x, 1), part(w, 1))
        matrix = matrix.detach().requires_grad_()
        how = {"bias": bias} if dim == 0 else {}
        with torch.autocast(device, torch.bfloat16):
            result = forth(part(mine, 0) if dim == 0 else mine, matrix, trans_b=True, **how)
        cast = (part(narrow, 0), w_narrow) if dim == 0 else (part(narrow, 1), part(w_narrow, 1))
        how = {"bias": bias.bfloat16()} if dim == 0 else {}
        equal(result.detach(), forth(*cast, trans_b=True, **how))
        assert torch.autograd.grad(result.float().sum(), matrix)[0].dtype == torch.float32
    with torch.autocast(device, torch.bfloat16):
        layer = ours.row_parallel_linear(part(x, 1), part(w.detach(), 1), bias)
        assert layer.dtype == torch.bfloat16
        eight = part(x, 0).to(torch.float8_e4m3fn)
        scaled = ours.all_gather_matmul(eight, torch.ones(K, 8).to(eight.dtype), scale_a=2.0)
    assert scaled.dtype == torch.float32


def functions_in_graphs(device: str) -> None:
    torch.set_default_device(device)
    torch.manual_seed(0)
    in_graphs()


__all__ = ["functions_in_graphs", "functions_of_ranks", "in_processes"]
