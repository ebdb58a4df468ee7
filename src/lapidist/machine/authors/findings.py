"""What the machine found in a kernel, run by run: each finding once, with its rule, level and source line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lapidist.errors import ArgumentError
from lapidist.machine.faults import MachineFault
from lapidist.machine.rules import RULES, level_of

LINE = re.compile(r"([^\s,]+):(\d+)")
COMMENT = re.compile(r"lapidist:\s*ignore\s+([\w,\s-]+?)(?::|\(|$)")
CHANGING = re.compile(r"(PTX line|lane|warp|block) (\d+|\([\d, ]*\))")  # from copy to copy of a line
FEW = 4  # copies of a line that are named
MOST = 100  # errors of a run: after so many it ends


@dataclass(frozen=True)
class Finding:
    fault: MachineFault
    level: str  # "error" or "warning"
    seeds: tuple[int | None, ...]  # of the runs that found it: None is the plain one
    ptx_lines: tuple[int, ...] = ()  # of all copies of the source line, as unrolled loops have them

    @property
    def rule(self) -> str:
        return self.fault.name

    @property
    def lines(self) -> list[str]:
        """FILE:LINE in the source, and where that was inlined, innermost first."""
        site = self.fault.site
        return [] if site is None else [match[0] for match in LINE.finditer(site.source)]

    def data(self) -> dict[str, Any]:
        """For JSON."""
        fault = self.fault
        thread, site = fault.thread, fault.site
        return {
            "rule": self.rule,
            "level": self.level,
            "message": fault.rule,
            "source": self.lines,
            "ptx_line": None if site is None else site.line,
            "ptx_lines": list(self.ptx_lines),
            "ptx": None if site is None else site.text,
            "block": thread.block,
            "warp": thread.warp,
            "lane": thread.lane,
            "address": fault.address,
            "seeds": list(self.seeds),
        }

    def __str__(self) -> str:
        place = (
            self.lines[0] if self.lines else f"PTX line {self.fault.site.line if self.fault.site else '?'}"
        )
        head = f"{place}: {self.level}: {self.fault.rule} [{self.rule}]"
        inlined = [f"  inlined at {line}" for line in self.lines[1:]]
        site = f"  PTX line {self.fault.site.line}: {self.fault.site.text}" if self.fault.site else ""
        copies = [str(line) for line in self.ptx_lines if self.fault.site and line != self.fault.site.line]
        shown = ", ".join([*copies[:FEW], *["..."] * (len(copies) > FEW)])
        site += f"\n  PTX lines of its copies: {shown}" if copies else ""
        who = f"  by {self.fault.thread}" if str(self.fault.thread) else ""
        seeds = [seed for seed in self.seeds if seed is not None]
        runs = f"  in {'the plain run' if not seeds else f'schedules {seeds}'}"
        return "\n".join(part for part in [head, *inlined, site, who, runs] if part)


@dataclass
class Findings(Sequence[Finding]):
    """What was found, and in how many runs. It is true where nothing is an error."""

    kernel: str
    runs: int = 0
    findings: list[Finding] = field(default_factory=list)
    coverage: Sequence[Any] = ()  # of each kernel, by the runs that came to their end

    def __len__(self) -> int:
        return len(self.findings)

    def __getitem__(self, index: Any) -> Any:
        return self.findings[index]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __bool__(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    def raise_errors(self) -> None:
        """Raise the first error; the text lists all."""
        if self.errors:
            raise self.errors[0].fault

    def data(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "runs": self.runs,
            "errors": len(self.errors),
            "findings": [finding.data() for finding in self.findings],
        }

    def __str__(self) -> str:
        errors, warnings = len(self.errors), len(self.findings) - len(self.errors)
        total = f"{self.kernel}: {errors} errors and {warnings} warnings in {self.runs} runs"
        return "\n".join([*map(str, self.findings), total])


@dataclass
class Entry:
    """A finding so far, with its runs and lines of PTX in the order in which they came."""

    fault: MachineFault
    level: str
    seeds: dict[int | None, None] = field(default_factory=dict)
    lines: dict[int, None] = field(default_factory=dict)


def names_of(kernel: str) -> set[str]:
    """A kernel's demangled name, and what is left of it without arguments and namespaces."""
    plain = kernel.partition("(")[0].partition("<")[0].split()[-1:]
    return {kernel, *plain, *(name.rpartition("::")[2] for name in plain)}


def require_ignorable(ignore: Collection[str], kernels: Collection[str]) -> None:
    """Refuse what can leave nothing out."""
    names = {name for kernel in kernels for name in names_of(kernel)}
    for item in ignore:
        if not (item in RULES or item in names or LINE.fullmatch(item)):
            rule = f"must be a rule ({', '.join(RULES)}), FILE:LINE, or a kernel ({', '.join(kernels)})"
            raise ArgumentError(f"ignore: {rule}; got {item!r}. Correct it, or leave it out")


class Judge:
    """Takes the faults of runs: says which end one, keeps the others, and leaves out what is ignored."""

    def __init__(
        self,
        kernel: str,
        ignore: Collection[str],
        levels: Mapping[str, str],
        sources: Mapping[str, Sequence[str]],
    ) -> None:
        self.kernel, self.ignore, self.levels, self.sources = kernel, set(ignore), levels, sources
        self.seed: int | None = None
        self.count = 0
        self.entries: list[Entry] = []
        self.by_key: dict[tuple[object, ...], Entry] = {}

    def begin(self, seed: int | None) -> None:
        self.seed, self.count = seed, 0

    def take(self, fault: MachineFault) -> bool:
        """Keep a fault. Whether the run may go on after it."""
        level = level_of(fault.name, self.levels)
        if level == "off" or self.is_ignored(fault):
            return True
        self.keep(fault, level)
        self.count += level == "error"
        return self.count < MOST

    def warns(self, fault: MachineFault) -> bool:
        """Keep a fault that is no error. Whether the run may go on after it."""
        self.seed = fault.seed
        return level_of(fault.name, self.levels) != "error" and self.take(fault)

    def keep(self, fault: MachineFault, level: str) -> None:
        """Note a fault once for its line of PTX, and once for all copies of a source line of which the same
        is said."""
        line, source = (fault.site.line, fault.site.source) if fault.site else (0, "")
        keys = [(fault.name, line), *[(fault.name, source, CHANGING.sub("", fault.rule))] * bool(source)]
        entry = next((self.by_key[key] for key in keys if key in self.by_key), None)
        if entry is None:
            entry = Entry(fault, level)
            self.entries.append(entry)
        for key in keys:
            self.by_key.setdefault(key, entry)
        entry.seeds[self.seed] = entry.lines[line] = None

    def is_ignored(self, fault: MachineFault) -> bool:
        """By its rule, its kernel, or a line of either access: its number, or a comment there."""
        place = "" if fault.site is None else fault.site.source
        lines = [match.groups() for match in LINE.finditer(f"{place} {fault.rule}")]
        named = {fault.name, *names_of(self.kernel), *(f"{file}:{line}" for file, line in lines)}
        return bool(named & self.ignore) or any(
            fault.name in self.ignored_at(file, int(line)) for file, line in lines
        )

    def ignored_at(self, file: str, line: int) -> set[str]:
        """Rules that a comment on the line, or on the one above, says to ignore."""
        text = self.sources.get(file, ())
        comments = [COMMENT.search(text[n - 1]) for n in (line - 1, line) if 1 <= n <= len(text)]
        words = [match[1].replace(",", " ").split() for match in comments if match]
        return {word for listed in words for word in listed if word in RULES}

    def findings(self, runs: int) -> Findings:
        findings = [Finding(one.fault, one.level, tuple(one.seeds), tuple(one.lines)) for one in self.entries]
        return Findings(self.kernel, runs, findings)
