"""What the machine found in a kernel, run by run: each finding once, with its rule, level and source line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lapidist.machine.faults import MachineFault
from lapidist.machine.rules import RULES, level_of

LINE = re.compile(r"([^\s,]+):(\d+)")
COMMENT = re.compile(r"lapidist:\s*ignore\s+([\w,\s-]+?)(?::|\(|$)")
MOST = 100  # of a run: after so many it ends


@dataclass(frozen=True)
class Finding:
    fault: MachineFault
    level: str  # "error" or "warning"
    seeds: tuple[int | None, ...]  # of the runs that found it: None is the plain one

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
        who = f"  by {self.fault.thread}" if str(self.fault.thread) else ""
        seeds = [seed for seed in self.seeds if seed is not None]
        runs = f"  in {'the plain run' if not seeds else f'schedules {seeds}'}"
        return "\n".join(part for part in [head, *inlined, site, who, runs] if part)


@dataclass
class Findings(Sequence[Finding]):
    """What was found, and in how many runs. It is true where nothing is an error."""

    kernel: str
    runs: int = 0
    found: list[Finding] = field(default_factory=list)
    coverage: Sequence[Any] = ()  # of each kernel, by the runs that came to their end

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: Any) -> Any:
        return self.found[index]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)

    def __bool__(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.found if finding.level == "error"]

    def raise_errors(self) -> None:
        """Raise the first error; the text lists all."""
        if self.errors:
            raise self.errors[0].fault

    def data(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "runs": self.runs,
            "errors": len(self.errors),
            "findings": [finding.data() for finding in self.found],
        }

    def __str__(self) -> str:
        errors, warnings = len(self.errors), len(self.found) - len(self.errors)
        total = f"{self.kernel}: {errors} errors and {warnings} warnings in {self.runs} runs"
        return "\n".join([*map(str, self.found), total])


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
        self.kept: dict[tuple[str, int], tuple[MachineFault, str, list[int | None]]] = {}

    def begin(self, seed: int | None) -> None:
        self.seed, self.count = seed, 0

    def take(self, fault: MachineFault) -> bool:
        """Keep a fault. Whether the run may go on after it."""
        level = level_of(fault.name, self.levels)
        if level == "off" or self.is_ignored(fault):
            return True
        key = fault.name, fault.site.line if fault.site else 0
        _, _, seeds = self.kept.setdefault(key, (fault, level, []))
        if self.seed not in seeds:
            seeds.append(self.seed)
        self.count += 1
        return self.count < MOST

    def is_ignored(self, fault: MachineFault) -> bool:
        """By its rule, its source line, its kernel, or a comment in the source."""
        lines = [] if fault.site is None else [match.groups() for match in LINE.finditer(fault.site.source)]
        named = {fault.name, self.kernel, *(f"{file}:{line}" for file, line in lines)}
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
        found = [Finding(fault, level, tuple(seeds)) for fault, level, seeds in self.kept.values()]
        return Findings(self.kernel, runs, found)
