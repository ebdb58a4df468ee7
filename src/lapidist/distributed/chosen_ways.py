"""A call over several ranks: the ranks agree on it, its plan is made, and its way is taken."""

from __future__ import annotations

from typing import Any

from lapidist.distributed import exchange_ways
from lapidist.distributed.exchange_plans import WAYS, ExchangePlan, exchange_of, plan_of
from lapidist.distributed.exchange_steps import Way
from lapidist.distributed.exchange_times import NETWORK, Product, Reach
from lapidist.distributed.group_facts import members_of, reach_of, require_alike
from lapidist.distributed.peer_memory import peers_of
from lapidist.distributed.row_factors import row_factors
from lapidist.distributed.row_products import RowProducts, shape_of
from lapidist.errors import ArgumentError, shown


def agreed_way(
    product: Product, rows: Any, scale: Any, products: RowProducts, group: Any, way: Way | None
) -> Way:
    """The plan's way, or the caller's if the plan does not refuse it; looked up in a call that repeats."""
    members, key = members_of(group), None
    if (of_products := products.key) is not None:
        key = product, way, rows.shape, rows.dtype, rows.device, shape_of(scale), of_products
        agreed = members.ways.get(key)
        if agreed is not None:
            members.calls += 1
            return agreed
    agreed = newly_agreed_way(product, rows, scale, products, group, way)
    if key is not None:
        members.ways[key] = agreed
    return agreed


def newly_agreed_way(
    product: Product, rows: Any, scale: Any, products: RowProducts, group: Any, way: Way | None
) -> Way:
    parts = [f"a {tuple(rows.shape)} {rows.dtype} on {rows.device.type}", products.described()]
    parts += [] if scale is None else [f"scale_a {tuple(scale.shape)}"]
    parts += [] if way is None else [f"way={way}"]
    require_alike(group, product, ", ".join(parts).replace("torch.", ""))
    return require_offered(product, rows, products, group, way)


def require_offered(product: Product, rows: Any, products: RowProducts, group: Any, way: Way | None) -> Way:
    """The plan's way, or the caller's. Refuse one that the plan does not offer."""
    plan = plan_for(product, rows, products, group)
    require_way(product, way)
    if way is None or members_of(group).ranks == 1:
        return plan.way
    offered = {"collective", "chunks", *(name for name, _ in plan.seconds)}
    refused = dict(plan.refused)
    if way not in offered or way in refused:
        reason = refused.get(way, "the ranks have no such way")
        raise ArgumentError(
            f"way: must be one that the plan offers; got {shown(way)}: {reason}. Leave it out"
        )
    return way


def require_way(product: Product, way: Any) -> None:
    if way is not None and way not in WAYS[product]:
        ways = ", ".join(WAYS[product])
        raise ArgumentError(
            f"way: must be one that the plan offers; got {shown(way)}: the ways are {ways}. Leave it out"
        )


def plan_for(product: Product, rows: Any, products: RowProducts, group: Any) -> ExchangePlan:
    ranks = members_of(group).ranks
    reach = reach_of(group) if rows.device.type == "cuda" else Reach(ranks, None, NETWORK)
    count = rows.shape[0] * (ranks if product == "all_gather_matmul" else 1)
    columns = sum(products.columns(index) for index in range(len(products.matrices)))
    dtype, size = str(rows.dtype).removeprefix("torch."), products.dtype(rows).itemsize
    exchange = exchange_of(product, count, columns, rows.shape[1], dtype, ranks, size)
    return plan_of(exchange, reach, products.barred())


def gathered(rows: Any, scale: Any, products: RowProducts, group: Any, way: Way | None) -> list[Any]:
    """Products of all ranks' rows."""
    call: Product = "all_gather_matmul"
    scale = row_factors(scale, rows)
    way = agreed_way(call, rows, scale, products, group, way)
    if members_of(group).ranks == 1:
        return products.multiply(rows, scale)
    if way == "waiting" and products.options.chunks is not None:
        way = "push"  # a batch of chunks has no rows that arrive
    if way in ("push", "waiting"):
        peers = peers_of(group, rows.device)
        return (peers.gathered if way == "push" else peers.gathered_in_kernel)(rows, scale, products)
    if way == "one_shot":
        return peers_of(group, rows.device).gathered_at_once(rows, scale, products)
    if way == "chunks":
        return exchange_ways.gather_in_chunks(rows, scale, products, group, call)
    return exchange_ways.gather_then_multiply(rows, scale, products, group, call)


def scattered(rows: Any, scale: Any, products: RowProducts, group: Any, way: Way | None) -> Any:
    """This rank's rows of the sum of all ranks' products."""
    call: Product = "matmul_reduce_scatter"
    scale = row_factors(scale, rows)
    way = agreed_way(call, rows, scale, products, group, way)
    return scattered_by(way, rows, scale, products, group, call)


def scattered_by(way: Way, rows: Any, scale: Any, products: RowProducts, group: Any, call: Product) -> Any:
    ranks = members_of(group).ranks
    if ranks == 1:
        return products.multiply(rows, scale)[0]
    if way == "tiles" and not products.stores_sums:
        way = "slots"
    if way == "slots":
        return peers_of(group, rows.device).scattered(rows, scale, products)
    if way == "tiles":
        return peers_of(group, rows.device).scattered_by_tiles(rows, scale, products)
    if way == "one_shot":
        return peers_of(group, rows.device).reduced(rows, scale, products, owned=True)
    if way == "chunks":
        return exchange_ways.scatter_in_chunks(rows, scale, products, group, ranks, call)
    return exchange_ways.multiply_then_scatter(rows, scale, products, group, ranks, call)


def reduced(rows: Any, scale: Any, products: RowProducts, group: Any, way: Way | None) -> Any:
    """The sum of all ranks' products, on every rank."""
    call: Product = "matmul_all_reduce"
    scale = row_factors(scale, rows)
    way = agreed_way(call, rows, scale, products, group, way)
    ranks = members_of(group).ranks
    if ranks == 1:
        return products.multiply(rows, scale)[0]
    if way == "one_shot":
        return peers_of(group, rows.device).reduced(rows, scale, products)
    if way == "collective" or rows.shape[0] % ranks:
        return exchange_ways.multiply_then_reduce(rows, scale, products, group, ranks, call)
    if way == "slots":
        return peers_of(group, rows.device).scattered(rows, scale, products, shared=True)
    owned = scattered_by(way, rows, scale, products, group, call)
    return exchange_ways.gathered_sums(owned, group, call)
