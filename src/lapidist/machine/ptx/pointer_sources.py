"""Where a kernel's addresses come from, read off its instructions: the parameters and variables behind each
access to global memory."""

from __future__ import annotations

from collections.abc import Callable

from lapidist.machine.ptx.basic_blocks import effects
from lapidist.machine.ptx.syntax_tree import (
    TYPE_BYTES,
    Addr,
    Imm,
    Instruction,
    Kernel,
    Operand,
    Reg,
    Sym,
    Vec,
    flatten,
)

# The place of a parameter in the launch's arguments, the complement of it for the parameter's own address (a
# tensor map), or the name of a variable.
Source = int | str
OTHER_SPACES = frozenset(["shared", "shared::cta", "shared::cluster", "local", "param", "const"])
NOTHING = frozenset[Source]()


def pointer_sources(kernel: Kernel, selects: Callable[[Instruction], bool]) -> dict[int, frozenset[Source]]:
    """What the address of each access that is asked for may be computed from, by its site. A pointer that was
    loaded from other memory has no source."""
    held, offsets = dict[str, frozenset[Source]](), parameter_offsets(kernel)
    steps = [step for i in kernel.instructions if (step := step_of(kernel, i, held, offsets)) is not None]
    grown = True
    while grown:
        grown = False
        for reads, writes, sources in steps:
            total = sources.union(*(held[name] for name in reads if name in held))
            for name in writes if total else ():
                before = held.get(name, NOTHING)
                if not total <= before:
                    held[name], grown = before | total, True
    return {site: of_address(kernel, i, held) for site, i in enumerate(kernel.instructions) if selects(i)}


def is_load_or_store(i: Instruction) -> bool:
    return is_store(i) or is_load(i)


def is_load(i: Instruction) -> bool:
    return i.opcode == "ld" and OTHER_SPACES.isdisjoint(i.mods)


def is_store(i: Instruction) -> bool:
    """Whether an instruction may write to global memory."""
    if i.opcode == "cp":  # from shared memory: the target's space comes first
        spaces = [mod.partition("::")[0] for mod in i.mods if mod.startswith(("global", "shared"))]
        return spaces == ["global", "shared"] and "bulk" in i.mods
    return i.opcode in ("st", "atom", "red", "multimem", "tensormap") and OTHER_SPACES.isdisjoint(i.mods)


def step_of(
    kernel: Kernel, i: Instruction, held: dict[str, frozenset[Source]], offsets: dict[str, int]
) -> tuple[list[str], list[str], frozenset[Source]] | None:
    """The registers that an instruction reads and writes, and the variables whose addresses it takes. What it
    loads from parameters is held from the start."""
    if i.opcode == "ld":
        for name, source in parameters(kernel, i, offsets) if "param" in i.mods else ():
            held[name] = held.get(name, NOTHING) | {source}
        return None
    reads, writes = effects(i)
    named = [item for operand in i.operands for item in flatten(operand) if isinstance(item, Sym)]
    sources = NOTHING.union(*(of_symbol(kernel, item) for item in named))
    return (reads, writes, sources) if writes else None


def of_symbol(kernel: Kernel, item: Sym) -> frozenset[Source]:
    if item.name in kernel.parameters:
        return frozenset([~(kernel.parameters[item.name].offset + item.offset)])
    return frozenset([item.name]) if item.name in kernel.variables else NOTHING


def of_address(kernel: Kernel, i: Instruction, held: dict[str, frozenset[Source]]) -> frozenset[Source]:
    base = address_of(i)
    if isinstance(base, Sym):
        return of_symbol(kernel, base)
    return held.get(getattr(base, "name", ""), NOTHING)


def address_of(i: Instruction) -> Operand | None:
    """The register or variable by which an instruction names a place in global memory."""
    loads = i.opcode in ("ld", "atom") or (i.opcode == "cp" and not is_store(i))
    operand = i.operands[1 if loads else 0]
    return operand.base if isinstance(operand, Addr) else None


def parameter_offsets(kernel: Kernel) -> dict[str, int]:
    """Registers that hold the address of a parameter, as of a struct whose members are loaded, with its
    offset among the arguments. Each is written once.
    """
    offsets, written = dict[str, int](), set[str]()
    for i in kernel.instructions:
        _, writes = effects(i)
        for name in written.intersection(writes):
            offsets.pop(name, None)
        offset = offset_of(kernel, i, offsets) if written.isdisjoint(writes) and i.predicate is None else None
        if offset is not None:
            offsets[writes[0]] = offset
        written.update(writes)
    return offsets


def offset_of(kernel: Kernel, i: Instruction, offsets: dict[str, int]) -> int | None:
    """Which parameter's address an instruction makes."""
    source = i.operands[1] if i.opcode in ("mov", "add") and len(i.operands) > 1 else None
    if isinstance(source, Sym) and source.name in kernel.parameters and i.opcode == "mov":
        return kernel.parameters[source.name].offset + source.offset
    start = offsets.get(source.name) if isinstance(source, Reg) else None
    if start is None or i.opcode == "mov":
        return start
    return start + i.operands[2].value if isinstance(i.operands[2], Imm) else None


def parameters(kernel: Kernel, i: Instruction, offsets: dict[str, int]) -> list[tuple[str, Source]]:
    """The registers of a load from parameters that may hold a pointer, and the place of each."""
    target, place = i.operands[:2]
    base = place.base if isinstance(place, Addr) else None
    size = TYPE_BYTES[next(mod for mod in reversed(i.mods) if mod in TYPE_BYTES)]
    start = offsets.get(base.name) if isinstance(base, Reg) else None
    if isinstance(base, Sym) and base.name in kernel.parameters:
        start = kernel.parameters[base.name].offset + base.offset
    if size != 8 or start is None:
        return []
    assert isinstance(place, Addr)
    start += place.offset
    items = target.items if isinstance(target, Vec) else (target,)
    return [(item.name, start + size * n) for n, item in enumerate(items) if isinstance(item, Reg)]
