"""The pieces of memory at which races are looked for."""

from __future__ import annotations

from lapidist.machine.codegen import code_of
from lapidist.machine.program import Program
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Imm

MATRICES = ("wmma", "wgmma")  # they access memory by elements, of any size


def smallest_access(program: Program, element_sizes: list[int]) -> int:
    """Bytes of the kernel's narrowest access to memory that threads share, eight at most: the grain at which
    races are looked for. `element_sizes` are those of the tensor maps.
    """
    code = program.kernel.instructions
    smallest = min([4 if any(i.opcode in MATRICES or "bulk" in i.mods for i in code) else 8, *element_sizes])
    for i in code:
        if i.opcode == "cp" and len(i.operands) > 2 and isinstance(i.operands[2], Imm):
            smallest = min(smallest, i.operands[2].value)
        if i.opcode in ("ld", "st", "atom", "red") and not {"param", "local"} & set(i.mods):
            kinds = [mod for mod in i.mods if mod in TYPE_BYTES]
            many = next((int(mod[1:]) for mod in i.mods if mod in ("v2", "v4", "v8")), 1)
            width = many if i.opcode in ("ld", "st") else 1  # atomics are of each element by itself
            smallest = min([smallest, *(width * int(code_of(kind)[1:]) for kind in kinds)])
            if "f16x2" in kinds or "bf16x2" in kinds:
                smallest = min(smallest, 2)
    return smallest
