// wgmma (sm_90a): four warps multiply tiles that lie in shared memory; the sums stay in their registers. PTX
// ISA, "Asynchronous warpgroup level matrix instructions".
//
// One instruction: 64 rows of A, N columns of B, 32 bytes of k. Both tiles lie in the pattern that
// TMA's swizzle of 128 bytes leaves, and a descriptor says where. MN-major tiles have neighbours along m
// or n (16-bit types only):
//
//   k touches   rows of 128 bytes of k, 8 of them an atom of 1024; the next 32 bytes of k lie 32 bytes
//               further
//   MN-major    slabs of 64 elements of m or n, `leading` bytes apart; a slab has a row of 128 bytes for each
//               k
//
// Sums: thread t has sums[4 j + 2 h + i] of row t / 32 * 16 + t % 32 / 4 + 8 h, column 8 j + t % 4 * 2 + i.
#pragma once

#include "config.cuh"
#include "hopper.cuh"
#include "tensor.cuh"

#define SUM(i) "+" SUM_REGISTER(sums[i])
static_assert(sizeof(T) == 2 || !B_N_MAJOR,
              "wgmma transposes 16-bit types only: of others, k must touch; A goes by registers");

static_assert(BK * sizeof(T) == 128, "a step along k is one row of the swizzle");
constexpr int STEPS = 4;        // instructions of 32 bytes of k
constexpr int SLAB = 64 * 128;  // bytes of 64 rows of a tile (k touches), or of 64 columns (MN-major)
constexpr bool A_TRANSPOSED =
    A_M_MAJOR && sizeof(T) != 2;  // on its way through registers: gemm/wgmma/a_from_registers.cuh
constexpr bool A_IN_REGISTERS = A_TRANSPOSED || A_SKEWED;

// ---- descriptors ----

typedef unsigned long long Descriptor;

// Of a tile that starts at a multiple of 1024. 8 rows further is 1024 bytes; MN-major, 8 of k.
// The low word says where it is (in a cluster a shared address has the block's rank above) and how far apart
// slabs are, the high one all else.
constexpr unsigned LEADING = (SLAB >> 4) << 16, STRIDE = 1024 >> 4, SWIZZLE_128 = 1 << 30;
__device__ __forceinline__ unsigned low_word(const void* tile) {
  return (shared_address(tile) >> 4 & 0x3FFF) | LEADING;
}
__device__ __forceinline__ Descriptor descriptor(unsigned low) {
  Descriptor both;
  asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(low), "n"(STRIDE | SWIZZLE_128));
  return both;
}
__device__ __forceinline__ Descriptor describe(const void* tile) {
  return low_word(tile) | static_cast<Descriptor>(STRIDE | SWIZZLE_128) << 32;
}

// The warpgroup of a thread that multiplies. Votes leave it in a uniform register, where descriptors must
// lie: what depends on others is moved there again for each product.
template <int Groups>
__device__ __forceinline__ int own_group() {
  int group = 0;
#pragma unroll
  for (int next = 1; next < Groups; ++next) group += __any_sync(0xffffffffu, threadIdx.x >= next * 128) != 0;
  return group;
}

// What to add to a descriptor for the step-th instruction along k, and for a place `bytes` further.
template <bool MnMajor>
__device__ constexpr int step_along_k(int step) {
  return step * (MnMajor ? 16 * 128 : 32) >> 4;
}
__device__ constexpr int further(int bytes) { return bytes >> 4; }

// ---- order ----

// Before the first product of a batch: orders the registers with what ordinary instructions did to them.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most `Pending` committed groups, the youngest, are under way.
template <int Pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// The compiler does not know that products arrive at the wait: nothing may use the sums before this line.
template <int Count>
__device__ __forceinline__ void sums_arrive(Sum (&sums)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : SUM(i)::"memory");
}

template <int Rows, int Count>
__device__ __forceinline__ void set_to_zero(Sum (&sums)[Rows][Count]) {
#pragma unroll
  for (int i = 0; i < Rows * Count; ++i) sums[i / Count][i % Count] = 0;
}

// ---- products: sums += A B, or A B where `old` is 0; A in shared memory or a thread's part of it in
// registers ----

typedef unsigned Fragment[4];

template <int N>
struct Wgmma;

#define SUMS_FROM(i) \
  SUM(i), SUM(i + 1), SUM(i + 2), SUM(i + 3), SUM(i + 4), SUM(i + 5), SUM(i + 6), SUM(i + 7)
#define SUMS_8 SUM(0), SUM(1), SUM(2), SUM(3)
#define SUMS_16 SUMS_FROM(0)
#define SUMS_32 SUMS_16, SUMS_FROM(8)
#define SUMS_48 SUMS_32, SUMS_FROM(16)
#define SUMS_64 SUMS_48, SUMS_FROM(24)
#define SUMS_80 SUMS_64, SUMS_FROM(32)
#define SUMS_96 SUMS_80, SUMS_FROM(40)
#define SUMS_112 SUMS_96, SUMS_FROM(48)
#define SUMS_128 SUMS_112, SUMS_FROM(56)
#define SUMS_144 SUMS_128, SUMS_FROM(64)
#define SUMS_160 SUMS_144, SUMS_FROM(72)
#define SUMS_176 SUMS_160, SUMS_FROM(80)
#define SUMS_192 SUMS_176, SUMS_FROM(88)
#define SUMS_200 SUMS_192, SUM(96), SUM(97), SUM(98), SUM(99)
#define SUMS_208 SUMS_192, SUMS_FROM(96)
#define SUMS_224 SUMS_208, SUMS_FROM(104)
#define SUMS_240 SUMS_224, SUMS_FROM(112)
#define SUMS_256 SUMS_240, SUMS_FROM(120)
#define NAMES_8 "%0, %1, %2, %3"
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_32 NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_48 NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define NAMES_64 NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_80 NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_96 NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_112 NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES_128 NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_144 NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define NAMES_160 NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_176 NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define NAMES_192 NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_200 NAMES_192 ", %96, %97, %98, %99"
#define NAMES_208 NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define NAMES_224 NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_240 NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define NAMES_256 NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_ADDING(N, A, b, last, tail, ...)                                                 \
  asm volatile("{\n.reg .pred old;\nsetp.ne.b32 old, %" #last                                  \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N WGMMA_SHAPE A_KIND B_KIND " {" NAMES_##N \
               "}, " A ", %" #b ", old" tail ";\n}"                                            \
               : SUMS_##N                                                                      \
               : __VA_ARGS__, "l"(B), "r"(old))
#define WGMMA(N, a, b, c, d, e, f)                                                                       \
  template <>                                                                                            \
  struct Wgmma<N> {                                                                                      \
    static __device__ __forceinline__ void multiply(Sum (&sums)[N / 2], Descriptor A, Descriptor B,      \
                                                    int old = 1) {                                       \
      WGMMA_ADDING(N, "%" #a, b, c, WGMMA_TAIL, "l"(A));                                                 \
    }                                                                                                    \
    static __device__ __forceinline__ void multiply(Sum (&sums)[N / 2], const Fragment& A, Descriptor B, \
                                                    int old = 1) {                                       \
      WGMMA_ADDING(N, "{%" #a ", %" #b ", %" #c ", %" #d "}", e, f, WGMMA_TAIL_OF_REGISTERS, "r"(A[0]),  \
                   "r"(A[1]), "r"(A[2]), "r"(A[3]));                                                     \
    }                                                                                                    \
  };
WGMMA(8, 4, 5, 6, 7, 8, 9)
WGMMA(16, 8, 9, 10, 11, 12, 13)
WGMMA(32, 16, 17, 18, 19, 20, 21)
WGMMA(48, 24, 25, 26, 27, 28, 29)
WGMMA(64, 32, 33, 34, 35, 36, 37)
WGMMA(80, 40, 41, 42, 43, 44, 45)
WGMMA(96, 48, 49, 50, 51, 52, 53)
WGMMA(112, 56, 57, 58, 59, 60, 61)
WGMMA(128, 64, 65, 66, 67, 68, 69)
WGMMA(144, 72, 73, 74, 75, 76, 77)
WGMMA(160, 80, 81, 82, 83, 84, 85)
WGMMA(176, 88, 89, 90, 91, 92, 93)
WGMMA(192, 96, 97, 98, 99, 100, 101)
WGMMA(200, 100, 101, 102, 103, 104, 105)
WGMMA(208, 104, 105, 106, 107, 108, 109)
WGMMA(224, 112, 113, 114, 115, 116, 117)
WGMMA(240, 120, 121, 122, 123, 124, 125)
WGMMA(256, 128, 129, 130, 131, 132, 133)
