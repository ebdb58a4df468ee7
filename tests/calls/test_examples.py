"""The examples in the docstrings of public names, run as they stand."""

from __future__ import annotations

import doctest
import inspect

import pytest

import lapidist

DOCUMENTED = [
    name
    for name in lapidist.__all__
    if inspect.isroutine(getattr(lapidist, name))
    or (inspect.isclass(getattr(lapidist, name)) and not issubclass(getattr(lapidist, name), Exception))
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_say_what_happens(name: str) -> None:
    value = getattr(lapidist, name)
    cases = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    assert cases, f"{name} shows no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for case in cases:
        assert case.examples, f"{name} shows no example"
        assert runner.run(case).failed == 0


@pytest.mark.parametrize("name", ["matmul", "gemm", "einsum", "tensordot"])
def test_every_parameter_is_described(name: str) -> None:
    function = getattr(lapidist, name)
    text = inspect.getdoc(function) or ""
    section = text.partition("Parameters\n----------\n")[2].partition("\nReturns\n")[0]
    heads = [line.split(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]
    described = {each.strip() for head in heads for each in head.split(",")}
    assert set(inspect.signature(function).parameters) - {"more", "unknown"} <= described
