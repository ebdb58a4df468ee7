"""Encoded tensor maps are those of the addresses, however they are found, and few are encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from lapidist.backends.gpu.encoded import MOST_ENCODINGS, EncodedMaps
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.family import tile
from lapidist.launch import TensorMap
from lapidist.planning.plans import Plan, make_plan
from lapidist.problems.owners import Owners
from lapidist.problems.problem import Problem
from planned import H200, fake

WAYS = {
    "square": ((512, 512, 512), None, None, {}),
    "lines that start anywhere": ((333, 720, 1041), None, None, {}),
    "few columns": ((4096, 16, 1024), None, None, {}),
    "odd rows of D": ((512, 511, 512), None, None, {}),
    "no k": ((512, 512, 0), None, None, {}),
    "A by columns": ((512, 384, 256), (1, 512), None, {}),
    "sgemm": ((512, 512, 512), None, None, {"kernel": "sgemm"}),
    "a rung": ((512, 512, 512), None, None, {"kernel": "wgmma_clusters"}),
    "rows of owners": (
        (512, 512, 512),
        None,
        None,
        {"kernel": "wgmma", "owners": Owners((4096, 1 << 21), 256)},
    ),
    "rows shifted": ((200, 61, 97), None, None, {"kernel": "wgmma", "skewed": True}),
}


def plan_of(way: str) -> Plan:
    (m, n, k), a_steps, b_steps, more = WAYS[way]
    dtype = "float32" if way == "sgemm" else "bfloat16"
    a, b = fake((m, k), a_steps, dtype), fake((k, n), b_steps, dtype)
    kernel = kernel_named(more["kernel"]) if more else None
    config = tile(dtype, 64, 32, 3, skewed=True) if "skewed" in more else None
    problem = Problem.of(a, b, None, fake((m, n), None, dtype), owners=more.get("owners"))
    plan = make_plan(problem, H200, kernel, config)
    assert plan.problem.skewed == ("skewed" in more)
    return plan


def as_bytes(each: TensorMap) -> bytes:
    return repr(each).encode()


def whole(plan: Plan, addresses: tuple[int, ...]) -> list[bytes]:
    at = dict(zip(("A", "B", "D", "workspace"), addresses, strict=True))
    return [as_bytes(each) for each in plan.tensor_maps(at).values()]


class Arguments:
    """Stands for a launch's arguments: keeps what is written, by its offset."""

    def __init__(self) -> None:
        self.maps: dict[int, bytes] = {}

    def __setitem__(self, place: slice, content: bytes) -> None:
        assert place.stop - place.start == 128
        self.maps[place.start] = content


@pytest.mark.parametrize("way", WAYS)
def test_they_are_those_of_the_addresses(way: str) -> None:
    """Wherever A, B and D lie in 16 bytes, and in whatever order they come."""
    plan, rng = plan_of(way), np.random.default_rng(0)
    if not plan.kernel.family.block(plan.problem).has_maps:
        pytest.fail(f"{way} has no maps: {plan.kernel.name}")

    def maps(at: Mapping[str, int]) -> Any:
        return tuple(enumerate(plan.tensor_maps(at).values()))

    encoded = EncodedMaps(maps, as_bytes)
    lying = 2 if plan.problem.skewed else 16
    places = [int(x) * 4096 + int(y) * lying % 16 for x, y in rng.integers(1, 1 << 20, (6, 2))]
    for _ in range(60):
        addresses = tuple(places[x] for x in rng.integers(0, len(places), 4))
        arguments = Arguments()
        encoded.write(arguments, addresses)  # type: ignore[arg-type]
        assert list(arguments.maps.items()) == list(enumerate(whole(plan, addresses)))


def test_what_stays_is_encoded_once() -> None:
    plan, made = plan_of("square"), []

    def encode(each: TensorMap) -> bytes:
        made.append(each.address)
        return as_bytes(each)

    encoded = EncodedMaps(lambda at: tuple(enumerate(plan.tensor_maps(at).values())), encode)
    for turn in range(20):
        encoded.write(Arguments(), (4096, 8192 * (1 + turn % 4), 16 << 20 | turn << 12, 0))
    assert made.count(4096) == made.count(8192) == 1
    assert [made.count(8192 * x) for x in (2, 3, 4)] == [1, 1, 1]


def test_those_of_no_more_addresses_are_kept_than_was_said() -> None:
    plan = plan_of("square")
    encoded = EncodedMaps(lambda at: tuple(enumerate(plan.tensor_maps(at).values())), as_bytes)
    for turn in range(3 * MOST_ENCODINGS):
        encoded.write(Arguments(), (16 * turn, 16 * turn + 16, 32 * turn + 16, 0))
    assert all(len(dependency.contents) <= MOST_ENCODINGS for *_, dependency in encoded._parts)
