"""`lapidist report`: published numbers, from Records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands.options import JsonObject
from lapidist_lab.commands.options import Html

EXAMPLES = ("report", "report --check", "report --html all.html")


def report(
    check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit 1 when a file differs from the Records")
    ] = False,
    root: Annotated[Path, typer.Option(help="the checkout whose files are written")] = Path(),
    html: Html = None,
    as_json: JsonObject = False,
) -> None:
    """Write every published number from the Records under results/."""
    from lapidist.writable import require_writable
    from lapidist_lab.bench.publish.report import publish

    if html is not None:
        require_writable("--html", html)
    paths = [str(path) for path in publish(root, check, html)]
    if as_json:
        print(json.dumps({"differs" if check else "written": paths}))
    raise typer.Exit(int(check and bool(paths)))
