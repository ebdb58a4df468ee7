"""The pages as tests read them: which there are, and the blocks of Python in them."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROOT_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*ROOT_PAGES, *sorted((ROOT / "docs").rglob("*.md"))]
# `<!-- needs: gpu -->` holds for the blocks behind it, up to the next such line.
NOTHING, NEEDS = "nothing", ("nothing", "gpu", "torch", "jax")
PIECE = re.compile(r"^<!-- needs: (\w+) -->$|^```python\n(.*?)^```$", re.S | re.M)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A block of Python, and what it needs to run."""

    needs: str
    code: str

    @property
    def session(self) -> bool:
        return self.code.lstrip().startswith(">>>")

    def run(self, scope: dict[str, Any], page: str) -> None:
        """In the names of the page so far; a session prints what stands there."""
        if not self.session:
            exec(self.code, scope)
            return
        test = doctest.DocTestParser().get_doctest(self.code, {}, page, page, 0)
        test.globs = scope
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(test, clear_globs=False).failed == 0


def blocks_of(page: Path) -> Iterator[Block]:
    needs = NOTHING
    for piece in PIECE.finditer(page.read_text()):
        if piece[1]:
            needs = piece[1]
        else:
            yield Block(needs, piece[2])


def pages_that_need(*needs: str) -> list[Path]:
    return [page for page in PAGES if any(block.needs in needs for block in blocks_of(page))]


def run_blocks(page: Path, *available: str) -> int:
    """Every block that can run here, one after the other; how many there were."""
    scope: dict[str, Any] = {}
    here = [block for block in blocks_of(page) if block.needs in (NOTHING, *available)]
    for block in here:
        block.run(scope, page.name)
    return len(here)
