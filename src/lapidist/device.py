"""Facts of a chip, as plain numbers. A Device can be made without the chip: for planning, for the machine, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lapidist.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU model. `limits` holds TFLOP/s that were measured on it with operands that never leave registers."""

    name: str
    capability: tuple[int, int]
    sms: int
    clock_mhz: int
    fp32_lanes: int  # fused multiply-adds per SM and cycle
    fp64_lanes: int
    shared_per_block: int  # bytes, with opt-in
    shared_per_sm: int
    threads_per_sm: int
    l2_bytes: int
    dram_gbps: float
    registers_per_sm: int = 65536
    blocks_per_sm: int = 32
    limits: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def architecture(self) -> str:
        """What NVRTC calls it. Hopper's own instructions need the `a`."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    def peak_tflops(self, dtype: str) -> float:
        """FMA lanes times clock; half products run on the fp32 lanes (they are summed in float)."""
        lanes = self.fp64_lanes if dtype == "float64" else self.fp32_lanes
        return self.sms * lanes * 2 * self.clock_mhz * 1e6 / 1e12

    def limit_tflops(self, dtype: str) -> float:
        """The measured limit of the CUDA cores where there is one, else the peak."""
        return self.limits.get("float64" if dtype == "float64" else "float32", self.peak_tflops(dtype))

    def blocks_resident(self, threads: int, registers: int, shared_bytes: int) -> int:
        """How many blocks of a kernel fit on one SM together. Registers are given out to warps in units of 256."""
        warps = -(-threads // 32)
        registers_per_warp = -(-registers * 32 // 256) * 256
        by_registers = self.registers_per_sm // (registers_per_warp * warps) if registers else self.blocks_per_sm
        by_shared = self.shared_per_sm // (shared_bytes + 1024) if shared_bytes else self.blocks_per_sm
        return max(0, min(self.blocks_per_sm, self.threads_per_sm // threads, by_registers, by_shared))


KIB = 1024
CHIPS = {
    "v100": Device("V100", (7, 0), 80, 1530, 64, 32, 96 * KIB, 96 * KIB, 2048, 6 << 20, 900.0),
    "a100": Device("A100", (8, 0), 108, 1410, 64, 32, 163 * KIB, 164 * KIB, 2048, 40 << 20, 1555.0),
    "rtx4090": Device("RTX 4090", (8, 9), 128, 2520, 128, 2, 99 * KIB, 100 * KIB, 1536, 72 << 20, 1008.0, blocks_per_sm=24),
    "h100": Device("H100", (9, 0), 132, 1980, 128, 64, 227 * KIB, 228 * KIB, 2048, 50 << 20, 3350.0),
    "h200": Device("H200", (9, 0), 132, 1980, 128, 64, 227 * KIB, 228 * KIB, 2048, 50 << 20, 4670.0, limits={"float32": 66.0}),
}


def chip(name: str) -> Device:
    """A Device by its short name."""
    found = CHIPS.get(name.lower())
    if found is None:
        raise ArgumentError(f"chip: must be one of {', '.join(CHIPS)}; got {name!r}")
    return found


def known_as(product: str) -> Device | None:
    """The table's entry for a product name as the driver spells it ("NVIDIA H200"), if there is one."""
    words = product.lower().replace("geforce", "").replace("nvidia", "").replace(" ", "").replace("-", "")
    return next((device for key, device in CHIPS.items() if words.startswith(key)), None)
