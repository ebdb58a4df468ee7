"""What each unit of a chip reaches when its operands never leave registers or shared memory: the 100 % of
every share.

A micro-kernel adds the same products again and again: a group of threads (one, a warp, a warpgroup) owns
D[group] = iterations * A[group] B[group]^T. It is judged like any product, then timed as the bench times
kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lapidist.backends.gpu.driver import query_device
from lapidist.backends.gpu.launcher import GpuKernel
from lapidist.build.compiler import compile_options, compile_source
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.dtypes import FP8, element_of
from lapidist.frameworks.arrays import operand_of
from lapidist.frameworks.streams import stream_of
from lapidist.knobs.header import header_of
from lapidist.knobs.knob import Knob
from lapidist.knobs.sources import SHARED
from lapidist.launch import AS_IT_IS, Launch, Memory, ParameterBlock
from lapidist.verify.sum_bound import Verdict, judge
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import gather
from lapidist_lab.bench.protocol.contenders import Call, Facts
from lapidist_lab.bench.protocol.measure import Entry, Inputs, Stage, record_of
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import Protocol
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

SOURCES = Path(__file__).parent / "limit_kernels"
THREADS = 256
KNOBS = (*SHARED, Knob("THREADS", "threads of a block"))
CHECKED_ITERATIONS = 3
# 32 bytes of k in one mma.sync (8 elements in tf32)
MMA_DEPTHS = {"float16": 16, "bfloat16": 16, "tf32": 8, "int8": 32, **dict.fromkeys(FP8, 32)}
GROUP_THREADS = {"fma": 1, "mma": 32, "wgmma": 128}
PARAMETERS = ParameterBlock([("iterations", "i32"), *((name, "pointer") for name in "ABD")])
PROTOCOL = Protocol("sustained", rounds=1, turn_seconds=1.2, pause_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit with one math. In an iteration a group forms `rows` x `cols` sums of `depth` products each."""

    unit: str
    math: str
    rows: int
    cols: int
    depth: int
    blocks_per_sm: int = 1
    iterations: int = (
        16384  # milliseconds: the start and the end of a block, some 15 microseconds, weigh nothing
    )
    shared_bytes: int = 0
    # As a contender is known to the bench:
    kind: str = "limit"
    columns: bool = True  # B lies with k touching
    capturable: bool = True

    @property
    def name(self) -> str:
        return f"limit_{self.unit}"

    @property
    def groups(self) -> int:
        return THREADS // GROUP_THREADS[self.unit]

    def case(self, blocks: int, iterations: int) -> Case:
        """The product that takes as many multiply-adds: the groups stacked, their k in a row."""
        return Case(blocks * self.groups * self.rows, self.cols, self.depth * iterations, self.math)

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        """What starts the loop: the case gives the iterations, the output the blocks."""
        place, device = operand_of(a[0], "a"), query_device(operand_of(a[0], "a").device)
        arrays = a[0], b[0], c[0]
        launch = launch_of(self, device, case.k // self.depth, arrays)
        start, stream = (
            GpuKernel(launch, place.device).repeated_start(),
            stream_of(place.framework, place.device),
        )
        at_a, at_b, at_d = (operand_of(array, "array").pointer for array in arrays)
        return lambda index: start((at_a, at_b, 0, at_d), AS_IT_IS, stream)

    def facts(self, device: Device) -> Facts:
        tile = f"{self.rows}x{self.cols}x{self.depth} for each of {self.groups} groups of a block"
        return Facts(f"{tile}, {self.blocks_per_sm} blocks an SM, {self.iterations} iterations", self.unit)


UNITS = (
    *(Unit("fma", math, 8, 4, 1, blocks_per_sm=2, iterations=65536) for math in ("float32", "float64")),
    *(Unit("mma", math, 64, 64, depth) for math, depth in MMA_DEPTHS.items()),
    Unit("mma", "float64", 64, 32, 8),
    *(
        Unit("wgmma", math, 64, 256, 4 * depth, shared_bytes=2 * (64 + 256) * 128)
        for math, depth in MMA_DEPTHS.items()
    ),
)


def launch_of(unit: Unit, device: Device, iterations: int, arrays: tuple[Any, Any, Any]) -> Launch:
    """The launch on arrays A (groups, rows, depth), B (groups, cols, depth), D (blocks, groups, rows,
    cols)."""
    level = "T" if unit.unit == "fma" else "W"
    tile = {f"{level}M": unit.rows, f"{level}N": unit.cols}
    values = {"T": element_of(unit.math).c_type, "ALIGNED": 1, "THREADS": THREADS, **tile}
    options, entry = compile_options(device.architecture), f"{unit.unit}_limit"
    source = SOURCES / f"{entry}.cu"
    config = header_of(source.name, KNOBS, values, own_8_bits=unit.unit == "wgmma")
    binary = compile_source(source.read_text(), entry, options, device.architecture, source.name, config)
    operands = [operand_of(array, name) for array, name in zip(arrays, "ABD", strict=True)]
    memory = tuple(Memory(x.name, x.span[0], x.span[1] - x.span[0], x.owner) for x in operands)
    launch = Launch(
        binary,
        (arrays[2].shape[0], 1, 1),
        (THREADS, 1, 1),
        bytes(PARAMETERS.pack({"iterations": iterations})),
        unit.shared_bytes,
        parameters=PARAMETERS,
        patches=PARAMETERS.patches(),
    )
    return launch.placed({operand.name: operand.pointer for operand in operands}, memory=memory)


def judge_limit(unit: Unit, arrays: tuple[Any, Any, Any], iterations: int) -> Verdict:
    """Compare D with `iterations` times the product of A and B."""
    a, b, d = arrays
    case = unit.case(1, iterations)
    return judge(d, a, b.swapaxes(-1, -2), alpha=iterations, precision=case.precision, unit=unit.unit)


# ---- on a GPU ----


def measure(ordinal: int, keep: Keep, units: Sequence[Unit] = UNITS) -> tuple[Conditions, list[Record]]:
    """The rows of every unit and type that the chip has, over a second each."""
    records: list[Record] = []
    with Stage(ordinal, PROTOCOL) as stage, progress(len(units), "limits") as step:
        before = stage.gauge.look()
        conditions = gather(stage.device, stage.device.name, PROTOCOL.mode, str(PROTOCOL))
        for unit in units:
            records.append(measure_unit(stage, unit))
            conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
            keep(conditions, records)
            step(f"{unit.name} {unit.math}")
    return conditions, records


def measure_unit(stage: Stage, unit: Unit) -> Record:
    """The row of a unit: checked with a few iterations, timed with many. Without the unit the row has the
    reason."""
    blocks = stage.device.sms * unit.blocks_per_sm
    a, b, d = arrays = arrays_of(stage, unit, blocks)
    entry = Entry(unit, facts=unit.facts(stage.device))

    def prepare(entry: Entry) -> None:
        unit.prepare(unit.case(blocks, CHECKED_ITERATIONS), [a], [b], [d])(0)
        stage.keep_verdict(entry, judge_limit(unit, arrays, CHECKED_ITERATIONS))
        if entry.error is None:
            entry.call = unit.prepare(case, [a], [b], [d])
            stage.capture(entry, 1)

    case = unit.case(blocks, unit.iterations)
    for work in (prepare, stage.turn):
        if entry.error is None:
            stage.attempt(entry, work)
    row = record_of(stage, case, entry, Inputs([], [], [], rotated=True, make_columns=list), None)
    return replace(row, sets=None, l2="the operands stay in registers or shared memory")


def arrays_of(stage: Stage, unit: Unit, blocks: int) -> tuple[Any, Any, Any]:
    element, make = element_of(unit.math), stage.framework.random
    a, b = (
        make(unit.groups * extent, unit.depth, element.name, seed).reshape(unit.groups, extent, unit.depth)
        for seed, extent in enumerate((unit.rows, unit.cols))
    )
    d = stage.framework.poisoned(blocks * unit.groups * unit.rows, unit.cols, element.accumulators[0])
    return a, b, d.reshape(blocks, unit.groups, unit.rows, unit.cols)
