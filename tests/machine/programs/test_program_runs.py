"""`lapidist run`: programs whose host code runs in a process of its own, with a stand-in for the runtime."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import command_line
from cuda_programs import (
    KERNELS,
    RACE_LINE,
    READ_LINE,
    SAXPY_LINE,
    compiled,
    fat_binary,
    fat_ptx,
    program,
    ptx,
)
from lapidist.machine.programs.run_program import run_program
from lapidist.machine.programs.stand_in_build import Needs, build_stand_in

pytestmark = pytest.mark.c_compiler


class Command:
    """`lapidist run` with these words: its exit code, stdout and stderr, the program's among them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capfd = monkeypatch, capfd

    def run(self, *words: object) -> tuple[int, str, str]:
        code = command_line.run(["run", *map(str, words)], self.monkeypatch)
        return code, *self.capfd.readouterr()

    def data(self, *words: object) -> dict[str, Any]:
        code, out, _ = self.run("--json", *words)
        data: dict[str, Any] = json.loads(out)
        assert code == (1 if data["errors"] else data["exit_code"])
        return data


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capfd)


def test_a_sound_program_runs_as_on_a_card(tmp_path: Path, command: Command) -> None:
    """Structs by value, constants by symbol, two streams and an event, several kernels, managed memory."""
    code, out, errors = command.run(program(tmp_path, fat_ptx(ptx())), 100)
    assert (code, errors) == (0, "")
    assert out.splitlines() == [
        "885 of 885 by 2 blocks on 1 device of 132",
        "program: 0 errors and 0 warnings in 3 launches of 3 kernels, 2 runs each; the program ended with 0",
    ]


def test_a_race_has_its_line_and_fails(tmp_path: Path, command: Command) -> None:
    executable = program(tmp_path, fat_ptx(ptx(barrier="")))
    data = command.data(executable)
    assert data["exit_code"] == 0
    assert data["launches"] == {"saxpy": 1, "partial": 1, "total": 1}
    assert {finding["kernel"] for finding in data["findings"]} == {"partial"}
    assert {finding["rule"] for finding in data["findings"]} <= {"race", "uninitialised"}
    assert f"program.cu:{RACE_LINE}" in {finding["source"][0] for finding in data["findings"]}
    code, out, _ = command.run("--ignore", "race", "--ignore", "uninitialised", executable)
    assert (code, "0 errors" in out) == (0, True)


def test_streams_that_nothing_orders_race(tmp_path: Path, command: Command) -> None:
    (finding,) = command.data(program(tmp_path, fat_ptx(ptx()), "NO_WAIT"))["findings"]
    assert (finding["rule"], finding["kernel"]) == ("stream-race", "partial")
    assert finding["source"] == [f"program.cu:{READ_LINE}"]
    assert f"saxpy at program.cu:{SAXPY_LINE} writes it in another stream" in finding["message"]


def test_unset_memory_and_bad_addresses_are_found(tmp_path: Path, command: Command) -> None:
    """As on a card, calls fail after an access outside all memory."""
    executable = program(tmp_path, fat_ptx(ptx()), "UNSET")
    (unset,) = command.data(executable)["findings"]
    assert (unset["rule"], unset["kernel"]) == ("uninitialised", "saxpy")
    assert "memory that no one wrote (allocation 2, of cudaMalloc)" in unset["message"]
    code, out, _ = command.run("--ignore", "uninitialised", executable, 100, 28)
    assert code == 1
    assert "&blocks}, 0, b): an illegal memory access was encountered" in out
    assert f"program.cu:{READ_LINE}: error: access of 4 bytes outside all memory" in out
    assert "past the end of allocation 2, of cudaMalloc (400 bytes)" in out
    assert "the program ended with 2" in out


def test_what_the_stand_in_lacks_is_an_error_of_cuda(tmp_path: Path, command: Command) -> None:
    data = command.data(program(tmp_path, fat_ptx(ptx()), "LACKS"))
    assert (data["exit_code"], data["errors"]) == (2, 0)
    assert data["notes"][0].startswith("cudaMallocArray was called, which the stand-in")


def test_programs_that_cannot_run_say_why(tmp_path: Path, command: Command) -> None:
    machine_code = program(tmp_path, fat_binary((2, 90, 0, b"\x7fELF", 0)), name="machine_code")
    newer = program(tmp_path, fat_ptx(ptx().replace(".target sm_90", ".target sm_100"), 100), name="newer")
    (tmp_path / "cu.c").write_text("int cuInit(unsigned flags) { return 0; }")
    driver = compiled(tmp_path, "libcuda.so.1", "-shared", str(tmp_path / "cu.c"))
    (tmp_path / "main.c").write_text("int cuInit(unsigned); int main(void) { return cuInit(0); }")
    calls_driver = compiled(tmp_path, "calls_driver", str(tmp_path / "main.c"), str(driver))
    (tmp_path / "inside.c").write_text(
        '__attribute__((section(".nv_fatbin"))) int x; int main(void) { return x; }'
    )
    inside = compiled(tmp_path, "inside", str(tmp_path / "inside.c"))
    for name, words in (
        (
            machine_code,
            "must hold PTX of compute_90a, or of an older architecture without features of its own",
        ),
        (newer, "got PTX of sm_100. Compile with nvcc -gencode arch=compute_90a,code=compute_90a"),
        (calls_driver, "must call the CUDA runtime; this one calls the driver itself (cuInit)"),
        (inside, "must be linked with the CUDA runtime as a shared library"),
        (shutil.which("true"), "registers no kernels. Give one"),
        (tmp_path / "main.c", "is neither. Give that, not a script or a header"),
        (tmp_path / "nothing", "must be a file, a CUDA program or its .cu"),
    ):
        code, _, errors = command.run(name)
        assert (code, words in errors) == (2, True), errors


def test_a_source_takes_nvcc(tmp_path: Path, command: Command) -> None:
    """Where nvcc is not on PATH, the error says how to get it."""
    source = tmp_path / "small.cu"
    source.write_text(
        "#include <cstdio>\n"
        "template <typename T> __global__ void fill(T *p, T v) { p[threadIdx.x] = v; }\n"
        "int main(int, char **words) {\n"
        "    int *p, h[32]; cudaMalloc(&p, sizeof h); fill<int><<<1, 32>>>(p, NUMBER);\n"
        '    cudaMemcpy(h, p, sizeof h, cudaMemcpyDeviceToHost); printf("%d %s\\n", h[31], words[1]); }\n'
    )
    code, out, errors = command.run("-D", "NUMBER=7", source, "--size")
    if shutil.which("nvcc") is None:
        assert (code, "nvcc: must be on PATH to run CUDA programs" in errors) == (3, True)
        return
    assert (code, out.splitlines()[0], errors) == (0, "7 --size", "")
    code, _, errors = command.run(source)
    assert code == 1
    assert 'identifier "NUMBER" is undefined' in errors


def test_the_kernels_lines_are_those_that_the_tests_name() -> None:
    lines = KERNELS.splitlines()
    assert "part[threadIdx.x + s]" in lines[RACE_LINE - 1]
    assert "x[i] : 0.f" in lines[READ_LINE - 1]
    assert "y[i] =" in lines[SAXPY_LINE - 1]


CHOSEN = r"""
typedef struct { int id; int64_t value[8]; } Attribute;
typedef struct { dim3 g, b; size_t shared; void *stream; Attribute *attributes; unsigned count; } Launch;
extern int cudaLaunchKernelExC(const Launch *, const void *, void **);
int main(int argc, char **argv) {
    float *sums, *out;
    int n = 1;
    CHECK(cudaMalloc(&sums, 4));
    CHECK(cudaMalloc(&out, 4));
    CHECK(cudaMemset(sums, 0, 4));
    for (int k = 1; k < argc; k++) {
        Attribute attribute = {atoi(argv[k]), {1}};
        Launch launch = {{1, 1, 1}, {1, 1, 1}, 0, 0, &attribute, 1};
        puts(cudaGetErrorString(cudaLaunchKernelExC(&launch, &total, (void *[]){&sums, &out, &n})));
    }
    return 0;
}
"""


def test_attributes_that_make_another_launch_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Events of a launch that still runs, and nodes that kernels change; a priority changes nothing."""
    report = run_program(program(tmp_path, fat_ptx(ptx()), main=CHOSEN), ["8", "7", "12", "13"]).data()
    assert capfd.readouterr().out.splitlines() == ["no error", *["operation not supported"] * 3]
    assert (report["exit_code"], report["findings"]) == (0, [])
    names = [note.split(" was called, ")[0] for note in report["notes"]]
    assert names == [
        f"cudaLaunchAttribute{name}"
        for name in ("ProgrammaticEvent", "LaunchCompletionEvent", "DeviceUpdatableKernelNode")
    ]


DRIVER = r"""
#include <stdio.h>
extern int cuInit(unsigned), cuCtxSynchronize(void), cuGetErrorName(int, const char **), cudaFree(void *);
int main(void) {
    const char *name;
    int missing = cuCtxSynchronize(), named = cuGetErrorName(700, &name);
    printf("%d %d %d %d %s\n", cuInit(0), cudaFree(0), missing, named, name);
    return 0;
}
"""


def test_a_program_may_be_linked_with_the_driver(tmp_path: Path, command: Command) -> None:
    """No driver is installed: the stand-in is that library, too, and says what it lacks."""
    stub = "int cuInit(unsigned f) { return 7; } int cuCtxSynchronize(void) { return 7; }"
    (tmp_path / "cu.c").write_text(f"{stub} int cuGetErrorName(int e, const char **n) {{ return 7; }}")
    driver = compiled(
        tmp_path, "libcuda.so", "-shared", "-Wl,-soname,libcuda.so.1", "-fPIC", str(tmp_path / "cu.c")
    )
    (tmp_path / "runtime").mkdir()
    runtime = build_stand_in(Needs(frozenset(), frozenset(), 13), tmp_path / "runtime")
    (tmp_path / "main.c").write_text(DRIVER)
    program = compiled(tmp_path, "linked", str(tmp_path / "main.c"), str(driver), str(runtime))
    driver.unlink()
    code, out, _ = command.run(program)
    assert code == 0
    assert out.splitlines()[0] == "0 0 801 0 cudaErrorIllegalAddress"
    assert "note: cuCtxSynchronize was called, which the stand-in" in out
