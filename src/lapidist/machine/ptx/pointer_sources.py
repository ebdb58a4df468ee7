"""Where a kernel's addresses come from, read off its instructions: the parameters and variables behind each
access to global memory."""

from __future__ import annotations

from lapidist.machine.ptx.basic_blocks import effects
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Addr, Instruction, Kernel, Reg, Sym, Vec, flatten

ACCESSES = ("ld", "st", "atom", "red")
Source = int | str  # the place of a parameter in the launch's arguments, or the name of a variable
NOTHING = frozenset[Source]()


def pointer_sources(kernel: Kernel) -> dict[int, frozenset[Source]]:
    """What the address of each access may be computed from, by its site. A pointer that was loaded from other
    memory has no source."""
    held = dict[str, frozenset[Source]]()
    steps = [step for i in kernel.instructions if (step := step_of(kernel, i, held)) is not None]
    grown = True
    while grown:
        grown = False
        for reads, writes, sources in steps:
            total = sources.union(*(held[name] for name in reads if name in held))
            for name in writes if total else ():
                before = held.get(name, NOTHING)
                if not total <= before:
                    held[name], grown = before | total, True
    return {
        site: of_address(kernel, i, held)
        for site, i in enumerate(kernel.instructions)
        if i.opcode in ACCESSES and {"shared", "local", "param", "const"}.isdisjoint(i.mods)
    }


def step_of(
    kernel: Kernel, i: Instruction, held: dict[str, frozenset[Source]]
) -> tuple[list[str], list[str], frozenset[Source]] | None:
    """The registers that an instruction reads and writes, and the variables whose addresses it takes. What it
    loads from parameters is held from the start."""
    if i.opcode == "ld":
        for name, source in parameters(kernel, i) if "param" in i.mods else ():
            held[name] = held.get(name, NOTHING) | {source}
        return None
    reads, writes = effects(i)
    named = [item.name for operand in i.operands for item in flatten(operand) if isinstance(item, Sym)]
    sources = NOTHING.union(name for name in named if name in kernel.variables)
    return (reads, writes, sources) if writes else None


def of_address(kernel: Kernel, i: Instruction, held: dict[str, frozenset[Source]]) -> frozenset[Source]:
    operand = i.operands[1 if i.opcode in ("ld", "atom") else 0]
    base = operand.base if isinstance(operand, Addr) else None
    if isinstance(base, Sym):
        return frozenset([base.name]) if base.name in kernel.variables else NOTHING
    return held.get(getattr(base, "name", ""), NOTHING)


def parameters(kernel: Kernel, i: Instruction) -> list[tuple[str, Source]]:
    """The registers of a load from parameters that may hold a pointer, and the place of each."""
    target, place = i.operands[:2]
    base = place.base if isinstance(place, Addr) else None
    size = TYPE_BYTES[next(mod for mod in reversed(i.mods) if mod in TYPE_BYTES)]
    if size != 8 or not isinstance(base, Sym) or base.name not in kernel.parameters:
        return []
    assert isinstance(place, Addr)
    start = kernel.parameters[base.name].offset + base.offset + place.offset
    items = target.items if isinstance(target, Vec) else (target,)
    return [(item.name, start + size * n) for n, item in enumerate(items) if isinstance(item, Reg)]
