"""How undefined bits pass through instructions, as in valgrind: a result's bit is undefined where undefined
bits of the operands may change it.

Moves, shuffles and bit operations are followed bit by bit, integer sums from the lowest undefined bit on,
products of matrices by rows and columns. Everything else makes all of its result undefined."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lapidist.machine.instructions.bits import permute
from lapidist.machine.instructions.fragments import (
    ELEMENT_BYTES,
    a_map,
    as_bytes,
    b_map,
    c_map,
    gather_elements,
    place_elements,
    scatter_elements,
)
from lapidist.machine.instructions.sparse import lanes_read
from lapidist.machine.instructions.tensorcore import FORMATS, turn_tile
from lapidist.machine.instructions.warp import shuffle
from lapidist.machine.lanes import Lanes
from lapidist.machine.ptx.matrix_shapes import is_sparse, matrix_shape
from lapidist.machine.ptx.syntax_tree import (
    TYPE_BYTES,
    Imm,
    Instruction,
    Not,
    Operand,
    Pair,
    Reg,
    Tuple,
    Vec,
    flatten,
)
from lapidist.machine.state import Machine

Array = np.ndarray
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE = np.uint64(1)


def width_mask(bits: int) -> np.uint64:
    return ALL if bits >= 64 else np.uint64((1 << bits) - 1)


def smeared(bits: Array, width: int) -> Array:
    """All bits of a value of this width, where any is set."""
    return np.where(bits != 0, width_mask(width), np.uint64(0))


class Step:
    """One instruction that lanes are about to execute: what its operands hold, and which of their bits are
    undefined."""

    def __init__(
        self,
        m: Machine,
        g: Lanes,
        i: Instruction,
        site: int,
        values: dict[str, Array],
        bits: dict[str, Array],
    ) -> None:
        self.m, self.g, self.i, self.site, self.values, self.bits = m, g, i, site, values, bits
        self.kinds = [mod for mod in i.mods if mod in TYPE_BYTES]

    def width(self, operand: Operand) -> int:
        if isinstance(operand, Vec):
            return sum(self.width(item) for item in operand.items)
        kind = self.m.program.kernel.registers[operand.name] if isinstance(operand, Reg) else "b64"
        return 1 if kind == "pred" else 8 * TYPE_BYTES[kind]

    @property
    def typed(self) -> int:
        """Bits of the instruction's last type."""
        kind = self.kinds[-1] if self.kinds else "b64"
        return 1 if kind == "pred" else 8 * TYPE_BYTES[kind]

    def undefined(self, operand: Operand) -> Array:
        """The operand's undefined bits in each lane."""
        if isinstance(operand, Reg):
            held = self.bits.get(operand.name)
            return np.zeros(self.g.n, np.uint64) if held is None else held[self.g.lane]
        if isinstance(operand, Vec):
            total, shift = np.zeros(self.g.n, np.uint64), 0
            for item in operand.items:
                width = self.typed // len(operand.items)
                if shift < 64:
                    total = total | (self.undefined(item) & width_mask(width)) << np.uint64(shift)
                shift += width
            return total
        if isinstance(operand, Not):
            return self.undefined(operand.item)
        parts = [self.undefined(item) for item in flatten(operand)[1:] if isinstance(item, Reg)]
        return self.any(parts)

    def any(self, parts: list[Array]) -> Array:
        total = np.zeros(self.g.n, np.uint64)
        for part in parts:
            total = total | part
        return total

    def value(self, operand: Operand) -> Array:
        """The operand's bits in each lane. What is no register or integer counts as zero."""
        if isinstance(operand, Not):
            return ~self.value(operand.item) & ONE
        if isinstance(operand, Imm):
            return np.full(self.g.n, operand.value % (1 << 64), np.uint64)
        if not isinstance(operand, Reg):
            return np.zeros(self.g.n, np.uint64)
        values = self.values[operand.name]
        if values.dtype.kind == "c":
            return np.zeros(self.g.n, np.uint64)
        bits = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
        return np.broadcast_to(bits, (self.g.n,))

    def sources(self) -> Array:
        return self.any([smeared(self.undefined(operand), 64) for operand in self.i.operands[1:]])


Result = list[tuple[Operand, Array]]
FLOWS: dict[str, Callable[[Step], Result]] = {}


def flow(*names: str) -> Callable[[Callable[[Step], Result]], Callable[[Step], Result]]:
    def register(function: Callable[[Step], Result]) -> Callable[[Step], Result]:
        FLOWS.update(dict.fromkeys(names, function))
        return function

    return register


def targets(i: Instruction) -> list[Reg]:
    if not i.operands or not isinstance(i.operands[0], Reg | Vec | Pair | Tuple):
        return []
    return [item for item in flatten(i.operands[0]) if isinstance(item, Reg)]


def results_of(step: Step) -> Result:
    """What an instruction leaves in its destinations."""
    return FLOWS.get(step.i.opcode, all_of_it)(step)


def all_of_it(step: Step) -> Result:
    bits = step.sources()
    return [(target, smeared(bits, step.width(target))) for target in targets(step.i)]


def spread(step: Step, target: Operand, bits: Array) -> Result:
    """The bits of a value, and where it is taken apart into several registers their parts."""
    if not isinstance(target, Vec):
        return [(target, bits & width_mask(step.width(target)))]
    width = step.typed // len(target.items)
    shifts = [np.uint64(min(width * number, 63)) for number in range(len(target.items))]
    return [(item, bits >> by & width_mask(width)) for item, by in zip(target.items, shifts, strict=True)]


@flow("mov", "cvta")
def moved(step: Step) -> Result:
    target, source = step.i.operands[:2]
    if isinstance(target, Vec) and isinstance(source, Vec):
        return [(one, step.undefined(other)) for one, other in zip(target.items, source.items, strict=True)]
    if step.typed > 64:
        return all_of_it(step)
    return spread(step, target, step.undefined(source))


@flow("and", "or", "xor", "not", "lop3")
def bitwise(step: Step) -> Result:
    """A bit is undefined if the operation gives both 0 and 1 for what its operands' bits may be."""
    operands = step.i.operands[1:]
    if step.i.opcode == "lop3":
        first, operands = step.i.operands[0], step.i.operands[1:4]
        table = step.i.operands[4]
        if isinstance(first, Pair) or not isinstance(table, Imm):
            return all_of_it(step)
        truth = table.value
    else:
        truth = {"and": 0xC0, "or": 0xFC, "xor": 0x3C, "not": 0x0F}[step.i.opcode]
    # 0xF0, 0xCC and 0xAA are the columns of the first, second and third operand
    held = [(step.value(operand), step.undefined(operand)) for operand in operands]
    held += [(np.zeros(step.g.n, np.uint64),) * 2] * (3 - len(held))
    can = [np.zeros(step.g.n, np.uint64), np.zeros(step.g.n, np.uint64)]
    for row in range(8):
        possible = np.full(step.g.n, ALL)
        for place, (value, undefined) in zip((4, 2, 1), held, strict=True):
            possible = possible & ((value if row & place else ~value) | undefined)
        can[truth >> row & 1] |= possible
    target = step.i.operands[0]
    return [(target, can[0] & can[1] & width_mask(step.width(target)))]


@flow("add", "sub", "mul", "mad", "sad", "abs", "neg")
def summed(step: Step) -> Result:
    """Bits of an integer sum or product depend on those below; numbers in floating point on all."""
    target, kind = step.i.operands[0], step.kinds[-1] if step.kinds else "f32"
    if kind[0] not in "us" or "x2" in kind or "hi" in step.i.mods or "cc" in step.i.mods:
        return halves(step) if "x2" in kind else all_of_it(step)
    bits = step.any([step.undefined(operand) for operand in step.i.operands[1:]])
    lowest = bits & (~bits + ONE)
    return [(target, ~(lowest - ONE) * (bits != 0) & width_mask(step.width(target)))]


@flow("fma", "min", "max")
def halves(step: Step) -> Result:
    """Halves of a register that are computed apart are undefined apart."""
    if not step.kinds or "x2" not in step.kinds[-1]:
        return all_of_it(step)
    bits = step.any([step.undefined(operand) for operand in step.i.operands[1:]])
    low, high = bits & np.uint64(0xFFFF), bits >> np.uint64(16) & np.uint64(0xFFFF)
    return [(step.i.operands[0], smeared(low, 16) | smeared(high, 16) << np.uint64(16))]


@flow("shl", "shr")
def shifted(step: Step) -> Result:
    target, source, by = step.i.operands[:3]
    if step.undefined(by).any():
        return all_of_it(step)
    width = step.typed
    amount, bits = step.value(by) & np.uint64(0xFFFFFFFF), step.undefined(source) & width_mask(width)
    beyond = amount >= width
    amount = np.where(beyond, np.uint64(0), amount)
    if step.i.opcode == "shl":
        moved_bits = np.where(beyond, np.uint64(0), bits << amount)
    else:
        sign = (
            smeared(bits >> np.uint64(width - 1) & ONE, width) if step.kinds[-1][0] == "s" else np.uint64(0)
        )
        fill = sign & ~(width_mask(width) >> amount)
        moved_bits = np.where(beyond, sign, bits >> amount | fill)
    return [(target, moved_bits & width_mask(width))]


@flow("cvt")
def converted(step: Step) -> Result:
    if len(step.kinds) != 2 or len(step.i.operands) != 2 or any(mod in PACKED for mod in step.i.mods):
        return converted_pieces(step)
    (to, source), target = step.kinds, step.i.operands[0]
    if to[0] not in "usb" or source[0] not in "usb" or "bf16" in (to, source) or "sat" in step.i.mods:
        return all_of_it(step)
    bits = step.undefined(step.i.operands[1]) & width_mask(8 * TYPE_BYTES[source])
    top = bits >> np.uint64(8 * TYPE_BYTES[source] - 1) & ONE
    if source[0] == "s":
        bits = bits | (smeared(top, 64) & ~width_mask(8 * TYPE_BYTES[source]))
    narrow = width_mask(8 * TYPE_BYTES[to])
    return [(target, (bits & narrow if to[0] != "s" else bits) & width_mask(step.width(target)))]


PACKED = {"f16x2": 16, "bf16x2": 16, "e4m3x2": 8, "e5m2x2": 8}  # bits of each of two numbers in a register


def converted_pieces(step: Step) -> Result:
    """Two numbers become the halves of one register, the first the upper; or both halves are converted."""
    target, *sources = step.i.operands
    widths = [PACKED[mod] for mod in step.i.mods if mod in PACKED]
    if (len(sources), len(widths)) == (2, 1):
        pieces = [step.undefined(source) for source in reversed(sources)]
    elif (len(sources), len(widths)) == (1, 2):
        both = step.undefined(sources[0])
        pieces = [both & width_mask(widths[1]), both >> np.uint64(widths[1])]
    else:
        return all_of_it(step)
    low, high = (smeared(piece, widths[0]) for piece in pieces)
    return [(target, low | high << np.uint64(widths[0]))]


@flow("prmt")
def permuted(step: Step) -> Result:
    target, first, second, chooser = step.i.operands[:4]
    if step.undefined(chooser).any() or step.kinds != ["b32"] or len(step.i.mods) > 1:
        return all_of_it(step)
    low, high = (step.undefined(operand).astype("u4") for operand in (first, second))
    return [(target, permute(low, high, step.value(chooser).astype("u4")).astype(np.uint64))]


@flow("selp")
def selected(step: Step) -> Result:
    target, first, second, chooser = step.i.operands[:4]
    both = step.undefined(first) | step.undefined(second) | (step.value(first) ^ step.value(second))
    one = np.where(step.value(chooser) != 0, step.undefined(first), step.undefined(second))
    doubtful = step.undefined(chooser) != 0
    return [(target, np.where(doubtful, smeared(both, 64), one) & width_mask(step.width(target)))]


ORDERS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
ORDERS |= {
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def outcome(step: Step, first: Operand, second: Operand) -> Array:
    """Which lanes a comparison of integers holds for; 3 where it compares something else."""
    kind = step.kinds[-1] if step.kinds else "f32"
    if kind[0] not in "usb" or step.i.mods[0] not in ORDERS:
        return np.full(step.g.n, np.uint64(3))
    code = f"{'i' if kind[0] == 's' else 'u'}{TYPE_BYTES[kind]}"
    x, y = (step.value(operand).astype(code) for operand in (first, second))
    return ORDERS[step.i.mods[0]](x, y).astype(np.uint64)


@flow("setp")
def compared(step: Step) -> Result:
    """A comparison is undefined with an operand, unless defined bits decide it already."""
    first, second = step.i.operands[1:3]
    unknown = step.undefined(first) | step.undefined(second)
    doubtful = unknown != 0
    if step.i.mods[0] in ("eq", "ne") and step.kinds and step.kinds[-1][0] != "f":
        unequal = (step.value(first) ^ step.value(second)) & ~unknown & width_mask(step.typed)
        doubtful &= unequal == 0
    if len(step.i.operands) > 3:
        other, combine = step.i.operands[3], next(m for m in step.i.mods if m in ("and", "or", "xor"))
        decided = {"and": np.uint64(0), "or": ONE}.get(combine, np.uint64(2))
        settles = (step.undefined(other) == 0) & (step.value(other) == decided)
        settles |= ~doubtful & (outcome(step, first, second) == decided)
        doubtful = (doubtful | (step.undefined(other) != 0)) & ~settles
    return [(target, doubtful.astype(np.uint64)) for target in targets(step.i)]


# ---- of the whole warp ----


@flow("shfl")
def shuffled(step: Step) -> Result:
    mode = next(mod for mod in step.i.mods if mod in ("up", "down", "bfly", "idx"))
    value, *how = step.i.operands[1:5]
    if step.any([step.undefined(operand) for operand in how]).any():
        return whole_warp(step)
    by, clamp, mask = (step.value(operand).astype("u4") for operand in how)
    bits = step.undefined(value).astype("u4")
    moved_bits, _ = shuffle(step.m, step.g, mode, bits, by, clamp, mask, step.site)
    target = step.i.operands[0]
    results: Result = [(item, np.zeros(step.g.n, np.uint64)) for item in targets(step.i)]
    results[0] = (target.first if isinstance(target, Pair) else target, moved_bits.astype(np.uint64))
    return results


@flow("vote", "match", "redux", "wmma", "elect", "activemask")
def whole_warp(step: Step) -> Result:
    bits = np.full(step.g.n, ALL if step.sources().any() else np.uint64(0))
    return [(target, bits & width_mask(step.width(target))) for target in targets(step.i)]


@flow("movmatrix")
def transposed_tile(step: Step) -> Result:
    words = step.undefined(step.i.operands[1]).astype("u4")
    return [(step.i.operands[0], turn_tile(step.m, step.g, words, step.site).astype(np.uint64))]


@flow("mma")
def multiplied(step: Step) -> Result:
    shape, kinds = matrix_shape(step.i), [mod for mod in step.i.mods if mod in FORMATS]
    if shape is None or len(kinds) != 4 or not step.g.full_warps:
        return whole_warp(step)
    (rows, columns, depth), kinds = as_bytes(shape, kinds)
    stored, parts = depth // 2 if is_sparse(step.i) else depth, step.i.operands
    if stored < depth and undefined_metadata(step, parts[4], parts[5], kinds[1], depth):
        return whole_warp(step)
    a, b, c = (
        undefined_elements(step, operand, kind)
        for operand, kind in zip(step.i.operands[1:4], kinds[1:], strict=True)
    )
    of_rows = a[a_map(rows, stored, kinds[1])].any(axis=1)
    of_columns = b[b_map(depth, columns, kinds[2])].any(axis=0)
    total = of_rows[:, None] | of_columns[None, :] | c[c_map(rows, columns)]
    return sums_of(step.g, total, kinds[0], step.i.operands[0])


def undefined_metadata(step: Step, words: Operand, selector: Operand, kind: str, depth: int) -> bool:
    """Whether a lane has undefined bits of the metadata that is read from it."""
    assert isinstance(selector, Imm)
    return bool(step.undefined(words)[lanes_read(step.g.lane, selector.value, kind, depth)].any())


def undefined_elements(step: Step, operand: Operand, kind: str) -> Array:
    """Which elements of a fragment have undefined bits, lane after lane."""
    code = "u8" if kind == "f64" else "u4"
    items = operand.items if isinstance(operand, Vec) else (operand,)
    elements = gather_elements(step.g, [step.undefined(item).astype(code) for item in items], kind)[0]
    return np.asarray(elements != 0)


def sums_of(g: Lanes, undefined: Array, kind: str, target: Operand) -> Result:
    """The registers of D, of which these elements are undefined."""
    size = ELEMENT_BYTES[kind]
    items = target.items if isinstance(target, Vec) else (target,)
    encoded = np.where(undefined, width_mask(8 * size), np.uint64(0)).astype(f"u{size}")
    table = c_map(*undefined.shape)
    words = scatter_elements(g, place_elements(encoded[None], table), len(items), "u8" if size == 8 else "u4")
    return [(item, word.astype(np.uint64)) for item, word in zip(items, words, strict=True)]
