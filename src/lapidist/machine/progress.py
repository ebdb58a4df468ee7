"""A bar on stderr for a run that takes longer than a glance: how many blocks of the grid have started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

GLANCE_SECONDS = 1.0


@contextmanager
def bar_of_blocks(title: str, patience: float = GLANCE_SECONDS) -> Iterator[Callable[[int, int], None]]:
    """Yield a function for `on_progress` of a run. The bar appears when the run has lasted `patience`, and
    goes away at the end.

    The kernel's own output goes to stdout meanwhile."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    words = TextColumn("{task.description:32}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=False)
    task = bar.add_task(title[:32], total=None)
    late = Timer(patience, bar.start)
    late.daemon = True
    if console.is_terminal:  # in a file a bar is an empty line
        late.start()
    try:
        yield lambda started, blocks: bar.update(task, completed=started, total=blocks)
    finally:
        late.cancel()
        if bar.live.is_started:
            bar.stop()
