"""Machine code whose products read registers that are written too early.

wgmma with A in registers reads them until its group is waited for. The assembler gives registers by what the
source says of their use, which ends where the instruction is issued."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from lapidist.launch import Binary
from lapidist_lab.sass.listing import sass_line, sass_rows

Row = dict[str, Any]
PRODUCTS = ("HGMMA", "IGMMA", "QGMMA")
OF_A = 4  # registers a thread
GROUP = "gsb0"  # with which a group ends, and is waited for


def written_too_early(binary: Binary) -> tuple[int, list[str]]:
    """Products with A in registers, and of each what writes those before it has ended."""
    rows = sass_rows(binary)
    assert rows, "nvdisasm is not found"
    places = [place for place, row in enumerate(rows) if name_of(row) in PRODUCTS and a_of(row)]
    return len(places), [found for place in places for found in early_writes(rows, place)]


def early_writes(rows: Sequence[Row], place: int) -> Iterator[str]:
    """Along every path from a product, until a wait or the end of the second group. Behind that the product
    has been waited for: all steps of a tile but its first wait for the one before."""
    own = a_of(rows[place])
    seen, open_paths = set(), [(place, 0)]
    while open_paths:
        here, groups = open_paths.pop()
        row = rows[here]
        operands = row.get("operands", "")
        if GROUP in operands:
            if name_of(row) in PRODUCTS:
                groups += 1
            elif int(operands.split(",")[-1], 16) < groups:
                continue
        if groups > 1:
            continue
        if here != place and own & written_by(row):
            yield f"{rows[place]['operands']} and then {row['opcode']} {operands}"
            continue
        line = sass_line(row)
        behind = [line.target] if line.target is not None else []
        if line.falls and here + 1 < len(rows):
            behind.append(here + 1)
        for step in ((each, groups) for each in behind):
            if step not in seen:
                seen.add(step)
                open_paths.append(step)


def name_of(row: Row) -> str:
    return str(row["opcode"]).partition(".")[0]


def a_of(row: Row) -> set[int]:
    """None of them where A lies in shared memory."""
    found = re.fullmatch(r"R(\d+)", row["operands"].split(",")[1].strip())
    return set(range(int(found[1]), int(found[1]) + OF_A)) if found else set()


def written_by(row: Row) -> set[int]:
    """The register among the first operands, behind predicates, and those that follow it in a wide one."""
    for operand in row.get("operands", "").split(",")[:3]:
        found = re.fullmatch(r"R(\d+)", operand.strip())
        if found:
            return set(range(int(found[1]), int(found[1]) + width_of(row["opcode"])))
        if not re.fullmatch(r"P[T\d]", operand.strip()):
            break
    return set()


def width_of(opcode: str) -> int:
    """Registers of a result. A product's are sums, and never A."""
    name, *mods = opcode.split(".")
    if name == "LDSM":
        return int(mods[-1]) if mods[-1].isdigit() else 1
    return 4 if "128" in mods else 2 if "64" in mods or "WIDE" in mods else 1
