"""Products whose bits belong to their SumOrder alone: plans of one order, and what a chip computes of them.

`PYTHONPATH=src python tests/support/order_cases.py` writes the answers of the GPU that is here to
tests/golden/orders.json, with the plans that gave them. Tests on another chip ask for the same plans: its own
choices may sum in another order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lapidist
from lapidist import Config
from lapidist.dtypes import TF32, accumulators_of, element_of
from lapidist.kernels.production import every_kernel
from lapidist.planning.cost_table import CostTable
from lapidist.planning.fallback_kernels import plans_ranked, same_sums
from lapidist.planning.plans import Plan
from lapidist.schedule import Raster, Schedule, TileGrid
from lapidist_lab.bit_digests import drawn
from typed import Array, aligned, plain, precision_of

RECORDED = Path(__file__).parent.parent / "golden" / "orders.json"
MATHS = ("float16", "bfloat16", "float32", TF32, "float64", "float8_e4m3fn", "float8_e5m2", "int8")
SQUARE, RAGGED, LOW = SHAPES = ((520, 336, 1184), (333, 517, 2295), (48, 272, 4096))
TINY = (65, 72, 272)  # small enough for the machine
PARTS = {"grid": TileGrid, "raster": Raster}  # of a Schedule


class Case(NamedTuple):
    """A product: what decides its bits, and how the plan is found that says the order."""

    math: str
    shape: tuple[int, ...]  # batch extents, m, n, k
    layouts: str = "rr"
    types: tuple[tuple[str, Any], ...] = ()
    choices: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        said = "".join(f" {name}={value}" for name, value in (*self.types, *self.choices))
        return f"{self.math} {'x'.join(map(str, self.shape))} {self.layouts}{said}"

    @property
    def options(self) -> dict[str, Any]:
        """D is as sums are: no bit of theirs is rounded away."""
        usual = accumulators_of(element_of(self.math).name)[0]
        return {"out_dtype": usual, "precision": precision_of(self.math), **dict(self.types)}


def cases() -> list[Case]:
    plain = [Case(math, shape, layouts) for math in MATHS for shape in SHAPES for layouts in ("rr", "rc")]
    plain += [Case(math, SQUARE, "cc") for math in ("float16", "float32", "float64")]
    plain += [Case(math, TINY, "rc") for math in MATHS]
    plain += [Case(math, (3, *RAGGED), "rc") for math in ("bfloat16", "float32", "float8_e4m3fn")]
    typed = [Case("float8_e4m3fn", SQUARE, "rc", (("promote", True),))]
    typed += [Case("float16", SQUARE, "rc", (("acc_dtype", "float16"),))]
    return [*plain, *typed, *shared()]


def shared() -> Iterator[Case]:
    """Tiles whose k is cut, in all ways of each kernel; and whole ones of CUDA cores, which many kernels
    have."""
    whole = {"schedule": "data_parallel"}
    split, streamed = {"split_k": 3, "reduction": "turnstile"}, {"schedule": "stream_k"}
    parallel, clusters = {**split, "reduction": "separate"}, {**split, "reduction": "cluster"}
    ways: dict[str, list[dict[str, Any]]] = {
        "simt": [whole, split, parallel, streamed],
        "sgemm": [whole, split, parallel, streamed],
        "mma": [split, parallel, streamed],
        "wgmma": [split, clusters, streamed],
    }
    maths = {
        "simt": ("float32", "float64"),
        "sgemm": ("float32",),
        "mma": ("bfloat16", TF32, "float64", "float8_e4m3fn"),
        "wgmma": ("bfloat16", TF32, "float8_e4m3fn"),
    }
    for kernel, each in ways.items():
        for math in maths[kernel]:
            for way in each:
                layouts = "rr" if way is whole else "rc"
                yield Case(math, SQUARE, layouts, (), (("kernel", kernel), *way.items()))


CASES = cases()


# ---- operands ----


@lru_cache(maxsize=1)
def operands(case: Case) -> tuple[Array, Array]:
    """Both lie on 64 bytes, as GPU frameworks have them."""
    *batch, m, n, k = case.shape
    name, (of_a, of_b) = element_of(case.math).name, case.layouts
    a = drawn(m * n + k, (*batch, *((m, k) if of_a == "r" else (k, m))), name)
    b = drawn(m + n * k, (*batch, *((k, n) if of_b == "r" else (n, k))), name)
    a, b = aligned(a), aligned(b)
    return a if of_a == "r" else a.swapaxes(-1, -2), b if of_b == "r" else b.swapaxes(-1, -2)


# ---- plans of one order ----


def of_one_order(case: Case) -> Iterator[Plan]:
    """What an H200 is given, and of each kernel some others that sum so; of the ladder, too."""
    chosen = replace(plan_of(case, **dict(case.choices)), kernel_named=None)
    yield chosen
    others: dict[str, list[tuple[int, CostTable]]] = {}
    for place, group in same_sums(chosen):
        others.setdefault(group.binary(place)[0].name, []).append((place, group))
    for ranked in others.values():
        some = dict.fromkeys((0, len(ranked) // 2, len(ranked) - 1))
        found = plans_ranked(chosen, [ranked[at] for at in some])
        yield from (other for other in found if other.build != chosen.build)
    if case.shape == SQUARE and case.layouts == "rr":
        yield from (rung for rung in rungs(case) if rung.sum_order == chosen.sum_order)


def plan_of(case: Case, **choices: Any) -> Plan:
    found = lapidist.plan(*operands(case), device="machine", **case.options, **choices).plan
    assert found is not None
    return found


def rungs(case: Case) -> Iterator[Plan]:
    for kernel in every_kernel():
        if kernel.kind != "production" and case.math == plain(kernel):
            with suppress(lapidist.RefusalError):
                yield plan_of(case, kernel=kernel.name)


# ---- as JSON has them ----


def written(value: Any) -> Any:
    """What differs from the defaults."""
    if not is_dataclass(value):
        return value
    each = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
    return {name: written(found) for name, (found, usual) in each.items() if found != usual}


def as_json(plan: Plan) -> dict[str, Any]:
    """Where it has no schedule, its tiles are whole."""
    schedule = "data_parallel" if plan.schedule is None else written(plan.schedule)
    return {"kernel": plan.kernel.name, "config": written(plan.config), "schedule": schedule}


def as_asked(entry: dict[str, Any]) -> dict[str, Any]:
    """What `plan` and `gemm` are to be given for it."""
    schedule = entry["schedule"]
    if isinstance(schedule, dict):
        parts = {name: PARTS[name](**each) if name in PARTS else each for name, each in schedule.items()}
        schedule = Schedule(**parts)
    return {"kernel": entry["kernel"], "config": Config(**entry["config"]), "schedule": schedule}


# ---- on a GPU ----


def answers_of(torch: Any, case: Case, entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """In which order each of these plans sums on the GPU that is here, and the digest of what it computes."""
    a, b = (to_gpu(torch, each) for each in operands(case))
    plans = [lapidist.plan(a, b, **as_asked(each), **case.options) for each in entries]
    return [(str(plan.sum_order), digest(plan.execute(a, b).cpu().numpy())) for plan in plans]


def to_gpu(torch: Any, array: Array) -> Any:
    """The same bytes in the same layout."""
    turned = not array.flags.c_contiguous
    lying = np.ascontiguousarray(array.swapaxes(-1, -2) if turned else array)
    tensor = torch.from_numpy(lying.view(np.uint8)).cuda().view(getattr(torch, array.dtype.name))
    return tensor.transpose(-1, -2) if turned else tensor


def digest(result: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()[:16]


def record() -> None:
    """What differs within an order is printed, and not written."""
    import torch

    answers, chip = {}, torch.cuda.get_device_name()
    for case in CASES:
        entries = [as_json(plan) for plan in of_one_order(case)]
        found = answers_of(torch, case, entries)
        if len(set(found)) > 1:
            print(f"{case}:", *map(str, zip(found, entries, strict=True)), sep="\n  ")
        else:
            answers[str(case)] = {"sums": found[0][0], "digest": found[0][1], "plans": entries}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in answers.items())
    RECORDED.write_text(f'{{"chip": {json.dumps(chip)}, "answers": {{\n{lines}\n}}}}\n')


def recorded() -> dict[str, Any]:
    """By case."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())["answers"]
    return found


if __name__ == "__main__":
    record()
