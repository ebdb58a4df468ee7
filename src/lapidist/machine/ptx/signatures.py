"""Which operands an opcode takes: how many, and of which kind.

A signature is a word of letters, one an operand; an opcode may have several. Where operands depend on
modifiers, the emitter calls `require_signature` itself."""

from __future__ import annotations

from lapidist.machine.faults import PtxError
from lapidist.machine.ptx.instruction_set import prefixes
from lapidist.machine.ptx.syntax_tree import (
    Addr,
    Imm,
    Instruction,
    Not,
    Operand,
    Pair,
    Reg,
    Special,
    Sym,
    Vec,
)

VALUES = (Reg, Imm, Special, Sym, Not)
KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "d": ("a register", (Reg,)),
    "e": ("a register, a vector or a pair", (Reg, Vec, Pair)),
    "s": ("a value", VALUES),
    "v": ("a value or a vector", (*VALUES, Vec)),
    "a": ("an address in brackets", (Addr,)),
    "n": ("a literal number", (Imm,)),
    "t": ("a name", (Sym,)),
}
SINK = Sym("_")

SIGNATURES = {
    "": (
        "ret exit trap brkpt griddepcontrol cp.async.commit_group cp.async.wait_all membar"
        " cp.async.bulk.commit_group fence wgmma.fence wgmma.commit_group barrier.cluster"
    ),
    "d": "activemask",
    "t": "bra",
    "n": "setmaxnreg pmevent cp.async.wait_group cp.async.bulk.wait_group wgmma.wait_group",
    "s": "nanosleep bar.warp",
    "a": "prefetch prefetchu mbarrier.inval",
    "an": "applypriority discard",
    "|an": "fence.proxy.tensormap::generic",
    "as": "mbarrier.init mbarrier.expect_tx mbarrier.complete_tx",
    "ds": (
        "neg abs not cnot cvta rcp sqrt rsqrt ex2 lg2 sin cos tanh popc clz brev bfind testp isspacep"
        " movmatrix getctarank"
    ),
    "es": "elect",
    "ev": "mov",
    "ea": "ld ldu ldmatrix",
    "av": "st red stmatrix",
    "ava": "st.async red.async",
    "ds|dss": "cvt",
    "das|dass": "mbarrier.test_wait mbarrier.try_wait",
    "a|as|da|das": "mbarrier.arrive mbarrier.arrive_drop",
    "dss": "bmsk szext mapa add sub mul div rem and or xor min max copysign shl shr vote redux set mul24",
    "ess": "match add.cc sub.cc",
    "ess|esss": "setp",
    "eav|eavv": "atom",
    "dsss": "fns fma sad shf bfe selp slct prmt dp2a dp4a mad24 vabsdiff2 vabsdiff4",
    "esss": "mad addc subc",
    "esssn|esssns": "lop3",
    "essss": "shfl madc",
    "dssss": "bfi",
    "st": "brx",
    "evvv": "mma",
    "evvvsn": "mma.sp mma.sp::ordered_metadata",
    "d|ds|dss|das|dass": "createpolicy",
}
SIGNATURES_OF = {
    name: tuple(signatures.split("|")) for signatures, names in SIGNATURES.items() for name in names.split()
}
CACHE_HINT = "L2::cache_hint"  # a modifier, whose policy is the last operand


def signatures_of(i: Instruction) -> tuple[str, ...] | None:
    """The signatures of the longest listed name that the instruction begins with; None without one."""
    signatures = next((SIGNATURES_OF[n] for n in prefixes(i.opcode, i.mods) if n in SIGNATURES_OF), None)
    hint = "s" if CACHE_HINT in i.mods else ""
    return None if signatures is None else tuple(signature + hint for signature in signatures)


def require_signature(i: Instruction, *signatures: str) -> None:
    """Refuse operands that are in none of the signatures."""
    for signature in signatures:
        if fits(signature, i.operands):
            return
    raise operands_error(i, signatures)


def fits(signature: str, operands: tuple[Operand, ...]) -> bool:
    if len(signature) != len(operands):
        return False
    for kind, operand in zip(signature, operands, strict=True):
        if not (isinstance(operand, KINDS[kind][1]) or (kind in "de" and operand == SINK)):
            return False
    return True


def operands_error(i: Instruction, signatures: tuple[str, ...] = ()) -> PtxError:
    count = len(i.operands)
    taken = [", ".join(KINDS[kind][0] for kind in signature) or "nothing" for signature in signatures]
    takes = f". It takes {'; or '.join(taken)}" if taken else ""
    return PtxError(
        f"{i.site}: the opcode does not take these {count} operand{'s' if count != 1 else ''}{takes}"
    )
