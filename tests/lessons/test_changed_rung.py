"""A rung as a reader changed it, without a compiler: what the site's page says of its runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lapidist.kernels.registry import kernel_named
from lapidist.planning import binaries
from lapidist_lab.lessons.changed_rung import changed_rung, texts_of

RUNG, SHAPE = "padded_tile", (64, 64, 96)
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    texts = texts_of(map(kernel_named, ("shared_tile", RUNG)))
    monkeypatch.setattr(binaries, "_binaries", {})
    monkeypatch.setattr(binaries, "compile_kernel", None)

    def changed(
        shape: tuple[int, int, int] = SHAPE, old: str = "", new: str = "", races: bool = False
    ) -> Any:
        ptx = texts[RUNG]["ptx"]
        assert old in ptx
        return changed_rung(texts, RUNG, shape, ptx.replace(old, new) if old else ptx, races)

    return changed


def turns(answer: dict[str, Any]) -> float:
    found = re.search(r'"name":"turns a shared load","before":[^,]*,"now":([^,]*),', answer["page"])
    assert found is not None
    return float(found[1])


def test_other_sizes_and_other_numbers_are_run(run: Run) -> None:
    plain, wide, unpadded = run(), run((64, 128, 96)), run(old=", 132;", new=", 128;")
    for answer in (plain, wide, unpadded):
        assert answer["right"]
        assert answer["verdict"] == ["Every element of D is right, and nothing was found in a run."]
    assert '"shape":[64,128,96]' in wide["page"]
    assert (turns(plain), turns(unpadded)) == (1.2, 17.0)  # as the page says


def test_what_is_wrong_is_said_and_has_no_lesson(run: Run) -> None:
    race = run(old="bar.sync \t0;", new="", races=True)
    broken = run(old="bar.sync", new="bar.sink")
    refused, empty = run((64, 33, 96)), run((64, 0, 96))
    for answer, words in (
        (race, "05_padded_tile.cu:.*a race on shared memory"),
        (broken, "bar.sink"),
        (refused, "another binary for 64 x 33 x 96.* Take multiples of 32, 32 and 32"),
        (empty, "n: must be from 1 to 1024; got 0"),
    ):
        assert not answer["right"]
        assert answer["page"] == ""
        assert re.search(words, answer["verdict"][0])


def test_wrong_results_are_shown_with_their_lesson(run: Run) -> None:
    scaled = run(old="mul.f32 \t", new="add.f32 \t")
    assert not scaled["right"]
    assert "results are wrong" in scaled["verdict"][0]
    assert scaled["page"]


BROWSER = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fcntl", "typer", "click", "cuda", "matplotlib", "ml_dtypes", "torch"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.platform = "emscripten"
import lapidist_lab.lessons.changed_rung
from lapidist.build import portable_files as files
handle = files.open_folder(".")
files.lock(handle); files.share_lock(handle)
print(files.try_lock(handle))
"""


def test_it_needs_numpy_alone() -> None:
    done = subprocess.run([sys.executable, "-c", BROWSER], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")
