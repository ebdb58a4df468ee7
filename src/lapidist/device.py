"""Facts of a chip, as plain numbers. A Device can be made without the chip: for planning, for the machine,
for tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lapidist.dtypes import FP8, TF32
from lapidist.errors import ArgumentError, shown

# Tensor-core rates against half; and whose measured limit stands for a math that has none of its own.
TENSOR_RATES = {
    "float16": 1.0,
    "bfloat16": 1.0,
    TF32: 0.5,
    "int8": 2.0,
    "uint8": 2.0,
    **dict.fromkeys(FP8, 2.0),
}
SAME_RATE = {"float16": "float32", "bfloat16": "float16", "uint8": "int8", "float8_e5m2": "float8_e4m3fn"}
# bytes of shared memory that a kernel may declare without opt-in, on every chip
STATIC_SHARED = 48 * 1024
# clusters that an H200 holds at once, by blocks in a cluster: its GPCs have 16 or 18 SMs
CLUSTERS = {3: 39, 4: 30, 5: 22, 6: 17, 8: 15}
HOPPER_MMA_SHARE = 0.6  # what mma.sync reaches of wgmma's rate, as measured on an H200


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU model.

    `limits` holds TFLOP/s that were measured on it with operands that never leave registers or tiles.

    Examples
    --------
    >>> import lapidist
    >>> lapidist.CHIPS["h200"].sms
    132
    """

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
    tensor_lanes: int = 0  # multiply-adds of half that the tensor cores do per SM and cycle
    tensor_fp64_lanes: int = 0
    limits: Mapping[tuple[str, str], float] = field(default_factory=dict, hash=False)  # by unit and math

    def __hash__(self) -> int:
        return hash((self.name, self.sms, self.clock_mhz))

    @property
    def architecture(self) -> str:
        """What NVRTC calls it. Hopper's own instructions need the `a`."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    @property
    def units(self) -> tuple[str, ...]:
        """The units that can multiply: CUDA cores (fma), tensor cores through mma.sync, tensor cores through
        wgmma.
        """
        return (
            "fma",
            *(("mma",) if self.capability >= (8, 0) else ()),
            *(("wgmma",) if self.capability[0] == 9 else ()),
        )

    def peak_tflops(self, math: str, unit: str = "fma") -> float:
        """Lanes times clock; 0 where the unit does not multiply in that math. CUDA cores multiply 16 bits
        in float.
        """
        if unit == "fma":
            lanes = (
                self.fp64_lanes
                if math == "float64"
                else float(self.fp32_lanes)
                if math in ("float16", "bfloat16", "float32")
                else 0.0
            )
        elif math == "float64":
            lanes = self.tensor_fp64_lanes if unit == "mma" else 0.0
        else:
            lanes = (
                self.tensor_lanes
                * TENSOR_RATES.get(math, 0.0)
                * (HOPPER_MMA_SHARE if self._halved(unit) else 1.0)
            )
            lanes *= math not in FP8 or self.capability >= (8, 9)
        return self.sms * lanes * 2 * self.clock_mhz * 1e6 / 1e12

    def _halved(self, unit: str) -> bool:
        return unit == "mma" and self.capability[0] == 9

    def unit_limit(self, unit: str, math: str) -> float:
        """TFLOP/s that were measured of one unit, else its peak."""
        alike = math
        while (unit, alike) not in self.limits and alike in SAME_RATE:
            alike = SAME_RATE[alike]
        return self.limits.get((unit, alike)) or self.peak_tflops(math, unit)

    def limit_tflops(self, math: str) -> float:
        """The best that any unit of the chip does in this math."""
        return max(self.unit_limit(unit, math) for unit in self.units)

    def clusters_resident(self, blocks: int) -> int:
        """Clusters of so many blocks, one block on each SM, that the chip holds at once. A cluster lies
        within one GPC.
        """
        return min(self.sms // blocks, CLUSTERS.get(blocks, 0)) if blocks > 2 else self.sms // blocks

    def blocks_resident(self, threads: int, registers: int, shared_bytes: int) -> int:
        """How many blocks of a kernel fit on one SM together. Registers are given out to warps in units of
        256.
        """
        warps = -(-threads // 32)
        registers_per_warp = -(-registers * 32 // 256) * 256
        by_registers = (
            self.registers_per_sm // (registers_per_warp * warps) if registers else self.blocks_per_sm
        )
        by_shared = self.shared_per_sm // (shared_bytes + 1024) if shared_bytes else self.blocks_per_sm
        return max(0, min(self.blocks_per_sm, self.threads_per_sm // threads, by_registers, by_shared))


KIB = 1024
# Measured by `lapidist bench limits` (the H200's: results/h200-20261121T142121-bench-limits.jsonl): random
# normal operands in registers, wgmma's in shared memory, sustained. Where its row saw less than 1980 MHz,
# power was the limit. Without its own an H100 seemed to have the power for its peak.
H200_LIMITS = {
    ("fma", "float32"): 65.9,
    ("fma", "float64"): 30.4,
    ("mma", "float16"): 617.0,
    ("mma", "bfloat16"): 635.0,
    ("mma", TF32): 325.0,
    ("mma", "int8"): 1288.0,
    ("mma", "float8_e4m3fn"): 560.0,  # by way of half
    ("mma", "float8_e5m2"): 560.0,
    ("mma", "float64"): 65.4,
    ("wgmma", "float16"): 830.0,
    ("wgmma", "bfloat16"): 865.0,
    ("wgmma", TF32): 445.0,
    ("wgmma", "int8"): 1857.0,
    ("wgmma", "float8_e4m3fn"): 1680.0,
    ("wgmma", "float8_e5m2"): 1698.0,
}
H100_LIMITS = {
    ("fma", "float32"): 65.9,
    ("fma", "float64"): 30.4,
    ("mma", "float16"): 609.0,
    ("mma", "bfloat16"): 635.0,
    ("mma", TF32): 328.0,
    ("mma", "int8"): 1326.0,
    ("mma", "float8_e4m3fn"): 554.0,
    ("mma", "float8_e5m2"): 573.0,
    ("mma", "float64"): 66.6,
    ("wgmma", "float16"): 828.0,
    ("wgmma", "bfloat16"): 857.0,
    ("wgmma", TF32): 441.0,
    ("wgmma", "int8"): 1860.0,
    ("wgmma", "float8_e4m3fn"): 1695.0,
    ("wgmma", "float8_e5m2"): 1748.0,
}
H100 = Device(
    "H100",
    (9, 0),
    132,
    1980,
    128,
    64,
    227 * KIB,
    228 * KIB,
    2048,
    50 << 20,
    3350.0,
    tensor_lanes=2048,
    tensor_fp64_lanes=128,
    limits=H100_LIMITS,
)


class Chips(dict[str, Device]):
    """Chips by their short names."""

    def __missing__(self, name: object) -> Device:
        raise KeyError(f"{name!r} is no short name of a chip. Write one of {', '.join(self)}")


CHIPS = Chips(
    {
        "v100": Device(
            "V100", (7, 0), 80, 1530, 64, 32, 96 * KIB, 96 * KIB, 2048, 6 << 20, 900.0, tensor_lanes=512
        ),
        "a100": Device(
            "A100",
            (8, 0),
            108,
            1410,
            64,
            32,
            163 * KIB,
            164 * KIB,
            2048,
            40 << 20,
            1555.0,
            tensor_lanes=1024,
            tensor_fp64_lanes=64,
        ),
        "rtx3090": Device(
            "RTX 3090",
            (8, 6),
            82,
            1695,
            128,
            2,
            99 * KIB,
            100 * KIB,
            1536,
            6 << 20,
            936.0,
            blocks_per_sm=16,
            tensor_lanes=256,
            tensor_fp64_lanes=2,
        ),
        "rtx4090": Device(
            "RTX 4090",
            (8, 9),
            128,
            2520,
            128,
            2,
            99 * KIB,
            100 * KIB,
            1536,
            72 << 20,
            1008.0,
            blocks_per_sm=24,
            tensor_lanes=256,
            tensor_fp64_lanes=2,
        ),
        "rtx5090": Device(
            "RTX 5090",
            (12, 0),
            170,
            2407,
            128,
            2,
            99 * KIB,
            100 * KIB,
            1536,
            96 << 20,
            1792.0,
            blocks_per_sm=24,
            tensor_lanes=256,
            tensor_fp64_lanes=2,
        ),
        "h100": H100,
        "h200": replace(H100, name="H200", dram_gbps=4670.0, limits=H200_LIMITS),
    }
)


def plain(name: str) -> str:
    return name.lower().replace(" ", "").replace("-", "")


def chip(name: str) -> Device:
    """A Device by its short name."""
    device = CHIPS.get(plain(name))
    if device is None:
        raise ArgumentError(
            f"chip: must be one of {', '.join(CHIPS)}; got {shown(name)}. Name the one most like yours"
        )
    return device


def known_as(product: str) -> Device | None:
    """The table's entry for a product name as the driver spells it ("NVIDIA H200"); None if there is none."""
    words = plain(product).replace("geforce", "").replace("nvidia", "")
    return next((device for key, device in CHIPS.items() if words.startswith(key)), None)


def like(product: str) -> Device:
    """The table's entry for a product name. That of an H200 completes what the driver says of other chips."""
    return known_as(product) or chip("h200")
