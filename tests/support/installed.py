"""What must work where the wheels are installed, on any system: run by CI with a clean Python.

`python tests/support/installed.py` in any folder; the checkout's src must not be in the path."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HAS_NVRTC = sys.platform != "darwin"
PRODUCT = """
import numpy as np, lapidist
a, b = np.ones((5, 7), "float32"), np.ones((7, 3), "float32")
assert (lapidist.matmul(a, b) == 7).all()
assert lapidist.matmul([[1, 2]], [[3], [4]]).item() == 11
print(lapidist.__version__, lapidist.__file__)
"""


def run(folder: str, *command: str, status: int = 0) -> None:
    settings = {**os.environ, "LAPIDIST_CACHE_DIR": os.path.join(folder, "cache")}
    settings.pop("PYTHONPATH", None)
    print("+", *command[1:2], flush=True)
    found = subprocess.run(command, cwd=folder, env=settings, check=False).returncode
    assert found == status, f"{command} ended with {found}, not {status}"


def main() -> None:
    program = os.path.join(sysconfig.get_path("scripts"), "lapidist")
    with tempfile.TemporaryDirectory() as folder:
        run(folder, sys.executable, "-W", "error", "-c", PRODUCT)
        run(folder, program, "doctor")
        run(folder, program, "plan", "--mnk", "300,520,200", "--dtype", "bf16", "--chip", "h200")
        if HAS_NVRTC:
            run(folder, program, "climb", "--device", "machine", "--size", "64")
            run(folder, program, "lesson", "05", "--html", "banks.html")
            run(folder, program, "puzzle", "07", status=1)
            assert "<html" in Path(folder, "banks.html").read_text(encoding="utf-8")
    print("installed.py: all works")


if __name__ == "__main__":
    main()
