"""Which instructions of PTX ISA 9 the machine runs, as the page docs/ptx.md: written from the emitters that
are registered, the reasons of those that are refused, and the tests that name each.

`python tests/machine/instruction_list.py` writes the page anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lapidist.machine import run_ptx  # registers the emitters
from lapidist.machine.codegen import OPCODES
from lapidist.machine.ptx.instruction_set import AREAS, IN_PART, REFUSED, prefixes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ptx.md"
# Tests that run instructions, in this order, and the kernels that other tests run whole.
FOLDERS = ("tests/machine", "tests/golden", "tests/support/sources", "src/lapidist/cuda")
NOT_TESTS = (
    "test_operands.py",
    "test_instruction_list.py",
    "instruction_list.py",
    "test_broken_text.py",
    "broken_text.py",
)
HEAD = f"""# PTX instructions of the machine

[The machine](machine.md) runs [PTX](glossary.md#ptx). These are the instructions of PTX ISA 9, area by area. One that is refused stops the launch before anything runs. The error names its line and the reason that stands here.

`python tests/machine/{Path(__file__).name}` writes this page from the code. A test compares the two.
"""  # noqa: E501


@cache
def sources() -> list[tuple[str, str]]:
    """Names and texts of the files in which instructions are run."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.*"))]
    kept = [path for path in files if path.suffix in (".py", ".cu", ".cuh", ".ptx", ".npz")]
    return [
        (str(path.relative_to(ROOT)), path.read_text(errors="replace"))
        for path in kept
        if path.name not in NOT_TESTS and path.suffix != ".npz"
    ]


def tested_in(name: str) -> str:
    """The first file that has the instruction, with whatever modifiers between its parts."""
    parts = r"(?:\.[\w:]+)*\.".join(map(re.escape, name.split(".")))
    operands = r"|\s+[^\n;]*;" if "." in name else r"|\s+\d+\s*;"
    pattern = re.compile(rf"(?<![\w.%$]){parts}(?:\.[\w{{]|\s*;{operands})")
    return next((f"`{file}`" for file, text in sources() if pattern.search(text)), "none")


def beginnings(name: str) -> tuple[str, ...]:
    opcode, *modifiers = name.split(".")
    return prefixes(opcode, tuple(modifiers))


def runs(name: str) -> bool:
    opcode = name.partition(".")[0]
    known = set(beginnings(name)) & OPCODES.keys()
    return bool(known) or any(registered.startswith(f"{opcode}.") for registered in OPCODES)


def rows() -> Iterator[str]:
    for area, names in AREAS.items():
        yield f"\n## {area[0].upper()}{area[1:]}\n"
        yield "| instruction | in the machine | tested in |\n|---|---|---|"
        for name in names.split():
            reason = next((REFUSED[part] for part in beginnings(name) if part in REFUSED), None)
            if reason and not name.endswith(".sync"):
                yield f"| `{name}` | refused: {reason} |  |"
            elif runs(name):
                but = f"; not: {IN_PART[name]}" if name in IN_PART else ""
                yield f"| `{name}` | runs{but} | {tested_in(name)} |"
            else:
                yield f"| `{name}` | refused, without a reason |  |"


def page() -> str:
    assert run_ptx is not None
    return HEAD + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
