"""Which runs the numbers come from, what was refused or failed in them, and what is not published."""

from __future__ import annotations

from collections.abc import Sequence

from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.cells import kind, shape
from lapidist_lab.bench.publish.record_views import label
from lapidist_lab.bench.publish.section import Section
from lapidist_lab.bench.publish.tables import fold
from lapidist_lab.bench.publish.withdrawn import Withdrawal
from lapidist_lab.bench.studies import operand_layouts

SENSORS = (("clock_mhz", "MHz"), ("power_w", "W"), ("temperature_c", "degrees C"))
VERSIONS = {"driver": "driver", "CUDA": "cuda", "NVRTC": "nvrtc", "lapidist": "lapidist", "commit": "commit"}


def runs_section(runs: Sequence[Run]) -> str:
    return "\n".join(["## Runs\n", *(line for run in runs for line in run_lines(run))])


def run_lines(run: Run) -> list[str]:
    c = run.conditions
    versions = {name: getattr(c, field) for name, field in VERSIONS.items()}
    by = ", ".join(f"{name} {value}" for name, value in versions.items() if value)
    lines = [
        f"- `results/{run.name}`: {c.date}, {c.device}, {by}. {c.vendor or 'No vendor library'}."
        f" `{c.command}`",
        f"    - {c.mode}: {c.protocol}. Inputs: {c.inputs}. {sensor_words(run)}",
    ]
    more = (f"CUTLASS: {c.cutlass}" if c.cutlass else "", c.remark or "")
    return lines + [f"    - {words}." for words in more if words]


def sensor_words(run: Run) -> str:
    """The range of clocks, power and temperature over the run, in words."""
    words = []
    for name, unit in SENSORS:
        values = [value for record in run.records if (value := getattr(record, name)) is not None]
        if values:
            words.append(f"{min(values):.0f} to {max(values):.0f} {unit}")
    return f"Seen while timing: {', '.join(words)}." if words else "Clocks and power were not seen."


def failures_section(records: Sequence[Record]) -> str:
    failed = [record for record in records if record.error and not lacking(record)]
    lines = [
        f"- {label(record.kernel)}, {shape(record)}, {kind(record)}: {(record.error or '').splitlines()[0]}"
        for record in failed
    ]
    return f"## Refused or failed\n\n{fold(f'{len(lines)} products', chr(10).join(lines))}" if lines else ""


def lacking(record: Record) -> bool:
    """Whether it is cuBLAS in a layout that torch cannot multiply: the table of layouts says so."""
    return record.mode == operand_layouts.MODE and record.kernel == operand_layouts.VENDOR


def withdrawn_section(withdrawals: Sequence[Withdrawal]) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for withdrawal in withdrawals:
        reasons.setdefault((withdrawal.kernel, withdrawal.reason), []).append(f"`results/{withdrawal.run}`")
    lines = [f"- {kernel}: {reason} ({', '.join(names)})" for (kernel, reason), names in reasons.items()]
    return "\n".join(["## Withdrawn\n\nMeasured, and not shown above.\n", *lines]) if lines else ""


RUNS = Section(
    lambda data: data,
    [
        lambda data: runs_section(data.runs),
        lambda data: failures_section(data.records),
        lambda data: withdrawn_section(data.withdrawals),
    ],
)
