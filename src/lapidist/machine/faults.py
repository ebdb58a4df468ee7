"""What the machine raises.

LapidistError
├── PtxError(ValueError)            text that the machine cannot read or does not know; nothing was run
└── MachineFault(RuntimeError)      the kernel did something wrong while it ran
    ├── OutOfBounds                 an address outside every range it may touch
    ├── Misaligned                  an address that is not a multiple of the access size
    ├── Uninitialised               a read of bytes that no one wrote, or whose copy was not waited for
    ├── Race                        two accesses to one word, one of them a write, that nothing orders
    ├── MissingProxyFence           generic writes read by TMA or tensor cores without a fence
    ├── Divergence                  a warp-wide instruction that not all named lanes reach
    ├── BarrierMisuse               an mbarrier or named barrier used against its rules
    ├── Deadlock                    nobody can go on; says who waits for what
    ├── Unreset                     a semaphore or workspace range not back at zero when the kernel ended
    ├── BudgetExceeded              a runaway loop
    ├── AssertionFailed             the kernel's own assert
    └── Trap                        the kernel's own trap instruction

A fault leaves the caller's arrays as the kernel had written them until then; the message says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lapidist.errors import LapidistError
from lapidist.visible import brief

RESIDENCY = "residency"  # the rule of a Deadlock that more resident blocks would end


class PtxError(LapidistError, ValueError):
    """PTX that is malformed or uses something the machine does not know; the message has the line."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where in the kernel: the PTX line, and the source line if the compiler left one."""

    kernel: str
    line: int
    text: str
    source: str = ""

    @property
    def place(self) -> str:
        """In a sentence: the line of PTX, that of the source, and the last one that it was inlined at."""
        inner, *outer = self.source.split(", inlined at ")
        return ", ".join(
            [f"PTX line {self.line}", *[inner] * bool(inner), *(f"inlined at {at}" for at in outer[-1:])]
        )

    def __str__(self) -> str:
        origin = f" ({self.source})" if self.source else ""
        return f"kernel {self.kernel}, PTX line {self.line}: {brief(self.text)}{origin}"


@dataclass(frozen=True, slots=True)
class Thread:
    """Who: block index, warp and lane; None where the fault belongs to no single thread."""

    block: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None

    def __str__(self) -> str:
        parts = [
            f"block {self.block}" if self.block is not None else "",
            f"warp {self.warp}" if self.warp is not None else "",
        ]
        parts.append(f"lane {self.lane}" if self.lane is not None else "")
        return ", ".join(part for part in parts if part)


@dataclass
class MachineFault(LapidistError, RuntimeError):
    """Base of the faults. `name` is that of the rule (rules.py), the class's own unless one is given. `seed`
    replays the schedule that found it (None: the plain schedule)."""

    usual_name: ClassVar[str] = ""

    rule: str
    site: Site | None = None
    thread: Thread = field(default_factory=Thread)
    address: int | None = None
    seed: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.usual_name

    def __str__(self) -> str:
        lines = [f"{type(self).__name__}: {self.rule} [{self.name}]"]
        if self.site is not None:
            lines.append(f"  at {self.site}")
        if str(self.thread):
            lines.append(f"  by {self.thread}")
        if self.address is not None:
            lines.append(f"  address {self.address:#x}")
        if self.seed is not None:
            lines.append(f"  replay with sanitize=True, seed={self.seed}")
        lines.append("  the arrays hold what the kernel had written until then")
        return "\n".join(lines)

    __hash__ = Exception.__hash__


class OutOfBounds(MachineFault):
    """An address outside every range that the launch may touch."""

    usual_name = "out-of-bounds"


class Misaligned(MachineFault):
    """An address that is not a multiple of what the access needs."""

    usual_name = "misaligned"


class Uninitialised(MachineFault):
    """A read of bytes that no one wrote, or whose asynchronous copy was not waited for."""

    usual_name = "uninitialised"


class Race(MachineFault):
    """Two accesses to one word, at least one a write, that nothing orders."""

    usual_name = "race"


class MissingProxyFence(MachineFault):
    """The asynchronous proxy reads what the generic proxy wrote, without fence.proxy.async between them."""

    usual_name = "proxy-fence"


class Divergence(MachineFault):
    """A warp-wide instruction that not all the lanes it names reach together."""

    usual_name = "divergence"


class BarrierMisuse(MachineFault):
    """A barrier used against its rules: not initialised, too many arrivals, a count that is no multiple of
    32.
    """

    usual_name = "barrier"


class Deadlock(MachineFault):
    """No thread can go on."""

    usual_name = "deadlock"


class Unreset(MachineFault):
    """A range that has to be zero again when the kernel ends is not."""

    usual_name = "unreset"


class BudgetExceeded(MachineFault):
    """More instructions than the budget allows: a runaway loop."""

    usual_name = "budget"


class AssertionFailed(MachineFault):
    """An assert of the kernel's source did not hold."""

    usual_name = "assert"


class Trap(MachineFault):
    """The kernel executed trap."""

    usual_name = "trap"
