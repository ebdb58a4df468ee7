"""Hook of mkdocs: the page that runs a rung in the browser, with the scripts that parts.py wrote.

Where the browser's Python could not be had, the page is built without it, and says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = HERE.parent.parent / "build" / "in_browser"
PAGE, FOLDER = "in-browser.md", "in_browser"
SCRIPT = f'\n\n<div id="rung-in-browser"></div>\n<script src="{FOLDER}/page.js"></script>\n'


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path in (HERE / "page.js", *sorted(PARTS.glob("*.js"))):
        files.append(File.generated(config, f"{FOLDER}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return markdown + SCRIPT if page.file.src_uri == PAGE else markdown
