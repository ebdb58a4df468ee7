"""docs/tour.ipynb runs from top to bottom, and prints what is stored in it. Its kernel is a process of its
own, so its tools are installed with the frameworks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks
TOUR = Path(__file__).parents[2] / "docs" / "tour.ipynb"
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def printed(notebook: Path) -> list[str]:
    """What each cell of code says."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    return ["".join("".join(output.get("text", "")) for output in cell["outputs"]) for cell in cells]


def test_the_tour_prints_what_is_stored_in_it(tmp_path: Path) -> None:
    again = tmp_path / "again.ipynb"
    subprocess.run([sys.executable, "-c", EXECUTE, str(TOUR), str(again)], check=True, timeout=900)
    assert printed(again) == printed(TOUR)
    assert sum("is right" in text for text in printed(TOUR)) == 5
