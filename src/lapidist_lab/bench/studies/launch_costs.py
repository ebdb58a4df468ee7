"""What the host pays: a launch of a planned product, a call of matmul, the first call of a shape, the
import.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from lapidist.backends.gpu.doctor import TORCH_HINT
from lapidist.build.processes import command, environment
from lapidist.errors import DeviceError
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.measure import Stage
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import BURST
from lapidist_lab.bench.studies.call_forms import (
    Contestant,
    of_factors,
    of_groups,
    of_layers,
    of_many,
    of_matrices,
    of_numpy,
)
from lapidist_lab.bench.studies.ladder_runs import Keep

CASE = Case(128, 128, 128)  # the kernel is done before the next call: the queue never fills
BATCH = 200  # calls between two synchronisations; the driver queues 1024
BATCHES = 31
STARTS = 3
# until the processor's clock and the GPU's have risen: before that the same calls take half as long again
WARM_SECONDS = 1.0
PROTOCOL = (
    f"after {WARM_SECONDS:.0f} s of the same, median of {BATCHES} batches of {BATCH} unsynchronised calls,"
    f" turn by turn; first calls: median of {STARTS} new processes"
)

FIRST_CALL = """
import json, sys, time
import torch
a, b = (torch.randn(1024, 1024, device="cuda") for _ in "ab")
torch.mm(a, b); torch.cuda.synchronize()
start = time.perf_counter()
import lapidist
imported = time.perf_counter()
c = lapidist.matmul(a, b); torch.cuda.synchronize()
called = time.perf_counter()
print(json.dumps([imported - start, called - imported]))
"""
FIRST_PARTS = """
import json, time
import torch
a, b = (torch.randn(1024, 1024, device="cuda") for _ in "ab")
torch.mm(a, b); torch.cuda.synchronize()
at = [time.perf_counter()]
import lapidist
at.append(time.perf_counter())
from lapidist.backends.gpu import driver
driver.load_driver()
at.append(time.perf_counter())
driver.primary_context(0)
at.append(time.perf_counter())
from lapidist.build.compiler import nvrtc_version
nvrtc_version()
at.append(time.perf_counter())
lapidist.matmul
at.append(time.perf_counter())
lapidist.matmul(a, b); torch.cuda.synchronize()
at.append(time.perf_counter())
print(json.dumps([later - earlier for earlier, later in zip(at, at[1:])]))
"""
# what a first call with its binary on disk is made of, in order; NVRTC's version is a part of a binary's name
PARTS = "import", "bindings and driver", "context", "NVRTC", "modules", "plan, load, run"
BARE_IMPORT = "import time; s = time.perf_counter(); import lapidist; print([time.perf_counter() - s])"


def measure(ordinal: int, keep: Keep) -> tuple[Conditions, list[Record]]:
    """Rows of the host's costs on one GPU, beside torch.mm."""
    with Stage(ordinal, BURST) as stage:
        if stage.framework.name != "torch":
            raise DeviceError(
                f"bench launch: compares with torch.mm; torch was not found. Install it with: {TORCH_HINT}"
            )
        conditions = gather(
            stage.device, stage.device.name, "host", PROTOCOL, vendor=stage.framework.vendor(CASE.math)
        )
        records: list[Record] = []
        for part in (launch_costs, first_calls, import_cost):
            records += part(stage)
            keep(conditions, records)
        return conditions, records


# ---- launches ----


def launch_costs(stage: Stage) -> list[Record]:
    forms = contestants(stage)
    costs: dict[str, list[float]] = {name: [] for name in forms}
    warm = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < warm:
        for variant in forms.values():
            batch_seconds(variant.call, stage)
    for _ in range(BATCHES):
        for name, variant in forms.items():
            costs[name].append(batch_seconds(variant.call, stage))
    rows = []
    for name, seconds in costs.items():
        middle, peer = median(seconds), forms[name].peer
        row = blank(stage, name, CASE, middle, "peer" if peer is None else "host", forms[name].worst)
        ratio = median(costs[peer or name]) / middle
        rows.append(
            replace(row, ratio=ratio, seconds_min=min(seconds), seconds_max=max(seconds), calls=BATCH)
        )
    return rows


def contestants(stage: Stage) -> dict[str, Contestant]:
    """All forms of calls, each judged once."""
    inputs = stage.inputs(CASE)
    a, b = inputs.a[0], inputs.b[0]
    of_products = {**of_matrices(a, b, inputs.c[0]), **of_many(a, b), **of_groups(a, b)}
    return {**of_products, **of_layers(a, b), **of_factors(a, b), **of_numpy()}


def batch_seconds(call: Callable[[], object], stage: Stage) -> float:
    call()
    stage.stream.sync()
    start = time.perf_counter()
    for _ in range(BATCH):
        call()
    seconds = (time.perf_counter() - start) / BATCH
    stage.stream.sync()
    return seconds


# ---- new processes ----


def first_calls(stage: Stage) -> list[Record]:
    """Rows of a shape's first call in a new process, with an empty cache and with a filled one, and of its
    parts."""
    cold, warm, parts = [], [], []
    with tempfile.TemporaryDirectory() as bytecode:
        in_process(FIRST_CALL, None, bytecode)
        for _ in range(STARTS):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(in_process(FIRST_CALL, folder, bytecode)[1])
                warm.append(in_process(FIRST_CALL, folder, bytecode)[1])
                parts.append(in_process(FIRST_PARTS, folder, bytecode))
    case = Case(1024, 1024, 1024)
    rows = []
    of_parts = zip((f"first call: {part}" for part in PARTS), zip(*parts, strict=True), strict=True)
    for name, seconds in (("first call, cold", cold), ("first call, disk cache", warm), *of_parts):
        row = blank(stage, name, case, median(seconds), "host", None)
        rows.append(replace(row, seconds_min=min(seconds), seconds_max=max(seconds), calls=1))
    return rows


def import_cost(stage: Stage) -> list[Record]:
    with tempfile.TemporaryDirectory() as bytecode:
        seconds = [in_process(BARE_IMPORT, None, bytecode)[0] for _ in range(2 * STARTS + 2)][1:]
    row = blank(stage, "import lapidist", Case(1, 1, 1), median(seconds), "host", None)
    return [replace(row, seconds_min=min(seconds), seconds_max=max(seconds), calls=1)]


def in_process(code: str, cache: str | None, bytecode: str) -> list[float]:
    """The seconds that a new process prints. `bytecode` keeps what Python compiles, so that one start pays
    for it."""
    settings = environment(PYTHONPYCACHEPREFIX=bytecode)
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    if cache is not None:
        # NVRTC keeps a cache of its own in CUDA's: cold must mean both.
        settings |= {"LAPIDIST_CACHE_DIR": cache, "CUDA_CACHE_PATH": cache}
    answer = subprocess.run(command(code), capture_output=True, text=True, env=settings, check=False)
    if answer.returncode:
        raise DeviceError(
            f"bench launch: a new process failed; {answer.stderr.strip()[-200:]}. Run it by itself: {code}"
        )
    seconds: list[float] = json.loads(answer.stdout)
    return seconds


def blank(stage: Stage, name: str, case: Case, seconds: float, kind: str, worst: float | None) -> Record:
    """A host row: seconds of the host, no speed."""
    ok = worst is None or worst <= 1.0
    return Record(
        name,
        kind,
        stage.device.name,
        case.dtype,
        "rrr",
        case.m,
        case.n,
        case.k,
        seconds,
        None,
        None,
        None,
        worst,
        ok,
        "host",
    )
