"""lapidist.distributed on several ranks, one process each: what each runs."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch

import lapidist
from lapidist.errors import ArgumentError, LaunchError, ShapeError
from torch_processes import in_processes

ours = importlib.import_module("lapidist.distributed")
LIMIT = timedelta(seconds=3)  # of groups whose ranks fail
ROWS, K, N = 12, 24, 18  # they divide by two and by three ranks


@lapidist.epilogue
def silu_of_sum(acc: Any, bias: lapidist.Row) -> Any:
    return lapidist.silu(acc + bias)


@lapidist.epilogue
def with_tile(acc: Any, tile: lapidist.Tile) -> Any:
    return acc * tile


def ways_of(*peers: str) -> tuple[Any, ...]:
    """Those of a call: by collectives, and on cards those over peers' memory."""
    return ("collective", "chunks", *(peers if torch.cuda.is_available() else ()), None)


def ways_of_gathers(dtype: Any) -> tuple[Any, ...]:
    """No kernel that waits multiplies float32."""
    return ways_of("push", "one_shot", *(("waiting",) if dtype == torch.bfloat16 else ()))


def whole_numbers(*shape: int, dtype: Any = torch.float32) -> Any:
    """Sums of their products are exact in any order."""
    return torch.randint(-3, 4, shape).to(dtype)


def part(tensor: Any, dim: int) -> Any:
    """This rank's."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    return tensor.chunk(ranks, dim)[rank].contiguous()


def equal(result: Any, expected: Any) -> None:
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


# ---- products ----


def gathers(dtype: Any) -> None:
    a, b = whole_numbers(ROWS, K, dtype=dtype), whole_numbers(K, N, dtype=dtype)
    q, k = part(b, 1), part(b, 1)[:, :2]
    for way in ways_of_gathers(dtype):
        equal(ours.all_gather_matmul(part(a, 0), q, way=way), a @ q)
        equal(ours.all_gather_matmul(part(a, 0), q.T.contiguous(), trans_b=True, way=way), a @ q)
        results = ours.all_gather_matmul(part(a, 0), [q, k], way=way)
        for result, matrix in zip(results, (q, k), strict=True):
            equal(result, a @ matrix)
        batch = whole_numbers(2, ROWS, K, dtype=dtype)
        equal(ours.all_gather_matmul(part(batch, 1), q, dim=1, way=way), batch @ q)
        bias = whole_numbers(q.shape[1], dtype=dtype)
        equal(ours.all_gather_matmul(part(a, 0), q, bias=bias, way=way), a @ q + bias)


def sums(dtype: Any) -> None:
    a, b = whole_numbers(ROWS, K * 6, dtype=dtype), whole_numbers(K * 6, N, dtype=dtype)
    total = (a.double() @ b.double()).to(dtype)
    mine, matrix = part(a, 1), part(b, 0)
    for way in ways_of("slots"):
        equal(ours.matmul_reduce_scatter(mine, matrix, way=way), part(total, 0))
        equal(ours.matmul_all_reduce(mine, matrix, way=way), total)
        batch = whole_numbers(2, ROWS, K * 6, dtype=dtype)
        expected = (batch.double() @ b.double()).to(dtype)
        scattered = ours.matmul_reduce_scatter(part(batch, 2), matrix, dim=1, way=way)
        equal(scattered, part(expected, 1))
        equal(ours.matmul_all_reduce(part(batch, 2), matrix, way=way), expected)
    for way in ways_of("one_shot"):
        equal(ours.matmul_all_reduce(mine, matrix, way=way), total)
        equal(ours.matmul_reduce_scatter(mine, matrix, way=way), part(total, 0))
    equal(ours.matmul_all_reduce(mine[:5], matrix), total[:5])  # rows that do not divide


def ways_have_the_same_bits() -> None:
    """Terms are added in the order of ranks, in float32, and rounded once, whatever way they travel."""
    ranks = torch.distributed.get_world_size()
    a, b = (torch.randn(shape).bfloat16() for shape in ((ROWS, 6 * K), (6 * K, N)))
    mine, matrix = part(a, 1), part(b, 0)
    terms = [
        lapidist.gemm(left.contiguous(), right.contiguous())
        for left, right in zip(a.chunk(ranks, 1), b.chunk(ranks, 0), strict=True)
    ]
    expected = terms[0].float()
    for term in terms[1:]:
        expected = expected + term
    expected = expected.bfloat16()
    for way in ways_of("one_shot"):
        equal(ours.matmul_all_reduce(mine, matrix, way=way), expected)
    for way in ways_of("slots", "one_shot"):
        equal(ours.matmul_reduce_scatter(mine, matrix, way=way), part(expected, 0))


def epilogues_and_factors() -> None:
    a, b, row = whole_numbers(ROWS, K), whole_numbers(K, N), whole_numbers(N)
    for way in ways_of("push"):
        result = ours.all_gather_matmul(part(a, 0), b, epilogue=silu_of_sum(bias=row), way=way)
        torch.testing.assert_close(result, torch.nn.functional.silu(a @ b + row))
    tile = whole_numbers(ROWS, N)
    equal(ours.all_gather_matmul(part(a, 0), b, epilogue=with_tile(tile=tile)), (a @ b) * tile)
    # a function of the sum comes after the exchange
    result = ours.matmul_all_reduce(part(a, 1), part(b, 0), epilogue=silu_of_sum(bias=row))
    torch.testing.assert_close(result, torch.nn.functional.silu(a @ b + row))
    mine = with_tile(tile=part(tile, 0))
    equal(ours.matmul_reduce_scatter(part(a, 1), part(b, 0), epilogue=mine), part((a @ b) * tile, 0))
    eight, matrix = (x.to(torch.float8_e4m3fn) for x in (whole_numbers(ROWS, 32), whole_numbers(32, N)))
    of_rows, of_columns = 2.0 ** torch.randint(-2, 3, (ROWS, 1)), 2.0 ** torch.randint(-2, 3, (1, N))
    expected = (eight.float() * of_rows) @ (matrix.float() * of_columns)
    for way in ways_of("push", "waiting"):
        result = ours.all_gather_matmul(
            part(eight, 0), matrix, scale_a=part(of_rows, 0), scale_b=of_columns, way=way
        )
        equal(result, expected)
    factors_in_every_form()


def factors_in_every_form() -> None:
    """Each rank has other ones: one of all its rows, or by rows and 128 of k, or by squares of these."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    count, k = 130, 256
    eight = whole_numbers(ranks * count, k).to(torch.float8_e4m3fn)
    matrix = whole_numbers(N, k).to(torch.float8_e4m3fn).t()
    for shape in ((), (1,), (count,), (count, 1), (count, 2), (2, 2)):
        scales = 2.0 ** torch.randint(-2, 3, (ranks, *shape))
        spread = scales.view(ranks, -1, *shape[1:] or (1,))
        if spread.shape[1] == 2:
            spread = spread.repeat_interleave(128, 1)[:, :count]
        of_k = spread.expand(ranks, count, -1).repeat_interleave(k // spread.shape[2], 2)
        expected = (eight.float() * of_k.flatten(0, 1)) @ matrix.float()
        scale = scales[rank] if shape else float(scales[rank])
        for way in ways_of("push", "waiting"):
            result = ours.all_gather_matmul(part(eight, 0), matrix, scale_a=scale, scale_b=0.5, way=way)
            equal(result, expected / 2)
    a, b = whole_numbers(count * ranks, k).to(eight.dtype), matrix
    of_term = 2.0 ** torch.randint(-2, 3, (ranks, count * ranks))
    total = sum((a.float() * of[:, None]) @ b.float() for of in of_term)
    for way in ways_of("slots", "one_shot"):
        equal(ours.matmul_reduce_scatter(a, b, scale_a=of_term[rank], way=way), part(total, 0))
    with pytest.raises(ShapeError, match=r"scale_a: must be one factor, or of shape \(130,\), .*got \(3,\)"):
        ours.all_gather_matmul(part(eight, 0), matrix, scale_a=torch.ones(3))


def unequal_parts() -> None:
    """Parts as torch.chunk cuts them: the last one is shorter, or even empty."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    for extent in (2 * ranks - 1, ranks + 1, 1):
        a, b = (whole_numbers(*shape).requires_grad_() for shape in ((extent, 2, K), (K, N)))
        expected, g = a @ b, whole_numbers(extent, 2, N)
        of_a, of_b = torch.autograd.grad(expected, (a, b), g)

        def own(tensor: Any, count: int = extent) -> Any:
            parts = tensor.detach().chunk(ranks)
            return parts[rank] if rank < len(parts) else tensor.detach()[count:]

        for way in ("collective", "chunks", None):
            shard, matrix = own(a).clone().requires_grad_(), b.detach().requires_grad_()
            result = ours.all_gather_matmul(shard, matrix, extent=extent, way=way)
            equal(result, expected)
            equal(torch.autograd.grad(result, (shard, matrix), g), (own(of_a) * ranks, of_b))
            column, line = part(a, 2).detach().requires_grad_(), part(b, 0).detach().requires_grad_()
            result = ours.matmul_reduce_scatter(column, line, way=way)
            equal(result, own(expected))
            equal(torch.autograd.grad(result, (column, line), own(g)), (part(of_a, 2), part(of_b, 0)))
        with torch.no_grad():
            function = with_tile(tile=own(g).flatten(0, 1))
            equal(ours.matmul_reduce_scatter(column, line, epilogue=function), own(expected * g))
            eight, other = (tensor.detach().to(torch.float8_e4m3fn) for tensor in (a[:, 0], b))
            factor = 2.0**rank
            scaled = torch.cat([of * 2.0**place for place, of in enumerate(eight.float().chunk(ranks))])
            result = ours.all_gather_matmul(own(eight), other, extent=extent, scale_a=factor)
            equal(result, scaled @ other.float())


def refusals() -> None:
    a, b = torch.randn(6, K), torch.randn(K, N)
    with pytest.raises(ShapeError, match="b: must be a matrix with k = 24; got"):
        ours.all_gather_matmul(a, b.T)
    with pytest.raises(ShapeError, match="must divide by the number of ranks"):
        ours.row_parallel_linear(a[:5], b.T.contiguous(), sequence_dim=0)
    rank = torch.distributed.get_rank()
    with pytest.raises(ShapeError, match=r"must be those of torch.chunk, .* of 5; got 5 of 5, 6 of 5"):
        ours.all_gather_matmul(a[: 5 + rank], b, extent=5)
    wrong = "slots" if torch.cuda.is_available() else "push"
    with pytest.raises(ArgumentError, match=f"way: must be one that the plan offers; got '{wrong}'"):
        ours.all_gather_matmul(a, b, way=wrong)
    with pytest.raises(ArgumentError, match=r"way: .*; got 'fast': the ways are collective, chunks"):
        ours.all_gather_matmul(a, b, way="fast")
    for layer in (ours.column_parallel_linear, ours.row_parallel_linear):
        with pytest.raises(
            ShapeError, match=r"weight: must be .* input is \(6, 24\), weight \(24, .*Transpose"
        ):
            layer(a, b)


def first_calls_in_a_capture() -> None:
    """Ranks cannot agree on a shape in a graph: an error on each, before anything travels."""
    a, b, words = (
        torch.ones(3, 5),
        torch.ones(5, 7),
        r"the first call of a shape agrees .* Call it once before",
    )
    capturing = {"is_available": lambda: True, "is_current_stream_capturing": lambda: True}
    with mock.patch.multiple(torch.cuda, **capturing), pytest.raises(LaunchError, match=words):
        ours.matmul_all_reduce(a, b)
    ranks = torch.distributed.get_world_size()
    equal(ours.matmul_all_reduce(a, b), torch.full((3, 7), 5.0 * ranks))


# ---- gradients ----


def gradients() -> None:
    ranks = torch.distributed.get_world_size()
    x, g = whole_numbers(ROWS, K).requires_grad_(), whole_numbers(ROWS, N)
    w, bias = whole_numbers(N, K).requires_grad_(), whole_numbers(N).requires_grad_()
    expected = torch.nn.functional.linear(x, w, bias)
    of_x, of_w, of_bias = torch.autograd.grad(expected, (x, w, bias), g)
    for way in ("collective", "chunks"):
        for sequence in (None, 0):
            shard = (x if sequence is None else part(x, 0)).detach().requires_grad_()
            mine, own_bias = part(w, 0).detach().requires_grad_(), part(bias, 0).detach().requires_grad_()
            result = ours.column_parallel_linear(shard, mine, own_bias, sequence_dim=sequence, way=way)
            equal(result, part(expected, 1))
            found = torch.autograd.grad(result, (shard, mine, own_bias), part(g, 1))
            equal(found[0], of_x if sequence is None else part(of_x, 0))
            equal(found[1:], (part(of_w, 0), part(of_bias, 0)))
            columns = part(x, 1).detach().requires_grad_()
            mine = part(w, 1).detach().requires_grad_()
            shared = bias.detach().requires_grad_()
            result = ours.row_parallel_linear(columns, mine, shared, sequence_dim=sequence, way=way)
            equal(result, expected if sequence is None else part(expected, 0))
            direction = g if sequence is None else part(g, 0)
            found = torch.autograd.grad(result, (columns, mine, shared), direction)
            equal(found, (part(of_x, 1), part(of_w, 1), of_bias))
    assert ranks > 1


def gradients_of_several() -> None:
    """q, k and v: one gather, and one sum going back."""
    x = whole_numbers(2, ROWS, K).requires_grad_()
    weights = [whole_numbers(N, K).requires_grad_() for _ in range(3)]
    gs = [whole_numbers(2, ROWS, N) for _ in weights]
    expected = [torch.nn.functional.linear(x, weight) for weight in weights]
    of_x, *of_weights = torch.autograd.grad(expected, (x, *weights), gs)
    for sequence in (None, 1):
        shard = (x if sequence is None else part(x, 1)).detach().requires_grad_()
        mine = [part(weight, 0).detach().requires_grad_() for weight in weights]
        results = ours.column_parallel_linear(shard, mine, sequence_dim=sequence)
        equal(results, [part(each, 2) for each in expected])
        found = torch.autograd.grad(results, (shard, *mine), [part(g, 2) for g in gs])
        equal(found[0], of_x if sequence is None else part(of_x, 1))
        equal(found[1:], tuple(part(each, 0) for each in of_weights))


# ---- layers ----


class Network(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(K, 6 * N), torch.nn.Linear(6 * N, K)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


def network(weights: dict[str, Any]) -> Network:
    model = Network()
    model.load_state_dict(weights)
    return model


def gathered(tensor: Any) -> Any:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def layers(device: str) -> None:
    """Split by styles of a plan, and by swap."""
    from torch.distributed.tensor.parallel import parallelize_module

    lt = importlib.import_module("lapidist.torch")
    ranks = torch.distributed.get_world_size()
    mesh = torch.distributed.device_mesh.init_device_mesh(device, (ranks,))
    x, weights = whole_numbers(2, ROWS, K), Network().state_dict()
    for name, value in weights.items():
        weights[name] = whole_numbers(*value.shape)
    one = network(weights)
    expected = one(x)
    expected.square().sum().backward()
    for sequence in (None, 1):
        by_styles, by_swap = network(weights), network(weights)
        styles = {
            "up": lt.ColumnParallel(sequence_dim=sequence),
            "down": lt.RowParallel(sequence_dim=sequence, use_local_output=False),
        }
        parallelize_module(by_styles, mesh, styles)
        swapped = lt.swap(
            by_swap, mesh=mesh, plan={"u*": "columns", "down": "rowwise"}, sequence_dim=sequence
        )
        shown = expected if sequence is None else part(expected, 1)
        for model in (by_styles, by_swap):
            result = model(x if sequence is None else part(x, 1))
            equal(gathered(result), expected if model is by_styles else shown)
            # a sum of all ranks' parts, or the same on all ranks
            (result.to_local() if model is by_styles else result).square().sum().backward()
            for parameter, right in zip(model.parameters(), one.parameters(), strict=True):
                equal(gathered(parameter.grad), right.grad)
        swapped.undo()
        equal({name: gathered(value) for name, value in by_swap.state_dict().items()}, weights)
        equal(by_swap(x if sequence is None else part(x, 1)), shown)
    for plan, words in (
        ({"up": "column"}, "got 'column' for up"),
        (None, "plan: must name the layers to split"),
        ({"mlp.*": "rows"}, r"plan: must name layers of the model; got 'mlp.\*', which none has"),
    ):
        with pytest.raises(ArgumentError, match=words):
            lt.swap(network(weights), mesh=mesh, plan=plan)
    with pytest.raises(ArgumentError, match=r"mesh: must be a torch\.distributed DeviceMesh .*; got int"):
        lt.swap(network(weights), mesh=4, plan={"up": "columns"})
    with pytest.raises(
        ArgumentError, match=r"ColumnParallel: must be applied to a torch.nn.Linear; got Network"
    ):
        parallelize_module(network(weights), mesh, lt.ColumnParallel())
    with pytest.raises(ArgumentError, match="plan: must be None without a mesh"):
        lt.swap(network(weights), plan={"up": "columns"})
    with pytest.raises(ArgumentError, match="must divide by the number of ranks"):
        lt.swap(torch.nn.Sequential(torch.nn.Linear(4, 7)), mesh=mesh, plan={"0": "columns"})


def layers_in_eight_bits(device: str) -> None:
    """Results are near those of layers that round nothing; gradients, which round nothing, are theirs."""
    lt = importlib.import_module("lapidist.torch")
    mesh = torch.distributed.device_mesh.init_device_mesh(device, (torch.distributed.get_world_size(),))

    def two_layers() -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(K, 6 * N), torch.nn.Linear(6 * N, K))
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.data.copy_(value)
        return model

    values = [whole_numbers(*shape) for shape in ((6 * N, K), (6 * N,), (K, 6 * N), (K,))]
    x, g, one = whole_numbers(2, ROWS, K), whole_numbers(2, ROWS, K), two_layers()
    expected = one(x)
    (expected * g).sum().backward()
    for sequence, factors in ((None, "rows"), (1, "rows"), (1, "blocks")):
        split = two_layers()
        how = {"plan": {"0": "columns", "1": "rows"}, "sequence_dim": sequence}
        lt.swap(split, mesh=mesh, dtype=torch.float8_e4m3fn, factors=factors, **how)
        rows, of_rows, shown = (t if sequence is None else part(t, 1) for t in (x, g, expected))
        with torch.no_grad():
            close_in_eight_bits(split(rows), shown)
        result = split(rows)
        close_in_eight_bits(result, shown)
        (result * of_rows).sum().backward()
        for number, (parameter, right) in enumerate(zip(split.parameters(), one.parameters(), strict=True)):
            # that of the second weight is a product with what the first layer gave
            (close_in_eight_bits if number == 2 else equal)(gathered(parameter.grad), right.grad)


def close_in_eight_bits(result: Any, expected: Any) -> None:
    off, size = (result - expected).detach().square().mean(), expected.detach().square().mean()
    assert float(off) <= 0.06**2 * float(size)


def everything(device: str) -> None:
    torch.set_default_device(device)
    for dtype in (torch.float32, torch.bfloat16):
        gathers(dtype)
        sums(dtype)
    ways_have_the_same_bits()
    epilogues_and_factors()
    unequal_parts()
    refusals()
    if device == "cpu":
        first_calls_in_a_capture()
    gradients()
    gradients_of_several()
    layers(device)
    layers_in_eight_bits(device)
    plan = ours.plan("matmul_all_reduce", 64, N, K, group=torch.distributed.group.WORLD)
    assert device == "cuda" or plan.way == "collective"
    assert plan.exchange.ranks == torch.distributed.get_world_size()


def chunks_of_k(device: str) -> None:
    """Results and gradients have the bits of one rank. By every way on cards: on the host NumPy multiplies,
    and rows of its products change with their number."""
    torch.set_default_device(device)
    ways = ways_of if device == "cuda" else lambda peers: ("collective", None)
    torch.manual_seed(0)
    bits = {torch.bfloat16: torch.int16, torch.float32: torch.int32}
    for dtype, integers in bits.items():
        x, w = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in ((16, 512), (24, 512)))
        g = torch.randn(16, 24, dtype=dtype)
        expected = ours.matmul_in_chunks(x, w, trans_b=True, chunks=8)
        of_x, of_w = torch.autograd.grad(expected, (x, w), g)
        mine, matrix = (part(tensor, 1).detach().requires_grad_() for tensor in (x, w))
        for way in ways("one_shot"):
            result = ours.matmul_all_reduce(mine, matrix, trans_b=True, chunks=8, way=way)
            equal(result.view(integers), expected.view(integers))
            found = torch.autograd.grad(result, (mine, matrix), g)
            equal(found, (part(of_x, 1), part(of_w, 1)))
        for way in ways("slots"):
            result = ours.row_parallel_linear(mine, matrix, chunks=8, sequence_dim=0, way=way)
            equal(result.view(integers), part(expected, 0).view(integers))
            found = torch.autograd.grad(result, (mine, matrix), part(g, 0))
            equal(found, (part(of_x, 1), part(of_w, 1)))
    with torch.no_grad():
        function = silu_of_sum(bias=torch.ones(24))
        one = ours.matmul_in_chunks(x, w, trans_b=True, epilogue=function)
        equal(ours.matmul_all_reduce(mine, matrix, trans_b=True, chunks=8, epilogue=function), one)
    with pytest.raises(ArgumentError, match=r"chunks: the number of ranks, \d, must divide it; got 1"):
        ours.matmul_all_reduce(mine, matrix, trans_b=True, chunks=1)


# ---- graphs of torch.compile ----


class Layers(torch.nn.Module):  # type: ignore[misc]
    """Each call with its gradients, q and k behind one gather."""

    def forward(self, x: Any, q: Any, k: Any, bias: Any, down: Any) -> tuple[Any, ...]:
        rows, columns = ours.all_gather_matmul(x, [q, k], dim=1, trans_b=True, bias=[bias, bias])
        h = torch.relu(rows) * columns
        scattered = ours.row_parallel_linear(h, down, down[:, 0], sequence_dim=1)
        everywhere = ours.column_parallel_linear(ours.row_parallel_linear(h, down), q, bias)
        chunks = ours.matmul_all_reduce(h, down, trans_b=True, chunks=2, out_dtype=torch.float32)
        return scattered, everywhere, chunks


def compiled_graphs(device: str) -> None:
    """One graph, whose results and gradients are those of calls."""
    torch.set_default_device(device)
    torch.manual_seed(0)
    shapes = (2, 4, 8), (16, 8), (16, 8), (16,), (8, 16)
    calls = [whole_numbers(*shape).requires_grad_() for shape in shapes]
    in_graph = [tensor.detach().clone().requires_grad_() for tensor in calls]
    model = Layers()
    expected, results = model(*calls), torch.compile(model, fullgraph=True, backend="aot_eager")(*in_graph)
    for result, right in zip(results, expected, strict=True):
        equal(result, right)
    gradients = [
        torch.autograd.grad(sum(part.sum() for part in found), tensors)
        for found, tensors in ((expected, calls), (results, in_graph))
    ]
    for right, found in zip(*gradients, strict=True):
        equal(found, right)
    lt = importlib.import_module("lapidist.torch")
    mesh = torch.distributed.device_mesh.init_device_mesh(device, (2,))
    split = Network()
    lt.swap(split, mesh=mesh, plan={"up": "columns", "down": "rows"})
    x = torch.randn(3, K)
    torch.testing.assert_close(torch.compile(split, fullgraph=True, backend="aot_eager")(x), split(x))

    def unequal(rows: Any, matrix: Any) -> Any:
        scattered = ours.matmul_reduce_scatter(rows, matrix)
        return scattered, ours.all_gather_matmul(scattered, matrix, extent=len(rows))

    square = torch.randn(K, K)
    equal(torch.compile(unequal, fullgraph=True, backend="aot_eager")(x, square), unequal(x, square))
    with pytest.raises(
        Exception, match=r"must be None where gradients are recorded or torch\.compile compiles"
    ):
        torch.compile(ours.matmul_all_reduce, fullgraph=True)(x, x.t(), scale_a=2.0)


__all__ = ["chunks_of_k", "compiled_graphs", "everything", "in_processes"]
