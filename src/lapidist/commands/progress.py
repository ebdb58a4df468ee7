"""Where a long command is: a bar on stderr, or now and then a line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[str], None]  # called with what was done
LINE_SECONDS = 10.0  # where no bar can be drawn, at most so often a line


@contextmanager
def progress(total: int, title: str) -> Iterator[Step]:
    """A bar on stderr that goes away when all is done, or now and then a line: stdout is for results."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console, start = Console(stderr=True), time.monotonic()
    if not console.is_terminal:
        yield lines_of_progress(total, title, start)
        return
    words = TextColumn("{task.description:32}")
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Rows that go to the same terminal are printed above the bar; those for a file stay on stdout.
    shared = sys.stdout.isatty()
    with Progress(*columns, console=console, transient=True, redirect_stdout=shared) as bar:
        task = bar.add_task(title, total=total)
        yield lambda text: bar.update(task, advance=1, description=text[:32])


def lines_of_progress(total: int, title: str, start: float) -> Step:
    """A step that prints where the run is, unless it did so moments ago."""
    done, printed = 0, start

    def step(text: str) -> None:
        nonlocal done, printed
        done += 1
        if time.monotonic() - printed > LINE_SECONDS:
            printed = time.monotonic()
            print(f"{title} {done} of {total}, {printed - start:.0f} s: {text}", file=sys.stderr)

    return step
