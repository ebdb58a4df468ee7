// wmma, each instruction once. A fragment is a matrix spread over the registers of a warp; which lane holds
// what is the implementation's secret, so a fragment can only be loaded, multiplied, scaled as a whole, and
// stored.
//
//            FN                    type            FM x FN x FK    registers: operand, sums
//          +----+                  half            16 x 16 x 16    8 (each value twice), 8 float or 4 of two halves
//       FK | b  |                  __nv_bfloat16   16 x 16 x 16    4, 8
//      FK  +----+                  float (tf32)    16 x 16 x  8    4, 8
//    +----+----+                   int8, uint8     16 x 16 x 16    2, 8
// FM | a  |sums|                   double           8 x  8 x  4    1, 2
//    +----+----+
//
// A, B and sums are row-major in memory; `pitch` is the distance of rows in elements, a multiple of 16 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "config.cuh"
#include "tensor.cuh"

#define TOKEN_(a, b) a##b
#define TOKEN(a, b) TOKEN_(a, b)

#define IN_1 "{%0}, [%1], %2;"
#define IN_2 "{%0, %1}, [%2], %3;"
#define IN_4 "{%0, %1, %2, %3}, [%4], %5;"
#define IN_8 "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
#define OUT_2 "[%0], {%2, %3}, %1;"
#define OUT_4 "[%0], {%2, %3, %4, %5}, %1;"
#define OUT_8 "[%0], {%2, %3, %4, %5, %6, %7, %8, %9}, %1;"
#define SET_1(c, r) c(r[0])
#define SET_2(c, r) c(r[0]), c(r[1])
#define SET_4(c, r) SET_2(c, r), c(r[2]), c(r[3])
#define SET_8(c, r) SET_4(c, r), c(r[4]), c(r[5]), c(r[6]), c(r[7])

// sums += a b: "{sums}, {a}, {b}, {sums}", by the number of registers of sums and operands.
#define LIST_8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define MULTIPLY_8_8 \
  LIST_8 ", {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, " LIST_8 ";"
#define MULTIPLY_4_8                                       \
  "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, " \
  "{%12, %13, %14, %15, %16, %17, %18, %19}, {%0, %1, %2, %3};"
#define MULTIPLY_8_4 LIST_8 ", {%8, %9, %10, %11}, {%12, %13, %14, %15}, " LIST_8 ";"
#define MULTIPLY_8_2 LIST_8 ", {%8, %9}, {%10, %11}, " LIST_8 ";"
#define MULTIPLY_2_1 "{%0, %1}, {%2}, {%3}, {%0, %1};"

template <typename Element, typename S>
struct Wmma;

#define WMMA(ELEMENT_TYPE, SUM_TYPE, M_, N_, K_, SHAPE, KIND, SUM_KIND, MMA_KINDS, OPERANDS, REG, C_OPERAND, \
             SUMS, SUM_REG, C_SUM)                                                                           \
  template <>                                                                                                \
  struct Wmma<ELEMENT_TYPE, SUM_TYPE> {                                                                      \
    static constexpr int FM = M_, FN = N_, FK = K_;                                                          \
    struct Operand {                                                                                         \
      REG at[OPERANDS];                                                                                      \
    };                                                                                                       \
    struct Sums {                                                                                            \
      SUM_REG at[SUMS];                                                                                      \
    };                                                                                                       \
    WMMA_LOAD(load_a_global, "wmma.load.a.sync.aligned.row." SHAPE ".global." KIND " ", OPERANDS, C_OPERAND, \
              "l", )                                                                                         \
    WMMA_LOAD(load_b_global, "wmma.load.b.sync.aligned.row." SHAPE ".global." KIND " ", OPERANDS, C_OPERAND, \
              "l", )                                                                                         \
    WMMA_LOAD(load_a, "wmma.load.a.sync.aligned.row." SHAPE ".shared." KIND " ", OPERANDS, C_OPERAND, "r",   \
              shared_address)                                                                                \
    WMMA_LOAD(load_b, "wmma.load.b.sync.aligned.row." SHAPE ".shared." KIND " ", OPERANDS, C_OPERAND, "r",   \
              shared_address)                                                                                \
    static __device__ __forceinline__ void load_sums(Sums& sums, const SUM_TYPE* smem, int pitch) {          \
      asm volatile("wmma.load.c.sync.aligned.row." SHAPE ".shared." SUM_KIND " " TOKEN(IN_, SUMS)            \
                   : TOKEN(SET_, SUMS)("=" C_SUM, sums.at)                                                   \
                   : "r"(shared_address(smem)), "r"(pitch)                                                   \
                   : "memory");                                                                              \
    }                                                                                                        \
    static __device__ __forceinline__ void store(SUM_TYPE* smem, const Sums& sums, int pitch) {              \
      asm volatile("wmma.store.d.sync.aligned.row." SHAPE ".shared." SUM_KIND                                \
                   " " TOKEN(OUT_, SUMS)::"r"(shared_address(smem)),                                         \
                   "r"(pitch), TOKEN(SET_, SUMS)(C_SUM, sums.at)                                             \
                   : "memory");                                                                              \
    }                                                                                                        \
    static __device__ __forceinline__ void multiply(Sums& sums, const Operand& a, const Operand& b) {        \
      asm("wmma.mma.sync.aligned.row.row." SHAPE "." MMA_KINDS " " TOKEN(MULTIPLY_##SUMS##_, OPERANDS)       \
          : TOKEN(SET_, SUMS)("+" C_SUM, sums.at)                                                            \
          : TOKEN(SET_, OPERANDS)(C_OPERAND, a.at), TOKEN(SET_, OPERANDS)(C_OPERAND, b.at));                 \
    }                                                                                                        \
  };

#define WMMA_LOAD(NAME, TEXT, OPERANDS, C_OPERAND, C_ADDRESS, ADDRESS)                      \
  static __device__ __forceinline__ void NAME(Operand& operand, const T* from, int pitch) { \
    asm volatile(TEXT TOKEN(IN_, OPERANDS)                                                  \
                 : TOKEN(SET_, OPERANDS)("=" C_OPERAND, operand.at)                         \
                 : C_ADDRESS(ADDRESS(from)), "r"(pitch)                                     \
                 : "memory");                                                               \
    for (int i = 0; i < OPERANDS; ++i) operand.at[i] = rounded(operand.at[i]);              \
  }

WMMA(half, float, 16, 16, 16, "m16n16k16", "f16", "f32", "f32.f32", 8, unsigned, "r", 8, float, "f")
WMMA(half, half, 16, 16, 16, "m16n16k16", "f16", "f16", "f16.f16", 8, unsigned, "r", 4, unsigned, "r")
WMMA(__nv_bfloat16, float, 16, 16, 16, "m16n16k16", "bf16", "f32", "f32.bf16.bf16.f32", 4, unsigned, "r", 8,
     float, "f")
WMMA(float, float, 16, 16, 8, "m16n16k8", "tf32", "f32", "f32.tf32.tf32.f32", 4, unsigned, "r", 8, float, "f")
WMMA(double, double, 8, 8, 4, "m8n8k4", "f64", "f64", "f64.f64.f64.f64", 1, double, "d", 2, double, "d")
WMMA(int8, int, 16, 16, 16, "m16n16k16", "s8", "s32", "s32.s8.s8.s32", 2, unsigned, "r", 8, int, "r")
WMMA(uint8, int, 16, 16, 16, "m16n16k16", "u8", "s32", "s32.u8.u8.s32", 2, unsigned, "r", 8, int, "r")

typedef Wmma<T, Sum> W;
constexpr int FM = W::FM, FN = W::FN, FK = W::FK;
