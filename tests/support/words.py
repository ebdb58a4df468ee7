"""Sentences, as tests measure them: of pages, of docstrings, of help and of errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

LONGEST = 25  # words
TEXTS = ("help", "epilog")  # keywords of the command line's options and commands


def long_ones(sentences: Sequence[str]) -> list[str]:
    return [sentence for sentence in sentences if len(sentence.split()) > LONGEST]


def split(text: str) -> list[str]:
    """Paragraphs and items of lists, each into its sentences."""
    blocks = re.split(r"\n\s*\n|^\s*(?:- |\d\. )", text, flags=re.M)
    return [
        each for block in blocks for each in re.split(r"(?<=[.!?])[*)]*\s+", " ".join(block.split())) if each
    ]


def prose_of(text: str) -> str:
    """A page without what `lapidist report` writes, code, what is folded, tables, headings and targets."""
    text = re.sub(r"<!-- (\S+):begin -->.*?<!-- \1:end -->|^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"^<details.*?^</details>", "", text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->|<[^>]+>", "", text, flags=re.S)
    text = re.sub(r"`[^`]+`", "code", re.sub(r"\]\([^)\s]+\)", "]", text))
    return "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#", "    ")))


def of_page(text: str) -> list[str]:
    return split(prose_of(text))


# ---- Python ----


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def of_docstrings(path: Path) -> list[str]:
    """Without examples, what is indented, drawn or set in columns, and the heads of parameters."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]
    return [each for node in nodes for each in of_docstring(ast.get_docstring(node) or "")]


def of_docstring(text: str) -> list[str]:
    sections = r"^(?:Parameters|Returns|Raises|Examples|Attributes|Yields)\n-+\n"
    plain, *rest = re.split(sections, text, flags=re.M)
    described = [re.sub(r"^\S.*$", "", section, flags=re.M) for section in rest]
    kept = re.sub(r"^(?:    |.*(?:\S  +\S|[├└│═=]).*|\s*>>>).*$", "\n", plain, flags=re.M)
    return [each for part in (kept, *described) for each in split(re.sub(r"`[^`]+`", "code", part))]


def of_errors(path: Path) -> Iterator[str]:
    """What is raised; a value in it counts as a word."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                yield from split(literal(argument))


def of_help(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.keyword) and node.arg in TEXTS:
            yield from split(literal(node.value))


def literal(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(each) for each in node.values)
    if isinstance(node, ast.FormattedValue):
        return "X"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
