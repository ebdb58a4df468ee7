"""House rules that a program can check: sizes, names, headers, and rungs that differ by their lesson only."""

from __future__ import annotations

import ast
import re
import statistics
from functools import cache
from pathlib import Path

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import DETOURS, RUNGS, kernel_named
from lapidist.knobs.header import NAME
from offenders import hold_none
from project_files import DEVICE_FILES, HOST_FILES, ROOT, relative, text_of, tree_of

KERNEL_FILES = [path for path in DEVICE_FILES if path.suffix == ".cu"]
RUNG_FILES = sorted(CUDA_SOURCES.glob("ladder/*.cu"))
TEXT_FILES = [*HOST_FILES, *DEVICE_FILES, *sorted((ROOT / "tests").rglob("*.py"))]

FUNCTION_LINES, FUNCTION_MEDIAN = 60, 12
HOST_LINES, KERNEL_LINES = 400, 250
STEP = 120  # changed lines from rung to rung
PARTS = 25  # headers of a production kernel alone
HEADER = ("Lesson:", "From:", "Change:", "Predicts:", "Measured:")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}


def lines_of_reference(node: ast.AST) -> int:
    """Of a public call's docstring, which names each parameter: help() and the site show it whole."""
    text = ast.get_docstring(node) or ""  # type: ignore[arg-type]
    return len(text.splitlines()) if "\nParameters\n" in text else 0


@cache
def functions(path: Path) -> list[tuple[str, int]]:
    """(name, lines) of each function of a file, with its docstring unless that is reference."""
    return [
        (node.name, (node.end_lineno or 0) - node.lineno + 1 - lines_of_reference(node))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


# ---- sizes ----


def test_functions_fit_on_a_screen() -> None:
    hold_none(
        f"{relative(path)}: {name} has {lines} lines"
        for path in HOST_FILES
        for name, lines in functions(path)
        if lines > FUNCTION_LINES
    )


def test_the_median_function_is_short() -> None:
    assert statistics.median(lines for path in HOST_FILES for _, lines in functions(path)) <= FUNCTION_MEDIAN


def test_host_files_are_short() -> None:
    lines = {path: len(text_of(path).splitlines()) for path in HOST_FILES}
    hold_none(f"{relative(path)}: {count} lines" for path, count in lines.items() if count > HOST_LINES)


def test_device_files_are_short() -> None:
    lines = {path: len(text_of(path).splitlines()) for path in DEVICE_FILES}
    hold_none(f"{relative(path)}: {count} lines" for path, count in lines.items() if count > KERNEL_LINES)


# ---- names and words ----


def test_names_say_what_is_inside() -> None:
    hold_none(relative(path) for path in HOST_FILES if {path.stem, path.parent.name} & FORBIDDEN_NAMES)


def test_every_module_says_what_it_is_for() -> None:
    hold_none(relative(path) for path in HOST_FILES if not ast.get_docstring(tree_of(path)))


def test_nothing_is_left_for_later() -> None:
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    hold_none(relative(path) for path in TEXT_FILES if re.search(rf"\b(?:{words})\b", text_of(path)))


# ---- the ladder ----


def labels(path: Path) -> tuple[str, ...]:
    comment = [line[2:] for line in text_of(path).splitlines() if line.startswith("//")]
    found = [
        word
        for line in comment
        if (word := line.strip().partition(" ")[0]) in HEADER and line[1:2] == word[:1]
    ]
    return tuple(found[:5])


def test_a_rung_starts_with_its_five_lines() -> None:
    """Lesson, From, Change, Predicts, Measured; lines that go on are indented below them."""
    hold_none(
        relative(path)
        for path in RUNG_FILES
        if labels(path) != HEADER or not text_of(path).startswith("// Lesson:")
    )


def came_from(kernel: Kernel) -> str:
    """The file that its header names."""
    found = re.search(r"^// From:\s+(\S+)", text_of(CUDA_SOURCES / kernel.source), re.M)
    assert found is not None
    return found[1].rstrip(",.:;")


def rung_below(rung: Kernel) -> Kernel:
    """The one before; the first on tensor cores begins again from a kernel of one thread, one element."""
    if rung.name == "wmma_simple":
        return kernel_named("hoisted_indices")
    return RUNGS[RUNGS.index(rung) - 1]


def test_a_rung_names_the_one_it_comes_from() -> None:
    hold_none(
        f"{rung.name}: {came_from(rung)}"
        for rung in RUNGS[1:]
        if came_from(rung) != Path(rung_below(rung).source).stem
    )


def code_lines(kernel: Kernel) -> list[str]:
    """A kernel without its own name, comments, indents and blank lines: what its lesson may change."""
    text = re.sub(r"//.*", "", text_of(CUDA_SOURCES / kernel.source))
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


def changed_lines(rung: Kernel) -> int:
    """That one has and the other one has not, as a perfect `diff -w` would count them."""
    before, after = code_lines(rung_below(rung)), code_lines(rung)
    return len(before) + len(after) - 2 * in_common(before, after)


def test_the_difference_between_two_rungs_is_the_lesson() -> None:
    changed = {rung: changed_lines(rung) for rung in RUNGS[1:]}
    hold_none(
        f"{rung_below(rung).name} -> {rung.name}: {lines} changed lines"
        for rung, lines in changed.items()
        if lines > STEP
    )


def test_a_detour_names_the_kernel_it_left() -> None:
    sources = {Path(other.source).stem for other in (*RUNGS, *DETOURS)}
    hold_none(f"{each.name}: {came_from(each)}" for each in DETOURS if came_from(each) not in sources)


def headers_of(path: Path) -> set[Path]:
    """Of the project's headers, those that a source includes, and those that these include."""
    names = re.findall(r'^#include "([^"]+)"', text_of(path), re.M)
    direct = {CUDA_SOURCES / name for name in names if name != NAME}
    return direct.union(*map(headers_of, direct))


def test_rungs_have_no_code_of_the_production_kernels() -> None:
    hold_none(
        f"{relative(path)}: {relative(header)}"
        for path in RUNG_FILES
        for header in headers_of(path)
        if header.is_relative_to(CUDA_SOURCES / "gemm")
    )


def test_a_kernel_has_few_parts_of_its_own() -> None:
    parts = {
        source: [header for header in headers_of(source) if header.parent.name == source.stem]
        for source in KERNEL_FILES
        if source.parent == CUDA_SOURCES / "gemm"
    }
    assert parts[CUDA_SOURCES / "gemm" / "wgmma.cu"]
    hold_none(f"{relative(source)}: {len(own)} headers" for source, own in parts.items() if len(own) > PARTS)


def test_kernels_include_nothing_but_the_projects_headers() -> None:
    """NVRTC finds few others (no <stdint.h>, no CCCL beside some versions of torch)."""
    headers = {str(header.relative_to(CUDA_SOURCES)) for header in CUDA_SOURCES.rglob("*.cuh")} | {NAME}
    hold_none(
        f"{relative(path)}: {name}"
        for path in KERNEL_FILES
        for name in re.findall(r'#include\s+["<]([^">]+)[">]', text_of(path))
        if name not in headers
    )


def test_instructions_are_wrapped_once() -> None:
    """Inline assembly stands in the headers."""
    hold_none(relative(path) for path in KERNEL_FILES if re.search(r"\basm\b", text_of(path)))


# ---- the command that checks all this ----


def test_make_and_ci_do_the_same() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    assert "make test" in ci
    assert "make surveys" in ci
    assert "make compilers" in ci
    assert "make frameworks" in ci
    assert "make browser" in ci
    assert "make programs" in ci
    makefile = (ROOT / "Makefile").read_text()
    for word in (
        "full: test surveys compilers frameworks browser programs",
        "ruff check",
        "ruff format --check",
        "mypy",
        "ANYWHERE := not gpu and not frameworks and not browser and not census and not c_compiler\n",
        'pytest -n auto --dist worksteal -m "$(ANYWHERE) and not survey"',
        'pytest -n auto --dist worksteal -m "$(ANYWHERE) and survey"',
        "lapidist climb",
    ):
        assert word in makefile


# ---- the tree ----

SOURCES = ROOT / "src"
PACKAGE = SOURCES / "lapidist"
TOP_FILES, TEST_FILES = 14, 6
# From what a person calls down to what everything stands on: each part imports only those below it.
LAYERS = (
    "lapidist_lab.commands",
    "lapidist_lab.lessons",
    "lapidist_lab.puzzles",
    "lapidist_lab.fit",
    "lapidist_lab.bench.publish",
    "lapidist_lab.bench.studies",
    "lapidist_lab.bench.protocol",
    "lapidist_lab.bench",
    "lapidist_lab.fuzz",
    "lapidist_lab.machine_studies",
    "lapidist_lab.sass",
    "lapidist_lab.covering_search",
    "lapidist_lab",
    "lapidist.__main__",
    "lapidist.commands",
    "lapidist.torch",
    "lapidist.jax",
    "lapidist.distributed",
    "lapidist",
    "lapidist.verify",
    "lapidist.contractions",
    "lapidist.api",
    "lapidist.quantised",
    "lapidist.calls",
    "lapidist.backends",
    "lapidist.planning",
    "lapidist.machine",
    "lapidist.kernels",
    "lapidist.schedule",
    "lapidist.problems",
    "lapidist.epilogues",
    "lapidist.frameworks",
    "lapidist.build",
    "lapidist.knobs",
    "lapidist.launch",
    "lapidist.config",
    "lapidist.device",
    "lapidist.dtypes",
    "lapidist.visible",
    "lapidist.writable",
    "lapidist.errors",
)
MODULES = {
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): path
    for path in HOST_FILES
}


@cache
def imports(path: Path, types: bool = True) -> set[str]:
    """The project's own modules that a file imports, late ones too. `types`: those for types alone, too."""
    found = set()
    pending: list[ast.AST] = [tree_of(path)]
    while pending:
        node = pending.pop()
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "lapidist",
            "lapidist_lab",
        ):
            module = node.module or ""
            found |= {
                full if (full := f"{module}.{alias.name}") in MODULES else module for alias in node.names
            }
        pending.extend(ast.iter_child_nodes(node))
    return found


def height(module: str) -> int:
    """Of the nearest layer at or above a module, counted from the bottom."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return -LAYERS.index(next(name for name in names if name in LAYERS))


def test_imports_go_down() -> None:
    # `lapidist` itself is where public names are found.
    hold_none(
        f"{module} imports {other}"
        for module, path in MODULES.items()
        for other in imports(path)
        if height(other) > height(module) and other != "lapidist"
    )


def modules_named(path: Path) -> set[str]:
    """In imports of any kind, those for types among them, and in texts by which modules are imported."""
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            names.add(node.value)
    return names


def test_the_core_knows_the_lab_in_two_places() -> None:
    """The command line adds the lab's commands, and the doctor looks whether it is there."""
    named = {
        relative(path)
        for path in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] == "lapidist_lab" for name in modules_named(path))
    }
    assert named == {"src/lapidist/commands/lab.py", "src/lapidist/backends/gpu/doctor.py"}


# Whose classes name each other in types: a state and its parts, a kernel and its family, a plan and its text.
CIRCLES_OF_TYPES = ("lapidist.machine.", "lapidist.kernels.", "lapidist.planning.", "lapidist.schedule.")


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        module: {
            other
            for other in imports(path, types=not module.startswith(CIRCLES_OF_TYPES))
            if other in MODULES
        }
        - {module}
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


# Parts of one product that each framework, or each family of kernels, has of its own, and commands.
PARALLEL = (
    "lapidist.torch",
    "lapidist.jax",
    "lapidist.kernels",
    "lapidist.commands",
    "lapidist_lab.commands",
)


def test_no_module_name_stands_for_two_things() -> None:
    owners: dict[str, list[str]] = {}
    for module in MODULES:
        name = module.rpartition(".")[2]
        if not module.startswith(PARALLEL):
            owners.setdefault(name, []).append(module)
    hold_none(", ".join(modules) for modules in owners.values() if len(modules) > 1)


def test_tests_share_by_support_alone() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert not re.search(r"^from test_\w+ import", text_of(path), re.M), relative(path)
