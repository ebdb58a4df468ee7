"""CUDA programs for tests: kernels that NVRTC compiles, and host code in C that does what nvcc's does."""

from __future__ import annotations

import struct
import subprocess
from functools import cache
from pathlib import Path

from lapidist.build.compiler import compile_module
from lapidist.machine.programs.stand_in_build import Needs, build_stand_in, tool

# Line 1 is that of the first directive; findings name lines of program.cu.
KERNELS = """\
struct Args { float a; int n; };
__constant__ float factors[2];
__device__ unsigned blocks_done = 0;
extern "C" __global__ void saxpy(Args p, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) y[i] = p.a * factors[0] * x[i] + factors[1] * y[i];
}
extern "C" __global__ void partial(const float *x, float *sums, int n) {
    __shared__ float part[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.f;
    BARRIER;
    for (int s = 32; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) { sums[blockIdx.x] = part[0]; atomicAdd(&blocks_done, 1); }
}
extern "C" __global__ void total(const float *sums, float *out, int n) {
    float s = 0;
    for (int i = 0; i < n; i++) s += sums[i];
    *out = s;
}
extern "C" __global__ void hello(int n) { if (threadIdx.x == 0) printf("hello %d\\n", n); }
extern "C" __global__ void bulk(float *to) {
    __shared__ alignas(16) float tile[64];
    tile[threadIdx.x] = 1;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned from = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;\\n"
                     "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
                     ::"l"(to), "r"(from) : "memory");
}
extern "C" __global__ void keep(int **slot) { *slot = new int(7); }
extern "C" __global__ void use(int **slot, int *out) { *out = **slot; }
extern "C" __global__ void drop(int **slot) { delete *slot; }
extern "C" __global__ void turns(volatile int *flags) {
    int next = blockIdx.x + 1;
    while (next < gridDim.x && !flags[next]);
    flags[blockIdx.x] = 1;
}
"""
RACE_LINE, READ_LINE, SAXPY_LINE = 14, 11, 6
HOST = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { unsigned x, y, z; } dim3;
typedef struct { float a; int n; } Args;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *,
                                   void *, int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern int cudaMalloc(void *, size_t), cudaFree(void *), cudaMallocManaged(void *, size_t, unsigned);
extern int cudaMemcpyAsync(void *, const void *, size_t, int, void *), cudaMemset(void *, int, size_t);
extern int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
extern int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
extern int cudaStreamCreate(void *), cudaEventCreate(void *), cudaEventRecord(void *, void *);
extern int cudaStreamWaitEvent(void *, void *, unsigned), cudaDeviceSynchronize(void);
extern int cudaGetDeviceCount(int *), cudaDeviceGetAttribute(int *, int, int);
extern const char *cudaGetErrorString(int);
#ifdef LACKS
extern int cudaMallocArray(void *, const void *, size_t, size_t, unsigned);
#endif
static const uint64_t fat_binary[] = {CONTENT};
static const struct { int magic, version; const void *data, *file; } wrapper = {0x466243b1, 1, fat_binary, 0};
static char saxpy, partial, total;
static float factors[2] = {1, 2};
static unsigned blocks_done;

__attribute__((constructor)) static void registered(void) {
    void **handle = __cudaRegisterFatBinary((void *)&wrapper);
    __cudaRegisterFunction(handle, &saxpy, "saxpy", "saxpy", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, &partial, "partial", "partial", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, &total, "total", "total", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, (char *)factors, "factors", "factors", 0, 8, 1, 0);
    __cudaRegisterVar(handle, (char *)&blocks_done, "blocks_done", "blocks_done", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
}

#define CHECK(call)                                            \
    do {                                                       \
        int e = (call);                                        \
        if (e) {                                               \
            printf("%s: %s\n", #call, cudaGetErrorString(e)); \
            return 2;                                          \
        }                                                      \
    } while (0)

"""
MAIN = r"""
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 100, blocks = (n + 63) / 64;
    float *x, *y, *sums, *out, host[1024];
    void *a, *b, *ready;
    CHECK(cudaMalloc(&x, 4 * n));
    CHECK(cudaMalloc(&y, 4 * n));
    CHECK(cudaMalloc(&sums, 4 * blocks));
    CHECK(cudaMallocManaged(&out, 4, 1));
    CHECK(cudaMemcpyToSymbol(factors, factors, 8, 0, 1));
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaEventCreate(&ready));
    for (int i = 0; i < n; i++) host[i] = i % 7;
    CHECK(cudaMemcpyAsync(x, host, 4 * n, 1, a));
#ifndef UNSET
    CHECK(cudaMemset(y, 0, 4 * n));
#endif
    Args p = {3, n};
    dim3 grid = {blocks, 1, 1}, block = {64, 1, 1}, one = {1, 1, 1};
    CHECK(cudaLaunchKernel(&saxpy, grid, block, (void *[]){&p, &x, &y}, 0, a));
    CHECK(cudaEventRecord(ready, a));
#ifndef NO_WAIT
    CHECK(cudaStreamWaitEvent(b, ready, 0));
#endif
    int more = n + (argc > 2 ? atoi(argv[2]) : 0);
    CHECK(cudaLaunchKernel(&partial, grid, block, (void *[]){&y, &sums, &more}, 0, b));
    CHECK(cudaLaunchKernel(&total, one, one, (void *[]){&sums, &out, &blocks}, 0, b));
    CHECK(cudaDeviceSynchronize());
    unsigned count;
    CHECK(cudaMemcpyFromSymbol(&count, &blocks_done, 4, 0, 2));
    int sms, devices;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaDeviceGetAttribute(&sms, 16, 0));
    float want = 0;
    for (int i = 0; i < n; i++) want += 3 * host[i];
    printf("%g of %g by %u blocks on %d device of %d\n", *out, want, count, devices, sms);
#ifdef LACKS
    void *array;
    CHECK(cudaMallocArray(&array, 0, 4, 4, 0));
#endif
    CHECK(cudaFree(x));
    return *out == want ? 0 : 1;
}
"""


@cache
def ptx(barrier: str = "__syncthreads()", architecture: str = "compute_90") -> str:
    options = (f"--gpu-architecture={architecture}", "-lineinfo", f"-DBARRIER={barrier}")
    return compile_module(KERNELS, "program.cu", options)[0]


def fat_binary(*parts: tuple[int, int, int, bytes, int]) -> bytes:
    """Of (kind, architecture, flags, content, bytes before compression)."""
    content = b""
    for kind, architecture, flags, code, nbytes in parts:
        padded = code + bytes(-len(code) % 8)
        packed = len(code) if flags else 0
        content += struct.pack(
            "<HHIQIIHHIIIQQQ",
            kind,
            0x101,
            64,
            len(padded),
            packed,
            0,
            0,
            9,
            architecture,
            0,
            0,
            flags,
            0,
            nbytes,
        )
        content += padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def fat_ptx(text: str, architecture: int = 90) -> bytes:
    return fat_binary((1, architecture, 0, text.encode() + b"\0", 0))


def program(folder: Path, content: bytes, *defines: str, name: str = "program", main: str = MAIN) -> Path:
    """A program of CUDA 13, linked with the runtime as a shared library."""
    words = struct.unpack(f"<{-(-len(content) // 8)}Q", content + bytes(-len(content) % 8))
    source = folder / "host.c"
    source.write_text(HOST.replace("CONTENT", ",".join(f"{word:#x}u" for word in words)) + main)
    library = build_stand_in(Needs(frozenset({"cudaMallocArray"}), frozenset(), 13), folder)
    compiled(folder, name, str(source), str(library), *(f"-D{define}" for define in defines))
    return folder / name


def compiled(folder: Path, name: str, *words: str) -> Path:
    subprocess.run([tool("cc"), *words, "-o", str(folder / name)], check=True)
    return folder / name
