"""How long a product over several ranks takes, by way: bytes over links, flags and products.

All ranks do the same at the same time, so what a rank sends at some time is what it receives then. Constants
are fitted to two H200 of one host: 16 to 8192 rows by 8192 x 8192, split, in graphs where rows are few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lapidist.device import Device
from lapidist.distributed.exchange_steps import Way

Product = Literal["all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"]
CHUNKS = 4
PARTS = 4  # of a shard, for which kernels wait; of a rank's sums, which others read
# Bytes for a peer, by a kernel that stores them there: of shards, and of terms, which kernels also read where
# they lie. Two H200 read 370 GB/s of each other, and store 190.
MOST_SENT, MOST_ADDED = 8 << 20, 2 << 20
LEAST_PART = 16 << 20  # bytes: the copy engine is slow for less
WAITING = 1.06  # how much longer a product takes that waits for rows
STORING = 1.06  # and one whose tiles go to other cards: 1.07 of 4096 rows by 28672 x 4096, before the sum
# A card reaches these shares of its limits in a product of many tiles; a tile is 128 x 256.
MATH_SHARE, DRAM_SHARE, TILE = 0.95, 0.85, (128, 256)


@dataclass(frozen=True, slots=True)
class Links:
    """Bytes a second of one card in one direction: what copies and small kernels write to others; what
    products store there; what a kernel reads of others; what copies read under a product; and what
    collectives move."""

    name: str
    written: float
    stored: float
    read: float
    pulled: float
    collective: float
    launch_seconds: float = 4e-6
    copy_seconds: float = 3e-6
    flag_seconds: float = 5e-6  # of a wait, which also clears the flag, or of a signal
    collective_seconds: float = 15e-6
    # Kernels of collectives and a product that fills the card wait for each other: on two H200 chunks took
    # longer than a collective and its product.
    overlap: bool = False


NVLINK = Links("NVLink", 190e9, 310e9, 370e9, 300e9, 216e9)
NETWORK = Links("network", 45e9, 45e9, 45e9, 45e9, 45e9, collective_seconds=60e-6, overlap=True)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a group can do. `no_peers` says why cards cannot write to each other's memory; "" if they can."""

    ranks: int
    device: Device | None  # None: processes on the host
    links: Links
    no_peers: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is asked of a group: `rows` of all ranks, n and k of one rank."""

    product: Product
    rows: int
    n: int
    k: int
    dtype: str  # of the operands
    size: int  # bytes of an operand's element
    result_size: int
    ranks: int

    @property
    def rows_of_a_rank(self) -> int:
        return -(-self.rows // self.ranks)

    @property
    def shard(self) -> int:
        """Bytes of a rank's rows of the operand."""
        return self.rows_of_a_rank * self.k * self.size

    def __str__(self) -> str:
        return f"{self.product} {self.rows} x {self.n} x {self.k} {self.dtype}, {self.ranks} ranks"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of an exchange's ways on one kind of card and links."""

    exchange: Exchange
    device: Device
    links: Links

    def of(self, way: Way) -> float:
        exchange, product = self.exchange, self.exchange.product
        if way == "push":
            return self.pushed()
        if way == "waiting":
            return self.waiting()
        if way == "one_shot":
            return self.one_shot()
        if product == "all_gather_matmul":
            return self.gathered(CHUNKS if way == "chunks" else 1)
        if way == "slots" and product == "matmul_all_reduce":
            return self.slots_shared()
        by_peers = {"slots": self.slots, "tiles": self.tiles}
        scattered = by_peers[way]() if way in by_peers else self.scattered(CHUNKS if way == "chunks" else 1)
        if product == "matmul_reduce_scatter":
            return scattered
        shard = exchange.rows_of_a_rank * exchange.n * exchange.result_size
        if way != "collective":
            return scattered + self.collective(shard)
        return min(scattered + self.collective(shard), self.terms_gathered())

    # ---- parts ----

    def product(self, rows: int) -> float:
        """Of a product of so many rows: the slower of its multiplications and its bytes. Stream-K spreads the
        last wave of tiles, but fewer tiles than SMs leave SMs idle.
        """
        exchange, device = self.exchange, self.device
        tiles = -(-rows // TILE[0]) * -(-exchange.n // TILE[1])
        busy = min(1.0, tiles / device.sms)
        rate = device.limit_tflops(exchange.dtype) * 1e12 * MATH_SHARE * busy
        moved = (rows + exchange.n) * exchange.k * exchange.size + rows * exchange.n * exchange.result_size
        multiplied = 2 * rows * exchange.n * exchange.k / max(rate, 1.0)
        # Few tiles are split along k.
        if tiles < device.sms:
            multiplied *= max(busy, 0.3)
        return self.links.launch_seconds + max(multiplied, self.memory(moved))

    def memory(self, count: float) -> float:
        return count / (self.device.dram_gbps * 1e9 * DRAM_SHARE)

    def collective(self, count: float) -> float:
        """Each rank sends so many bytes to every other one."""
        sent = count * (self.exchange.ranks - 1)
        return self.links.collective_seconds + sent / self.links.collective

    def sum_of(self, rows: int) -> float:
        exchange = self.exchange
        moved = rows * exchange.n * exchange.result_size * (exchange.ranks + 1)
        return self.links.launch_seconds * max(exchange.ranks - 1, 1) + self.memory(moved)

    def met_sum_of(self, rows: int) -> float:
        """By one kernel, which meets the other ranks: flags of all are under way at once."""
        exchange = self.exchange
        moved = rows * exchange.n * exchange.result_size * (exchange.ranks + 1)
        return self.links.launch_seconds + self.links.flag_seconds + self.memory(moved)

    # ---- ways ----

    def gathered(self, chunks: int) -> float:
        """Each chunk is multiplied while the next one is gathered."""
        exchange = self.exchange
        shard = exchange.shard / chunks
        arrived = done = 0.0
        for _ in range(chunks):
            arrived = (arrived if self.links.overlap else done) + self.collective(shard)
            done = max(done, arrived) + self.multiplied(chunks)
        return done

    def multiplied(self, chunks: int) -> float:
        """A chunk has a product for each rank's rows."""
        exchange = self.exchange
        if chunks == 1:
            return self.product(exchange.rows)
        return exchange.ranks * self.product(-(-exchange.rows_of_a_rank // chunks))

    def scattered(self, chunks: int) -> float:
        exchange = self.exchange
        block = exchange.rows_of_a_rank * exchange.n * exchange.result_size / chunks
        done = sent = 0.0
        for _ in range(chunks):
            done = (done if self.links.overlap else sent) + self.multiplied(chunks)
            sent = max(sent, done) + self.collective(block)
        return sent + self.sum_of(exchange.rows_of_a_rank)

    def terms_gathered(self) -> float:
        """Every rank gets all terms, and adds all rows."""
        exchange = self.exchange
        term = exchange.rows * exchange.n * exchange.result_size
        return self.product(exchange.rows) + self.collective(term) + self.sum_of(exchange.rows)

    def pushed(self) -> float:
        exchange, links = self.exchange, self.links
        push = links.copy_seconds + 2 * links.flag_seconds + exchange.shard / links.written
        product = self.product(exchange.rows_of_a_rank)
        arrived, done = 0.0, product
        for _ in range(exchange.ranks - 1):
            arrived += push
            done = max(done, arrived) + product + 2 * links.flag_seconds
        return done

    def waiting(self) -> float:
        """One product, which ends behind the last shard; its own shard is copied, or multiplied first."""
        exchange, links = self.exchange, self.links
        push = links.copy_seconds + exchange.shard / links.written
        arrived = (exchange.ranks - 1) * push + 2 * links.flag_seconds
        ended = max(self.product(exchange.rows), arrived + self.product(exchange.rows_of_a_rank) / PARTS)
        return WAITING * ended + links.copy_seconds + 3 * links.flag_seconds

    def slots(self) -> float:
        exchange, links = self.exchange, self.links
        block = exchange.rows_of_a_rank * exchange.n * exchange.result_size
        product = self.product(exchange.rows_of_a_rank)
        sent = max(product, block / links.stored) + 2 * links.flag_seconds
        flags = 5 * (exchange.ranks - 1) * links.flag_seconds
        return (exchange.ranks - 1) * sent + product + flags + self.sum_of(exchange.rows_of_a_rank)

    def slots_shared(self) -> float:
        """Other ranks read a part of the sums under the product of the next one."""
        exchange, links, peers = self.exchange, self.links, self.exchange.ranks - 1
        rows = exchange.rows_of_a_rank
        block = rows * exchange.n * exchange.result_size
        parts = parts_of(rows, block)
        of_part = self.product(rows // parts) + peers * links.flag_seconds
        read = peers * (links.copy_seconds + links.flag_seconds + block / parts / links.pulled)
        done = self.slots() - self.product(rows)
        arrived = 0.0
        for _ in range(parts):
            done += of_part
            arrived = max(arrived, done) + read
        return arrived

    def tiles(self) -> float:
        """One product, under all of which its tiles travel."""
        exchange, links, peers = self.exchange, self.links, self.exchange.ranks - 1
        stored = peers * exchange.rows_of_a_rank * exchange.n * exchange.result_size
        product = max(STORING * self.product(exchange.rows), stored / links.stored)
        return product + self.met_sum_of(exchange.rows_of_a_rank)

    def one_shot(self) -> float:
        exchange, links = self.exchange, self.links
        peers = exchange.ranks - 1
        if exchange.product == "all_gather_matmul":
            return self.product(exchange.rows) + self.sent(exchange.shard)
        shared = exchange.product == "matmul_all_reduce"
        rows = exchange.rows if shared else exchange.rows_of_a_rank
        term = rows * exchange.n * exchange.result_size
        if term <= MOST_ADDED:
            return self.product(exchange.rows) + self.sent(term)
        return self.product(exchange.rows) + peers * term / links.read + self.met_sum_of(rows)

    def sent(self, count: int) -> float:
        """So many bytes to each rank, by a kernel that gets theirs and adds them, or copies them."""
        links, peers = self.links, self.exchange.ranks - 1
        moved = self.memory(2 * (peers + 1) * count)
        return links.launch_seconds + links.flag_seconds / 2 + peers * count / links.written + moved


def parts_of(rows: int, size: int) -> int:
    """Into how many parts a rank's rows are cut, each with a flag: copies of a part must be long enough."""
    parts = PARTS
    while parts > 1 and (rows % parts or size < parts * LEAST_PART):
        parts //= 2
    return parts
