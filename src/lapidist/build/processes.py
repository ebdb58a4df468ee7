"""Python processes beside this one. They import from where it does, but nothing from the working directory or
from beside a user's script.

With `-m` and `-c`, by which multiprocessing starts its processes too, Python looks for modules in the working
directory first: a json.py there would run in place of the standard library's. `-I` would keep Python from
that, but also from PYTHONHOME and from the user's own packages, among which NVRTC may be.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from lapidist.build.folder import VARIABLE, cache_directory
from lapidist.build.portable_files import WINDOWS
from lapidist.errors import DeviceError, LapidistError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PACKAGES = "lapidist", "numpy", "cuda.bindings"  # what compiling takes besides the standard library
LOWEST = 19  # the nice value of low priority
# `sys` is built in, so nothing is looked for before the working directory ('') is out of the path.
START = """import sys
standard = [path for path in sys.path if path]
sys.path[:] = standard
import site
site.main()
sys.path[:] = dict.fromkeys([*standard, *{paths}, *sys.path])
{code}"""
SERVE = "from lapidist.build.processes import serve; serve({}, {})"


def command(code: str) -> list[str]:
    """The command of a Python that runs this code."""
    flags = {"-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    start = START.format(paths=ascii(search_path()), code=code)
    return [sys.executable, "-S", *(flag for flag, is_set in flags.items() if is_set), "-c", start]


def environment(**more: str) -> dict[str, str]:
    """For that Python. PYTHONPATH would pass for the standard library; its folders are in the path anyway."""
    return {**{name: text for name, text in os.environ.items() if name != "PYTHONPATH"}, **more}


def search_path() -> list[str]:
    """Where this process imports from. The working directory and the script's are left out, unless PACKAGES
    came from there.
    """
    needed, script = package_folders(), getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [os.curdir, *([os.path.dirname(script) or os.curdir] if script else [])]
    listed = [os.path.abspath(path) for path in sys.path if isinstance(path, str) and path]
    paths = [path for path in listed if not any(is_same(path, folder) for folder in folders)]
    return [*(path for path in needed if path not in paths), *paths]


def package_folders() -> list[str]:
    """From where PACKAGES were imported, as far as they were."""
    folders = []
    for name in PACKAGES:
        for package in getattr(sys.modules.get(name), "__path__", [])[:1]:
            folders.append(str(Path(package).parents[name.count(".")]))
    return folders


def is_same(path: str, folder: str) -> bool:
    try:
        return os.path.samefile(path, folder)
    except OSError:
        return False


class Process:
    """A Python that runs `function`, which gets a connection to here and these arguments.

    It keeps what it compiles where this process does, unless `settings` of the environment say otherwise.
    `low`: at low priority and without a word, since the caller reports errors.
    """

    def __init__(
        self, function: Callable[..., None], *arguments: object, low: bool = False, **settings: str
    ) -> None:
        if WINDOWS:
            rule = "need handles that a process inherits by their numbers, which Windows lacks"
            raise DeviceError(f"processes: more than one {rule}. Ask for one job")
        from multiprocessing import Pipe

        self.connection, theirs = Pipe()
        silent = subprocess.DEVNULL if low else None
        with theirs:
            self.popen = subprocess.Popen(
                command(SERVE.format(theirs.fileno(), low)),
                stdin=subprocess.DEVNULL,
                stdout=silent,
                stderr=silent,
                env=environment(**{VARIABLE: str(cache_directory()), **settings}),
                pass_fds=[theirs.fileno()],
            )
        with suppress(OSError):  # it has ended already: who reads from it learns that
            self.connection.send((function, arguments))

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What the function returns or refuses there, if the process runs `make_calls`."""
        try:
            self.connection.send((function, arguments))
            refused, result = self.connection.recv()
        except (OSError, EOFError):
            raise ChildProcessError(f"process ended ({self.popen.wait()})") from None
        if refused:
            raise result
        return result

    def end(self) -> None:
        """What it is at is dropped."""
        self.popen.kill()
        self.popen.wait()
        self.connection.close()


class Pool(ThreadPoolExecutor):
    """So many processes for calls. The end of the block ends what they are at."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._processes = [Process(make_calls) for _ in range(count)]
        self._idle: SimpleQueue[Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # type: ignore[override]
        return super().submit(self._call, function, *arguments)

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        process = self._idle.get()
        try:
            return process.call(function, *arguments)
        finally:
            self._idle.put(process)

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.popen.kill()
        self.shutdown(cancel_futures=True)
        for process in self._processes:
            process.end()


# ---- in the process ----


def serve(handle: int, low: bool) -> None:
    """Ctrl-C reaches all processes of a terminal; the first one ends the others."""
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if low and hasattr(os, "nice"):
        os.nice(LOWEST)
    with Connection(handle) as connection:
        function, arguments = connection.recv()
        function(connection, *arguments)


def make_calls(connection: Connection) -> None:
    """Make calls until no more come. An error that is not lapidist's ends the process, with its traceback."""
    while True:
        try:
            function, arguments = connection.recv()
        except (OSError, EOFError):
            return
        try:
            result = False, function(*arguments)
        except LapidistError as error:
            result = True, error
        connection.send(result)
