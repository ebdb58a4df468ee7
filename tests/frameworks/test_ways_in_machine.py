"""Ways over several ranks whose products run in the machine: launches of all ranks at once, in an order that
a seed draws, with each other's memory mapped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")  # which these modules import

import lapidist
from lapidist.backends.machine_backend import sanitized, watched
from lapidist.distributed import exchange_times, met_sums, peer_products, sent_terms
from lapidist.distributed.met_sums import Meeting
from lapidist.distributed.product_gradients import back
from lapidist.distributed.product_options import Options
from lapidist.distributed.rank_memory import FLAGS, first_flags, flag_count, flag_index, way_of
from lapidist.distributed.row_products import RowProducts
from lapidist.distributed.sent_terms import Sending
from lapidist.frameworks.arrays import operand_of
from lapidist.launch import Binary
from lapidist.machine.faults import Deadlock, Race
from lapidist.machine.shared_words import SharedWords
from lapidist.machine.together import Arrived, Devices
from lapidist.problems.arrivals import Arrivals

pytestmark = pytest.mark.frameworks
played = importlib.import_module("played_ranks")
ROWS, K, N, CALLS = 64, 64, 32, 2
FOREVER = 1 << 60


class MachineRanks(played.Ranks):
    """Kernels wait for flags themselves."""

    def __init__(self, count: int, seed: int, drop: Any, meets: Any = None, sends: Any = None) -> None:
        """`meets`: changes what kernels are told that meet the other ranks, or send to them; None: streams
        wait.
        """
        super().__init__(count, seed, drop)
        self.meets = meets
        self.reports = np.zeros(count, np.uint64)
        self.done = np.zeros(count, np.int32)
        self.calls = np.zeros((count, sent_terms.BLOCKS), np.int32)
        self.sends = sends
        self.numbers = {stream: number for number, stream in enumerate(self.all_streams())}
        self.words = SharedWords(len(self.numbers))
        for stream in self.numbers:
            stream.joined = self.joined
        self.members = [peer_products.PeerProducts(MachineMemory(self, rank)) for rank in range(count)]

    def all_streams(self) -> list[Any]:
        return [stream for of_rank in self.streams for stream in of_rank.values()]

    def joined(self, stream: Any, earlier: Any) -> None:
        self.words.join(self.numbers[stream], self.numbers[earlier])

    def run(self) -> None:
        devices = Devices(self.random.randrange(1 << 20))
        devices.words = self.words
        for buffer in self.bytes.values():
            self.words.share(buffer.data_ptr(), buffer.numel())
        devices.run([self.playing(number, stream) for stream, number in self.numbers.items()])

    def playing(self, number: int, stream: Any) -> Callable[[Devices], Iterator[None]]:
        def play(devices: Devices) -> Iterator[None]:
            with sanitized(devices.seed + number), watched(Arrived(devices, number)):
                while stream.work:
                    ready, do = stream.work[0]
                    while not ready():
                        yield
                    do()
                    stream.work.popleft()
                    stream.done += 1
                    yield

        return play


class MachineMemory(played.RankMemory):
    """Operations of streams acquire the flags for which they wait, and release those that they set."""

    def wait(self, flag: int) -> None:
        super().wait(flag)
        self.tell(self.all.words.acquire, self.rank, flag, self.all.drop(self.rank, "wait", flag))

    def signal(self, peer: int, flag: int) -> None:
        self.tell(self.all.words.publish, peer, flag, self.all.drop(self.rank, "signal", flag))
        super().signal(peer, flag)

    def tell(self, event: Callable[..., None], owner: int, flag: int, dropped: bool) -> None:
        if not dropped:
            flags, number = self.all.flags[owner], self.all.numbers[self.stream]
            self.enqueue(lambda: event(number, np.array([flags.ctypes.data + 4 * flag])))

    def enqueue_awaiting(self, work: Callable[[], Any], flags: Sequence[int]) -> None:
        self.enqueue(work)

    def arrivals(self, first: int, rows: int, step: int) -> Arrivals:
        flags, report = self.all.flags[self.rank], self.all.reports[self.rank :]
        return Arrivals(flags.ctypes.data + 4 * first, report.ctypes.data, FOREVER, rows, step)

    def meeting(self, arrived: int, free: int, step: int) -> Meeting | None:
        if self.all.meets is None:
            return None
        known = {f"of rank {rank}: flags": flags for rank, flags in enumerate(self.all.flags)}
        known |= {"reports": self.all.reports, "done": self.all.done[self.rank : self.rank + 1]}
        operands = {name: operand_of(array, name) for name, array in known.items()}
        flags = tuple(operands[f"of rank {rank}: flags"].pointer for rank in range(self.ranks))
        at = operands["reports"].pointer, FOREVER, operands["done"].pointer
        return self.all.meets(Meeting(self.rank, flags, *at, arrived, free, step, operands))

    def sending(self, missed: int) -> Sending | None:
        if self.all.sends is None:
            return None
        assert way_of(missed - 1, self.ranks) == "one_shot"  # which an error names
        known = {f"of rank {rank}: flags": flags for rank, flags in enumerate(self.all.flags)}
        known |= {"reports": self.all.reports, "calls": self.all.calls[self.rank]}
        operands = {name: operand_of(array, name) for name, array in known.items()}
        first = 4 * flag_count(self.ranks)
        flags = tuple(operands[f"of rank {rank}: flags"].pointer + first for rank in range(self.ranks))
        at = operands["reports"].pointer, FOREVER, operands["calls"].pointer
        return self.all.sends(Sending(self.rank, flags, *at, missed, operands))


WAYS = {
    "push": "gathered",
    "waiting": "gathered_in_kernel",
    "waiting apart": "gathered_in_kernel",
    "slots": "scattered",
    "slots shared": "scattered",
    "tiles": "scattered_by_tiles",
    "one_shot": "reduced",
    "tiles met": "scattered_by_tiles",
    "one_shot met": "reduced",
    "gather sent": "gathered_at_once",
    "scatter sent": "reduced",
    "reduce sent": "reduced",
}


def nothing(rank: int, action: str, flag: int) -> bool:
    """Of what is left out."""
    return False


def as_told(meeting: Meeting | Sending) -> Meeting | Sending:
    return meeting


def is_right(
    torch: Any,
    way: str,
    seed: int,
    drop: Any = nothing,
    meets: Any = as_told,
    count: int = 2,
    calls: int = CALLS,
) -> bool:
    sends = meets if way.endswith("sent") else None
    ranks = MachineRanks(count, seed, drop, meets if way.endswith("met") else None, sends)
    right, results = [], []
    for call in range(calls):
        draw = torch.Generator().manual_seed(call)
        a = [torch.randint(-3, 4, (ROWS, K), generator=draw).half() for _ in ranks.members]
        b = [torch.randint(-3, 4, (K, N), generator=draw).half() for _ in ranks.members]
        for rank, member in enumerate(ranks.members):
            products = RowProducts([b[rank]], Options(device="machine"))
            shape = {"slots shared": {"shared": True}, "scatter sent": {"owned": True}}.get(way, {})
            result = getattr(member, WAYS[way])(a[rank], None, products, **shape)
            results.append(result[0] if isinstance(result, list) else result)
            terms = [left.double() @ matrix.double() for left, matrix in zip(a, b, strict=True)]
            if way.startswith(("push", "waiting", "gather")):
                right.append(torch.cat(a).double() @ b[rank].double())
            else:
                owned = way.startswith(("slots", "tiles", "scatter")) and not way.endswith("shared")
                right.append(sum(terms).chunk(count)[rank] if owned else sum(terms))
    ranks.run()
    if drop is nothing and meets is as_told:
        for rank, flags in enumerate(ranks.flags):
            if sends is not None:  # a peer that does not come is known by these
                assert all(flags[flag] == calls for flag, _ in ranks.members[rank].waits_of_sent())
            counts = [calls * (way.endswith("sent") and sender != rank) for sender in range(count)]
            flags, of_blocks = np.split(flags, [flag_count(count)])
            assert flags.tolist() == first_flags(count, rank)[: len(flags)]
            assert of_blocks.tolist() == [number for number in counts for _ in range(sent_terms.BLOCKS)]
    return all(torch.equal(result.double(), exact) for result, exact in zip(results, right, strict=True))


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that send are as many for few bytes as for many; those that meet would be one. Those wait for
    block 0 of each peer, which cards start first. The machine promises that of blocks that run at once alone.
    """
    adding = met_sums.adding
    monkeypatch.setattr(met_sums, "adding", lambda *how: replace(adding(*how), cooperative=True))
    monkeypatch.setattr(sent_terms, "BLOCKS", 3)
    monkeypatch.setattr(sent_terms, "THREADS", 64)
    monkeypatch.setattr(met_sums, "THREADS", 64)
    for launch in (adding, sent_terms.sent):  # kept without these numbers, and without a text that changes
        launch.cache_clear()
    yield
    for launch in (adding, sent_terms.sent):
        launch.cache_clear()


@pytest.fixture
def in_parts(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way in ("waiting apart", "slots shared"):
        for module in (peer_products, exchange_times):
            monkeypatch.setattr(module, "LEAST_PART", 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("in_parts")
def test_launches_of_all_ranks_meet(torch: Any, way: str) -> None:
    assert is_right(torch, way, 3)


@lapidist.epilogue
def gated(acc: Any, row: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.silu(acc + row) * s


@pytest.mark.parametrize(("forth", "back_by"), [("push", "slots"), ("waiting", "tiles")])
def test_a_function_of_gathered_rows_and_its_gradient(torch: Any, forth: str, back_by: str) -> None:
    """Forth with a bias and a function in the launch; back, the gradient of rows is a sum over ranks."""
    ranks, draw, options = (
        MachineRanks(2, 5, lambda *_: False),
        torch.Generator().manual_seed(5),
        Options(device="machine"),
    )
    shards = [torch.randint(-3, 4, (ROWS, K), generator=draw).half() for _ in ranks.members]
    matrices = [torch.randint(-3, 4, (K, N), generator=draw).half() for _ in ranks.members]
    bias, row = (torch.randint(-3, 4, (N,), generator=draw) for _ in range(2))
    wide = [tensor.double().requires_grad_() for tensor in (*shards, *matrices)]
    results, of_rows, right = [], [], []
    for rank, (member, matrix) in enumerate(zip(ranks.members, matrices, strict=True)):
        function = gated(row=row.float(), s=0.5)
        products = RowProducts([matrix], options, (), [bias.half()], [function])
        results += getattr(member, WAYS[forth])(shards[rank], None, products)
        acc = torch.cat(wide[:2]) @ wide[2 + rank] + bias + row
        right.append(torch.nn.functional.silu(acc) * 0.5)
        (slope,) = torch.autograd.grad(right[-1].sum(), acc, retain_graph=True)
        backward = RowProducts([matrix], back(options))
        of_rows.append(getattr(member, WAYS[back_by])(slope.half(), None, backward))
    ranks.run()
    expected = torch.autograd.grad(sum(result.sum() for result in right), wide[:2])
    for result, exact in zip((*results, *of_rows), (*right, *expected), strict=True):
        torch.testing.assert_close(result.double(), exact.detach(), rtol=4e-3, atol=4e-2)


@pytest.mark.parametrize(
    ("way", "action", "flag"),
    [
        ("push", "wait", "arrived"),
        pytest.param("waiting", "signal", "arrived", marks=pytest.mark.survey),
        ("slots", "wait", "arrived"),
        ("slots shared", "wait", "summed"),
        ("tiles", "wait", "arrived"),
        ("one_shot", "wait", "arrived"),
    ],
)
@pytest.mark.usefixtures("in_parts")
def test_a_missing_flag_is_found(torch: Any, way: str, action: str, flag: str) -> None:
    """Of one rank: some order multiplies or adds what is not there, or nobody can go on. All flags are left
    out in turn where products take no time (test_peer_products.py).
    """

    def drop(rank: int, dropped: str, index: int) -> bool:
        kind = FLAGS[index // peer_products.PARTS // 2 % len(FLAGS)]
        return rank == 0 and dropped == action and kind == flag

    def is_found(seed: int) -> bool:
        try:
            return not is_right(torch, way, seed, drop)
        except (Deadlock, Race):
            return True

    assert any(is_found(seed) for seed in range(6))


SENT = "gather sent", "scatter sent", "reduce sent"


@pytest.mark.parametrize("way", ["tiles met", "one_shot met", *SENT])
@pytest.mark.parametrize("seed", range(3))
def test_four_ranks_meet_in_kernels(torch: Any, way: str, seed: int) -> None:
    assert is_right(torch, way, seed, count=4)


@pytest.mark.survey
@pytest.mark.parametrize("way", ["one_shot met", *SENT])
def test_eight_ranks_meet_in_kernels(torch: Any, way: str) -> None:
    assert is_right(torch, way, 0, count=8)


@pytest.fixture
def one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As replays of a graph of one call have it. With two in turn, the next call's flags would do."""
    monkeypatch.setattr(peer_products.PeerProducts, "turn", lambda self, way: 0)


@pytest.mark.parametrize("way", ["tiles met", "one_shot met", *SENT])
@pytest.mark.usefixtures("one_buffer")
def test_kernels_free_the_buffer_for_the_next_call(torch: Any, way: str) -> None:
    assert all(is_right(torch, way, seed, calls=3) for seed in range(3))


def test_kernels_that_are_told_wrong_flags_are_found(torch: Any) -> None:
    """Flags of another way, which are set at first: some order adds what is not there yet."""

    def told(meeting: Meeting) -> Meeting:
        return meeting._replace(arrived=flag_index("push", 0, "free", 0, 2))

    def is_found(seed: int) -> bool:
        try:
            return not is_right(torch, "one_shot met", seed, meets=told, calls=3)
        except (Deadlock, Race):
            return True

    assert any(is_found(seed) for seed in range(6))


@pytest.fixture
def weakened(monkeypatch: pytest.MonkeyPatch, order: str, weaker: str) -> None:
    """Kernels that meet other ranks, with another order of their flags."""
    compile_kernel = met_sums.compile_kernel

    def compiled(*how: Any, **more: Any) -> Binary:
        binary = compile_kernel(*how, **more)
        assert order in binary.ptx
        return replace(binary, ptx=binary.ptx.replace(order, weaker))

    for module in (met_sums, sent_terms):
        monkeypatch.setattr(module, "compile_kernel", compiled)


@pytest.mark.parametrize(
    ("order", "weaker"),
    [
        ("ld.acquire.sys", "ld.relaxed.sys"),
        ("st.release.sys", "st.relaxed.sys"),
        pytest.param("ld.acquire.sys", "ld.acquire.gpu", marks=pytest.mark.survey),
        pytest.param("st.release.sys", "st.release.gpu", marks=pytest.mark.survey),
    ],
)
@pytest.mark.parametrize("way", ["tiles met", "one_shot met", "gather sent", "reduce sent"])
@pytest.mark.usefixtures("weakened")
def test_flags_that_order_less_are_found(torch: Any, way: str) -> None:
    """Memory of a card may show them before what they tell of."""
    with pytest.raises(Race, match="without an acquire, at the system's scope, of a flag that was released"):
        is_right(torch, way, 0)


def never_waits(sending: Sending) -> Sending:
    """Counts of calls that all peers have reached before the first one."""
    behind = operand_of(np.full(sent_terms.BLOCKS, -1, np.int32), "calls")
    return sending._replace(calls=behind.pointer, operands={**sending.operands, "calls": behind})


def in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """What two calls in a row send."""
    told = Sending.parameter

    def parameter(sending: Sending, own: Any, rooms: Any, each: int) -> tuple[int, ...]:
        words = list(told(sending, own, rooms, each))
        words[-4] = 0
        return tuple(words)

    monkeypatch.setattr(Sending, "parameter", parameter)


@pytest.mark.parametrize("wrong", [never_waits, pytest.param(in_one_place, marks=pytest.mark.survey)])
def test_kernels_that_send_and_do_not_wait_are_found(
    torch: Any, monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    if wrong is in_one_place:
        in_one_place(monkeypatch)
    told = as_told if wrong is in_one_place else never_waits

    def is_found(seed: int) -> bool:
        try:
            return not is_right(torch, "reduce sent", seed, meets=told, calls=6)
        except (Deadlock, Race):
            return True

    assert any(is_found(seed) for seed in range(12))
