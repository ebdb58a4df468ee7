// mma.sync, each form once, and what a warp holds of its operands.
//
// Every type has one form here. An Eight is what a warp holds of 8 rows of A (or 8 columns of B), DEPTH steps
// of k: lane 4 g + t holds, of row g, the t-th quarter of 16 bytes of k, and of the 16 bytes after. The
// instruction multiplies two Eights of A, one above the other, by one of B: 16 x 8 sums, four a lane.
//
//                        B   n = g ->                          type         DEPTH   bytes of k
//                      +-------+                               half, bf16   16      32
//            at[0]  k  | t     |  rows of quarter t            tf32          8      32
//            at[1]  |  | t     |                               8 bits       32      32
//                   v  +-------+                               double        8      64: at[0] is k = t, at[1] k = 4 + t
//           k ->
//        +---------+   +-------+
//  top   | t  | t  |   | 2t 2t+1   sums at[0], at[1]: row g, columns 2t and 2t + 1
//        +---------+   +-------+
// bottom | t  | t  |   | 2t 2t+1   sums at[2], at[3]: row 8 + g
//        +---------+   +-------+
//        at[0] at[1]
//
// The order of k is free as long as A and B agree, and so is the order of rows among the Eights of a warp:
// what is cheap to read decides both (Reader, mma_tile.cuh).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "config.cuh"
#include "double_mma.cuh"
#include "tensor.cuh"

constexpr int SIZE = sizeof(T);
constexpr int DEPTH = SIZE == 8 ? 8 : 32 / SIZE;
template <typename Element>
struct RegisterOf {
  typedef unsigned type;
};
template <>
struct RegisterOf<double> {
  typedef double type;
};
typedef RegisterOf<T>::type Register;

struct Eight {
  Register at[2];
};

// Operand: what the instruction takes of an Eight. The mma.sync of sm_90 and sm_100 has no 8-bit floats: left
// to itself, the compiler multiplies halves from zero and adds each result to its sum by instructions of its
// own. Here an Eight becomes two of half, and sums stay in the tensor core.
#define FP8_AS_HALF (FLOATS_OF_8_BITS && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
#if FP8_AS_HALF
struct Operand {
  struct {
    unsigned at[2];
  } half_of[2];
};
template <typename Element>
struct Unpack;
#define UNPACK(ELEMENT_TYPE, PAIR)                                                                \
  template <>                                                                                     \
  struct Unpack<ELEMENT_TYPE> {                                                                   \
    static __device__ __forceinline__ void of(unsigned four, unsigned& first, unsigned& second) { \
      asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2." PAIR                    \
          " %0, low; cvt.rn.f16x2." PAIR " %1, high; }"                                           \
          : "=r"(first), "=r"(second)                                                             \
          : "r"(four));                                                                           \
    }                                                                                             \
  };
UNPACK(__nv_fp8_e4m3, "e4m3x2")
UNPACK(__nv_fp8_e5m2, "e5m2x2")
#else
typedef Eight Operand;
#endif
template <typename Element>
__device__ __forceinline__ Operand operand_of(Eight eight) {
  Operand operand;
#if FP8_AS_HALF
#pragma unroll
  for (int i = 0; i < 2; ++i)
    Unpack<Element>::of(eight.at[i], operand.half_of[0].at[i], operand.half_of[1].at[i]);
#else
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Eight) / sizeof(Register)); ++i)
    operand.at[i] = rounded(eight.at[i]);
#endif
  return operand;
}
template <int Count>
struct Operands {
  Operand at[Count];
};
template <typename Element, int Count>
__device__ __forceinline__ Operands<Count> operands_of(const Eight (&eights)[Count]) {
  Operands<Count> operands;
#pragma unroll
  for (int e = 0; e < Count; ++e) operands.at[e] = operand_of<Element>(eights[e]);
  return operands;
}

template <typename A, typename B, typename S>
struct Mma;

#define MMA_FOUR(A_TYPE, B_TYPE, SUM_TYPE, TEXT, C_SUM)                                               \
  template <>                                                                                         \
  struct Mma<A_TYPE, B_TYPE, SUM_TYPE> {                                                              \
    SUM_TYPE at[4] = {};                                                                              \
    __device__ __forceinline__ Scalar sum(int i) const { return at[i]; }                              \
    template <typename E>                                                                             \
    __device__ __forceinline__ void multiply(const E& top, const E& bottom, const E& b) {             \
      asm("mma.sync.aligned." TEXT " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
          : "+" C_SUM(at[0]), "+" C_SUM(at[1]), "+" C_SUM(at[2]), "+" C_SUM(at[3])                    \
          : "r"(top.at[0]), "r"(bottom.at[0]), "r"(top.at[1]), "r"(bottom.at[1]), "r"(b.at[0]),       \
            "r"(b.at[1]));                                                                            \
    }                                                                                                 \
  };

MMA_FOUR(half, half, float, "m16n8k16.row.col.f32.f16.f16.f32", "f")
MMA_FOUR(__nv_bfloat16, __nv_bfloat16, float, "m16n8k16.row.col.f32.bf16.bf16.f32", "f")
MMA_FOUR(float, float, float, "m16n8k8.row.col.f32.tf32.tf32.f32", "f")
MMA_FOUR(int8, int8, int, "m16n8k32.row.col.s32.s8.s8.s32", "r")
MMA_FOUR(int8, uint8, int, "m16n8k32.row.col.s32.s8.u8.s32", "r")
MMA_FOUR(uint8, int8, int, "m16n8k32.row.col.s32.u8.s8.s32", "r")
MMA_FOUR(uint8, uint8, int, "m16n8k32.row.col.s32.u8.u8.s32", "r")
#if FLOATS_OF_8_BITS && !FP8_AS_HALF
MMA_FOUR(__nv_fp8_e4m3, __nv_fp8_e4m3, float, "m16n8k32.row.col.f32.e4m3.e4m3.f32", "f")
MMA_FOUR(__nv_fp8_e5m2, __nv_fp8_e5m2, float, "m16n8k32.row.col.f32.e5m2.e5m2.f32", "f")
MMA_FOUR(__nv_fp8_e4m3, __nv_fp8_e5m2, float, "m16n8k32.row.col.f32.e4m3.e5m2.f32", "f")
MMA_FOUR(__nv_fp8_e5m2, __nv_fp8_e4m3, float, "m16n8k32.row.col.f32.e5m2.e4m3.f32", "f")
#elif FP8_AS_HALF
template <>
struct Mma<T, ElementB, float> {
  Mma<half, half, float> halves;
  __device__ __forceinline__ Scalar sum(int i) const { return halves.at[i]; }
  __device__ __forceinline__ void multiply(const Operand& top, const Operand& bottom, const Operand& b) {
    halves.multiply(top.half_of[0], bottom.half_of[0], b.half_of[0]);
    halves.multiply(top.half_of[1], bottom.half_of[1], b.half_of[1]);
  }
};
#endif

template <>
struct Mma<half, half, half> {  // two sums a register
  unsigned at[2] = {};
  __device__ __forceinline__ Scalar sum(int i) const {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(at[i / 2] >> i % 2 * 16)));
  }
  template <typename E>
  __device__ __forceinline__ void multiply(const E& top, const E& bottom, const E& b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(at[0]), "+r"(at[1])
        : "r"(top.at[0]), "r"(bottom.at[0]), "r"(top.at[1]), "r"(bottom.at[1]), "r"(b.at[0]), "r"(b.at[1]));
  }
};

template <>
struct Mma<double, double, double> {
  double at[4] = {};
  __device__ __forceinline__ Scalar sum(int i) const { return at[i]; }
  template <typename E>
  __device__ __forceinline__ void multiply(const E& top, const E& bottom, const E& b) {
    multiply_doubles(at, top.at, bottom.at, b.at[0], b.at[1]);
  }
};
typedef Mma<T, ElementB, Sum> Sums;

// A row of a step's products: two Eights of A by all of B, from right to left if `back`.
template <int Cols>
__device__ __forceinline__ void multiply_eights(Sums (&sums)[Cols], const Operand& top, const Operand& bottom,
                                                const Operands<Cols>& b, bool back = false) {
#pragma unroll
  for (int i = 0; i < Cols; ++i) {
    const int n = back ? Cols - 1 - i : i;
    sums[n].multiply(top, bottom, b.at[n]);
  }
}
