"""Processes of lapidist's own run nothing that lies in the working directory, or beside a user's script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import lapidist
from lapidist.build.folder import VARIABLE
from lapidist.build.processes import Pool, Process, environment, make_calls, search_path
from lapidist.device import chip
from lapidist.errors import ArgumentError
from offenders import hold_none

SOURCES = Path(lapidist.__file__).parents[1]
# What a compiler imports of the standard library, what Python imports when it starts, and what copy and
# pickle look for on other Pythons.
TRAPS = (
    *("contextlib", "enum", "json", "logging", "multiprocessing", "pickle", "queue", "random", "runpy"),
    *("selectors", "signal", "socket", "struct", "subprocess", "tempfile", "types"),
    *("org", "readline", "sitecustomize", "usercustomize"),
)
SPRUNG = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch(); raise SystemExit('a trap')"


def lay_traps(folder: Path) -> None:
    for name in TRAPS:
        (folder / f"{name}.py").write_text(SPRUNG)


def sprung(*folders: Path) -> list[str]:
    return [path.stem for folder in folders for path in folder.glob("*.ran")]


# The traps are laid when the program has imported all it needs, as where a notebook's folder gets a json.py.
PROGRAM = """
import sys, threading
from pathlib import Path
sys.path[:0] = {paths}
from lapidist.build import background_compile
from lapidist.build.compiler import Order
from lapidist.build.workers import compile_all

def order(rows):
    defines = {{"T": "float", "ALIGNED": 1, "BM": rows, "BN": 32}}
    return Order("ladder/02_coalesced.cu", "coalesced", defines, "sm_90a", ())

def compiled(first, second, third):
    assert [answer.error for answer in compile_all([order(first), order(second)], 2)] == [None, None]
    come = threading.Event()
    assert background_compile.ask(order(third), lambda binary: come.set())
    while background_compile.is_under_way(order(third)):
        come.wait(0.01)
    assert come.is_set()

compiled(8, 16, 24)
for folder in {folders}:
    for name in {traps}:
        (Path(folder) / (name + ".py")).write_text({sprung!r})
background_compile._behind.stop()
background_compile._behind = background_compile.Behind()
compiled(32, 40, 48)
"""


class Stage:
    """A working directory, a script's folder, and a program that compiles in other processes."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.here, self.beside = (folder / name for name in ("cache", "here", "beside"))
        for made in (self.here, self.beside):
            made.mkdir()
        self.others = [path for path in sys.path if path and Path(path) != SOURCES]
        self.traps = TRAPS
        self.script = self.beside / "script.py"

    def run(self, *command: str | Path, paths: Sequence[str] = (), **variables: str) -> None:
        """With `{}` in place of the program's text; `paths`: what the program adds to its path."""
        folders = [str(self.here), str(self.beside)]
        text = PROGRAM.format(paths=[*paths], folders=folders, traps=self.traps, sprung=SPRUNG)
        self.script.write_text(text)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        ran = subprocess.run(
            [sys.executable, *(text if part == "{}" else part for part in command)],
            env={**ours, VARIABLE: str(self.cache), **variables},
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert (ran.stdout, ran.stderr) == ("", "")
        assert ran.returncode == 0
        assert sprung(self.here, self.beside) == []


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def joined(*paths: str | Path) -> str:
    return os.pathsep.join(map(str, paths))


def test_the_working_directory_of_an_isolated_python(stage: Stage) -> None:
    stage.run("-I", "-c", "{}", paths=[str(SOURCES), *stage.others])


def test_the_working_directory_of_an_interactive_python(stage: Stage) -> None:
    """The first of its path is ''."""
    stage.run("-c", "{}", PYTHONPATH=joined(SOURCES, *stage.others))


def test_the_folder_of_a_script(stage: Stage) -> None:
    stage.run(stage.script, PYTHONPATH=joined(SOURCES, *stage.others))


def test_an_empty_part_of_the_path_and_variables_of_python(stage: Stage) -> None:
    more = {"PYTHONSTARTUP": str(stage.here / "json.py"), "PYTHONINSPECT": "1", "PYTHONWARNINGS": "error"}
    stage.run("-c", "{}", PYTHONPATH=joined("", SOURCES, *stage.others), **more)


def test_a_checkout_by_a_relative_path(stage: Stage) -> None:
    (stage.here / "src").symlink_to(SOURCES)
    stage.run("-c", "{}", PYTHONPATH=joined("src", *stage.others))


def test_packages_in_the_working_directory(stage: Stage) -> None:
    """As `pip install --target .` puts them there: they are used, and the standard library comes first."""
    (stage.here / "lapidist").symlink_to(SOURCES / "lapidist")
    stage.traps = tuple(name for name in TRAPS if name != "org")  # nothing of that name comes before it
    stage.run("-c", "{}", PYTHONPATH=joined(*stage.others))


def run_among_traps(folder: Path, program: str, *arguments: str) -> None:
    """As a console script does that lies elsewhere."""
    here, script = folder / "here", folder / "script"
    here.mkdir()
    lay_traps(here)
    script.write_text(f"import sys\nsys.path[:0] = {[str(SOURCES)]}\n{program}")
    ran = subprocess.run(
        [sys.executable, script, *arguments],
        env={**os.environ, VARIABLE: str(folder / "cache")},
        cwd=here,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sprung(here) == []


def test_the_command(tmp_path: Path) -> None:
    warm = "warm", "--dtype", "fp64", "--jobs", "2", "--chip", "h200"
    main = "from lapidist.commands.cli import main; main()"
    run_among_traps(tmp_path, main, *warm, "--mnk", "64,64,64", "--mnk", "513,77,1025")
    assert len(list((tmp_path / "cache").glob("*.bin"))) == 2


# Commands for developers start their processes in the same way.
OTHERS = """
from lapidist_lab.bench.studies.launch_costs import BARE_IMPORT, in_process
from lapidist_lab.bench.studies.new_shapes import answer, new_shapes
from lapidist.device import chip
from lapidist_lab.fuzz.seeded_cases import Run
from lapidist_lab.fuzz.parallel_runs import Extent, in_processes
from lapidist_lab.sass.hashes import lines
assert in_process(BARE_IMPORT, None, {folder!r})[0] > 0
assert answer(new_shapes, {folder!r}, 2, 7) == new_shapes(2, 7)
found = list(in_processes(Run("host", 2301, ("numpy",)), Extent(8, None), 2))
assert [each.words for each in found if each.verdict == "WRONG"] == []
assert len(found) == 8
assert len(list(lines(chip("h200"), 2, ["uncoalesced"]))) > 8
"""


def test_the_processes_of_developers_commands(tmp_path: Path) -> None:
    run_among_traps(tmp_path, OTHERS.format(folder=str(tmp_path / "more")))


STARTS = re.compile(r"sys\.executable|get_context|ProcessPoolExecutor|multiprocessing\.(?!connection|util)")


def test_every_process_is_started_here() -> None:
    """doctor.py prints the path of Python."""
    started = "build/processes.py", "backends/gpu/doctor.py"
    files = [path for path in SOURCES.rglob("*.py") if not str(path).endswith(started)]
    hold_none(str(path) for path in files if STARTS.search(path.read_text()))


# ---- the path ----


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_working_directory_is_left_out_of_the_path(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, other = elsewhere / "link", elsewhere / "other"
    link.symlink_to(elsewhere)
    other.mkdir()
    monkeypatch.setattr(sys, "path", ["", ".", str(elsewhere), str(link), other, "other", *sys.path])
    assert search_path()[0] == str(other)
    assert not {"", ".", str(elsewhere), str(link)} & {*search_path()}


def test_packages_are_found_where_they_were(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the path has changed since, or by a finder of an editable installation."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path) != SOURCES])
    assert search_path()[0] == str(SOURCES)


def test_a_working_directory_that_is_gone(elsewhere: Path) -> None:
    elsewhere.rmdir()
    assert str(SOURCES) in search_path()


# ---- calls ----


@contextmanager
def caller() -> Iterator[Process]:
    process = Process(make_calls)
    yield process
    process.end()


def test_a_refusal_is_raised_here_and_the_process_goes_on() -> None:
    with caller() as process:
        with pytest.raises(ArgumentError, match=r"^chip: must be one of"):
            process.call(chip, "none")
        assert process.call(chip, "h200") == chip("h200")


def test_another_error_ends_the_process_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with caller() as process:
        for _ in range(2):
            with pytest.raises(ChildProcessError, match=r"^process ended \(1\)"):
                process.call(int, "x")
    assert "ValueError: invalid literal" in capfd.readouterr().err


def test_a_pool_ends_what_is_under_way(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    with Pool(2) as pool:
        assert list(pool.map(abs, [-3, -2, -1])) == [3, 2, 1]
        waiting = pool.submit(open, begun)  # for a writer, who never comes
        while not waiting.running():
            os.sched_yield()
    assert isinstance(waiting.exception(), ChildProcessError)
    assert all(process.popen.returncode for process in pool._processes)


def test_a_process_has_the_callers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "anywhere")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = environment(MORE="this")
    assert {"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "3", "MORE": "this"}.items() <= found.items()
    assert "PYTHONPATH" not in found
