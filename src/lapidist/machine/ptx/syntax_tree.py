"""What a PTX kernel is made of, as plain values: operands, instructions, variables, parameters."""

from __future__ import annotations

from dataclasses import dataclass, field

from lapidist.machine.faults import Site

TYPE_BYTES = {"pred": 1, "b128": 16}
TYPE_BYTES |= {f"{kind}{bits}": bits // 8 for kind in "bsuf" for bits in (8, 16, 32, 64)}
TYPE_BYTES |= {"bf16": 2, "f16x2": 4, "bf16x2": 4, "tf32": 4, "s16x2": 4, "u16x2": 4}

FUNCTION_WINDOW = 4 << 60  # where the addresses of functions lie: no memory

SPECIALS = frozenset(
    [
        f"{base}.{axis}"
        for base in [
            "tid",
            "ntid",
            "ctaid",
            "nctaid",
            "clusterid",
            "nclusterid",
            "cluster_ctaid",
            "cluster_nctaid",
        ]
        for axis in "xyz"
    ]
    + [
        "laneid",
        "warpid",
        "nwarpid",
        "smid",
        "nsmid",
        "gridid",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
    ]
    + [
        "lanemask_eq",
        "lanemask_lt",
        "lanemask_le",
        "lanemask_ge",
        "lanemask_gt",
        "dynamic_smem_size",
        "total_smem_size",
    ]
    + ["clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"]
    + [f"envreg{number}" for number in range(32)]
    + [f"reserved_smem_offset_{name}" for name in ("begin", "end", "cap", "0", "1")]
)

# ---- what an operand can be ----


@dataclass(frozen=True, slots=True)
class Reg:
    name: str


@dataclass(frozen=True, slots=True)
class Special:
    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer, or the bits of a float with its width ("f32", "f64")."""

    value: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable, function or label; `%` of a name that is no register means nothing."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Addr:
    """[base + offset], or [base, {coordinates}] for a tensor map; `extra` holds further items inside the
    brackets.
    """

    base: Reg | Sym | Imm
    offset: int = 0
    extra: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    item: Reg


@dataclass(frozen=True, slots=True)
class Tuple:
    """Parenthesised list, in calls."""

    items: tuple[Operand, ...]


Operand = Reg | Special | Imm | Sym | Addr | Vec | Pair | Not | Tuple

# ---- what a kernel is ----


@dataclass(frozen=True, slots=True)
class Instruction:
    opcode: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: Reg | None
    negated: bool
    site: Site


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in some space; `data` is its initial value, `size` 0 means dynamic shared memory."""

    name: str
    space: str
    align: int
    size: int
    data: bytes = b""
    pointers: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    offset: int
    size: int
    type: str


@dataclass
class Kernel:
    name: str
    target: str
    parameters: dict[str, Parameter] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)  # of the module, with their addresses
    most_threads: int = 0  # of a block, as it was compiled (.maxntid); 0: as many as the chip allows
    most_registers: int = 0  # of a thread (.maxnreg); 0: as many as the compiler takes
    least_blocks: int = 0  # of an SM, for which the compiler left registers (.minnctapersm); 0: one
    required_block: tuple[int, ...] = ()  # .reqntid
    required_cluster: tuple[int, ...] = ()  # .reqnctapercluster, which a launch need not repeat

    @property
    def parameter_bytes(self) -> int:
        return max((p.offset + p.size for p in self.parameters.values()), default=0)


def flatten(operand: Operand) -> list[Operand]:
    """The operand and all inside it."""
    inner: tuple[Operand, ...] = ()
    if isinstance(operand, Vec | Tuple):
        inner = operand.items
    elif isinstance(operand, Pair):
        inner = (operand.first, operand.second)
    elif isinstance(operand, Addr):
        inner = (operand.base, *operand.extra)
    elif isinstance(operand, Not):
        inner = (operand.item,)
    return [operand, *(item for one in inner for item in flatten(one))]
