"""Ways that write to other ranks' memory, played by several ranks in one process. Results are right in any
order of their streams, and every flag is needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")  # which these modules import

from lapidist.distributed import chosen_ways, exchange_plans, exchange_times, peer_products, product_gradients
from lapidist.distributed.compiled_products import FUNCTIONS
from lapidist.distributed.exchange_steps import STEPS
from lapidist.distributed.exchange_times import Product
from lapidist.distributed.peer_products import PARTS
from lapidist.distributed.product_options import Options
from lapidist.distributed.rank_memory import BUFFERS, FLAGS
from lapidist.distributed.row_products import RowProducts

pytestmark = pytest.mark.frameworks
# of the way "waiting", each shard by itself and in parts; of one_shot, the rows of a rank alone; of slots,
# all rows in parts, in every other call; with factors
WITH_FACTORS = tuple(
    f"{way} factors" for way in ("push", "waiting", "waiting apart", "slots", "slots shared", "tiles")
)
WAYS = (*peer_products.WAYS, "waiting apart", "one_shot owned", "slots shared", *WITH_FACTORS)
CALLS, ROWS, K, N = 4, 6, 4, 4
ORDERS = 40


@pytest.fixture
def played(torch: Any) -> Any:
    return importlib.import_module("played_ranks")


def whole_numbers(torch: Any, seed: int, *shape: int) -> Any:
    return torch.randint(1, 9, shape, generator=torch.Generator().manual_seed(seed)).float()


def gathers(way: str) -> bool:
    return way.startswith(("push", "waiting"))


def operands(torch: Any, way: str, count: int, call: int) -> tuple[list[Any], list[Any]]:
    """Rows and a matrix of each rank, other ones in each call."""
    rows = ROWS if gathers(way) else ROWS * count
    dtype = torch.float8_e4m3fn if way in WITH_FACTORS else torch.float32
    return (
        [whole_numbers(torch, 100 * call + rank, rows, K).to(dtype) for rank in range(count)],
        [whole_numbers(torch, 100 * call + 50 + rank, K, N).to(dtype) for rank in range(count)],
    )


def factors_of(torch: Any, way: str, a: list[Any], call: int) -> list[Any]:
    """Of each rank's rows, other ones in each call."""
    if way not in WITH_FACTORS:
        return [None] * len(a)
    return [whole_numbers(torch, 7000 + 100 * call + rank, len(rows), 1) for rank, rows in enumerate(a)]


def owns(way: str, call: int) -> bool:
    """Whether a rank gets the sums of its rows alone."""
    shared = way.startswith("slots shared") and call % 2 == 0
    return way.startswith(("slots", "tiles", "one_shot owned")) and not shared


def expected(torch: Any, way: str, a: list[Any], b: list[Any], owned: bool) -> list[Any]:
    if gathers(way):
        return [torch.cat(a) @ matrix for matrix in b]
    total = sum(left @ right for left, right in zip(a, b, strict=True))
    return list(total.chunk(len(a))) if owned else [total] * len(a)


def results(
    torch: Any, played: Any, way: str, count: int, seed: int, drop: Any, captured: bool
) -> Iterator[bool]:
    """Whether each call's results are right on each rank. `captured`: replays of a graph with one call."""
    ranks = played.Ranks(count, seed, drop)
    given = [operands(torch, way, count, call) for call in range(CALLS)]
    scales = [factors_of(torch, way, a, call) for call, (a, _) in enumerate(given)]
    owned = [owns(way, call) for call in range(CALLS)]
    way, _, form = way.partition(" ")
    name = {
        "push": "gathered",
        "waiting": "gathered_in_kernel",
        "slots": "scattered",
        "tiles": "scattered_by_tiles",
        "one_shot": "reduced",
    }[way]
    outputs = []
    for (a, b), scale, owns_rows in zip(given, scales, owned, strict=True):
        more = {"owned": True} if form == "owned" else {}
        more |= {"shared": not owns_rows} if form.startswith("shared") else {}
        outputs.append([])
        for rank, member in enumerate(ranks.members):
            if captured:
                member.turns[way] = 0
            result = getattr(member, name)(a[rank], scale[rank], RowProducts([b[rank]], Options()), **more)
            outputs[-1].append(result[0] if gathers(way) else result)
    ranks.run()
    for (a, b), scale, of_call, owns_rows in zip(given, scales, outputs, owned, strict=True):
        scaled = [rows.float() * (1 if of is None else of) for rows, of in zip(a, scale, strict=True)]
        right_ones = expected(torch, way, scaled, [matrix.float() for matrix in b], owns_rows)
        pairs = zip(of_call, right_ones, strict=True)
        yield from (torch.equal(result, right) for result, right in pairs)


@pytest.fixture(autouse=True)
def cut_shards(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    params = str(request.node.callspec.params if hasattr(request.node, "callspec") else "")
    if "waiting apart" in params or "slots shared" in params:
        for module in (peer_products, exchange_times):
            monkeypatch.setattr(module, "LEAST_PART", 1)


def nothing(rank: int, action: str, flag: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("way", "count", "captured"),
    [*product(WAYS[: -len(WITH_FACTORS)], [2, 3, 4], [False, True]), *product(WITH_FACTORS, [3], [False])],
)
def test_any_order_of_streams_gives_the_results(
    torch: Any, played: Any, way: str, count: int, captured: bool
) -> None:
    for seed in range(ORDERS // 4):
        assert all(results(torch, played, way, count, seed, nothing, captured)), seed


def is_found(torch: Any, played: Any, way: str, drop: Any) -> bool:
    for seed in range(ORDERS):
        for captured in (False, True):
            try:
                if not all(results(torch, played, way, 2, seed, drop, captured)):
                    return True
            except played.Deadlock:
                return True
    return False


@pytest.mark.parametrize(
    ("way", "flag"),
    [
        (way, flag)
        for way, flag in product(WAYS, FLAGS)
        if way not in WITH_FACTORS and (flag != "summed" or way == "slots shared")
    ],
)
@pytest.mark.parametrize("action", ["wait", "signal", "clear"])
def test_every_flag_is_needed(torch: Any, played: Any, way: str, action: str, flag: str) -> None:
    """Without one kind of waits, or of signals, of one rank."""

    def drop(rank: int, dropped: str, index: int) -> bool:
        return rank == 0 and dropped == action and FLAGS[index // PARTS // 2 % len(FLAGS)] == flag

    assert is_found(torch, played, way, drop)


FORMS: dict[str, list[dict[str, Any]]] = {
    "waiting": [{"parts": parts, "together": together} for parts in (1, 4) for together in (False, True)],
    "slots": [
        {"at_once": at_once, **shape}
        for at_once in (False, True)
        for shape in ({}, {"parts": 1, "shared": True}, {"parts": 4, "shared": True})
    ],
}


@pytest.mark.parametrize("way", STEPS)
def test_steps_of_all_ranks_meet(way: Any) -> None:
    """For each flag that is waited for there is one signal of the peer's in a call, and one who clears it, so
    flags are as before when it ends.
    """
    for ranks, form in ((ranks, form) for ranks in (2, 3, 8) for form in FORMS.get(way, [{}])):
        steps = [STEPS[way](rank, ranks, **form) for rank in range(ranks)]
        pairs = [(rank, step) for rank in range(ranks) for step in steps[rank]]
        signals = sorted(
            (step.peer, rank, step.flag, step.part) for rank, step in pairs if step.action == "signal"
        )
        clears = sorted(
            (rank, step.peer, step.flag, step.part) for rank, step in pairs if step.action == "clear"
        )
        cleared_at_once = way == "waiting"  # the flags of all parts
        assert clears == [flag for flag in signals if not cleared_at_once or flag[3] == 0]
        if way == "waiting":
            parts = form["parts"]
            assert len(signals) == ranks * (ranks - 1) * (1 + parts)
        else:
            waits = sorted(
                (rank, step.peer, step.flag, step.part) for rank, step in pairs if step.action == "wait"
            )
            assert waits == signals
        for rank in range(ranks):
            first_parts = [step for step in steps[rank] if step.part == 0]
            multiplied = [step.peer for step in first_parts if step.action == "multiply"]
            for step in first_parts:
                multiplied += range(step.peer, step.end) if step.action == "await" else []
                multiplied += [rank] if step.action == "add" and form.get("at_once") else []
            assert sorted(multiplied) == ([rank] if way in ("tiles", "one_shot") else [*range(ranks)])


def test_shards_are_multiplied_as_they_arrive() -> None:
    """This rank's first. What the next rank pushes first is multiplied next."""
    ranks = 4
    steps = [STEPS["push"](rank, ranks) for rank in range(ranks)]
    for rank in range(ranks):
        order = [step.peer for step in steps[rank] if step.action == "multiply"]
        assert order == [(rank + distance) % ranks for distance in range(ranks)]
        for place, peer in enumerate(order[1:]):
            pushed = [step.peer for step in steps[peer] if step.action == "push"]
            assert pushed[place] == rank
    assert BUFFERS == 2


KINDS: dict[str, Product] = {
    "gather": "all_gather_matmul",
    "scatter": "matmul_reduce_scatter",
    "reduce": "matmul_all_reduce",
    "enter": "matmul_all_reduce",
}
# one_shot of a gather has no steps: its kernel sends (test_ways_in_machine.py)
GRADIENTS = [
    (kind, way)
    for kind, product in KINDS.items()
    for way in exchange_plans.WAYS[product]
    if way in exchange_plans.PEER_WAYS and (kind, way) != ("gather", "one_shot")
]


@pytest.mark.parametrize(("kind", "way"), GRADIENTS)
def test_gradients_of_each_way(
    torch: Any, played: Any, monkeypatch: pytest.MonkeyPatch, kind: str, way: Any
) -> None:
    """As autograd takes them, of ranks in one process. Going back a call has a way of its own exchange."""
    count, options = 3, Options()
    ranks = played.Ranks(count, 5)
    shards = [whole_numbers(torch, rank, ROWS, K).requires_grad_() for rank in range(count)]
    matrices = [whole_numbers(torch, 50 + rank, K, N).requires_grad_() for rank in range(count)]
    rows = {"gather": ROWS * count, "scatter": ROWS // count}.get(kind, ROWS)
    gs = [whole_numbers(torch, 90 + (kind != "reduce") * rank, rows, N) for rank in range(count)]

    def agreed(product: Product, *call: Any) -> Any:
        assert call[-1] in exchange_plans.WAYS[product]
        return call[-1]

    exchanged = torch.stack(gs if kind == "scatter" else [shard.detach() for shard in shards])
    everything = SimpleNamespace(wait=lambda: exchanged)
    monkeypatch.setattr(chosen_ways, "agreed_way", agreed)
    monkeypatch.setattr(chosen_ways, "members_of", lambda rank: SimpleNamespace(ranks=count))
    monkeypatch.setattr(chosen_ways, "peers_of", lambda rank, device: ranks.members[rank])
    monkeypatch.setattr(product_gradients, "require_offered", lambda *call: None)
    monkeypatch.setattr(product_gradients, "gather", lambda tensor, rank, call: everything)
    results, gradients = [], []
    for rank in range(count):
        biases = [None] if kind in ("gather", "enter") else []
        operands = shards[rank], rank, options, way, matrices[rank], *biases
        result = FUNCTIONS[kind].apply(*operands)
        results.append(result[0] if biases else result)
        gradients.append(torch.autograd.grad(results[-1], (shards[rank], matrices[rank]), gs[rank]))
    with torch.no_grad():
        ranks.run()
    terms = [shard @ matrix for shard, matrix in zip(shards, matrices, strict=True)]
    total = sum(terms)
    right = {
        "gather": [torch.cat(shards) @ matrix for matrix in matrices],
        "scatter": total.chunk(count),
        "reduce": [total] * count,
        "enter": terms,
    }[kind]
    # all ranks have one sum, of which each has the gradient; rows that all ranks have are one tensor
    shown, directions = (right[:1], gs[:1]) if kind == "reduce" else (right, gs)
    of_shards = torch.autograd.grad(shown, shards, directions, retain_graph=True)
    of_matrices = torch.autograd.grad(shown, matrices, directions)
    of_shards = [sum(of_shards)] * count if kind == "enter" else of_shards
    for result, one, (of_rows, of_b), right_rows, right_b in zip(
        results, right, gradients, of_shards, of_matrices, strict=True
    ):
        assert torch.equal(result, one)
        assert torch.equal(of_rows, right_rows)
        assert torch.equal(of_b, right_b)
