"""The public names: all there, all documented, and free until they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import lapidist


def test_all_is_sorted_and_complete() -> None:
    assert lapidist.__all__ == sorted(
        lapidist.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    assert set(lapidist.__all__) == set(lapidist._MODULE_OF)
    assert dir(lapidist) == sorted(lapidist.__all__)


def test_the_stub_has_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse(Path(lapidist.__file__).with_suffix(".pyi").read_text())
    homes = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == {name: f"lapidist.{module}" for name, module in lapidist._MODULE_OF.items()}
    (listed,) = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(listed) == lapidist.__all__


@pytest.mark.parametrize("name", lapidist.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(lapidist, name)
    if name.isupper():
        assert value
    else:
        assert value.__doc__
        assert value.__module__ == f"lapidist.{lapidist._MODULE_OF[name]}"


def test_public_methods_of_public_classes_say_what_they_are() -> None:
    classes = [value for name in lapidist.__all__ if isinstance(value := getattr(lapidist, name), type)]
    methods = {
        f"{each.__name__}.{name}": value
        for each in classes
        for name, value in vars(each).items()
        if not name.startswith("_")
        and isinstance(value, (property, cached_property, FunctionType, classmethod))
    }
    assert "Gemm.execute" in methods
    assert [name for name, value in methods.items() if not value.__doc__] == []


def test_ready_made_epilogues_are_there_without_an_import_of_their_own() -> None:
    code = "import lapidist; print(lapidist.epilogues.bias_gelu, 'swiglu' in dir(lapidist.epilogues))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "gelu(acc + bias) True\n", found.stderr


def test_every_error_is_exported() -> None:
    from lapidist import errors

    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert raised <= set(lapidist.__all__)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'lapidist' has no attribute 'gem'"):
        _ = lapidist.gem


def test_gelu_by_tanh_says_how_it_is_written() -> None:
    hint = (
        r"no attribute 'gelu_tanh'. Write lapidist.gelu\(x, \"tanh\"\), or pass lapidist.epilogues.gelu_tanh"
    )
    with pytest.raises(AttributeError, match=hint):
        _ = lapidist.gelu_tanh
    assert str(lapidist.epilogue(lambda acc: lapidist.gelu(acc, "tanh"))) == str(lapidist.epilogues.gelu_tanh)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_import_loads_nothing_heavy() -> None:
    assert not {"numpy", "cuda", "typer", "rich", "torch", "cupy", "jax"} & loaded_by("import lapidist")


def test_multiplying_on_the_host_loads_no_gpu_library() -> None:
    statement = (
        "import numpy, lapidist; lapidist.matmul(numpy.ones((2, 2), 'float32'), numpy.ones((2, 2),"
        " 'float32'))"
    )
    assert not {"torch", "cupy", "jax", "typer", "rich"} & loaded_by(statement)


ON_THE_HOST = """
import numpy, lapidist
a, b = numpy.ones((2, 2), "float32"), numpy.ones((2, 2))
lapidist.matmul(a, a)
lapidist.matmul(a, b)
"""
HOST_MODULES = 40


def test_a_product_of_host_arrays_loads_what_it_needs() -> None:
    """One that NumPy takes at once, and one that goes the full path: no kernels, plans, machine or epilogues,
    no parts of calls that it does not have.
    """
    program = f"import sys\n{ON_THE_HOST}\nprint(*sys.modules)"
    text = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = [name for name in text.split() if name.partition(".")[0] == "lapidist"]
    assert "lapidist.backends.host_backend" in loaded
    assert len(loaded) <= HOST_MODULES, loaded
    folders = "backends.gpu cuda device epilogues jax kernels machine planning schedule torch"
    parts = "factor_operands index_operands scalar_operands epilogue_operands lists prepared executable"
    paths = "fast_path guard write list_repeat new_rows with_arrays"
    unneeded = [
        *(f"lapidist.{name}" for name in folders.split()),
        *(f"lapidist.calls.{name}" for name in parts.split()),
        *(f"lapidist.calls.repeat.{name}" for name in paths.split()),
        *("lapidist.build.folder", "lapidist.problems.epilogue_layout"),
    ]
    assert [name for name in loaded if name in unneeded] == []


PLANNED = """
from lapidist.backends.gpu import launched_products
from lapidist.device import chip
from lapidist.planning.fallback_kernels import planned_at_once
from lapidist.problems.problem import dense_problem
import lapidist; lapidist.matmul
assert planned_at_once(dense_problem(300, 256, 512, "bfloat16"), chip("h200")) is not None
"""


def test_a_plain_product_loads_what_it_needs() -> None:
    """A first call waits for its modules: those of lists, indices, epilogues and other kernels are not
    its."""
    program = f"import sys\n{PLANNED}\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded, calls = found.stdout.split(), "epilogue_operands lists index_operands factor_operands"
    repeats = "with_arrays start_with_arrays list_repeat"
    others = (
        *("lapidist.epilogues", "lapidist.problems.epilogue_layout", "lapidist.planning.second_passes"),
        *("lapidist.kernels.registry", "lapidist.kernels.sgemm", "lapidist.kernels.mma", "ml_dtypes"),
        *("lapidist.schedule.simulate", "lapidist.build.background_compile"),
        *(f"lapidist.calls.{name}" for name in calls.split()),
        *(f"lapidist.calls.repeat.{name}" for name in repeats.split()),
    )
    assert "lapidist.kernels.wgmma.family" in loaded
    assert [name for name in loaded if name in others] == []


def test_the_version_is_written_once() -> None:
    """The package has it; what builds a distribution reads it there."""
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project
    assert '[tool.hatch.version]\npath = "src/lapidist/__init__.py"' in project
    assert re.fullmatch(r"\d+\.\d+\.\d+", lapidist.__version__)


TYPED = """
import lapidist

class Tensor:
    shape: tuple[int, ...] = ()

reveal_type(lapidist.matmul(Tensor(), Tensor()))
reveal_type(lapidist.gemm(Tensor(), Tensor(), schedule="stream_k"))
reveal_type(lapidist.gemm([Tensor()], [Tensor()]))
lapidist.gemm("x", 3)
lapidist.gemm(Tensor(), Tensor(), schedule="bogus")
lapidist.plan(Tensor(), Tensor(), precision="half")
"""


def test_types_are_those_of_the_arrays_and_of_what_may_be_asked(tmp_path: Path) -> None:
    from mypy import api

    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    told = api.run([str(file), "--config-file", str(Path(__file__).parent.parent / "pyproject.toml")])[0]
    assert re.findall(r'typed.py:\d+: note: Revealed type is "(?:typed\.|builtins\.)?([^"]*)"', told) == [
        "Tensor",
        "Tensor",
        "list[typed.Tensor]",
    ]
    wrong = re.findall(r"typed.py:(\d+): error", told)
    assert sorted(set(wrong)) == ["10", "11", "12"], told


def test_plans_tell_in_a_line_what_they_are() -> None:
    a = np.ones((30, 40), np.float32)
    assert (
        repr(lapidist.plan(a, a.T))
        == "<lapidist.Gemm 30 x 30 x 40 float32, layouts rcr, by NumPy on the host>"
    )
    on_machine = repr(lapidist.plan(a, a.T, device="machine"))
    assert re.fullmatch(
        r"<lapidist.Gemm 30 x 30 x 40 float32, layouts rcr, by \w+ .* on the machine>", on_machine
    )
    assert repr(lapidist.plan([a], [a.T])).startswith("<lapidist.ArrayGemm of 30 x 30 x 40 float32")
