"""A wheel of compiled kernels: a package whose folder LAPIDIST_CACHE_DIR may name.

`python -m` that package prints the folder.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import lapidist
from lapidist.build.cache import entries

MAIN = "from pathlib import Path\n\nprint(Path(__file__).parent)\n"
TAG = "py3-none-any"  # the GPU runs what is inside, whatever the processor


def write_wheel(binaries: Path, into: Path, chip: str) -> Path:
    """Pack what a cache's folder holds as a wheel for a chip, in the folder `into`; its path."""
    name = f"lapidist_binaries_{re.sub(r'[^a-z0-9]+', '_', chip.lower())}"
    info, version = f"{name}-{lapidist.__version__}.dist-info", lapidist.__version__
    files = {f"{name}/{entry.path.name}": entry.path.read_bytes() for entry in entries(binaries)}
    files |= {f"{name}/__init__.py": b"", f"{name}/__main__.py": MAIN.encode()}
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Summary: Kernels of lapidist, compiled for {chip}\nRequires-Dist: lapidist=={version}\n"
        f"Description-Content-Type: text/plain\n\n`python -m {name}` prints one for LAPIDIST_CACHE_DIR.\n"
    )
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: lapidist {version}\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()
    )
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = into / f"{name}-{version}-{TAG}.whl"
    with ZipFile(wheel, "w", ZIP_STORED) as archive:  # binaries are compressed already
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def digest(content: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
