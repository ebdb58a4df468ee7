"""Small faults of many kinds, drawn by a seed: what an author mistypes, beside the missing synchronisation
of `mutants`. Each is one line of PTX."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from lapidist.machine.faults import MachineFault, Trap
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.ptx.syntax_tree import Instruction
from lapidist.machine.run import Report, run
from lapidist_lab.machine_studies.mutants import Case, Mutant, Variant

BOUND = "a bound off by one"
STATEMENT = re.compile(r"(?P<guard>@!?[\w%$]+\s+)?(?P<name>[a-z][\w.:]*)(?P<operands>[^;]*);")
Edit = Callable[[re.Match[str]], str]  # of a statement; "" where the fault does not apply
GUARDED = "{{ .reg .pred off_; .reg .u32 t_; mov.u32 t_, %tid.x; {where}; @off_ {statement} }}"


def sub(pattern: str, by: str) -> Edit:
    """The statement with one part of it exchanged."""
    return lambda statement: re.sub(pattern, by, statement[0], count=1)


def shifted(pattern: str, by: int) -> Edit:
    """The statement with a number in it changed: the group of the pattern."""

    def edit(statement: re.Match[str]) -> str:
        number = re.search(pattern, statement[0])
        if number is None:
            return ""
        if number[1] is None:  # an address without an offset
            return f"{statement[0][: number.start()]}+{by}{statement[0][number.start() :]}"
        start, end = number.span(1)
        return f"{statement[0][:start]}{int(number[1]) + by}{statement[0][end:]}"

    return edit


def added_to_last(by: int, operation: str = "add.s32") -> Edit:
    """The statement with its last operand, a register, changed."""

    def edit(statement: re.Match[str]) -> str:
        head, _, last = statement[0].rstrip(";").rpartition(",")
        return f"{{ .reg .b32 x_; {operation} x_, {last}, {by}; {head}, x_; }}"

    return edit


def only_where(where: str) -> Edit:
    """The statement, executed by some threads: off_ is set from t_, the thread's number."""

    def edit(statement: re.Match[str]) -> str:
        return "" if statement["guard"] else GUARDED.format(where=where, statement=statement[0])

    return edit


def never_set(statement: re.Match[str]) -> str:
    """The statement with a register that nobody sets as its last operand."""
    head, _, last = statement[0].rstrip(";").rpartition(",")
    kind = {"%p": "pred", "%r": "b32", "%f": "f32", "%h": "b16"}.get(last.strip()[:2], "b64")
    kind = (
        "b64"
        if last.strip().startswith(("%rd", "%fd"))
        else "b16"
        if last.strip().startswith("%rs")
        else kind
    )
    return f"{{ .reg .{kind} x_; {head}, x_; }}"


def negated(statement: re.Match[str]) -> str:
    """The statement under the opposite condition."""
    guard = statement["guard"] or ""
    if not guard:
        return ""
    other = guard.replace("@!", "@") if "!" in guard else guard.replace("@", "@!")
    return statement[0].replace(guard, other, 1)


def off_by_one(statement: re.Match[str]) -> str:
    """A comparison that counts equality in where it was out, and the other way round."""
    return re.sub(
        r"\.([lg])([te])\.", lambda m: f".{m[1]}{'e' if m[2] == 't' else 't'}.", statement[0], count=1
    )


def in_three_steps(statement: re.Match[str]) -> str:
    """An addition to memory as a load, an addition and a store."""
    words = statement["name"].split(".")
    kind, where = words[-1], next((word for word in words if word in ("global", "shared")), "")
    address = re.search(r"\[[^\]]*\]", statement["operands"])
    if "add" not in words or kind not in ("s32", "u32", "f32") or address is None or statement["guard"]:
        return ""
    target = statement["operands"].split(",")[0] if words[0] == "atom" else "x_"
    place, value = f".{where}" if where else "", statement["operands"].rpartition(",")[2]
    return (
        f"{{ .reg .{kind} x_, y_; ld{place}.{kind} {target}, {address[0]}; add.{kind} y_, {target}, {value};"
        f" st{place}.{kind} {address[0]}, y_; }}"
    )


def twice(statement: re.Match[str]) -> str:
    return f"{statement[0]} {statement[0]}"


def gone(_: re.Match[str]) -> str:
    return " "


ASYNC_WAIT = r"(?:cp\.async(?:\.bulk)?|wgmma)\.wait_group"
FAULTS: tuple[tuple[str, str, Edit], ...] = (
    ("a phase flipped", r"mbarrier\.(try|test)_wait\.parity", added_to_last(1, "xor.b32")),
    ("an mbarrier for a thread more", r"mbarrier\.init", added_to_last(1)),
    ("an mbarrier for a thread less", r"mbarrier\.init", added_to_last(-1)),
    ("an mbarrier not initialised", r"mbarrier\.init", gone),
    ("16 bytes more expected", r"mbarrier\..*expect_tx", added_to_last(16)),
    ("16 bytes less expected", r"mbarrier\..*expect_tx", added_to_last(-16)),
    ("an arrival twice", r"mbarrier\.arrive", twice),
    ("a mask without a lane", r"(shfl|vote|redux|match)\.|bar\.warp", sub(r"(-1|0x[fF]{8});", "-2;")),
    ("an operand never set", r"(fma|add|mad|mul|sub|st)\..*, *%\w+;", never_set),
    ("an update in three steps", r"(red|atom)\.", in_three_steps),
    (
        "a narrower scope",
        r"(fence\.(?!mbarrier)|(ld|st|red|atom|mbarrier)\.)",
        sub(r"(?<!:)\.(gpu|sys|cluster)\b", ".cta"),
    ),
    (
        "no scope, no order",
        r"(ld|st)\.(relaxed|acquire|release|volatile)",
        sub(r"\.(relaxed|acquire|release)\.\w+|\.volatile", ""),
    ),
    (BOUND, r"setp\.[lg][te]\.[su]", off_by_one),
    ("a wait for one group less", ASYNC_WAIT, shifted(r"\s(\d+);", 1)),
    ("a wait for the source alone", r"cp\.async\.bulk\.wait_group\s", sub("wait_group", "wait_group.read")),
    (
        "a cluster's arrival relaxed",
        r"barrier\.cluster\.arrive\.(release|aligned)",
        sub(r"arrive(\.release)?", "arrive.relaxed"),
    ),
    ("a group not closed", r"(cp\.async(\.bulk)?|wgmma)\.commit_group|cp\.async\.mbarrier", gone),
    ("registers not given", r"setmaxnreg\.dec", gone),
    ("registers beyond the pool", r"setmaxnreg\.inc", sub(r"\s\d+;", " 256;")),
    ("registers by one warp", r"setmaxnreg\.", only_where("and.b32 t_, t_, 127; setp.ge.u32 off_, t_, 32")),
    ("three of four warps", r"wgmma\.mma_async", only_where("and.b32 t_, t_, 96; setp.eq.u32 off_, t_, 96")),
    ("a warp more at a barrier", r"(bar|barrier)\.(sync|arrive)[^,]*,", shifted(r",\s*(\d+);", 32)),
    (
        "a barrier by a part of a warp",
        r"bar\.sync",
        only_where("and.b32 t_, t_, 31; setp.eq.u32 off_, t_, 5"),
    ),
    ("a place of shared memory too far", r"(ld|st)\.shared|(ld|st)matrix", shifted(r"(?:\+(\d+))?\]", 16)),
    ("a condition negated", r"", negated),
    ("a fence of the other memory", r"fence\.proxy\.async\.shared", sub(r"shared::(cta|cluster)", "global")),
    ("a copy not made", r"cp\.async\.(c[ag]|bulk\.(tensor|shared|global))", gone),
    ("a store not made", r"st\.shared|stmatrix", gone),
    ("a swizzle of another bit", r"xor\.b32 .*, \d+;", shifted(r"\s(\d+);", 16)),
    ("a matrix not transposed", r"ldmatrix.*\.trans", sub(r"\.trans", "")),
    ("a cluster's wait gone", r"barrier\.cluster\.wait", gone),
    ("the last launch not waited for", r"griddepcontrol\.wait", gone),
    ("a copy to the wrong block", r"mapa", shifted(r"\s(\d+);", 1)),
)


def waits_once(i: Instruction, before: Instruction | None) -> bool:
    """Whether it is the branch back to a try_wait."""
    return i.opcode == "bra" and before is not None and "try_wait" in before.mods


def faults_of(ptx: str, entry: str) -> dict[str, list[Mutant]]:
    """Every fault that a kernel has a place for, by kind."""
    lines, by_kind, before = ptx.splitlines(), dict[str, list[Mutant]](), None
    for i in parse_kernel(ptx, entry).instructions:
        line = lines[i.site.line - 1]
        statement = STATEMENT.search(line)
        kinds: list[tuple[str, Edit]] = [("a wait asked once", gone)] if waits_once(i, before) else []
        before = i
        if statement is None or not statement["name"].startswith(i.opcode):
            continue
        text = statement[0].removeprefix(statement["guard"] or "").replace("\t", " ")
        if i.opcode not in ("bra", "ret"):
            kinds += [(kind, edit) for kind, where, edit in FAULTS if re.match(where, text)]
        for kind, edit in kinds:
            broken = edit(statement)
            if broken and broken != statement[0]:
                changed = line.replace(statement[0], broken, 1)
                by_kind.setdefault(kind, []).append(Mutant(kind, i.site.line, i.site.text, ptx, changed))
    return by_kind


def drawn_faults(case: Case, number: int, seed: int) -> list[Mutant]:
    """Some faults in lines that plain runs come to: first a kind, then a place of it. A bound is moved where
    some thread is at it."""
    generator, binary = Random(f"{seed} {case.kernel} {case.math}"), case.launch.binary
    reached = {line for variant in case.variants for line in run_plainly(variant, binary.ptx).reached}
    remaining = {
        kind: [fault for fault in sites if fault.line in reached]
        for kind, sites in sorted(faults_of(binary.ptx, binary.entry).items())
    }
    chosen = list[Mutant]()
    while len(chosen) < number and any(remaining.values()):
        sites = remaining[generator.choice([kind for kind, sites in remaining.items() if sites])]
        fault = sites.pop(generator.randrange(len(sites)))
        if fault.kind != BOUND or any(is_at_bound(variant, fault) for variant in case.variants):
            chosen.append(fault)
    return chosen


def is_at_bound(variant: Variant, fault: Mutant) -> bool:
    """Whether two equal numbers are compared there: only then the fault changes anything."""
    statement = STATEMENT.search(fault.changed)
    assert statement is not None
    kind, (_, *compared) = statement["name"].split(".")[-1], statement["operands"].split(",")
    probe = f"{{ .reg .pred at_; setp.eq.{kind} at_, {', '.join(compared)}; @at_ trap; }}"
    try:
        run_plainly(variant, replace(fault, changed=f"{fault.changed} {probe}").ptx)
    except MachineFault as fault_:
        return isinstance(fault_, Trap)
    return False


def run_plainly(variant: Variant, ptx: str) -> Report:
    variant.reset()
    launch = replace(variant.launch, binary=replace(variant.launch.binary, ptx=ptx))
    return run(launch, residency=variant.residency, counting=False)
