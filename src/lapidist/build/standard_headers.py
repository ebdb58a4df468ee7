"""Headers of the C++ standard for NVRTC, which has none: what of them kernels use.

nvcc takes them from the host's compiler. Integers have the types that CUDA's own C++ library gives them under
NVRTC, and macros its spelling, so that both may be included."""

from __future__ import annotations

INTEGERS = "".join(
    f"typedef signed {kind} int{bits}_t;\ntypedef unsigned {kind} uint{bits}_t;\n"
    for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
)
INTEGERS += "typedef int64_t intptr_t;\ntypedef uint64_t uintptr_t;\n"
NAMES = [f"{sign}int{size}_t" for sign in ("", "u") for size in (8, 16, 32, 64, "ptr")]
STDINT = (
    f"{INTEGERS}namespace std {{ {' '.join(f'using ::{name};' for name in NAMES)} }}\n"
    "#define INT32_MAX  INT_MAX\n#define INT64_MAX  LLONG_MAX\n#define UINT32_MAX UINT_MAX\n"
    "#define UINT64_MAX ULLONG_MAX\n#define INT32_MIN  INT_MIN\n#define INT64_MIN  LLONG_MIN\n"
    "#define INT8_MAX   SCHAR_MAX\n#define INT16_MAX  SHRT_MAX\n#define UINT8_MAX  UCHAR_MAX\n"
    "#define UINT16_MAX USHRT_MAX\n#define INT8_MIN   SCHAR_MIN\n#define INT16_MIN  SHRT_MIN\n"
    "#define SIZE_MAX UINT64_MAX\n"
)
LIMITS = (
    "#define CHAR_BIT 8\n#define SCHAR_MIN         (-128)\n#define SCHAR_MAX         127\n"
    "#define UCHAR_MAX         255\n#define SHRT_MIN  (-SHRT_MAX - 1)\n#define SHRT_MAX  0x7fff\n"
    "#define USHRT_MAX 0xffff\n#define INT_MIN   (-INT_MAX - 1)\n#define INT_MAX   0x7fffffff\n"
    "#define UINT_MAX  0xffffffff\n#define LLONG_MIN  (-LLONG_MAX - 1)\n"
    "#define LLONG_MAX  0x7fffffffffffffffLL\n#define ULLONG_MAX 0xffffffffffffffffUL\n"
)
FLOAT = (
    "#define FLT_MAX 3.402823466e+38f\n#define FLT_MIN 1.175494351e-38f\n"
    "#define FLT_EPSILON 1.192092896e-7f\n"
    "#define DBL_MAX 1.7976931348623157e+308\n#define DBL_MIN 2.2250738585072014e-308\n"
    "#define DBL_EPSILON 2.2204460492503131e-16\n#define FLT_DIG 6\n#define DBL_DIG 15\n"
    "#define FLT_MANT_DIG 24\n#define DBL_MANT_DIG 53\n"
)
CONSTANTS = {
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_E": "2.7182818284590452354",
    "M_LN2": "0.69314718055994530942",
    "M_LOG2E": "1.4426950408889634074",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
}
FUNCTIONS = (
    "abs fabs sqrt exp exp2 log log2 pow sin cos tan tanh sinh cosh asin acos atan atan2 erf floor ceil round"
    " trunc fmax fmin fma fmod hypot"
)
MATH = (
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fc00000)\n"
    "#define HUGE_VALF INFINITY\n#define HUGE_VAL __longlong_as_double(0x7ff0000000000000LL)\n"
    + "".join(f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in CONSTANTS.items())
    + f"namespace std {{ {' '.join(f'using ::{name};' for name in FUNCTIONS.split())} }}\n"
)
ALGORITHM = """namespace std {
template <typename T> __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <typename T> __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <typename T> __device__ constexpr void swap(T& a, T& b) { T held = a; a = b; b = held; }
}
"""
# The driver's own header declares functions of the host; kernels take its tensor maps.
DRIVER = "struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };\n"
BUILT_IN = "stdio.h cstdio stdlib.h cstdlib string.h cstring assert.h cassert stddef.h cstddef time.h ctime"
# What CUDA's C++ library has under its own name.
OF_LIBRARY = "limits type_traits utility tuple array functional numeric complex bit ratio atomic concepts"
# cub/cub.cuh includes calls of the host, which NVRTC refuses, and so do the headers of cub/device. What
# kernels take from it lies in these, of which older versions lack some.
CUB = {
    "block/block": "adjacent_difference discontinuity exchange histogram load merge_sort radix_rank"
    " radix_sort reduce scan shuffle store",
    "warp/warp": "exchange load merge_sort reduce scan store",
    "thread/thread": "load operators reduce scan store",
    "util": "ptx type",
}
CUB_NAMES = [f"cub/{kind}_{name}.cuh" for kind, names in CUB.items() for name in names.split()]
CUB_DEVICE = (
    "adjacent_difference copy for histogram memcpy merge merge_sort partition radix_sort reduce"
    " run_length_encode scan segmented_radix_sort segmented_reduce segmented_sort select transform"
)


def once(text: str) -> str:
    return f"#pragma once\n{text}"


STANDARD_HEADERS = {
    **dict.fromkeys(("stdint.h", "cstdint"), once(f"#include <limits.h>\n{STDINT}")),
    **dict.fromkeys(("limits.h", "climits"), once(LIMITS)),
    **dict.fromkeys(("float.h", "cfloat"), once(FLOAT)),
    **dict.fromkeys(("math.h", "cmath"), once(MATH)),
    "algorithm": once(ALGORITHM),
    "cuda.h": once(DRIVER),
    **dict.fromkeys(BUILT_IN.split(), once("")),
    **{
        name: once(f"#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n")
        for name in OF_LIBRARY.split()
    },
    "cub/cub.cuh": once(
        "#include <cub/config.cuh>\n"
        + "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in CUB_NAMES)
    ),
    **{f"cub/device/device_{name}.cuh": once("") for name in CUB_DEVICE.split()},
}
# CUDA's own header has these for nvcc alone.
OVERLAPPING = """
static __device__ inline void cudaGridDependencySynchronize() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
static __device__ inline void cudaTriggerProgrammaticLaunchCompletion() {
  asm volatile("griddepcontrol.launch_dependents;");
}
"""
# What nvcc knows without an include, as its own header includes these.
USUAL = {
    "usual.h": (
        "#include <stdint.h>\n#include <math.h>\ntypedef unsigned int uint;\ntypedef unsigned short ushort;\n"
        "#define __asm__ asm\n#define __volatile__ volatile\n" + OVERLAPPING
    )
}
