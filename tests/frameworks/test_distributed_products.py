"""lapidist.distributed in processes on the CPU: results, gradients, and ranks that fail."""

from __future__ import annotations

import importlib
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def processes() -> Any:
    return importlib.import_module("parallel_ranks")


@pytest.fixture
def functions() -> Any:
    return importlib.import_module("rank_functions")


@pytest.fixture
def benched() -> Any:
    return importlib.import_module("benched_ranks")


@pytest.fixture
def inputs() -> Any:
    return importlib.import_module("rank_inputs")


@pytest.fixture
def faults() -> Any:
    return importlib.import_module("rank_faults")


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_products_and_gradients(processes: Any, ranks: int, tmp_path: Path) -> None:
    processes.in_processes(processes.everything, tmp_path, "cpu", ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_functions_of_sums_have_gradients(functions: Any, ranks: int, tmp_path: Path) -> None:
    functions.in_processes(functions.functions_of_ranks, tmp_path, "cpu", ranks)


def test_functions_of_sums_are_in_one_graph(functions: Any, tmp_path: Path) -> None:
    functions.in_processes(functions.functions_in_graphs, tmp_path, "cpu")


def test_ranks_cast_under_autocast(functions: Any, tmp_path: Path) -> None:
    functions.in_processes(functions.products_under_autocast, tmp_path, "cpu")


def test_ranks_take_operands_as_they_lie(inputs: Any, tmp_path: Path) -> None:
    inputs.in_processes(inputs.everything, tmp_path, "cpu")


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_bits_of_one(processes: Any, ranks: int, tmp_path: Path) -> None:
    processes.in_processes(processes.chunks_of_k, tmp_path, "cpu", ranks)


def test_torch_compile_makes_one_graph(processes: Any, tmp_path: Path) -> None:
    processes.in_processes(processes.compiled_graphs, tmp_path, "cpu")


def test_the_study_of_several_cards_times_every_way(benched: Any, tmp_path: Path) -> None:
    benched.in_processes(benched.bench, tmp_path, "cpu")


def test_the_page_takes_what_the_study_writes(benched: Any, tmp_path: Path) -> None:
    benched.in_processes(benched.published, tmp_path, "cpu")


def test_shapes_that_differ_are_refused_on_every_rank(faults: Any, tmp_path: Path) -> None:
    assert faults.ended(faults.with_other_shapes, tmp_path) == [0, 0]


def test_gradients_and_places_that_differ_are_refused_on_every_rank(faults: Any, tmp_path: Path) -> None:
    assert faults.ended(faults.with_other_gradients_and_places, tmp_path) == [0, 0]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_is_killed_is_an_error_of_the_others(faults: Any, ranks: int, tmp_path: Path) -> None:
    codes = faults.ended(faults.with_a_rank_that_is_killed, tmp_path, ranks)
    assert codes == [0, -signal.SIGKILL, 0][:ranks]


def test_a_rank_in_another_call_is_an_error_by_the_time_limit(faults: Any, tmp_path: Path) -> None:
    assert faults.ended(faults.with_a_rank_that_stays_away, tmp_path) == [0, 0]
