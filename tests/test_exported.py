"""The public names: all there, all documented, and free until they are used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lapidist


def test_all_is_sorted_and_complete() -> None:
    assert lapidist.__all__ == sorted(lapidist.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert set(lapidist.__all__) == set(lapidist._MODULE_OF)
    assert dir(lapidist) == sorted(lapidist.__all__)


@pytest.mark.parametrize("name", lapidist.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(lapidist, name)
    if name.isupper():
        assert value
    else:
        assert value.__doc__
        assert value.__module__ == f"lapidist.{lapidist._MODULE_OF[name]}"


def test_every_error_is_exported() -> None:
    from lapidist import errors

    raised = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert raised <= set(lapidist.__all__)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'lapidist' has no attribute 'gem'"):
        _ = lapidist.gem


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())


def test_import_loads_nothing_heavy() -> None:
    assert not {"numpy", "cuda", "typer", "rich", "torch", "cupy", "jax"} & loaded_by("import lapidist")


def test_multiplying_on_the_host_loads_no_gpu_library() -> None:
    statement = "import numpy, lapidist; lapidist.matmul(numpy.ones((2, 2), 'float32'), numpy.ones((2, 2), 'float32'))"
    assert not {"torch", "cupy", "jax", "typer", "rich"} & loaded_by(statement)


def test_the_version_is_written_once() -> None:
    """The package has it; what builds a distribution reads it there."""
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project
    assert '[tool.hatch.version]\npath = "src/lapidist/__init__.py"' in project
    assert re.fullmatch(r"\d+\.\d+\.\d+", lapidist.__version__)
