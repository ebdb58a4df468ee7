"""Rows of A that arrive from other ranks while wgmma runs. The machine plays the ranks, and the copies
between them: whole numbers, and NaN where nothing has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from in_turns import in_turns, surveyed
from lapidist.calls.bound import Bound
from lapidist.calls.destination import output_of
from lapidist.calls.operation import Factors, Operation, Types
from lapidist.config import Config
from lapidist.device import chip
from lapidist.dtypes import numpy_dtype
from lapidist.errors import RefusalError
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.launch import Launch, Memory
from lapidist.machine.faults import Deadlock, MissingProxyFence
from lapidist.machine.together import Devices
from lapidist.planning.plans import make_plan
from lapidist.planning.workspace import Scratch
from lapidist.problems.arrivals import Arrivals

Array = np.ndarray[Any, Any]
H200 = chip("h200")
FOREVER = 1 << 60  # the machine counts blocks of code
CONFIGS = {
    "one warpgroup": tile("float16", 64, 32, 3),
    "a pair along m": tile("float16", 64, 32, 3, (2, 1)),
    "a pair along n": tile("float16", 64, 32, 3, (1, 2)),
    "exchanged": replace(tile("float16", 64, 32, 3), exchanged=True),
    "two warpgroups": tile("float16", 128, 64, 4),
}


class Rank(NamedTuple):
    """`rows`, `factors`: those of all ranks, of which its own are there."""

    shard: Array
    rows: Array
    flags: Array
    report: Array
    b: Array
    launch: Launch
    result: Array
    scratch: Scratch | None
    scale: Array | None = None
    factors: Array | None = None


def of_all(shard: Array, ranks: int, own: int) -> Array:
    """Those of all ranks, of which this one's are there."""
    rows = np.full((ranks * len(shard), shard.shape[1]), np.nan, shard.dtype)
    rows[own * len(shard) : (own + 1) * len(shard)] = shard
    return rows


def rank_of(
    shard: Array,
    ranks: int,
    own: int,
    b: Array,
    chunk: int,
    config: Config | None,
    limit: int = FOREVER,
    scale: Array | None = None,
) -> Rank:
    count = len(shard)
    rows = of_all(shard, ranks, own)
    factors = None if scale is None else of_all(scale, ranks, own)
    flags = np.zeros(-(-len(rows) // chunk) * 2, np.int32)
    flags[::2][own * count // chunk : (own + 1) * count // chunk] = 1
    report = np.zeros(1, np.uint64)
    arrivals = Arrivals(flags.ctypes.data, report.ctypes.data, limit, chunk, 2)
    bound = Bound(rows, b, None, None, Operation(types=Types(arrivals=arrivals), factors=Factors(factors)))
    plan = make_plan(bound.problem(), H200, kernel_named("wgmma"), config)
    result, target = output_of(bound)
    scratch = Scratch(plan) if plan.workspace_bytes else None
    further = bound.extra_pointers, bound.extras
    launch = plan.launch(bound.a, bound.b, None, target, 1.0, 0.0, (0,) * 4, scratch, *further)
    more = [Memory(name, x.ctypes.data, x.nbytes, x) for name, x in (("flags", flags), ("report", report))]
    launch = replace(launch, memory=(*launch.memory, *more))
    return Rank(shard, rows, flags, report, b, launch, result, scratch, scale, factors)


def all_ranks(
    rng: np.random.Generator, ranks: int, rows: int, chunk: int, config: Config | None
) -> list[Rank]:
    k, n = 136, 72
    shards = [rng.integers(-3, 4, (rows, k)).astype(np.float16) for _ in range(ranks)]
    return [
        rank_of(shard, ranks, own, rng.integers(-3, 4, (k, n)).astype(np.float16), chunk, config)
        for own, shard in enumerate(shards)
    ]


def pushes(
    ranks: list[Rank], own: int, chunk: int, early: bool = False
) -> Callable[[Devices], Iterator[Any]]:
    """The copies of one rank to all others. `early`: flags before the rows."""

    def copy(devices: Devices) -> Iterator[Any]:
        mine, count = ranks[own], len(ranks[own].shard)
        for distance in range(len(ranks) - 1, 0, -1):
            to = ranks[(own + distance) % len(ranks)]
            if mine.scale is not None:
                assert to.factors is not None
                yield from range(20)  # kernels begin
                devices.write(to.factors[own * count : (own + 1) * count], mine.scale)
            for first in range(0, count, chunk):
                rows = slice(own * count + first, own * count + first + chunk)
                flag = to.flags[rows.start // chunk * 2 :][:1]
                steps = [(to.rows[rows], mine.shard[first : first + chunk]), (flag, np.ones(1, np.int32))]
                for target, source in reversed(steps) if early else steps:
                    yield from range(devices.random.randrange(30))  # copies take their time
                    devices.write(target, source)

    return copy


def multiply(ranks: list[Rank], chunk: int, seed: int, early: bool = False) -> None:
    copies = [pushes(ranks, own, chunk, early) for own in range(len(ranks))]
    Devices(seed).run([*(rank.launch for rank in ranks), *copies])


def spread(rank: Rank) -> Array:
    """The shard with its factors, of which there is one for each 128 of k, or for all."""
    shard = rank.shard.astype("f8")
    if rank.scale is None:
        return shard
    k = shard.shape[1]
    return shard * rank.scale.repeat(128 if rank.scale.shape[1] > 1 else k, 1)[:, :k]


def right(ranks: list[Rank]) -> bool:
    everything = np.concatenate([spread(rank) for rank in ranks])
    return all((rank.result.astype("f8") == everything @ rank.b.astype("f8")).all() for rank in ranks)


@pytest.mark.parametrize(("name", "seed"), in_turns(CONFIGS, range(2), often=[("a pair along n", 0)]))
def test_tiles_wait_for_the_rows_that_they_have(rng: np.random.Generator, name: str, seed: int) -> None:
    """Chunks that tiles cut, and that cut tiles."""
    for rows, chunk in ((96, 48), (160, 160)):
        ranks = all_ranks(rng, 2, rows, chunk, CONFIGS[name])
        multiply(ranks, chunk, seed)
        assert right(ranks)
        assert not any(rank.report.any() for rank in ranks)


@pytest.mark.survey
@pytest.mark.parametrize(("rows", "chunk"), [(32, 16), *surveyed([(64, 32)])])
def test_three_ranks_and_the_planners_config(rng: np.random.Generator, rows: int, chunk: int) -> None:
    ranks = all_ranks(rng, 3, rows, chunk, None)
    multiply(ranks, chunk, 5)
    assert right(ranks)


def with_factors(rng: np.random.Generator, blocks: int) -> list[Rank]:
    """Two ranks' rows of 8-bit floats, with so many factors a row."""
    count, k, n = 64, 256, 48
    ranks = []
    for own in range(2):
        shard, b = (
            rng.integers(-3, 4, shape).astype(numpy_dtype("float8_e4m3fn")) for shape in ((count, k), (n, k))
        )
        scale = (2.0 ** rng.integers(-2, 3, (count, blocks))).astype(np.float32)
        ranks.append(rank_of(shard, 2, own, b.T, 32, None, FOREVER, scale))
    return ranks


@pytest.mark.parametrize("blocks", [1, 2], ids=["of rows", "along k"])
def test_factors_arrive_with_their_rows(rng: np.random.Generator, blocks: int) -> None:
    """Also those that a warp of the producer loads ahead of the sums."""
    ranks = with_factors(rng, blocks)
    multiply(ranks, 32, blocks)
    assert right(ranks)


FENCE, ACQUIRE = "fence.proxy.async.global;", "ld.acquire.sys.global"
MUTANTS: dict[str, Callable[[str], str]] = {
    "no fence between a flag and TMA": lambda ptx: ptx.replace(FENCE, ""),
    "a flag of this card's scope": lambda ptx: ptx.replace(ACQUIRE, "ld.acquire.gpu.global"),
    "a flag that orders nothing": lambda ptx: ptx.replace(ACQUIRE, "ld.relaxed.sys.global"),
}


@pytest.mark.often(2)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_fence_and_the_order_of_flags_are_needed(rng: np.random.Generator, name: str) -> None:
    ranks = all_ranks(rng, 2, 64, 64, CONFIGS["one warpgroup"])
    for number, rank in enumerate(ranks):
        binary = rank.launch.binary
        changed = MUTANTS[name](binary.ptx)
        assert changed != binary.ptx
        launch = replace(rank.launch, binary=replace(binary, ptx=changed))
        ranks[number] = rank._replace(launch=launch)
    with pytest.raises(MissingProxyFence, match="what another device wrote, without a fence"):
        multiply(ranks, 64, 0)


def test_flags_before_their_rows_are_found(rng: np.random.Generator) -> None:
    """A copy that tells before it has written: some order multiplies what is not there."""

    def is_found(seed: int) -> bool:
        ranks = all_ranks(rng, 2, 64, 64, CONFIGS["one warpgroup"])
        try:
            multiply(ranks, 64, seed, early=True)
        except MissingProxyFence:
            return True
        return not right(ranks)

    assert any(is_found(seed) for seed in range(4))


def test_a_kernel_does_not_wait_for_ever(rng: np.random.Generator) -> None:
    """It tells which flag it missed, and ends. Without a limit that is a deadlock, which is found."""
    config = CONFIGS["one warpgroup"]
    for limit, report in ((1000, 1 + 2 * 2), (FOREVER, 0)):
        shard, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 136), (136, 72)))
        rank = rank_of(shard, 2, 0, b, 32, config, limit)
        if report:
            Devices(0).run([rank.launch])
        else:
            with pytest.raises(Deadlock):
                Devices(0).run([rank.launch])
        assert int(rank.report[0]) == report
        own = shard.astype("f8") @ b.astype("f8")
        assert (rank.result[:64].astype("f8") == own).all() or not report


def test_kernels_that_cannot_wait_refuse_rows_that_arrive(rng: np.random.Generator) -> None:
    shard, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 136), (136, 72)))
    arrivals = Arrivals(16, 16, 1, 32)
    bound = Bound(shard, b, None, None, Operation(types=Types(arrivals=arrivals)))
    problem = bound.problem()
    assert make_plan(problem, H200).kernel.name == "wgmma"
    assert "that arrive" in str(problem)
    for name in ("mma", "small", "simt"):
        with pytest.raises(RefusalError, match="do not wait for rows that arrive"):
            make_plan(problem, H200, kernel_named(name))
