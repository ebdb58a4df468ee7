"""CUDA C++ as authors write it compiles by NVRTC, which has no headers of the C++ standard."""

from __future__ import annotations

import numpy as np
import pytest

from in_turns import surveyed_but
from lapidist.build.standard_headers import STANDARD_HEADERS
from lapidist.errors import CompileError
from lapidist.machine import check, check_sequence, kernel_launch


def results(statements: str, includes: str, count: int, name: str = "all") -> list[float]:
    y = np.zeros(count, "f8")
    source = f'{includes}\nextern "C" __global__ void k(double* {name}) {{ {statements} }}'
    assert list(check(source, (1, 1, 1), (1, 1, 1), y, seeds=0)) == []
    return [float(each) for each in y]


def result(statements: str, includes: str = "") -> float:
    return results(statements, includes, 1, "y")[0]


ALL = "\n".join(f"#include <{name}>" for name in STANDARD_HEADERS)
USES = {
    "integers": (
        "uint64_t v = UINT64_MAX; std::uint8_t w = 255; uintptr_t p = (uintptr_t)y; y[0] = p ? w : v;",
        255,
    ),
    "limits": ("y[0] = INT_MAX + double(INT64_MIN < 0) + SHRT_MAX + CHAR_BIT;", 2**31 - 1 + 1 + 32767 + 8),
    "floats": ("y[0] = FLT_MAX < INFINITY && DBL_EPSILON > 0 && isnan(NAN) && HUGE_VAL > DBL_MAX;", 1),
    "functions": ("y[0] = std::sqrt(4.0f) + std::max(1, 2) + std::abs(-3.0) + std::floor(M_PI);", 10),
    "types": ("y[0] = std::is_same<int32_t, int>::value + std::numeric_limits<int8_t>::max();", 128),
    "swap": ("int a = 1, b = 2; std::swap(a, b); y[0] = 10 * a + b;", 21),
    "built in": ('assert(y); char s[4]; memset(s, 1, 4); y[0] = s[3]; if (y[0] > 1) printf("%d", s[0]);', 1),
    "driver": ("y[0] = sizeof(CUtensorMap) + alignof(CUtensorMap);", 192),
}


def test_headers_of_the_standard() -> None:
    """All uses by one compilation, each with a sum of its own."""
    blocks = (f"{{ double* y = all + {place}; {text} }}" for place, (text, _) in enumerate(USES.values()))
    assert results("\n".join(blocks), ALL, len(USES)) == [value for _, value in USES.values()]


@pytest.mark.often(2)
@pytest.mark.parametrize("name", surveyed_but(STANDARD_HEADERS, *range(0, len(STANDARD_HEADERS), 3)))
def test_a_header_stands_alone(name: str) -> None:
    assert result("y[0] = 3;", f"#include <{name}>") == 3


def test_cuda_s_own_library_may_come_before_and_behind() -> None:
    library = "#include <cuda/std/cstdint>\n#include <cuda/std/climits>\n#include <cuda/atomic>\n"
    assert result("y[0] = INT32_MAX;", ALL + "\n" + library) == 2**31 - 1
    assert result("y[0] = INT32_MAX;", library + ALL) == 2**31 - 1


def test_what_nvcc_knows_without_an_include() -> None:
    assert result("uint32_t a = 7; uint b = 1; y[0] = a + b + (INFINITY > 0) + INT_MAX / INT32_MAX;") == 10
    assert result('int a; __asm__ __volatile__("mov.u32 %0, 3;" : "=r"(a)); y[0] = a;') == 3


@pytest.mark.parametrize(("waits", "found"), [("cudaGridDependencySynchronize();", set()), ("", {"race"})])
def test_functions_of_launches_that_overlap(waits: str, found: set[str]) -> None:
    source = f"""extern "C" __global__ void next(const float* x, float* y) {{
        {waits} y[threadIdx.x] = x[threadIdx.x] + 1; cudaTriggerProgrammaticLaunchCompletion(); }}"""
    x, y, z = np.arange(32, dtype="f4"), np.zeros(32, "f4"), np.zeros(32, "f4")
    launches = [
        kernel_launch(source, (1, 1, 1), (32, 1, 1), *arrays, overlaps=True) for arrays in ((x, y), (y, z))
    ]
    assert {finding.rule for finding in check_sequence(launches, seeds=2)} == found


def test_names_of_an_author_s_own_stay_theirs() -> None:
    own = "typedef unsigned long uint64_t; #define INFINITY 5".replace("; ", ";\n")
    assert result("uint64_t v = INFINITY; y[0] = v;", own) == 5


def test_wmma_s_header_is_whole() -> None:
    includes = "#include <mma.h>\n#include <cuda_fp16.h>"
    tile = "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;"
    assert result(f"{tile} y[0] = c.num_elements;", includes) == 8


def test_host_code_is_refused_in_words() -> None:
    with pytest.raises(
        CompileError, match="device code alone: give it the file with the kernel, or PTX by nvcc"
    ):
        result("y[0] = 1;", "#include <vector>\nint main() { return std::vector<int>(1)[0]; }")


def test_functions_of_the_host_beside_a_kernel_do_not_hinder_it() -> None:
    assert result("y[0] = half_of(6);", "int half_of(int n) { return n / 2; }\nint main() { return 0; }") == 3


def test_cub_s_usual_header_is_read_and_errors_come_without_its_warnings() -> None:
    includes = "#include <cub/cub.cuh>\n#include <cub/device/device_scan.cuh>"
    total = (
        "using Reduce = cub::BlockReduce<float, 1>; __shared__ Reduce::TempStorage space;"
        " y[0] = Reduce(space).Sum(3.0f);"
    )
    assert result(total, includes) == 3
    with pytest.raises(CompileError) as caught:
        result("y[0] = z;", includes)
    assert 'identifier "z" is undefined' in str(caught.value)
    assert "warning" not in str(caught.value)
