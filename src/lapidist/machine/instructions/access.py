"""Loads, stores, atomics and what names an address space."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from lapidist.machine.codegen import Builder, Mods, code_of, opcode, runtime
from lapidist.machine.faults import PtxError
from lapidist.machine.instructions.formats import flush, from_bf16, to_bf16
from lapidist.machine.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    Address,
    MixedAddress,
)
from lapidist.machine.ptx.signatures import CACHE_HINT, require_signature
from lapidist.machine.ptx.syntax_tree import Addr, Instruction, Operand, Sym, Vec

Array = np.ndarray
SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "const")
WINDOWS = {"global": 0, "const": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
SCOPES = ("cta", "cluster", "gpu", "sys")
# Hints about caches change nothing that the machine models.
HINTS = [
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "nc",
    "wb",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
]


def space_of(mods: Mods) -> str:
    """The space of an access. `cluster` is shared memory of any block of the cluster, `shared` that of the
    own."""
    space = mods.choose(*SPACES, default="generic")
    return {"const": "global", "shared::cluster": "cluster"}.get(space, space.split("::")[0])


def address_space(b: Builder, operand: Operand, space: str) -> str:
    """The space of an operand. A variable named directly, in an instruction without a space, lies in its
    own."""
    variable = (
        b.program.kernel.variables.get(operand.base.name)
        if isinstance(operand, Addr) and isinstance(operand.base, Sym)
        else None
    )
    if space == "param" and variable is not None:
        return "local"  # of a call: each thread has its own
    if space == "generic" and isinstance(operand, Addr) and isinstance(operand.base, Sym):
        space = variable.space if variable else "param"
    return "global" if space == "const" else space


def ordering(mods: Mods, default: str = "weak") -> str:
    """The order and scope of an access, as the last arguments of m.order; empty for a plain access."""
    mods.flag("mmio")
    order = mods.choose("weak", "relaxed", "acquire", "release", "acq_rel", "volatile", default=default)
    scope = mods.choose(*SCOPES, default="gpu")
    return "" if order == "weak" else f"{order!r}, {scope!r}"


def offset_of(operand: Operand) -> int:
    return operand.offset if isinstance(operand, Addr) else 0


def unbraced(operand: Operand) -> Operand:
    """The operand without braces around one register, which mean nothing."""
    return operand.items[0] if isinstance(operand, Vec) and len(operand.items) == 1 else operand


def vector_length(mods: Mods) -> int:
    return int(mods.choose("v2", "v4", "v8", default="v1")[1:])


@opcode("ld", "ldu")
def emit_load(b: Builder, i: Instruction, mods: Mods) -> None:
    order, count, _ = ordering(mods), vector_length(mods), mods.flag(*HINTS)
    mods.flag(CACHE_HINT)
    space = address_space(b, i.operands[1], space_of(mods))
    code = code_of(mods.type())
    with b.guarded():
        address, offset = b.address(i.operands[1], space), offset_of(i.operands[1])
        if order:
            b.line(f"m.order({address}, {offset}, {order}, {b.index})")
        if count == 1:
            b.assign(unbraced(i.operands[0]), f"{address}.load({offset}, {code}, {b.index})", code)
        elif isinstance(i.operands[0], Vec) and len(i.operands[0].items) == count:
            b.assign_many(
                i.operands[0].items, f"{address}.load_many({offset}, {code}, {count}, {b.index})", code
            )
        else:
            raise PtxError(f"{i.site}: a vector load of {count} needs {count} registers in braces")


@opcode("st")
def emit_store(b: Builder, i: Instruction, mods: Mods) -> None:
    order, count, _ = ordering(mods), vector_length(mods), mods.flag(*HINTS)
    mods.flag(CACHE_HINT)
    space = address_space(b, i.operands[0], space_of(mods))
    code = code_of(mods.type())
    source = unbraced(i.operands[1])
    values = source.items if isinstance(source, Vec) and count > 1 else (source,)
    if len(values) != count:
        raise PtxError(f"{i.site}: a vector store of {count} needs {count} values in braces")
    with b.guarded():
        address, offset = b.address(i.operands[0], space), offset_of(i.operands[0])
        if order:
            b.line(f"m.order({address}, {offset}, {order}, {b.index})")
        b.line(f"{address}.store({offset}, {b.index}, {', '.join(b.read(value, code) for value in values)})")


# ---- atomics ----


def swap_equal(old: Array, compare: Array, value: Array) -> Array:
    return np.asarray(np.where(old == compare, value, old))


def half_sum(old: Array, value: Array) -> Array:
    return (old.view("f2") + value.view("f2")).view(old.dtype)


def flushed_sum(old: Array, value: Array) -> Array:
    """The sum of float32 atomics on global memory, which know no subnormals; those on shared memory do."""
    return flush(flush(old) + flush(value))


def brain_sum(old: Array, value: Array) -> Array:
    parts = [from_bf16(x.view("u2").copy()) for x in (old, np.broadcast_to(value, old.shape).copy())]
    return to_bf16(parts[0] + parts[1]).view(old.dtype)


ATOMIC: dict[str, Callable[..., Array]] = {
    "add": lambda old, value: old + value,
    "exch": lambda old, value: np.broadcast_to(value, old.shape),
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda old, value: np.where(old >= value, 0, old + 1).astype(old.dtype),
    "dec": lambda old, value: np.where((old == 0) | (old > value), value, old - 1).astype(old.dtype),
    "cas": swap_equal,
    "add.ftz": flushed_sum,
    "half": half_sum,
    "brain": brain_sum,
}


@runtime
def atomic(address: Address | MixedAddress, offset: int, operation: str, site: int, *values: Array) -> Array:
    """Apply an atomic, lane after lane where several meet at an address. Returns the values that each lane
    replaced."""
    if isinstance(address, MixedAddress):
        out = np.empty(address.count, values[0].dtype)
        for within, part in address.parts:
            out[within] = atomic(
                part, offset, operation, site, *(v if len(v) == 1 else v[within] for v in values)
            )
        return out
    address.m.observer.accessed(address, offset, values[0].dtype.itemsize, site, "atomic")
    code, n = values[0].dtype, address.g.n
    if operation == "add" and code == np.float32 and address.space == "global":
        operation = "add.ftz"
    address.check_aligned(offset, code.itemsize, site)
    region = address.find(offset, code.itemsize, site)
    parts = [(region, np.arange(n))] if region is not None else address.by_region(offset)
    out = np.empty(n, code)
    values = tuple(np.broadcast_to(value, (n,)) for value in values)
    base, changes = np.broadcast_to(address.base, (n,)), False
    for one, lanes in parts:
        view, origin = one.view(code)
        positions = (base[lanes].astype(np.int64) + (offset - origin)) // code.itemsize
        out[lanes] = atomic_rounds(view, positions, ATOMIC[operation], [value[lanes] for value in values])
        changes |= bool((view[positions] != out[lanes]).any())
    address.m.polled(address, offset, site, changes)
    return out


def atomic_rounds(view: Array, positions: Array, operation, values: list[Array]) -> Array:  # type: ignore[no-untyped-def]
    """Apply an operation in rounds, of which the k-th serves the k-th lane of every address. Returns the
    old values."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.maximum.accumulate(np.where(first, np.arange(len(ordered)), 0))
    rounds = np.empty(len(ordered), np.int64)
    rounds[order] = np.arange(len(ordered)) - starts
    out = np.empty(len(positions), view.dtype)
    for number in range(int(rounds.max()) + 1):
        lanes = np.flatnonzero(rounds == number)
        where = positions[lanes]
        out[lanes] = view[where]
        view[where] = operation(out[lanes], *(value[lanes] for value in values))
    return out


@opcode("atom", "red")
def emit_atomic(b: Builder, i: Instruction, mods: Mods) -> None:
    order, count = ordering(mods, "relaxed"), vector_length(mods)
    mods.flag("noftz", CACHE_HINT)
    target = i.operands[1] if i.opcode == "atom" else i.operands[0]
    space = address_space(b, target, space_of(mods))
    operation = mods.choose("add", "exch", "and", "or", "xor", "min", "max", "inc", "dec", "cas")
    kind = mods.type()
    code = code_of(kind)
    if kind in ("f16", "f16x2", "bf16", "bf16x2"):
        if operation != "add":
            raise PtxError(f"{i.site}: only add is known for half precision atomics")
        operation = "brain" if kind.startswith("b") else "half"
    arguments = 2 if operation == "cas" else 1
    hint = "s" if CACHE_HINT in i.mods else ""
    require_signature(i, f"{'ea' if i.opcode == 'atom' else 'a'}{'v' * arguments}{hint}")
    first = 2 if i.opcode == "atom" else 1
    sources = i.operands[first : first + arguments]
    with b.guarded():
        address, offset = b.address(target, space), offset_of(target)
        b.line(f"m.order({address}, {offset}, {order}, {b.index})")
        if count > 1:
            emit_vector_atomic(b, i, address, offset, operation, code, sources[0], count)
            return
        if operation in ("half", "brain") and code == "u4":
            values = f"{b.read(sources[0], 'u4')}"
            text = f"atomic_pair({address}, {offset}, {operation!r}, {b.index}, {values})"
        else:
            values = ", ".join(b.read(source, code) for source in sources)
            text = f"atomic({address}, {offset}, {operation!r}, {b.index}, {values})"
        if i.opcode == "atom":
            b.assign(i.operands[0], text, code)
        else:
            b.line(text)


@runtime
def atomic_pair(address: Address, offset: int, operation: str, site: int, values: Array) -> Array:
    """Two halves of a word, each summed atomically."""
    low = atomic(address, offset, operation, site, values.astype("u2"))
    high = atomic(address, offset + 2, operation, site, (values >> np.uint32(16)).astype("u2"))
    return low.astype("u4") | (high.astype("u4") << np.uint32(16))


def emit_vector_atomic(
    b: Builder,
    i: Instruction,
    address: str,
    offset: int,
    operation: str,
    code: str,
    source: Operand,
    count: int,
) -> None:
    """The elements of a vector atomic are separate atomics."""
    targets = i.operands[0].items if i.opcode == "atom" and isinstance(i.operands[0], Vec) else ()
    if not isinstance(source, Vec) or len(source.items) != count or len(targets) not in (0, count):
        raise PtxError(f"{i.site}: an atomic on {count} elements needs {count} of them in braces")
    function = "atomic_pair" if operation in ("half", "brain") and code == "u4" else "atomic"
    size = int(code[1:])
    for number, item in enumerate(source.items):
        place = f"{address}, {offset + size * number}, {operation!r}, {b.index}"
        text = f"{function}({place}, {b.read(item, code)})"
        if targets:
            b.assign(targets[number], text, code)
        else:
            b.line(text)


# ---- address spaces by name ----


@opcode("cvta")
def emit_cvta(b: Builder, i: Instruction, mods: Mods) -> None:
    """Generic addresses carry their window in the top bits."""
    back, space = mods.flag("to"), mods.choose(*SPACES).split("::")[0]
    code = code_of(mods.type())
    window = WINDOWS[space]
    source = b.read(i.operands[1], code)
    if window == 0 or (space == "param" and back):
        b.assign(i.operands[0], source, code)
    elif code != "u8":
        raise PtxError(f"{i.site}: generic addresses have 64 bits")
    elif back:
        b.assign(i.operands[0], f"{source} & {b.program.constant(np.array([SHARED_WINDOW - 1], 'u8'))}", code)
    else:
        b.assign(i.operands[0], f"{source} | {b.program.constant(np.array([window], 'u8'))}", code)


@opcode("isspacep")
def emit_isspacep(b: Builder, i: Instruction, mods: Mods) -> None:
    space, address = mods.choose(*SPACES), b.read(i.operands[1], "u8")
    inside = f"({address} >> 60) == {WINDOWS[space.split('::')[0]] >> 60}"
    if space in ("shared", "shared::cta"):
        inside = f"({inside}) & ((({address} >> {RANK_SHIFT}) & 0xFF) == {b.lanes}.rank)"
    b.assign(i.operands[0], inside, "b1")


@opcode("prefetch", "prefetchu", "applypriority", "discard", "prefetch.tensormap")
def emit_prefetch(b: Builder, i: Instruction, mods: Mods) -> None:
    mods.flag("tensormap", "L1", "L2", "L2::evict_last", "L2::evict_normal", "L2::128B", *SPACES)


FENCES = re.compile(
    r"((sc|acq_rel|acquire|release)\.)?(cta|cluster|gpu|sys)|cta|gl|sys"
    r"|(acquire\.sync_restrict::shared::cluster|release\.sync_restrict::shared::cta)\.cluster"
    r"|mbarrier_init\.release\.cluster|proxy\.alias|proxy\.async(\.(global|shared::(cta|cluster)))?"
    r"|proxy\.async::generic\.(acquire|release)\.sync_restrict::shared::(cta|cluster)\.cluster"
)


@opcode("fence", "membar")
def emit_fence(b: Builder, i: Instruction, mods: Mods) -> None:
    kind = ".".join(mods.remaining)
    if not FENCES.fullmatch(kind):
        raise PtxError(f"{i.site}: a fence of this kind is not known")
    mods.remaining.clear()
    with b.guarded() as lanes:
        b.line(f"m.observer.fenced({lanes}, {kind!r}, {b.index})")
