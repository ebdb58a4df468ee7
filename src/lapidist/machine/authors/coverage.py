"""Which lines and branches of a kernel its runs came to: of the source where its PTX names that, else of PTX.

A line of the source is covered if an instruction of it was executed. A branch is covered if lanes went both
ways; compilers turn short ones into selections, which count as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from lapidist.machine.authors.findings import LINE
from lapidist.machine.ptx.syntax_tree import Instruction, Kernel
from lapidist.machine.run import Report
from lapidist.machine.scheduler import FELL_THROUGH, JUMPED

BOTH = JUMPED | FELL_THROUGH
STYLE = """body { font: 14px/1.4 monospace } td { padding: 0 1em; white-space: pre } .no { background: #fdd }
.half { background: #ffd } .yes { background: #dfd }"""


@dataclass
class Line:
    """A line with code: whether it ran, and the ways that lanes went at each of its branches."""

    ran: bool = False
    branches: list[int] = field(default_factory=list)

    @property
    def kind(self) -> str:
        if not self.ran:
            return "no"
        return "yes" if all(went == BOTH for went in self.branches) else "half"

    def __str__(self) -> str:
        went = {0: "never came", JUMPED: "always", FELL_THROUGH: "never", BOTH: "both ways"}
        return ", ".join(went[way] for way in self.branches)


@dataclass
class Coverage:
    """By file, then by number: the lines that have code."""

    kernel: str
    files: dict[str, dict[int, Line]]
    sources: Mapping[str, Sequence[str]]

    @property
    def lines(self) -> tuple[int, int]:
        """How many ran, of how many."""
        every = [line for lines in self.files.values() for line in lines.values()]
        return sum(line.ran for line in every), len(every)

    @property
    def branches(self) -> tuple[int, int]:
        """How many ways were gone, of how many: a branch has two."""
        every = [way for lines in self.files.values() for line in lines.values() for way in line.branches]
        return sum(way.bit_count() for way in every), 2 * len(every)

    def rows(self, file: str) -> list[tuple[int, Line | None, str]]:
        """The lines of a file, with what stands there; without its text, those that have code."""
        text, lines = self.sources.get(file, ()), self.files[file]
        numbers = range(1, len(text) + 1) if text else sorted(lines)
        return [(n, lines.get(n), text[n - 1] if text else "") for n in numbers]

    def summary(self) -> str:
        (ran, lines), (gone, ways) = self.lines, self.branches
        return f"{self.kernel}: {ran} of {lines} lines, {gone} of {ways} ways of branches"

    def __str__(self) -> str:
        """Each line with "+" if it ran, "-" if not, and "~" if some of its branches went one way only."""
        marks = {"yes": "+", "no": "-", "half": "~"}
        parts = []
        for file in self.files:
            parts.append(file)
            for number, line, text in self.rows(file):
                mark, ways = (" ", "") if line is None else (marks[line.kind], str(line))
                parts.append(f"{mark} {number:5} {text}{f'    // {ways}' if ways else ''}".rstrip())
        return "\n".join([*parts, self.summary()])

    def html(self) -> str:
        parts = [f"<!doctype html><meta charset=utf-8><title>{escape(self.kernel)}</title>"]
        parts += [f"<style>{STYLE}</style><p>{escape(self.summary())}</p>"]
        for file in self.files:
            parts.append(f"<h2>{escape(file)}</h2><table>")
            for number, line, text in self.rows(file):
                kind, ways = ("", "") if line is None else (line.kind, str(line))
                parts.append(
                    f'<tr class="{kind}"><td>{number}</td><td>{escape(text)}</td><td>{ways}</td></tr>'
                )
            parts.append("</table>")
        return "\n".join(parts) + "\n"

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            file: {str(n): {"ran": line.ran, "branches": line.branches} for n, line in sorted(lines.items())}
            for file, lines in self.files.items()
        }


def coverage_of(
    name: str, kernel: Kernel, reports: Sequence[Report], sources: Mapping[str, Sequence[str]]
) -> Coverage:
    """Of all runs together."""
    reached = frozenset().union(*(report.reached for report in reports))
    ways: dict[int, int] = {}
    for report in reports:
        for at, went in report.ways.items():
            ways[at] = ways.get(at, 0) | went
    files: dict[str, dict[int, Line]] = {}
    for i in kernel.instructions:
        for file, number in source_lines(i):
            line = files.setdefault(file, {}).setdefault(number, Line())
            line.ran |= i.site.line in reached
            if i.opcode == "bra" and i.predicate is not None:
                line.branches.append(ways.get(i.site.line, 0))
    return Coverage(name, files, sources)


def source_lines(i: Instruction) -> list[tuple[str, int]]:
    """Where an instruction comes from: a line of the source, where it was inlined too; or of the PTX."""
    found = [match.groups() for match in LINE.finditer(i.site.source)]
    return [(file, int(number)) for file, number in found] or [("PTX", i.site.line)]
