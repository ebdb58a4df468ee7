"""Records of a ladder that nobody measured, for what reads and shows them."""

from __future__ import annotations

from dataclasses import replace

from lapidist.kernels.registry import RUNGS
from lapidist_lab.bench.protocol.cases import LISTS
from lapidist_lab.bench.protocol.record import Conditions, Record

FLOAT_RUNGS = [kernel for kernel in RUNGS if "float32" in kernel.types.maths]
CONDITIONS = Conditions(
    date="2026-01-02T03:04:05+00:00",
    command="lapidist climb",
    device="NVIDIA H200",
    chip={"dram_gbps": 4670.0, "limit_tflops": {"float32": 66.0}},
    mode="sustained",
    vendor="cuBLAS by torch.mm",
)


def row(
    kernel: str,
    tflops: float | None,
    kind: str = "rung",
    shape: tuple[int, int, int] = (4096,) * 3,
    **more: object,
) -> Record:
    m, n, k = shape
    seconds = 2 * m * n * k / tflops / 1e12 if tflops else None
    ratio = tflops / 50 if tflops else None
    share = tflops / 66 if tflops else None
    record = Record(
        kernel,
        kind,
        "NVIDIA H200",
        "float32",
        "rrr",
        m,
        n,
        k,
        seconds,
        tflops,
        ratio,
        share,
        0.01,
        True,
        "sustained",
    )
    return replace(record, bytes_per_flop=0.03125, **more)


def ladder(speed: float = 40.0) -> list[Record]:
    """All rungs of float, each a little faster, rung 4 slower than rung 3; one failure; cuBLAS."""
    rows = [
        row(kernel.name, speed * (place + 1) / len(FLOAT_RUNGS)) for place, kernel in enumerate(FLOAT_RUNGS)
    ]
    rows[3] = row(FLOAT_RUNGS[3].name, 0.5)
    rows[6] = replace(row(FLOAT_RUNGS[6].name, None), ok=False, error="RefusalError: why | not\nmore")
    return [
        row("cublas", 50.0, "peer"),
        *rows,
        row("unroll_4", 31.0, "detour"),
        row("unroll_8", 32.0, "detour"),
    ]


def types_rows() -> list[Record]:
    """Half and double on four squares: mma.sync at 60 % of cuBLAS in half, ahead of it in double; no peer in
    e5m2.
    """
    rows = []
    for kind, vendor, ours in (("float16", 600.0, 360.0), ("float64", 60.0, 63.0)):
        entered = (
            ("cublas", "peer", vendor),
            ("mma_multistage", "rung", ours),
            ("mma_swizzled", "rung", ours / 2),
        )
        for size in LISTS["types"]:
            timed = [(row(name, tflops, role, size), tflops / vendor) for name, role, tflops in entered]
            rows += [
                replace(each, dtype=kind, ratio=ratio, unit="mma", unit_share=0.5) for each, ratio in timed
            ]
    alone = [
        replace(row("mma_multistage", 300.0, "rung", size), dtype="float8_e5m2", ratio=None)
        for size in LISTS["types"]
    ]
    return [*rows, *alone]
