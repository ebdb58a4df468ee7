"""Which way a product over several ranks goes, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from lapidist.device import chip
from lapidist.distributed.exchange_steps import Way
from lapidist.distributed.exchange_times import MOST_SENT, NETWORK, NVLINK, Exchange, Product, Reach, Times
from lapidist.dtypes import integer_from, name_of, outputs_of, size_of
from lapidist.errors import ArgumentError, shown
from lapidist.kernels.tma_alignment import TMA_ALIGNMENT
from lapidist.kernels.wgmma.family import MATHS
from lapidist.kernels.wgmma.tiles import PATCH_ROWS
from lapidist.launch import MOST_OWNERS

WAYS: dict[Product, tuple[Way, ...]] = {
    "all_gather_matmul": ("collective", "chunks", "push", "waiting", "one_shot"),
    "matmul_reduce_scatter": ("collective", "chunks", "slots", "tiles", "one_shot"),
    "matmul_all_reduce": ("collective", "chunks", "slots", "one_shot"),
}
MEANINGS: dict[Way, str] = {
    "collective": "torch's collective, then the product, or the other way round",
    "chunks": "collectives of chunks under products of chunks",
    "push": "copies push shards to the other cards, products start with the shard at hand",
    "waiting": "copies push shards, and the product's kernel waits for the shard that a tile needs",
    "slots": "products are stored to a slot at their owner, who adds in the order of ranks",
    "tiles": "one product stores each tile to a slot at its owner, who adds in the order of ranks",
    "one_shot": "one kernel sends all ranks what they need, and waits for what they send",
}
PEER_WAYS = ("push", "waiting", "slots", "tiles", "one_shot")
ON_THE_HOST = "the ranks are processes on the host, whose cores copy and multiply"
UNEVEN = "the rows do not divide by the number of ranks"
TOO_LARGE = "a kernel would send more than 8 MiB to each rank"
NO_WAITS = "no kernel multiplies these types, or lines of k, and waits for rows: it needs Hopper"
NO_OWNERS = "no kernel stores these types, or rows, at their owners: it needs Hopper, and 16 rows at once"


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """The way, the seconds that each way is predicted to take, and why others were refused."""

    exchange: Exchange
    way: Way
    reason: str
    seconds: tuple[tuple[Way, float], ...] = ()
    refused: tuple[tuple[Way, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.exchange}: {self.way}, {self.reason}"]
        for way, seconds in self.seconds:
            lines.append(f"  {way:<10} {seconds * 1e6:8.0f} us  {MEANINGS[way]}")
        lines += [f"  {way:<10}  refused  {reason}" for way, reason in self.refused]
        return "\n".join(lines)


def refusal_of(way: Way, exchange: Exchange, reach: Reach, barred: str) -> str:
    """Why a way cannot be taken; "" if it can. `barred`: why the call's rows must stay together."""
    if way == "collective":
        return ""
    if barred:
        return barred
    if exchange.rows % exchange.ranks and (way, exchange.product) != ("one_shot", "matmul_all_reduce"):
        return UNEVEN
    if way in PEER_WAYS and reach.no_peers:
        return reach.no_peers
    if way == "one_shot" and exchange.product == "all_gather_matmul" and exchange.shard > MOST_SENT:
        return TOO_LARGE
    if way == "tiles" and not may_store(exchange, reach):
        return NO_OWNERS
    return "" if way != "waiting" or may_wait(exchange, reach) else NO_WAITS


def may_wait(exchange: Exchange, reach: Reach) -> bool:
    """Whether there is a kernel that waits for rows of A (gemm/wgmma/arrivals.cuh)."""
    return is_for_wgmma(exchange, reach) and exchange.k * exchange.size % TMA_ALIGNMENT == 0


def may_store(exchange: Exchange, reach: Reach) -> bool:
    """Whether there is a kernel that stores rows of D at their owners (gemm/wgmma/owners.cuh)."""
    aligned = exchange.n * exchange.result_size % TMA_ALIGNMENT == 0
    in_boxes = exchange.rows_of_a_rank % PATCH_ROWS == 0 and exchange.ranks <= MOST_OWNERS
    return is_for_wgmma(exchange, reach) and aligned and in_boxes


def is_for_wgmma(exchange: Exchange, reach: Reach) -> bool:
    hopper = reach.device is not None and reach.device.capability == (9, 0)
    return hopper and exchange.dtype in MATHS


@cache
def plan_of(exchange: Exchange, reach: Reach, barred: str = "") -> ExchangePlan:
    if exchange.ranks == 1:
        return ExchangePlan(exchange, "collective", "there is one rank: nothing is exchanged")
    if reach.device is None:
        return ExchangePlan(exchange, "collective", ON_THE_HOST)
    refusals = {
        way: reason for way in WAYS[exchange.product] if (reason := refusal_of(way, exchange, reach, barred))
    }
    times = Times(exchange, reach.device, reach.links)
    seconds = sorted(
        ((way, times.of(way)) for way in WAYS[exchange.product] if way not in refusals),
        key=lambda candidate: candidate[1],
    )
    reason = "predicted to be the fastest" if len(seconds) > 1 else "no other way can be taken"
    return ExchangePlan(exchange, seconds[0][0], reason, tuple(seconds), tuple(refusals.items()))


def plan(
    product: Product,
    rows: int,
    n: int,
    k: int,
    *,
    dtype: str = "bfloat16",
    ranks: int = 2,
    device: str = "h200",
    peers: bool = True,
    group: Any = None,
) -> ExchangePlan:
    """The way that a product over several ranks goes, with predicted times. Printing it tells all of it.

    Parameters
    ----------
    product : {"all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"}
        The call.
    rows, n, k : int
        Rows of all ranks together; columns of the result, and the summed extent, of one rank.
    dtype : str
        The operands' element type.
    ranks, device, peers : int, str, bool
        The number of ranks, their chip, and whether cards can write to each other's memory. They are for
        cards that are not here.
    group : torch.distributed.ProcessGroup, optional
        Takes these facts from a group instead. All its ranks must call.

    Returns
    -------
    ExchangePlan

    Examples
    --------
    >>> import lapidist.distributed
    >>> lapidist.distributed.plan("all_gather_matmul", 8192, 4096, 8192, ranks=2).way
    'push'
    """
    if product not in WAYS:
        raise ArgumentError(
            f"product: must be one of {', '.join(WAYS)}; got {shown(product)}. Write one of these"
        )
    rows, n, k, ranks = (
        extent(name, value) for name, value in (("rows", rows), ("n", n), ("k", k), ("ranks", ranks))
    )
    if group is not None:
        from lapidist.distributed.group_facts import reach_of

        reach = reach_of(group)
    else:
        reach = Reach(ranks, chip(device), NVLINK if peers else NETWORK, "" if peers else "peers=False")
    return plan_of(exchange_of(product, rows, n, k, name_of(dtype, "dtype"), reach.ranks), reach)


def extent(name: str, value: Any) -> int:
    number = integer_from(1, value)
    if number is None:
        way_out = "Write how many there are" if name == "ranks" else "Write an extent"
        raise ArgumentError(f"{name}: must be a whole number from 1 on; got {shown(value)}. {way_out}")
    return number


def exchange_of(
    product: Product, rows: int, n: int, k: int, dtype: str, ranks: int, result_size: int | None = None
) -> Exchange:
    size = size_of(dtype)
    if result_size is None:
        result_size = size_of(outputs_of(dtype, dtype)[0])
    return Exchange(product, rows, n, k, dtype, size, result_size, ranks)
