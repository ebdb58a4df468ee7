"""Products over the cards of a host, beside NCCL with cuBLAS and torch's own products over symmetric memory.

`torchrun --nproc-per-node 2 -m lapidist_lab.bench.studies.several_cards FILE` writes its Records to FILE.
With `--skip 15 --count 15` it takes cases 15 to 29, with `--dtype float8_e4m3fn` 8-bit floats with factors.
Every way of a call is timed; the plan's has the call's name alone."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from lapidist.backends.gpu.driver import query_device
from lapidist.build.compile_policy import VARIABLE, WAIT
from lapidist.device import Device
from lapidist.distributed.exchange_plans import PEER_WAYS, WAYS, exchange_of, plan_of
from lapidist.distributed.exchange_times import Product
from lapidist.kernels.wgmma.tiles import PATCH_ROWS
from lapidist.planning.plans import make_plan
from lapidist.planning.warm import build_all, builds_of
from lapidist.problems.arrivals import Arrivals
from lapidist.problems.owners import Owners
from lapidist.problems.problem import Problem, dense_problem
from lapidist.problems.scaling import LINES, Scale, Scaling
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.record import Conditions, Record, write_run
from lapidist_lab.bench.studies.scaled_cards import (
    EIGHT_BITS,
    Factors,
    gathered_scaled,
    in_eight_bits,
    multiplied,
    scattered_scaled,
)

MODULE = "lapidist_lab.bench.studies.several_cards"
MODE, GATHER, PEER = "parallel", "all_gather_matmul", "cublas + nccl"
SYMMETRIC, ONE_SHOT, ALONE = "torch.ops.symm_mem", "cublas + one-shot all-reduce", "alone"
PEERS = PEER, SYMMETRIC, ONE_SHOT
FEW = 512  # rows up to which all cards read all terms
ROUNDS, GRAPH_SECONDS, MOST_CALLS = 9, 2e-3, 100
BOUND = 0.02  # of the largest value: terms are rounded to bf16 before they are added
PROTOCOL = (
    "normal numbers, e4m3 with factors of rows and columns, results in bf16; a graph of calls of"
    f" {GRAPH_SECONDS * 1e3:.0f} ms, median of {ROUNDS} replays, in turns; time of the slowest rank; ratio:"
    " the fastest peer's time over this one"
)
EXTENTS = ((8192, 8192), (28672, 8192), (8192, 28672))  # of all ranks: the result's columns, and k
ROWS = (16, 64, 512, 4096, 8192)
CARDS = (2, 4, 8)  # of one host
Call = Callable[[], Any]


class Case(NamedTuple):
    """`n` and `k` of one rank."""

    product: Product
    rows: int
    n: int
    k: int
    dtype: str = "bfloat16"


def is_scaled(case: Case) -> bool:
    return case.dtype == EIGHT_BITS


def cases(ranks: int, dtype: str = "bfloat16") -> list[Case]:
    extents = {
        product: [(n // ranks, k) if product == GATHER else (n, k // ranks) for n, k in EXTENTS]
        for product in WAYS
    }
    return [
        Case(product, rows, *pair, dtype) for product in WAYS for pair in extents[product] for rows in ROWS
    ]


def cards_of(case: Case) -> int | None:
    """How many cards have such a case."""
    return next((cards for cards in CARDS if case in cases(cards, case.dtype)), None)


def operands(case: Case, device: str) -> tuple[Any, Any, Factors]:
    """This rank's."""
    import torch
    import torch.distributed as dist

    rows = case.rows // dist.get_world_size() if case.product == GATHER else case.rows
    dtype = torch.bfloat16 if device == "cuda" and not is_scaled(case) else torch.float32
    a = torch.randn(rows, case.k, device=device, dtype=dtype)
    b = torch.randn(case.n, case.k, device=device, dtype=dtype)
    if not is_scaled(case):
        return a, b.t(), None
    (a, of_rows), (b, of_columns) = in_eight_bits(a), in_eight_bits(b)
    return a, b.t(), (of_rows, of_columns.t())


def peers(case: Case, a: Any, b: Any, factors: Factors) -> dict[str, Call]:
    """torch's, the first of which results are compared with."""
    import torch
    import torch.distributed as dist

    ranks, name = dist.get_world_size(), dist.group.WORLD.group_name
    everything = a.new_empty(case.rows, case.k)
    part = a.new_empty(case.rows // ranks, case.n, dtype=torch.bfloat16 if factors else a.dtype)
    of_all = factors and (factors[0].new_empty(case.rows, 1), factors[1])

    def gathered() -> Any:
        dist.all_gather_into_tensor(everything.view(torch.uint8), a.view(torch.uint8))
        if factors and of_all:
            dist.all_gather_into_tensor(of_all[0], factors[0])
        return multiplied(everything, b, of_all)

    def scattered() -> Any:
        dist.reduce_scatter_tensor(part, multiplied(a, b, factors))
        return part

    def reduced() -> Any:
        total = multiplied(a, b, factors)
        dist.all_reduce(total)
        return total

    def gathered_symmetric() -> Any:
        if factors:
            return gathered_scaled(a, b, factors, name)
        return torch.ops.symm_mem.fused_all_gather_matmul(a, [b], 0, name)[1][0]

    def scattered_symmetric() -> Any:
        if factors:
            return scattered_scaled(a, b, factors, name)
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, name)

    by_collective, by_symmetric = {
        "all_gather_matmul": (gathered, gathered_symmetric),
        "matmul_reduce_scatter": (scattered, scattered_symmetric),
        "matmul_all_reduce": (reduced, None),
    }[case.product]
    contenders = {PEER: by_collective}
    if a.device.type == "cuda" and by_symmetric is not None:
        contenders[SYMMETRIC] = by_symmetric
    if a.device.type == "cuda" and by_symmetric is None and case.rows <= FEW:
        contenders[ONE_SHOT] = one_shot(a, b, factors)
    return contenders


def contenders_of(case: Case, a: Any, b: Any, factors: Factors) -> dict[str, Call]:
    import torch
    import torch.distributed as dist

    import lapidist
    import lapidist.distributed
    from lapidist.distributed.group_facts import reach_of

    call = getattr(lapidist.distributed, case.product)
    group = dist.group.WORLD
    reach = reach_of(group)
    how: dict[str, Any] = {}
    if factors:
        how = {"scale_a": factors[0], "scale_b": factors[1], "out_dtype": torch.bfloat16}
    size = torch.bfloat16.itemsize
    sizes = case.rows, case.n, case.k, case.dtype, reach.ranks, size
    chosen = plan_of(exchange_of(case.product, *sizes), reach)
    ways = [way for way in WAYS[case.product] if a.device.type == "cuda" or way not in PEER_WAYS]
    ours = {
        case.product if way == chosen.way else f"{case.product}, {way}": partial(call, a, b, way=way, **how)
        for way in ways
        if way not in dict(chosen.refused)
    }
    everything = torch.randn(case.rows, case.k, device=a.device).to(a.dtype)
    if factors:
        how["scale_a"] = torch.ones(case.rows, 1, device=a.device)
    alone = partial(lapidist.gemm, everything, b, **how)
    return {**ours, ALONE: alone, **peers(case, a, b, factors)}


def one_shot(a: Any, b: Any, factors: Factors) -> Call:
    """cuBLAS, and torch's all-reduce that reads all cards' memory."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    name = dist.group.WORLD.group_name
    term = symmetric.empty(a.shape[0], b.shape[1], dtype=torch.bfloat16, device=a.device)
    symmetric.rendezvous(term, name)

    def reduced() -> Any:
        multiplied(a, b, factors, out=term)
        return torch.ops.symm_mem.one_shot_all_reduce(term, "sum", name)

    return reduced


def compile_ahead(chosen: Sequence[Case], ranks: int, device: Any) -> None:
    """All kernels of the cases at once, by one rank; the others find them on the disk."""
    arrivals = Arrivals(0, 0, 1, 1)
    problems: dict[Problem, None] = {}
    for case in chosen:
        own = case.rows // ranks
        counts = {case.rows, own}
        for rows in counts:
            problem = dense_problem(rows, case.n, case.k, case.dtype, "rc", "bfloat16")
            if is_scaled(case):
                problem = replace(problem, scaling=Scaling(Scale(LINES, 1), Scale(LINES, 1)))
            problems[problem] = None
            if case.product == GATHER:
                problems[replace(problem, arrivals=arrivals)] = None
            elif rows == case.rows and own % PATCH_ROWS == 0:
                problems[replace(problem, owners=Owners((16,) * ranks, own))] = None
    plans = [make_plan(problem, device) for problem in problems]
    build_all(builds_of(plans))


def captured(call: Call) -> tuple[Call, int]:
    """Replays of a graph of calls, and how many it has. A first graph tells how long the cards take: from the
    host's calls, a way whose host takes longer would have fewer calls for what a replay costs.
    """
    for _ in range(3):
        call()
    trial = calls_in_time(call, 1)
    replay = graph_of(call, trial)
    replay()
    count = calls_in_time(replay, trial)
    return (graph_of(call, count), count) if count > trial else (replay, trial)


def repeated(call: Call) -> tuple[Call, int]:
    """The same of what torch cannot capture, and how many calls these are."""
    call()
    count = calls_in_time(call, 1)

    def calls() -> None:
        for _ in range(count):
            call()

    return calls, count


def calls_in_time(call: Call, count: int) -> int:
    """How many calls take GRAPH_SECONDS on all ranks. `call` has `count` of them."""
    return max(1, min(MOST_CALLS, int(GRAPH_SECONDS / seconds_of(call, count, "cuda"))))


def graph_of(call: Call, count: int) -> Call:
    """Replays so many calls."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph.replay


def of_all(number: float) -> Any:
    """The largest of all ranks'."""
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    tensor = torch.tensor(float(number), device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return type(number)(tensor.item())


def seconds_of(call: Call, count: int, device: str) -> float:
    import torch
    import torch.distributed as dist

    dist.barrier()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    call()
    wait()
    return of_all((time.perf_counter() - start) / count)


def measured(case: Case, device: str, chip: str) -> list[Record]:
    """The rows of a case, the same on all ranks."""
    contenders = contenders_of(case, *operands(case, device))
    expected = contenders[PEER]().float().clone()
    calls, worst = {}, dict.fromkeys(contenders, 0.0)
    for name, call in contenders.items():
        if name != ALONE:
            off = (call().float() - expected).abs().max() / expected.abs().max()
            worst[name] = of_all(float(off)) / BOUND
        calls[name] = (call, 1) if device == "cpu" else (repeated if name == SYMMETRIC else captured)(call)
    turns: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (call, count) in calls.items():
            turns[name].append(seconds_of(call, count, device))
    return [row_of(case, name, turns, worst[name], chip) for name in calls]


def row_of(case: Case, name: str, turns: dict[str, list[float]], worst: float, chip: str) -> Record:
    ours, times = (
        name.startswith(case.product),
        {contender: median(seconds) for contender, seconds in turns.items()},
    )
    best = min(PEERS, key=lambda rival: times.get(rival, math.inf))
    seconds = times[name]
    return Record(
        name if ours else f"{name}, {case.product}",
        "production" if ours else "peer",
        chip,
        case.dtype,
        "rcr",
        case.rows,
        case.n,
        case.k,
        seconds,
        2e-12 * case.rows * case.n * case.k / seconds,
        None if name == ALONE else times[best] / seconds,
        None,
        worst,
        worst <= 1.0,
        MODE,
        min(turns[name]),
        max(turns[name]),
        peer=None if name == ALONE else best,
        note=f"product alone over this: {times[ALONE] / seconds:.2f}",
    )


def main(arguments: Sequence[str]) -> None:
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser(prog="several_cards", description=__doc__)
    parser.add_argument("path", help="the file of Records")
    parser.add_argument("--skip", type=int, default=0, help="so many cases are left out first")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", EIGHT_BITS], help="of operands")
    parser.add_argument("--count", type=int, help="at most so many cases")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault(VARIABLE, WAIT)
    ordinal = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(ordinal)
    dist.init_process_group("nccl")
    device, ranks = query_device(ordinal), dist.get_world_size()
    if ranks not in CARDS:
        parser.error(f"cases are shared by {', '.join(map(str, CARDS))} cards; there are {ranks}")
    selected = cases(ranks, chosen.dtype)[chosen.skip :][: chosen.count]
    if ordinal == 0:
        compile_ahead(selected, ranks, device)
    dist.barrier()
    write_cases(selected, "cuda", device, Path(chosen.path), arguments)
    dist.destroy_process_group()


def conditions_of(device: Device, ranks: int, arguments: Sequence[str]) -> Conditions:
    import torch

    facts = gather(device, device.name, MODE, PROTOCOL, vendor=f"torch {torch.__version__}, {ranks} cards")
    words = [Path(word).name if word.startswith("/") else word for word in arguments]
    command = f"torchrun --nproc-per-node {ranks} -m {MODULE} {' '.join(words)}"
    return replace(facts, command=command, inputs="standard normal")


def write_cases(
    selected: Sequence[Case], place: str, device: Device, path: Path, arguments: Sequence[str]
) -> None:
    """Time cases; the first rank writes those that are there after each."""
    import torch.distributed as dist

    is_first, conditions = dist.get_rank() == 0, conditions_of(device, dist.get_world_size(), arguments)
    records: list[Record] = []
    for case in selected:
        rows = measured(case, place, device.name)
        records += rows
        if is_first:
            for row in rows:
                print(f"{row.kernel:44} {case.rows:6} rows {1e6 * (row.seconds or 0):9.1f} us, {row.note}")
            write_run(path, conditions, records)


if __name__ == "__main__":
    main(sys.argv[1:])
