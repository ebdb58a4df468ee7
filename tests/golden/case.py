"""One recorded case: a PTX kernel for one block (or one cluster), its input bytes, and what of its output
counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lapidist.launch import TensorMap
from lapidist.machine.instructions.copies import box_positions, element_size, swizzled

HEADER = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 in, .param .u64 out)
{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b64 %in, %out, %map;
    .reg .b32 %t;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.b64 %map, map; cvta.param.u64 %map, %map;
    mov.u32 %t, %tid.x;
"""
CLUSTERS = ".explicitcluster\n.reqnctapercluster "
KIND_OF_BYTES = {2: "b16", 4: "b32", 8: "b64"}


@dataclass(frozen=True)
class Case:
    """`ulps` is 0 where the machine must agree bit for bit; else how far its results, floats of the code
    `floats`, may be from the chip's when it sums quickly, in units of the last place of the largest
    result."""

    name: str
    body: str
    source: np.ndarray
    out_bytes: int
    threads: int = 32
    tensor: TensorMap | None = None  # its address is an offset into `source`, or into the output
    ulps: int = 0
    floats: str = "f4"
    writes: bool = False  # the tensor map describes the output
    cluster: int = 1  # blocks

    @property
    def ptx(self) -> str:
        header = (
            HEADER
            if self.cluster == 1
            else HEADER.replace("\n{", f"\n.reqntid {self.threads}\n{CLUSTERS}{self.cluster}, 1, 1\n{{")
        )
        return header + self.body + "\nret;\n}\n"

    @property
    def compared(self) -> np.ndarray | slice:
        """Which output bytes count: between the rows of a box narrower than its swizzle lies what was there
        before.
        """
        inner = self.tensor.box[0] * element_size(self.tensor.dtype) if self.tensor else 0
        if self.tensor is None or self.writes or inner >= self.tensor.swizzle:
            return slice(None)
        positions = swizzled(box_positions(self.tensor, inner // self.tensor.box[0], 0), self.tensor.swizzle)
        each = (positions[:, None] + np.arange(16)).ravel()
        return each[each < self.out_bytes]

    @property
    def digest(self) -> str:
        text = " ".join(self.ptx.split())
        form = self.tensor and (
            self.tensor.dtype,
            self.tensor.shape,
            self.tensor.strides,
            self.tensor.box,
            self.tensor.swizzle,
        )
        return hashlib.sha256(text.encode() + self.source.tobytes() + repr(form).encode()).hexdigest()


def random_for(name: str) -> np.random.Generator:
    return np.random.default_rng(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))


# ---- one instruction a lane: registers in, registers out ----


def lane_case(
    name: str,
    text: str,
    sources: list[np.ndarray],
    outs: list[str],
    threads: int = 32,
    ulps: int = 0,
    floats: str = "f4",
) -> Case:
    """`text` computes d0, d1, ... from a0, a1, ...; element t of each source goes to thread t."""
    lines, offset = [], 0
    for number, source in enumerate(sources):
        size = source.dtype.itemsize
        lines.append(
            f".reg .{KIND_OF_BYTES[size]} a{number}; mad.wide.u32 %rd1, %t, {size}, %in; "
            f"ld.global.b{8 * size} a{number}, [%rd1+{offset}];"
        )
        offset += source.nbytes
    lines += [f".reg .{KIND_OF_BYTES[np.dtype(out).itemsize]} d{number};" for number, out in enumerate(outs)]
    lines.append(text)
    place = 0
    for number, out in enumerate(outs):
        size = np.dtype(out).itemsize
        lines.append(f"mad.wide.u32 %rd2, %t, {size}, %out; st.global.b{8 * size} [%rd2+{place}], d{number};")
        place += size * threads
    data = np.concatenate([source.view(np.uint8) for source in sources]) if sources else np.zeros(8, np.uint8)
    return Case(name, "\n".join(lines), data, place, threads, None, ulps, floats)


# ---- fills ----

# Small integers are exact in every format: a wrong place shows, a wrong rounding does not.
CODES = {
    "f16": [0x0000, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4200],
    "bf16": [0x0000, 0x3F80, 0xBF80, 0x4000, 0xC000, 0x4040],
    "tf32": [0x00000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40400000],
    "s8": [0, 1, 0xFF, 2, 0xFE, 3],
    "u8": [0, 1, 2, 3, 4, 5],
    "e4m3": [0x00, 0x38, 0xB8, 0x40, 0xC0, 0x44],
    "e5m2": [0x00, 0x3C, 0xBC, 0x40, 0xC0, 0x42],
}
SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1, "f64": 8}


FLOATS = {"f16": "f2", "f32": "f4", "f64": "f8"}  # NumPy's code of a result
Fill = Callable[[str, int, np.random.Generator], np.ndarray]


def small(kind: str, nbytes: int, random: np.random.Generator) -> np.ndarray:
    """Bytes full of small integers of a format."""
    if kind == "f64":
        return random.integers(-3, 4, nbytes // 8).astype("f8").view("u1")
    return random.choice(np.array(CODES[kind], f"u{SIZES[kind]}"), nbytes // SIZES[kind]).view("u1")


def rough(kind: str, nbytes: int, random: np.random.Generator) -> np.ndarray:
    """Bytes full of normal numbers of a format: sums round."""
    if kind == "f64":
        return random.standard_normal(nbytes // 8).view("u1")
    values = random.standard_normal(nbytes // SIZES[kind]).astype("f4")
    if kind == "f16":
        return values.astype("f2").view("u1")
    if kind == "bf16":
        return (values.view("u4") >> np.uint32(16)).astype("u2").view("u1")
    if kind == "tf32":
        return (values.view("u4") & np.uint32(0xFFFFE000)).view("u1")
    return random.integers(0x20, 0x48, nbytes, dtype="u1")
