"""The project's own files as text and as trees, each read once a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from lapidist.build.compiler import CUDA_SOURCES
from lapidist_lab.bench.studies.limits import SOURCES as LIMIT_SOURCES

ROOT = Path(__file__).parents[2]
HOST_FILES = sorted((ROOT / "src").rglob("*.py"))
DEVICE_FILES = sorted(path for folder in (CUDA_SOURCES, LIMIT_SOURCES) for path in folder.rglob("*.cu*"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))
