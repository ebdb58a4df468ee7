"""Products with weights of few bits, beside those of bfloat16 and torch's own operators for such weights.

All weights of a case are the same whole numbers, which each format holds exactly, by a factor of 2^-6. Rows
are rounded to e4m3. So one bfloat16 matrix is what all results are judged by, also those of rows in e4m3.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lapidist
from lapidist.commands.progress import progress
from lapidist.device import Device
from lapidist.errors import DeviceError
from lapidist.quantised.number_formats import E2M1, FORMATS
from lapidist.quantised.packed_weight import PackedWeight, made
from lapidist.verify.sum_bound import Expected
from lapidist_lab.bench.protocol.cases import EVERY_CASE, Case, Part
from lapidist_lab.bench.protocol.conditions import gather, has_triton, words_of_triton
from lapidist_lab.bench.protocol.contenders import Call, Contender, Facts, KernelContender
from lapidist_lab.bench.protocol.measure import L2_MULTIPLE, SETS_LIMIT, Inputs, Stage
from lapidist_lab.bench.protocol.peers import Vendor
from lapidist_lab.bench.protocol.record import Conditions, Record
from lapidist_lab.bench.protocol.timing import SUSTAINED, steps
from lapidist_lab.bench.studies.ladder_runs import Keep, sensor_range

MODE = "few bits"
# Fifty cases of ten ways. Turns so short have the clock that the one before left: without rest, one behind a
# turn of most power took up to a sixth longer on an H200.
PROTOCOL = replace(SUSTAINED, rounds=1, turn_seconds=0.1, pause_seconds=0.1, checks=1, replay_seconds=0.004)
BY_E4M3 = " by e4m3"
INT4, MXFP4 = "lapidist, int4", "lapidist, mxfp4"
OURS = INT4, MXFP4, INT4 + BY_E4M3, MXFP4 + BY_E4M3
TORCH_INT4, TORCH_INT8, TRITON, MARLIN = "torch int4", "torch int8", "Triton int4", "Marlin int4"
EXPONENT, GROUP = -6, 128
KEPT = 2.0**-12  # of the terms of a sum of e4m3
# Features out and in, of models' layers
LAYERS = {
    (6144, 4096): "Llama-8B, q k v",
    (28672, 4096): "Llama-8B, gate and up",
    (4096, 14336): "Llama-8B, down",
    (8192, 8192): "Llama-70B, out",
    (8192, 28672): "Llama-70B, down",
    (1536, 2048): "Qwen3-30B, an expert's gate and up",
    (2048, 768): "Qwen3-30B, an expert's down",
    (4096, 7168): "DeepSeek-V3, an expert's gate and up",
    (7168, 2048): "DeepSeek-V3, an expert's down",
    (8192, 81920): "Llama-70B, out, ten times as deep",
}
ROWS = 1, 8, 16, 64, 256, 4096
*OF_MODELS, DEEP = LAYERS
CASES = [
    *(Case(m, *layer, "bfloat16", "rc") for layer in OF_MODELS for m in ROWS),
    Case(1, *DEEP, "bfloat16", "rc"),
]


class FewBitsInputs(Inputs):
    """Judges products of e4m3 by their own bound (docs/numerics.md): the tensor core keeps less of sums."""

    def expected(self, contender: Contender, index: int, case: Case, unit: str | None) -> Expected:
        plain = super().expected(contender, index, case, unit)
        if not contender.name.endswith(BY_E4M3) or plain.bound is None:
            return plain
        terms = self.a[index].double().abs() @ self.b[index].double().abs()
        return Expected(plain.reference, plain.bound + KEPT * terms)


class FewBitsStage(Stage):
    """Makes weights of whole numbers. Sets are copies, so many that the L2 cannot hold them in four bits."""

    def inputs(self, case: Case) -> Inputs:
        packed_bytes = case.n * case.k // 2
        needed = math.ceil(L2_MULTIPLE * self.device.l2_bytes / packed_bytes)
        count = max(1, min(needed, SETS_LIMIT))
        seed = time.time_ns() % 2**31
        rows = whole_numbers(case.n, case.k) * 2.0**EXPONENT
        return FewBitsInputs(
            [rounded(self.framework, case, seed + i) for i in range(count)],
            [rows.clone().T for _ in range(count)],
            [self.framework.poisoned(case.m, case.n, case.dtype) for _ in range(count)],
            rotated=count >= needed,
            by_columns=True,
            make_columns=list,
        )


def rounded(framework: Any, case: Case, seed: int) -> Any:
    """Rows of bfloat16 that e4m3 holds."""
    rows = framework.random(case.m, case.k, case.dtype, seed)
    return rows.to(framework.torch.float8_e4m3fn).to(rows.dtype)


def whole_numbers(n: int, k: int, device: str = "cuda") -> Any:
    """A weight as torch has it, (n, k)."""
    import torch

    signed = [sign * value for value in E2M1.tolist() if value == int(value) for sign in (1, -1)]
    values = torch.tensor(signed, device=device, dtype=torch.bfloat16)
    return values[torch.randint(len(signed), (n, k), device=device)]


def codes_of(rows: Any, format: str) -> Any:
    """The codes (k, n) of whole numbers (n, k)."""
    import torch

    if format == "int4":
        return (rows.T + 8).to(torch.uint8)
    magnitudes = torch.tensor(E2M1.tolist(), device=rows.device, dtype=rows.dtype)
    sizes = torch.bucketize(rows.abs(), magnitudes)
    return (sizes + 8 * (rows < 0)).to(torch.uint8).T.contiguous()


def packed(rows: Any, format: str, exponent: int = EXPONENT) -> PackedWeight:
    """The same numbers, whole ones by that power of two, in a format that holds them."""
    import torch

    codes = codes_of(rows * 2.0**-exponent, format)
    k, n = codes.shape
    if format == "mxfp4":
        scales = torch.full((k // 32, n), 127 + exponent, dtype=torch.uint8, device=rows.device)
    else:
        scales = torch.full((k // GROUP, n), 2.0**exponent, dtype=torch.bfloat16, device=rows.device)
    type_of = "e8m0" if format == "mxfp4" else "bfloat16"
    return made(codes, scales, None, FORMATS[format], type_of, codes)


class Packed:
    """Our product by a weight of a format, of rows in bfloat16 or e4m3."""

    kind, columns, capturable = "production", False, True

    def __init__(self, name: str) -> None:
        self.name, self.format = name, name.partition(", ")[2].removesuffix(BY_E4M3)
        self.nbytes = 0

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        import torch

        first = packed(b[0].T, self.format)
        weights = [replace(first, codes=first.codes.clone(), scales=first.scales.clone()) for _ in b]
        self.nbytes = first.nbytes
        by_e4m3 = self.name.endswith(BY_E4M3)
        rows = [x.to(torch.float8_e4m3fn) for x in a] if by_e4m3 else a
        factors = torch.ones(case.m, device="cuda") if by_e4m3 else None
        return lambda i: lapidist.matmul(rows[i], weights[i], scale_a=factors, out=c[i])

    def facts(self, device: Device) -> Facts:
        return Facts(config=f"{self.format}, factors of {32 if self.format == 'mxfp4' else GROUP}")


class TorchOperator:
    """One of torch's operators, whose results are new tensors."""

    kind, columns, capturable = "peer", False, True

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        import torch

        multiply = (int4_product if self.name == TORCH_INT4 else int8_product)(a, b)

        def call(index: int) -> None:
            product = multiply(index)
            if not torch.cuda.is_current_stream_capturing():
                c[index].copy_(product)  # to be judged

        return call

    def facts(self, device: Device) -> Facts:
        words = f"_weight_int4pack_mm, factors of {GROUP}"
        return Facts(config=words if self.name == TORCH_INT4 else "_weight_int8pack_mm")


def int4_product(a: Sequence[Any], b: Sequence[Any]) -> Callable[[int], Any]:
    import torch

    n, k = b[0].T.shape
    codes = codes_of(b[0].T * 2.0**-EXPONENT, "int4").T
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).contiguous()
    packed = torch.ops.aten._convert_weight_to_int4pack(pairs, 8)
    factors = torch.zeros(k // GROUP, n, 2, dtype=torch.bfloat16, device="cuda")
    factors[..., 0] = 2.0**EXPONENT
    sets = [(packed.clone(), factors.clone()) for _ in b]
    operator = torch.ops.aten._weight_int4pack_mm
    return lambda i: operator(a[i], sets[i][0], GROUP, sets[i][1])


def int8_product(a: Sequence[Any], b: Sequence[Any]) -> Callable[[int], Any]:
    import torch

    codes = (b[0].T * 2.0**-EXPONENT).to(torch.int8)
    factors = torch.full((len(codes),), 2.0**EXPONENT, dtype=torch.bfloat16, device="cuda")
    sets = [codes.clone() for _ in b]
    return lambda i: torch.ops.aten._weight_int8pack_mm(a[i], sets[i], factors)


class TritonKernel:
    """A kernel of Triton's, whose config is tried out."""

    name, kind, columns, capturable = TRITON, "peer", False, True
    config: Any = None

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        import torch

        from lapidist_lab.bench.studies import few_bits_triton

        codes = few_bits_triton.in_bytes(codes_of(b[0].T * 2.0**-EXPONENT, "int4"))
        shape = case.k // GROUP, case.n
        factors = torch.full(shape, 2.0**EXPONENT, dtype=torch.bfloat16, device="cuda")
        sets = [codes.clone() for _ in b], [factors.clone() for _ in b]
        self.config, call = few_bits_triton.fastest(a, *sets, c)
        return call

    def facts(self, device: Device) -> Facts:
        return Facts(config=f"factors of {GROUP}, {self.config}")


class MarlinKernel:
    """Marlin's, of rows in float16, which hold those of e4m3; results are converted to be judged."""

    name, kind, columns, capturable = MARLIN, "peer", False, True

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        import torch

        from lapidist_lab.bench.studies import few_bits_marlin

        codes = few_bits_marlin.codes_in_order(codes_of(b[0].T * 2.0**-EXPONENT, "int4"))
        shape = case.k // GROUP, case.n
        factors = few_bits_marlin.factors_in_order(torch.full(shape, 2.0**EXPONENT, device="cuda"))
        sets = [(x.half(), codes.clone(), factors.clone(), out.half()) for x, out in zip(a, c, strict=True)]
        room = few_bits_marlin.room_of(case.n)

        def call(index: int) -> None:
            few_bits_marlin.multiply(self.library, *sets[index], room)
            if not torch.cuda.is_current_stream_capturing():
                c[index].copy_(sets[index][3])  # to be judged

        return call

    def facts(self, device: Device) -> Facts:
        return Facts(config=f"float16, factors of {GROUP}, its own choice", unit="mma")


def marlin_of(folder: Path | None, device: Device) -> tuple[ctypes.CDLL | None, str]:
    """Its library, and what the conditions say of it."""
    if folder is None:
        return None, "without Marlin, whose sources were not given"
    from lapidist_lab.bench.studies import few_bits_marlin

    return few_bits_marlin.library(folder, device), "Marlin by nvcc"


def contenders_of(stage: Stage, case: Case, marlin: ctypes.CDLL | None = None) -> list[Contender]:
    return [
        Vendor(stage.framework, case.math),
        *map(TorchOperator, (TORCH_INT4, TORCH_INT8)),
        *([TritonKernel()] if has_triton() else []),
        *([MarlinKernel(marlin)] if marlin else []),
        KernelContender(None, case.math, disassembled=False),
        *map(Packed, OURS),
    ]


def with_ratios(records: Sequence[Record], contenders: Sequence[Contender], device: Device) -> list[Record]:
    """Ratios to the fastest product by another way, of bfloat16 or torch's; and at which rate a packed weight
    was read. A peer that this torch does not have is left out.
    """
    ran = [record for record in records if record.kind != "peer" or record.error is None]
    rivals = [r for r in ran if r.kernel not in OURS and r.seconds]
    best = min(rivals, key=lambda record: record.seconds or math.inf, default=None)
    nbytes = {one.name: one.nbytes for one in contenders if isinstance(one, Packed)}
    rows = []
    for record in ran:
        ratio = best.seconds / record.seconds if best and best.seconds and record.seconds else None
        note = None
        if record.seconds and record.kernel in nbytes:
            rate = nbytes[record.kernel] / record.seconds
            note = f"{rate / 1e12:.2f} TB/s, {rate / device.dram_gbps / 1e7:.0f} % of DRAM's rate"
        rows.append(replace(record, mode=MODE, ratio=ratio, peer=best.kernel if best else None, note=note))
    return rows


def measure(
    ordinal: int, keep: Keep, part: Part = EVERY_CASE, marlin: Path | None = None
) -> tuple[Conditions, list[Record]]:
    """`marlin`: a checkout of its sources."""
    records: list[Record] = []
    cases = CASES[part.skip :][: part.count]
    with FewBitsStage(ordinal, PROTOCOL) as stage:
        if stage.framework.name != "torch":
            raise DeviceError("bench few_bits: compares with torch; it was not found. Install torch")
        before, vendor = stage.gauge.look(), stage.framework.vendor("bfloat16")
        library, words = marlin_of(marlin, stage.device)
        words = f"{words_of_triton('few_bits_triton')}; {words}"
        vendor += f", torch's _weight_int4pack_mm and _weight_int8pack_mm; {words}"
        inputs = "rows standard normal, rounded to e4m3; weights whole numbers of int4 and e2m1"
        conditions = gather(
            stage.device, stage.device.name, MODE, str(PROTOCOL), vendor=vendor, inputs=inputs
        )
        count = sum(steps(contenders_of(stage, case, library), PROTOCOL) for case in cases)
        with progress(count, MODE) as step:
            for case in cases:
                contenders = contenders_of(stage, case, library)
                rows = stage.measure(case, contenders, step)
                records += with_ratios(rows, contenders, stage.device)
                conditions = replace(conditions, seen=sensor_range(before, stage.gauge.look()))
                keep(conditions, records)
        return conditions, records
