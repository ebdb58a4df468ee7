"""Which functions of the CUDA runtime the stand-in has, as the page docs/cuda-runtime.md: written from its
sources, the reasons of those that it lacks, and the tests that call each.

`python tests/machine/programs/runtime_list.py` writes the page anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lapidist.machine.programs.runtime_functions import AREAS, IN_PART, REFUSED
from lapidist.machine.programs.stand_in_build import SOURCES, functions_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "cuda-runtime.md"
PROGRAMS = sorted((ROOT / "tests" / "support").glob("cuda_*programs.py"))
HINT = re.compile(r"^API cudaError_t (\w+)\([^)]*\) \{ return done\(SUCCESS\); \}", re.M)
HEAD = f"""# Functions of the CUDA runtime

`lapidist run` puts [a stand-in](machine.md#whole-cuda-programs) in the place of the CUDA runtime. These are the runtime's functions of CUDA 12.9 to 13.5, and whether the stand-in has them. A function that is lacking answers `cudaErrorNotSupported`, and a note names it, with the reason that stands here. A hint is a function that a card may use for speed: the call succeeds, and changes nothing.

`python tests/machine/programs/{Path(__file__).name}` writes this page from the code. A test compares the two, and the names with the header that the installed CUDA brings.
"""  # noqa: E501


@cache
def sources() -> list[str]:
    return [str(path) for path in sorted(SOURCES.glob("*.c"))]


@cache
def hints() -> frozenset[str]:
    return frozenset(HINT.findall("\n".join(Path(path).read_text() for path in sources())))


@cache
def called_in(name: str) -> str:
    """The first program of the tests that calls the function."""
    call = re.compile(rf"\b{name}\(&?\w")
    found = next((path for path in PROGRAMS if call.search(path.read_text())), None)
    return "" if found is None else f"`{found.relative_to(ROOT)}`"


def rows() -> Iterator[str]:
    there = functions_of(sources())
    for area, names in AREAS.items():
        yield f"\n## {area[0].upper()}{area[1:]}\n"
        yield "| function | in the stand-in | called in |\n|---|---|---|"
        for name in names.split():
            if name in there:
                kind = "a hint" if name in hints() else "there"
                but = f"; not: {IN_PART[name]}" if name in IN_PART else ""
                yield f"| `{name}` | {kind}{but} | {called_in(name)} |"
            else:
                yield f"| `{name}` | lacking: {REFUSED.get(name, 'no reason')} |  |"


def page() -> str:
    return HEAD + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
