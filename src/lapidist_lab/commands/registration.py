"""The lab's commands as commands of `lapidist`."""

from __future__ import annotations

import typer

from lapidist.commands.options import examples, examples_and_rungs
from lapidist_lab.commands import (
    bench,
    climb,
    cover,
    digests,
    explain,
    fit,
    fuzz,
    lesson,
    mutants,
    puzzle,
    report,
    static,
    streamk,
    tune,
)


def add_commands(app: typer.Typer) -> None:
    app.add_typer(
        bench.app, name="bench", help="Measure lists of products, or the host's costs, beside cuBLAS."
    )
    app.command(epilog=examples_and_rungs(*climb.EXAMPLES))(climb.climb)
    app.command(epilog=examples(*tune.EXAMPLES))(tune.tune)
    app.command(epilog=examples(*streamk.EXAMPLES))(streamk.streamk)
    app.command(epilog=examples_and_rungs(*lesson.EXAMPLES))(lesson.lesson)
    app.command(epilog=examples(*puzzle.EXAMPLES))(puzzle.puzzle)
    app.command(epilog=examples_and_rungs(*explain.EXAMPLES))(explain.explain)
    app.command(epilog=examples_and_rungs(*static.EXAMPLES))(static.static)
    app.command(epilog=examples(*mutants.EXAMPLES))(mutants.mutants)
    app.command(epilog=examples(*fuzz.EXAMPLES))(fuzz.fuzz)
    app.command(epilog=examples(*fit.EXAMPLES))(fit.fit)
    app.command(epilog=examples(*digests.EXAMPLES))(digests.digests)
    app.command(epilog=examples(*cover.EXAMPLES))(cover.cover)
    app.command(epilog=examples(*report.EXAMPLES))(report.report)
