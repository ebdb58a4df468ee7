"""Hooks of mkdocs: pages that are made when the site is built, and links that leave docs/.

README.md is the first page; CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and the notebook have pages too. The
reference is made from docstrings and from the help of the commands.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
COPIED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
MAIN = ("matmul", "gemm", "plan", "grouped", "einsum", "tensordot")  # the reference begins with these
PACKAGES = ("torch", "distributed", "jax", "verify", "machine")  # with a page of the reference each
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
LINKED_NAME = re.compile(r"\[([^][]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    for source, name in COPIED.items():
        text = LINK.sub(lambda found: from_root(found[1]), (ROOT / source).read_text())
        text = re.sub(r"(src(?:set)?=\")docs/", r"\1", text)
        files.append(File.generated(config, name, content=text))
    for name, text in (reference() | {"tour.md": notebook(ROOT / "docs" / "tour.ipynb")}).items():
        files.append(File.generated(config, name, content=text))
    return files


def notebook(path: Path) -> str:
    """The cells of a notebook as a page, with what they printed when it was saved."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            printed = output.get("text") or output.get("data", {}).get("text/plain", "")
            parts.append(f"```text\n{''.join(printed).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def from_root(target: str) -> str:
    """A link of a page at the root, as a page in docs/ has it."""
    if "//" in target or target.startswith("#"):
        return target
    return COPIED.get(target) or (
        target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    )


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """What lies outside of docs/ has no page: it is linked in the repository, or named only."""

    def linked(found: re.Match[str]) -> str:
        words, target = found.groups()
        file = target.partition("#")[0]
        if "//" in target or not file:
            return found[0]
        if file.endswith("tour.ipynb"):
            return f"[{words}]({target.replace('tour.ipynb', 'tour.md')})"
        path = os.path.normpath(PurePosixPath(page.file.src_uri).parent / file)
        if not path.startswith(".."):
            return found[0]
        path = os.path.normpath(PurePosixPath("docs") / path)
        if path in COPIED:
            return f"[{words}]({os.path.relpath(COPIED[path], PurePosixPath(page.file.src_uri).parent)})"
        address = repository()
        return f"[{words}]({address}/blob/main/{path})" if address else words

    text = LINKED_NAME.sub(linked, markdown)
    return text if page.file.src_uri.startswith("reference/") else without_references(text)


def without_references(text: str) -> str:
    """`x[n][k]` in prose is no reference; inside of code it stays as it is."""
    pieces = re.split(r"(^```.*?^```|`[^`\n]*`)", text, flags=re.S | re.M)
    return "".join(piece if piece.startswith("`") else piece.replace("][", "]\\[") for piece in pieces)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Anchors of the reference name what users import, lapidist.torch.swap, not the module that has it."""
    for item in every_item(page.toc):
        item.id = renamed(item.id, inner_names())
    return with_public_anchors(html)


def with_public_anchors(html: str) -> str:
    return re.sub(r'(?<=["#])lapidist\.[\w.]+(?=")', lambda found: renamed(found[0], inner_names()), html)


@cache
def inner_names() -> dict[str, str]:
    """Names of packages' members with the module that has them, and as users import them."""
    names = (name for package in PACKAGES for name in public(package))
    return {name: shown for name in names if (shown := as_imported(name)) and shown != name}


def every_item(items: Any) -> Any:
    for item in items:
        yield item
        yield from every_item(item.children)


def renamed(anchor: str, names: dict[str, str]) -> str:
    """An anchor of a name, or of a member."""
    name = next((name for name in names if anchor == name or anchor.startswith(f"{name}.")), "")
    return names[name] + anchor[len(name) :] if name else anchor


def as_imported(name: str) -> str:
    """The name of a package's member as users import it; nothing of what lies in lapidist itself."""
    parts = name.split(".")
    return f"lapidist.{parts[1]}.{parts[-1]}" if parts[1] in PACKAGES and len(parts) > 2 else ""


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Searching from disk needs a script, which the theme would fetch from elsewhere."""
    up = "../" * (len(PurePosixPath(page.file.dest_uri).parts) - 1)
    output = with_public_anchors(output)  # plugins link annotations after on_page_content
    return re.sub(r'src="https://[^"]*iframe-worker[^"]*"', f'src="{up}search-from-disk.js"', output)


def repository() -> str:
    """The repository's address, where pyproject.toml has one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project.get("urls", {}).get("Repository", "")).rstrip("/")


# ---- the reference ----


def reference() -> dict[str, str]:
    """Each page with its text; mkdocstrings puts the docstrings in the place of names behind `:::`."""
    import lapidist

    homes = {name: lapidist._MODULE_OF[name] for name in lapidist.__all__}
    epilogues = [name for name, home in homes.items() if home.startswith("epilogues")]
    errors = [name for name, home in homes.items() if home == "errors"]
    library = [name for name in homes if name not in (*epilogues, *errors) and not name.isupper()]
    pages = {
        "library": ("Functions and classes", [f"lapidist.{name}" for name in main_first(library)]),
        "epilogues": ("Epilogues", [f"lapidist.{name}" for name in functions_first(epilogues)]),
        "errors": ("Errors", [f"lapidist.{name}" for name in errors]),
        **{
            package: ("The machine" if package == "machine" else f"lapidist.{package}", public(package))
            for package in PACKAGES
        },
    }
    texts = {
        f"reference/{name}.md": f"# {title}\n\n" + "\n\n".join(map(entry, names)) + "\n"
        for name, (title, names) in pages.items()
    }
    return texts | {"reference/commands.md": commands()}


def public(package: str) -> list[str]:
    """The package, then its public names, each by the module that has it: a module may bear the same name."""
    text = (ROOT / "src" / "lapidist" / package / "__init__.py").read_text()
    homes, listed = dict[str, str](), list[str]()
    for statement in ast.walk(ast.parse(text)):
        if isinstance(statement, ast.ImportFrom):
            homes |= {each.name: f"{statement.module}." for each in statement.names}
        elif isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in ("__all__", "_HOME"):
            value = statement.value
            keys = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
            listed = listed or [str(each.value) for each in keys if isinstance(each, ast.Constant)]
            if isinstance(value, ast.Dict):
                homes |= {
                    str(key.value): f"lapidist.{package}.{home.value}."
                    for key, home in zip(value.keys, value.values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(home, ast.Constant)
                }
    return [f"lapidist.{package}", *(f"{homes[name]}{name}" for name in main_first(listed))]


def entry(name: str) -> str:
    """What mkdocstrings replaces; a name is shown as users import it, without the module that has it."""
    parts = name.split(".")
    if len(parts) == 2 and parts[1] in PACKAGES:  # its own words; its members follow
        return f"::: {name}\n    options:\n      members: false\n      show_root_heading: false"
    shown = as_imported(name)
    return f"::: {name}" + (
        f"\n    options:\n      heading: {shown}\n      toc_label: {shown}" if shown else ""
    )


def main_first(names: list[str]) -> list[str]:
    """What most readers look for comes first."""
    main = [name for name in MAIN if name in names]
    return [*main, *(name for name in functions_first(names) if name not in main)]


def functions_first(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: name[0].isupper())


def commands() -> str:
    """What `-h` prints for each command."""
    import click
    from typer.main import get_command

    from lapidist.commands.cli import app

    os.environ["COLUMNS"] = "100"
    parts = ["# Commands\n"]

    def add(command: click.Command, name: str, parent: click.Context | None) -> None:
        context = click.Context(command, info_name=name, parent=parent)
        parts.append(f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n")
        for each, inner in sorted(getattr(command, "commands", {}).items()):
            add(inner, each, context)

    add(get_command(app), "lapidist", None)
    return "\n".join(parts)
