"""`lapidist digests`: whether the GPU that is here gives the bits that an H200 gave."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from lapidist.commands.options import Json

EXAMPLES = ("digests", "digests --json", "digests --record digests.json")


def digests(
    device: Annotated[str, typer.Option(help="gpu, or machine for products that are small enough")] = "gpu",
    against: Annotated[
        Path | None, typer.Option(help="a file of digests; by default that of an H200")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="write this GPU's digests to a file")] = None,
    as_json: Json = False,
) -> None:
    """Compare the bits of every type's products with another chip's.

    Where this chip plans another order of sums, the two need not agree: that is told, and is no error.
    """
    from lapidist.errors import ArgumentError
    from lapidist.writable import require_writable
    from lapidist_lab import bit_digests as digest
    from lapidist_lab.bench.studies.ladder_runs import place_of

    if device not in ("gpu", "machine"):
        raise ArgumentError(f"--device: must be gpu or machine; got {device!r}. Write one of them")
    if record is not None:
        require_writable("--record", record)
    chip = "the machine" if device == "machine" else device_name(place_of("gpu"))
    name, expected = digest.recorded(against or digest.RECORDED)
    answers, verdicts = {}, Counter[str]()
    for text, case in digest.CASES.items():
        if device == "machine" and case.shape != digest.TINY:
            continue
        answers[text] = answer = digest.answer_of(case, "machine" if device == "machine" else None)
        verdict = digest.verdict(answer, expected.get(text))
        verdicts[verdict] += 1
        if as_json:
            print(json.dumps({"case": text, **answer._asdict(), "verdict": verdict}), flush=True)
        elif verdict != digest.SAME:
            print(f"{text}: {verdict} ({answer.order})", flush=True)
    if record is not None:
        digest.write(chip, answers, record)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    print(f"{chip} beside {name}: {counts}", file=sys.stderr if as_json else sys.stdout)
    raise typer.Exit(int(bool(verdicts[digest.DIFFERENT])))


def device_name(place: int | str) -> str:
    from lapidist.backends.selection import backend_at

    return str(backend_at(place).chip.name)
