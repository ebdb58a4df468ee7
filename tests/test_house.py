"""House rules that a program can check: sizes, names, headers, and rungs that differ by their lesson only."""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from pathlib import Path

import pytest

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.kernels.registry import DETOURS, RUNGS, kernel_named
from lapidist.kernels.row import Kernel

ROOT = Path(__file__).parent.parent
HOST_FILES = sorted((ROOT / "src").rglob("*.py"))
DEVICE_FILES = sorted(path for path in CUDA_SOURCES.rglob("*") if path.suffix in (".cu", ".cuh"))
RUNG_FILES = sorted(CUDA_SOURCES.glob("ladder/*.cu"))
TEXT_FILES = [*HOST_FILES, *DEVICE_FILES, *sorted((ROOT / "tests").rglob("*.py"))]

DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
FUNCTION_LINES, FUNCTION_MEDIAN = 70, 12
HOST_LINES, KERNEL_LINES = 440, 300
STEP = 120  # changed lines from rung to rung
HEADER = ("Lesson:", "From:", "Change:", "Predicts:", "Measured:")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_of_docstring(node: ast.AST) -> int:
    """Documentation may be as long as it needs."""
    body = getattr(node, "body", None)
    if not isinstance(node, DOCUMENTED) or not body or ast.get_docstring(node) is None:
        return 0
    return (body[0].end_lineno or 0) - body[0].lineno + 1


def functions(path: Path) -> list[tuple[str, int]]:
    """(name, lines) of each function of a file, without its docstring."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [
        (node.name, (node.end_lineno or 0) - node.lineno + 1 - lines_of_docstring(node))
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


# ---- sizes ----


@pytest.mark.parametrize("path", HOST_FILES, ids=relative)
def test_functions_fit_on_a_screen(path: Path) -> None:
    assert [(name, lines) for name, lines in functions(path) if lines > FUNCTION_LINES] == []


def test_the_median_function_is_short() -> None:
    assert statistics.median(lines for path in HOST_FILES for _, lines in functions(path)) <= FUNCTION_MEDIAN


@pytest.mark.parametrize("path", HOST_FILES, ids=relative)
def test_host_files_are_short(path: Path) -> None:
    text = path.read_text()
    documentation = sum(lines_of_docstring(node) for node in ast.walk(ast.parse(text)))
    assert len(text.splitlines()) - documentation <= HOST_LINES


@pytest.mark.parametrize("path", DEVICE_FILES, ids=relative)
def test_device_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= KERNEL_LINES


# ---- names and words ----


@pytest.mark.parametrize("path", HOST_FILES, ids=relative)
def test_names_say_what_is_inside(path: Path) -> None:
    assert path.stem not in FORBIDDEN_NAMES
    assert path.parent.name not in FORBIDDEN_NAMES


@pytest.mark.parametrize("path", HOST_FILES, ids=relative)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", TEXT_FILES, ids=relative)
def test_nothing_is_left_for_later(path: Path) -> None:
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    assert re.findall(rf"\b(?:{words})\b", path.read_text()) == []


# ---- the ladder ----


@pytest.mark.parametrize("path", RUNG_FILES, ids=relative)
def test_a_rung_starts_with_its_five_lines(path: Path) -> None:
    """Lesson, From, Change, Predicts, Measured; lines that go on are indented below them."""
    comment = [line[2:] for line in path.read_text().splitlines() if line.startswith("//")]
    labels = [
        word
        for line in comment
        if (word := line.strip().partition(" ")[0]) in HEADER and line[1:2] == word[:1]
    ]
    assert tuple(labels[:5]) == HEADER
    assert path.read_text().startswith("// Lesson:")


def came_from(kernel: Kernel) -> str:
    """The file that its header names."""
    found = re.search(r"^// From:\s+(\S+)", (CUDA_SOURCES / kernel.source).read_text(), re.M)
    assert found is not None
    return found[1].rstrip(",.:;")


def rung_below(rung: Kernel) -> Kernel:
    """The one before; the first on tensor cores begins again from a kernel of one thread, one element."""
    if rung.name == "wmma_simple":
        return kernel_named("hoisted_indices")
    return RUNGS[RUNGS.index(rung) - 1]


@pytest.mark.parametrize("rung", RUNGS[1:], ids=lambda kernel: kernel.name)
def test_a_rung_names_the_one_it_comes_from(rung: Kernel) -> None:
    assert came_from(rung) == Path(rung_below(rung).source).stem


def code_lines(kernel: Kernel) -> list[str]:
    """A kernel without its own name, comments, indents and blank lines: what its lesson may change."""
    text = re.sub(r"//.*", "", (CUDA_SOURCES / kernel.source).read_text())
    lines = [line.strip() for line in text.splitlines()]
    return [re.sub(rf"\b{kernel.entry}\b", "entry", line) for line in lines if line]


def in_common(one: list[str], other: list[str]) -> int:
    """Lines of the longest text that can be made of either by leaving lines out."""
    best = [0] * (len(other) + 1)
    for line in one:
        before = best[:]
        for place, candidate in enumerate(other):
            best[place + 1] = before[place] + 1 if line == candidate else max(before[place + 1], best[place])
    return best[-1]


@pytest.mark.parametrize("rung", RUNGS[1:], ids=lambda kernel: kernel.name)
def test_the_difference_between_two_rungs_is_the_lesson(rung: Kernel) -> None:
    """Lines that one has and the other one has not, as a perfect `diff -w` would count them."""
    before, after = code_lines(rung_below(rung)), code_lines(rung)
    changed = len(before) + len(after) - 2 * in_common(before, after)
    assert changed <= STEP, f"{rung_below(rung).name} -> {rung.name}: {changed} changed lines"


@pytest.mark.parametrize("kernel", DETOURS, ids=lambda kernel: kernel.name)
def test_a_detour_names_the_kernel_it_left(kernel: Kernel) -> None:
    assert came_from(kernel) in {Path(other.source).stem for other in (*RUNGS, *DETOURS)}


@pytest.mark.parametrize("path", [path for path in DEVICE_FILES if path.suffix == ".cu"], ids=relative)
def test_kernels_include_nothing_but_the_projects_headers(path: Path) -> None:
    """NVRTC finds few others (no <stdint.h>, no CCCL beside some versions of torch)."""
    headers = {str(header.relative_to(CUDA_SOURCES)) for header in DEVICE_FILES if header.suffix == ".cuh"}
    assert set(re.findall(r'#include\s+["<]([^">]+)[">]', path.read_text())) <= headers


@pytest.mark.parametrize("path", [path for path in DEVICE_FILES if path.suffix == ".cu"], ids=relative)
def test_instructions_are_wrapped_once(path: Path) -> None:
    """Inline assembly stands in the headers."""
    assert not re.search(r"\basm\b", path.read_text())


# ---- the command that checks all this ----


def test_make_and_ci_do_the_same() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    assert "make test" in ci
    assert "make surveys" in ci
    assert "make compilers" in ci
    assert "make frameworks" in ci
    assert "make browser" in ci
    makefile = (ROOT / "Makefile").read_text()
    for word in (
        "full: test surveys compilers frameworks browser",
        "ruff check",
        "ruff format --check",
        "mypy",
        "ANYWHERE := not gpu and not frameworks and not browser\n",
        'pytest -n auto --dist worksteal -m "$(ANYWHERE) and not survey"',
        'pytest -n auto --dist worksteal -m "$(ANYWHERE) and survey"',
        "lapidist climb",
    ):
        assert word in makefile


# ---- the tree ----

PACKAGE = ROOT / "src" / "lapidist"
TOP_FILES, TEST_FILES = 14, 6
# From what a person calls down to what everything stands on: each part imports only those below it.
LAYERS = (
    "__main__",
    "commands",
    "lessons",
    "bench.publish",
    "bench.studies",
    "bench.protocol",
    "bench",
    "fuzz",
    "torch",
    "jax",
    "__init__",
    "contractions",
    "api",
    "calls",
    "backends",
    "machine.study",
    "static",
    "planning",
    "machine",
    "kernels",
    "schedule",
    "verify",
    "problems",
    "epilogues",
    "frameworks",
    "build",
    "launch",
    "config",
    "device",
    "dtypes",
    "visible",
    "writable",
    "errors",
)
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imports(path: Path) -> set[str]:
    """Of the project's own modules, late ones too; what is imported for types alone is no dependency."""
    found = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lapidist":
            for alias in node.names:
                full = f"{node.module}.{alias.name}".removeprefix("lapidist.")
                found.add(
                    full
                    if full in MODULES
                    else (node.module or "").removeprefix("lapidist").removeprefix(".") or "__init__"
                )
        pending.extend(ast.iter_child_nodes(node))
    return found


def layer(module: str) -> str:
    parts = module.split(".")
    return next(each for each in (module, ".".join(parts[:2]), parts[0]) if each in LAYERS)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_down(module: str) -> None:
    own = LAYERS.index(layer(module))
    up = [other for other in imports(MODULES[module]) if LAYERS.index(layer(other)) < own]
    # The door of the command line and of the package: `lapidist` itself is where public names are found.
    assert [other for other in up if other != "__init__"] == []


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        module: {other for other in imports(path) if other in MODULES} - {module}
        for module, path in MODULES.items()
    }
    while True:
        leaves = {module for module, others in graph.items() if not others & graph.keys()}
        if not leaves:
            break
        graph = {module: others for module, others in graph.items() if module not in leaves}
    # What is left is a circle, or leads to one.
    assert sorted(graph) == []


def test_folders_stay_small_at_the_top() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= TOP_FILES
    assert len(list((ROOT / "tests").glob("*.py"))) <= TEST_FILES


def test_no_module_bears_the_name_of_a_public_callable() -> None:
    """Importing it would put the module in the callable's place."""
    import lapidist

    callables = {name for name in lapidist.__all__ if callable(getattr(lapidist, name))}
    assert callables & {path.stem for path in PACKAGE.iterdir()} == set()


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by their names alone: of two with one name it collects neither."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_tests_share_by_support_alone() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert not re.search(r"^from test_\w+ import", path.read_text(), re.M), relative(path)


# ---- words ----

# What they were: Call, UnitQueue, Cursor, Routing, Operation, fast_path, slots or offsets, transposed.
PRIVATE_WORDS = ("told", "board", "desk", "wishes", "form", "steady", "places", "turned")


def words_of(name: str) -> list[str]:
    """Of a name in any case: `turned_line`, TURNED_LINES and FragmentPlaces have two each."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().split("_")


def identifiers(path: Path) -> set[str]:
    """The names that a file gives or uses, its own among them."""
    found = {path.stem}
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        return found | {each.string for each in tokens if each.type == tokenize.NAME}
    code = re.sub(r"//[^\n]*", "", path.read_text())
    return found | set(re.findall(r"\b[A-Za-z_]\w*", code))


@pytest.mark.parametrize("path", [*HOST_FILES, *DEVICE_FILES], ids=relative)
def test_names_are_the_fields_words(path: Path) -> None:
    assert [name for name in sorted(identifiers(path)) if {*words_of(name)} & {*PRIVATE_WORDS}] == []


def test_comments_of_device_code_say_tma() -> None:
    """And not by words that a copy of the driver's could be meant with."""
    comments = {relative(path): re.sub(r"\n\s*//", "", path.read_text()) for path in DEVICE_FILES}
    assert [name for name, text in comments.items() if re.search(r"\bcopy\s+engine", text, re.I)] == []


def test_private_words_are_found_in_names_of_any_case() -> None:
    for name in ("B_TURNED", "turned_line", "FragmentPlaces", "PLACES", "ATurned"):
        assert {*words_of(name)} & {*PRIVATE_WORDS}, name
    assert not {*words_of("replaced_returned")} & {*PRIVATE_WORDS}
