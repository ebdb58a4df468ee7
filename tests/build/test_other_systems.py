"""Windows and macOS, as far as this system can stand for them: imports, host products, the machine, lessons,
the cache and its locks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lapidist.build.portable_files import lock, open_file, try_lock
from lapidist.machine.ptx.source_text import short_name

SUPPORT = Path(__file__).parents[1] / "support"
START = "import sys; sys.path.insert(0, {!r}); import other_systems; other_systems.{}()\n"
PRODUCT = """
import numpy as np, lapidist
a, b = np.ones((5, 7), "float32"), np.ones((7, 3), "float32")
assert (lapidist.matmul(a, b) == 7).all()
"""


def run_as(system: str, code: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LAPIDIST_CACHE_DIR": str(home / "cache"), **more}
    command = [sys.executable, "-c", START.format(str(SUPPORT), f"become_{system}") + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=home, check=False)


def worked(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_everything_imports_and_numpys_arrays_are_multiplied(system: str, tmp_path: Path) -> None:
    code = (
        PRODUCT
        + """
import importlib, pkgutil
import lapidist_lab
for package in (lapidist, lapidist_lab):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            assert error.name.partition(".")[0] in ("torch", "jax", "jaxlib", "cupy"), error
print("all")
"""
    )
    assert worked(run_as(system, code, tmp_path)) == "all\n"


def test_the_machine_multiplies_on_windows_and_the_cache_keeps_the_kernel(tmp_path: Path) -> None:
    code = (
        PRODUCT
        + """
assert (lapidist.gemm(a, b, device="machine") == 7).all()
from lapidist.build import cache
from lapidist.build.folder import cache_directory
from lapidist.planning.binaries import forget
assert len(cache.entries(cache_directory())) == 1
forget()
from lapidist.build import compiler
def refused(*arguments): raise AssertionError("compiled again")
compiler.run_nvrtc = refused
assert (lapidist.gemm(a, b, device="machine") == 7).all()
"""
    )
    worked(run_as("windows", code, tmp_path))


def test_a_lesson_is_made_on_windows(tmp_path: Path) -> None:
    code = """
from lapidist.commands.cli import main
sys.argv[1:] = ["lesson", "02", "--html", "page.html"]
main()
"""
    worked(run_as("windows", code, tmp_path, PYTHONIOENCODING="cp1252"))
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_temporary_cache_is_locked_and_goes_on_windows(tmp_path: Path) -> None:
    """Another process' abandoned folder is removed, one in use is left, and the own one ends with this."""
    in_use, abandoned = (tmp_path / f"lapidist-{digit * 16}" for digit in "01")
    for folder in (in_use, abandoned):
        folder.mkdir()
        (folder / "lock").touch()
    handle = open_file(in_use / "lock", os.O_RDWR)
    lock(handle)
    code = """
from lapidist.build.folder import cache_directory
assert (cache_directory() / "lock").exists()
print(cache_directory())
"""
    settings = {"LAPIDIST_CACHE_DIR": "", "HOME": "", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    no_home = "from pathlib import Path\ndef home(*_): raise RuntimeError\nPath.home = home\n"
    made = Path(worked(run_as("windows", no_home + code, tmp_path, **settings)).strip())
    os.close(handle)
    assert made.parent == tmp_path
    assert list(tmp_path.iterdir()) == [in_use]


def test_tuned_choices_wait_for_their_lock_on_windows(tmp_path: Path) -> None:
    code = """
import threading
from pathlib import Path
from lapidist.planning.tuned import locked
order, inside = [], threading.Event()
def second():
    inside.wait()
    with locked(Path("tuned.json")): order.append("second")
thread = threading.Thread(target=second)
thread.start()
with locked(Path("tuned.json")):
    inside.set()
    thread.join(0.2)
    order.append("first")
thread.join()
print(order)
"""
    assert worked(run_as("windows", code, tmp_path)) == "['first', 'second']\n"


def test_kernels_are_compiled_in_one_process_on_windows(tmp_path: Path) -> None:
    code = """
import types
from lapidist.build import workers
def no_pool(count): raise AssertionError("processes")
workers.Pool, workers.compile_one = no_pool, lambda order: order
orders = [types.SimpleNamespace(entry=str(n)) for n in range(2)]
assert workers.compile_all(orders, 2) == orders
from lapidist.build.compile_policy import way_of
assert [way_of(way) for way in (None, "background", "never")] == ["wait", "wait", "never"]
"""
    worked(run_as("windows", code, tmp_path, LAPIDIST_COMPILE=""))


def test_macos_runs_ptx_and_says_why_it_compiles_nothing(tmp_path: Path) -> None:
    code = (
        PRODUCT
        + '''
from lapidist.machine import run_ptx
ptx = """.version 8.0
.target sm_90
.address_size 64
.visible .entry one(.param .u64 x) {
.reg .b64 %rd<2>;
.reg .b32 %r<2>;
ld.param.u64 %rd1, [x];
mov.u32 %r1, 7;
st.global.u32 [%rd1], %r1;
ret;
}"""
x = np.zeros(1, "int32")
run_ptx(ptx, "one", grid=(1, 1, 1), block=(1, 1, 1), args={0: x})
assert x[0] == 7
try:
    lapidist.gemm(a, b, device="machine")
except lapidist.DeviceError as error:
    print(error)
'''
    )
    doctor = "from lapidist.backends.gpu import doctor\nassert doctor.run() == 0"
    assert "absent  NVRTC" in worked(run_as("macos", doctor, tmp_path))
    assert "NVIDIA has no compiler for macOS" in worked(run_as("macos", code, tmp_path))


def test_names_of_files_on_windows_are_short_too() -> None:
    assert short_name("C:\\\\lib\\\\lapidist\\\\cuda\\\\gemm\\\\simt.cu") == "gemm/simt.cu"
    assert short_name("C:\\work\\mine.cu") == "mine.cu"


def test_one_handle_at_a_time_has_the_lock(tmp_path: Path) -> None:
    first, second = (open_file(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    lock(first)
    assert not try_lock(second)
    os.close(first)
    assert try_lock(second)
    os.close(second)
