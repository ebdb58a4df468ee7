"""A part of the surveys: which of them run with `--part 2/6`."""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

import pytest


class Part(NamedTuple):
    """The `number`-th of `count`, from 1 on."""

    number: int
    count: int

    def has(self, test: str) -> bool:
        """Decided by the test's name alone, so that a new test moves no others."""
        return zlib.crc32(test.encode()) % self.count == self.number - 1


def part_from(text: str) -> Part:
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    part = Part(int(found[1]), int(found[2])) if found else None
    if part is None or part.number > part.count:
        raise pytest.UsageError(
            f"--part: must be I/N with I from 1 to N; got {text!r}. Write 2/6 for the second of six parts"
        )
    return part
