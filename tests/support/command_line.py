"""Commands as a person calls them, in this process or in one of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lapidist.commands import cli


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """main() in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["lapidist", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return int(exit_.value.code or 0)


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lapidist", *arguments], capture_output=True, text=True)
