"""`lapidist lesson`: a rung as a page that moves, made by running it in the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lapidist.commands.options import JsonObject, kernels_like
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.kernels.kernel import Kernel
    from lapidist_lab.bench.protocol.record import Run

EXAMPLES = ("lesson 05 --html bank-conflicts.html", "lesson --all --html lessons/", "lesson 02 --json")


def lesson(
    kernel: Annotated[
        str | None, typer.Argument(help="a kernel's name or a rung's number", autocompletion=kernels_like)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="a page for each rung, and an index")] = False,
    html: Annotated[
        Path | None, typer.Option(help="write one self-contained page here; with --all, a folder of them")
    ] = None,
    root: Annotated[Path, typer.Option(help="the checkout whose Records give the measured bars")] = Path(),
    as_json: JsonObject = False,
) -> None:
    """A rung as a page that moves: lanes, banks, copies, barriers.

    It has the rung's source beside them. The kernel runs in the machine, so no GPU is needed.
    """
    from lapidist.kernels.registry import RUNGS, kernel_named

    if every == (kernel is not None):
        raise ArgumentError(
            f"KERNEL: must be given, or --all in its place; got {'both' if every else 'neither'}. Write for"
            " example: lapidist lesson 05 --html FILE"
        )
    if html is None and not as_json:
        raise ArgumentError("--html: must name a file (with --all a folder); got none. Or ask for --json")
    runs = committed(root)
    if every:
        write_all(html, RUNGS, runs, as_json)
        return
    assert kernel is not None
    content = complete(kernel_named(kernel), runs)
    if html is not None:
        write_page(html, content, ())
    if as_json:
        print(json.dumps(content))
    else:
        print(f"{html}: written; open it in a browser")


def committed(root: Path) -> list[Run]:
    """The Records of a checkout; none elsewhere."""
    from lapidist_lab.bench.protocol.record import read_runs
    from lapidist_lab.bench.publish.withdrawn import read_withdrawals, without

    folder = root / "results"
    return list(without(read_runs(folder), read_withdrawals(folder))) if folder.is_dir() else []


def complete(kernel: Kernel, runs: list[Run]) -> dict[str, Any]:
    from lapidist_lab.lessons.lesson import lesson_of
    from lapidist_lab.lessons.measured import measured

    content = lesson_of(kernel)
    return content | {"measured": measured(runs, kernel.name, content["math"])}


def write_page(path: Path, content: dict[str, Any], rungs: tuple[Kernel, ...]) -> None:
    from lapidist.writable import require_writable
    from lapidist_lab.lessons.page import page_of

    require_writable("--html", path)
    path.write_text(page_of(content, rungs), encoding="utf-8")


def write_all(folder: Path | None, rungs: tuple[Kernel, ...], runs: list[Run], as_json: bool) -> None:
    """Page after page, so that what is finished stays."""
    from lapidist.commands.progress import progress
    from lapidist_lab.lessons.page import file_name, index_of

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    lessons = []
    with progress(len(rungs), "lessons") as step:
        for number, rung in enumerate(rungs, 1):
            lessons.append(complete(rung, runs))
            if folder is not None:
                write_page(folder / file_name(number, rung), lessons[-1], rungs)
            step(rung.name)
    if folder is not None:
        (folder / "index.html").write_text(index_of(lessons, rungs), encoding="utf-8")
    if as_json:
        print(json.dumps(lessons))
    elif folder is not None:
        print(f"{folder / 'index.html'}: written; open it in a browser")
