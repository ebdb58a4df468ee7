"""Lessons of rungs and their pages, each made once in a process."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from lapidist.kernels.registry import kernel_named
from lapidist_lab.lessons.lesson import lesson_of
from lapidist_lab.lessons.moments import Observed, math_of, observed_rung
from lapidist_lab.lessons.page import page_of


@lru_cache
def lesson(name: str) -> dict[str, Any]:
    """By way of JSON, as the page gets it."""
    return json.loads(json.dumps(lesson_of(kernel_named(name))))


@lru_cache
def observed(name: str) -> Observed:
    kernel = kernel_named(name)
    return observed_rung(kernel, math_of(kernel))


def page_text(name: str) -> str:
    return page_of(lesson(name) | {"measured": None})
