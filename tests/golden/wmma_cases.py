"""Which lane and register of a wmma fragment holds what: loads, stores and products of every type, shape and
order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from case import FLOATS, SIZES, Case, lane_case, random_for, rough, small

Shape = tuple[int, int, int]
LARGE: tuple[Shape, ...] = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
SHAPES: dict[str, tuple[Shape, ...]] = {
    "f16": LARGE,
    "bf16": LARGE,
    "s8": LARGE,
    "u8": LARGE,
    "tf32": ((16, 16, 8),),
    "f64": ((8, 8, 4),),
}
SUMS = {
    "f16": ("f32", "f16"),
    "bf16": ("f32",),
    "tf32": ("f32",),
    "s8": ("s32",),
    "u8": ("s32",),
    "f64": ("f64",),
}
BYTES = {**SIZES, "f32": 4, "s32": 4}
ORDERS = ("row", "col")


def extents(role: str, shape: Shape) -> tuple[int, int]:
    m, n, k = shape
    return {"a": (m, k), "b": (k, n)}.get(role, (m, n))


def registers(role: str, kind: str, shape: Shape) -> int:
    """How many a lane; operands of f16 always take eight."""
    if kind == "f16" and role in "ab":
        return 8
    rows, columns = extents(role, shape)
    return max(rows * columns * BYTES[kind] // 32 // width(kind), 1)


def width(kind: str) -> int:
    """Bytes of a register."""
    return 8 if kind == "f64" else 4


def register_type(kind: str) -> str:
    return kind if kind in ("f32", "f64") else "b32"


def named(letter: str, count: int) -> str:
    return "{" + ", ".join(f"{letter}{number}" for number in range(count)) + "}"


def size_name(shape: Shape) -> str:
    return "m{}n{}k{}".format(*shape)


def pitch_of(role: str, kind: str, shape: Shape, order: str) -> int:
    """Elements from row to row: some more than there are, so that the gap shows."""
    return extents(role, shape)[order == "row"] + 16 // BYTES[kind] * 2


def span_of(role: str, kind: str, shape: Shape, order: str) -> int:
    """Bytes of a matrix with its gaps."""
    return extents(role, shape)[order != "row"] * pitch_of(role, kind, shape, order) * BYTES[kind]


def store_registers(letter: str, count: int, kind: str) -> str:
    wide = width(kind)
    stores = " ".join(
        f"st.global.{register_type(kind)} [%rd2+{wide * n}], {letter}{n};" for n in range(count)
    )
    return f"mad.wide.u32 %rd2, %t, {wide * count}, %out; {stores} add.u64 %out, %out, {32 * wide * count};"


def declared(letter: str, count: int, kind: str) -> str:
    return f".reg .{register_type(kind)} {letter}<{count}>;"


def load_text(role: str, kind: str, shape: Shape, order: str, letter: str, offset: int) -> str:
    into = named(letter, registers(role, kind, shape))
    form = f"wmma.load.{role}.sync.aligned.{order}.{size_name(shape)}.global.{kind}"
    return f"{form} {into}, [%in+{offset}], {pitch_of(role, kind, shape, order)};"


def load_case(role: str, kind: str, shape: Shape, order: str) -> Case:
    """Memory counts its elements; where they do not fit a byte, the low bytes are loaded and then the high
    ones.
    """
    count, span = registers(role, kind, shape), span_of(role, kind, shape, order)
    numbers = np.arange(span // BYTES[kind])
    code = f"u{BYTES[kind]}"
    planes = [numbers & 255, numbers >> 8] if BYTES[kind] == 1 else [numbers]
    text = declared("x", count, kind)
    for plane in range(len(planes)):
        text += load_text(role, kind, shape, order, "x", span * plane) + store_registers("x", count, kind)
    data = np.concatenate([plane.astype(code) for plane in planes]).view("u1")
    return Case(
        f"wmma.load.{role}.{order}.{size_name(shape)}.{kind}",
        text,
        data,
        32 * width(kind) * count * len(planes),
    )


def store_case(kind: str, shape: Shape, order: str) -> Case:
    """Every element of the fragment has a number of its own."""
    count = registers("d", kind, shape)
    size, wide = BYTES[kind], width(kind)
    data = np.arange(32 * count * wide // size).astype(f"u{size}").view("u1")
    name = f"wmma.store.d.sync.aligned.{order}.{size_name(shape)}.global.{kind}"
    loads = " ".join(f"ld.global.{register_type(kind)} x{n}, [%rd1+{wide * n}];" for n in range(count))
    text = f"""{declared("x", count, kind)} mad.wide.u32 %rd1, %t, {wide * count}, %in; {loads}
        {name} [%out], {named("x", count)}, {pitch_of("d", kind, shape, order)};"""
    return Case(
        name.replace(".sync.aligned", "").replace(".global", ""), text, data, span_of("d", kind, shape, order)
    )


def mma_name(kind: str, d: str, c: str, shape: Shape, orders: tuple[str, str]) -> str:
    kinds = f"{d}.{c}" if kind == "f16" else f"{d}.{kind}.{kind}.{c}"
    return f"wmma.mma.sync.aligned.{orders[0]}.{orders[1]}.{size_name(shape)}.{kinds}"


def register_case(kind: str, d: str, c: str, shape: Shape, orders: tuple[str, str]) -> Case:
    """A product of numbers that lie in registers: which of them counts, and as what."""
    name = mma_name(kind, d, c, shape, orders)
    random = random_for(name)
    roles = (("a", kind, "x"), ("b", kind, "y"), ("c", c, "z"))
    sources, text, place = [], declared("w", registers("d", d, shape), d), 0
    for role, own, letter in roles:
        text += declared(letter, registers(role, own, shape), own)
        for number in range(registers(role, own, shape)):
            fill = (
                random.integers(-9, 9, 32).astype({"f32": "f4", "s32": "i4"}[own])
                if own in ("f32", "s32")
                else None
            )
            sources.append(
                (small(own, 32 * width(own), random) if fill is None else fill).view(f"u{width(own)}")
            )
            text += f"mov.b{8 * width(own)} {letter}{number}, a{place};"
            place += 1
    count = registers("d", d, shape)
    lists = ", ".join(named(letter, registers(role, own, shape)) for role, own, letter in roles)
    text += f"{name} {named('w', count)}, {lists};" + " ".join(
        f"mov.b{8 * width(d)} d{n}, w{n};" for n in range(count)
    )
    return lane_case(
        f"{name} of registers", text, sources, [f"u{width(d)}"] * count, floats=FLOATS.get(d, "f4")
    )


def product_case(kind: str, d: str, shape: Shape, rounding: bool) -> Case:
    """Load A, B and C, multiply, store D."""
    name = mma_name(kind, d, d, shape, ("row", "col")) + (" rounding" if rounding else "")
    random, fill = random_for(name), rough if rounding else small
    text, data, offset = declared("w", registers("d", d, shape), d), [], 0
    for role, own, letter, order in (("a", kind, "x", "row"), ("b", kind, "y", "col"), ("c", d, "z", "row")):
        span = span_of(role, own, shape, order)
        plain = random.standard_normal(span // 4) if rounding else random.integers(-99, 99, span // 4)
        content = (
            plain.astype("f4" if own == "f32" else "i4").view("u1")
            if own in ("f32", "s32")
            else fill(own, span, random)
        )
        text += declared(letter, registers(role, own, shape), own) + load_text(
            role, own, shape, order, letter, offset
        )
        data.append(content)
        offset += span
    lists = ", ".join(
        named(letter, registers(role, own, shape))
        for role, own, letter in (("a", kind, "x"), ("b", kind, "y"), ("c", d, "z"))
    )
    w = named("w", registers("d", d, shape))
    text += f"{mma_name(kind, d, d, shape, ('row', 'col'))} {w}, {lists};"
    text += f"wmma.store.d.sync.aligned.row.{size_name(shape)}.global.{d} [%out], {w}, {shape[1]};"
    ulps = 16 if rounding else 0
    return Case(
        f"{name} in memory",
        text,
        np.concatenate(data),
        shape[0] * shape[1] * BYTES[d],
        32,
        None,
        ulps,
        FLOATS.get(d, "f4"),
    )


def wmma_cases() -> Iterator[Case]:
    for kind, shapes in SHAPES.items():
        for shape in shapes:
            yield from (load_case(role, kind, shape, order) for role in "ab" for order in ORDERS)
            for d in SUMS[kind]:
                if kind != "u8" and (kind != "bf16" or d != "f32"):
                    yield from (load_case("c", d, shape, order) for order in ORDERS)
                    yield from (store_case(d, shape, order) for order in ORDERS)
                yield product_case(kind, d, shape, False)
                if d != "s32":
                    yield product_case(kind, d, shape, True)
                yield from (
                    register_case(kind, d, d, shape, (first, second)) for first in ORDERS for second in ORDERS
                )
    yield register_case("f16", "f16", "f32", LARGE[0], ("row", "row"))
    yield register_case("f16", "f32", "f16", LARGE[0], ("row", "row"))
