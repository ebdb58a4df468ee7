"""Every block of Python on the pages runs, and sessions print what the page says.

Blocks that need a GPU run by `pytest -m gpu tests/docs`, those that need torch or JAX in tests/frameworks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from offenders import hold_none
from pages import NEEDS, NOTHING, PAGES, blocks_of, name_of, pages_that_need, run_blocks


@pytest.mark.parametrize("page", pages_that_need(NOTHING), ids=name_of)
def test_examples_run(page: Path) -> None:
    assert run_blocks(page)


@pytest.mark.gpu
@pytest.mark.parametrize("page", pages_that_need("gpu"), ids=name_of)
def test_examples_for_a_gpu_run(page: Path) -> None:
    assert run_blocks(page, "gpu")


def test_the_pages_that_begin_with_a_call_are_among_them() -> None:
    names = {name_of(page) for page in pages_that_need(NOTHING)}
    assert {"README.md", "docs/library.md", "docs/tutorials/first-product.md"} <= names


def test_needs_are_known() -> None:
    hold_none(
        f"{name_of(page)}: {block.needs}"
        for page in PAGES
        for block in blocks_of(page)
        if block.needs not in NEEDS
    )


def test_a_wrong_session_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> x = 2\n```\n\n```python\n>>> x + 1\n4\n```\n")
    with pytest.raises(AssertionError):
        run_blocks(page)


def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "```python\nx = 1\n```\n<!-- needs: gpu -->\n```python\nx / 0\n```\n"
    page.write_text(text)
    assert [block.needs for block in blocks_of(page)] == ["nothing", "gpu"]
    assert run_blocks(page) == 1
    with pytest.raises(ZeroDivisionError):
        run_blocks(page, "gpu")
