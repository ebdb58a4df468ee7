// Codes of few bits as pairs of 16-bit floats, in the order of lapidist/quantised/fragment_order.py. Each value
// is exact: factors follow the sums of a group.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "config.cuh"

namespace quantised {

constexpr int INT4 = 0, MXFP4 = 1, INT8 = 2, E4M3 = 3, NVFP4 = 4;
typedef unsigned Pair;

template <typename V>
__device__ __forceinline__ Pair bits_of(V pair) {
  return *reinterpret_cast<Pair*>(&pair);
}

// (bits & mask) | more in one instruction: two constants make the compiler take two.
__device__ __forceinline__ Pair masked(unsigned bits, unsigned mask, unsigned more) {
  Pair result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(bits), "r"(mask), "r"(more));
  return result;
}

template <typename V>
__device__ __forceinline__ Pair product(V one, V other) {
  return bits_of(__hmul2(one, other));
}

template <typename X>
struct Decode;

template <>
struct Decode<__nv_bfloat16> {
  static constexpr bool HOLDS_E8M0 = true;
  static __device__ __forceinline__ __nv_bfloat162 pair_of(Pair bits) {
    return *reinterpret_cast<__nv_bfloat162*>(&bits);
  }
  // Codes of 4 bits in the last mantissa bits of 128: differences from 128 + zero are exact.
  static __device__ __forceinline__ Pair int4(unsigned codes, unsigned zero) {
    const __nv_bfloat162 over = pair_of(masked(codes, 0x000F000Fu, 0x43004300u));
    return bits_of(__hsub2(over, pair_of(zero * 0x10001u + 0x43004300u)));
  }
  // The exponent and mantissa of e2m1 become those of a float that is too small by 2^126. Shifts bring them to
  // bits 6 to 8, signs to bit 15; the first two codes need one shift for both.
  static constexpr unsigned LARGER = 0x7E807E80u;  // 2^126
  static constexpr float BY_FACTOR = 0x1p116f,
                         LEFT = 0x1p10f;  // 2^126 in two parts: factors of e4m3 are large
  static __device__ __forceinline__ Pair small_e2m1(unsigned word, int i) {
    constexpr unsigned SIGN = 0x80008000u, REST = 0x01C001C0u;
    if (i == 0) return word << 6 & (SIGN | REST);
    if (i == 1) return word << 3 & (SIGN | REST);
    if (i == 2) return (word & REST) | (word << 5 & SIGN);
    return (word >> 7 & REST) | (word << 4 & SIGN);
  }
  static __device__ __forceinline__ Pair of_floats(float low, float high) {
    return bits_of(__floats2bfloat162_rn(low, high));
  }
  static __device__ __forceinline__ Pair int8(unsigned low, unsigned high) {
    return of_floats(static_cast<signed char>(low), static_cast<signed char>(high));
  }
  static __device__ __forceinline__ Pair e4m3(unsigned two) {
    const __half2 halves(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3));
    return of_floats(__low2float(halves), __high2float(halves));
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const Pair (&a)[4], Pair low, Pair high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
  }
};

template <>
struct Decode<__half> {
  static constexpr bool HOLDS_E8M0 = false;
  static __device__ __forceinline__ __half2 pair_of(Pair bits) { return *reinterpret_cast<__half2*>(&bits); }
  static __device__ __forceinline__ Pair int4(unsigned codes, unsigned zero) {
    const __half2 over = pair_of(masked(codes, 0x000F000Fu, 0x64006400u));
    return bits_of(__hsub2(over, pair_of(zero * 0x10001u + 0x64006400u)));
  }
  static constexpr unsigned LARGER = 0x74007400u;  // 2^14
  static constexpr float BY_FACTOR = 0x1p5f, LEFT = 0x1p9f;
  static __device__ __forceinline__ Pair small_e2m1(unsigned word, int i) {  // too small by that
    constexpr unsigned SIGN = 0x80008000u, REST = 0x0E000E00u;
    if (i == 0) return (word << 9 & REST) | (word << 6 & SIGN);
    if (i == 1) return (word << 6 & REST) | (word << 3 & SIGN);
    if (i == 2) return (word << 3 & REST) | (word << 5 & SIGN);
    return (word >> 4 & REST) | (word << 4 & SIGN);
  }
  static __device__ __forceinline__ Pair of_floats(float low, float high) {
    return bits_of(__floats2half2_rn(low, high));
  }
  static __device__ __forceinline__ Pair int8(unsigned low, unsigned high) {
    return of_floats(static_cast<signed char>(low), static_cast<signed char>(high));
  }
  static __device__ __forceinline__ Pair e4m3(unsigned two) {
    const __half2 halves(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3));
    return bits_of(halves);
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const Pair (&a)[4], Pair low, Pair high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
  }
};

// A lane's codes of a tile: a word of 4 bits, or two of 8, for each 4 steps of k.
template <int Format>
struct Codes {
  static constexpr int VECTORS = Format == INT8 || Format == E4M3 ? 2 : 1;
  uint4 at[VECTORS];
  __device__ __forceinline__ unsigned word(int i) const {
    const uint4& four = at[i / 4];
    return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
  }
  // The fragment of A of 16 steps: rows g and g + 8 by turns. `zeros` and `larger`: of both; e2m1 is multiplied
  // by `larger`.
  template <typename X>
  __device__ __forceinline__ void decode(int step, const unsigned (&zeros)[2], Pair (&a)[4]) const {
    const unsigned larger[2] = {Decode<X>::LARGER, Decode<X>::LARGER};
    decode<X>(step, zeros, larger, a);
  }
  template <typename X>
  __device__ __forceinline__ void decode(int step, const unsigned (&zeros)[2], const unsigned (&larger)[2],
                                         Pair (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Format == INT4) {
        a[i] = Decode<X>::int4(word(step) >> 4 * i, zeros[i % 2]);
      } else if constexpr (Format == MXFP4 || Format == NVFP4) {
        a[i] = product(Decode<X>::pair_of(Decode<X>::small_e2m1(word(step), i)),
                       Decode<X>::pair_of(larger[i % 2]));
      } else {
        const unsigned two = word(2 * step + i / 2) >> i % 2 * 16;
        if constexpr (Format == INT8) {
          a[i] = Decode<X>::int8(two & 0xFF, two >> 8 & 0xFF);
        } else {
          a[i] = Decode<X>::e4m3(two & 0xFFFF);
        }
      }
    }
  }
};

__device__ __forceinline__ float factor_of(float stored) { return stored; }
__device__ __forceinline__ float factor_of(__half stored) { return __half2float(stored); }
__device__ __forceinline__ float factor_of(__nv_bfloat16 stored) { return __bfloat162float(stored); }
// E8M0: the exponent of a float; of 2^-127, a subnormal one, the mantissa has a bit. Of nvfp4 they are e4m3.
__device__ __forceinline__ float factor_of(unsigned char stored) {
  if constexpr (FORMAT == NVFP4)
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(stored), __NV_E4M3)));
  const unsigned normal = static_cast<unsigned>(stored) << 23;
  return __uint_as_float(stored == 255 ? 0x7FC00000u : stored == 0 ? 0x00400000u : normal);
}

// Factors or zero points of columns g and g + 8 in a block of k, which lie side by side.
template <typename V, int Groups>
struct alignas(2 * Groups * sizeof(V)) OfColumns {
  V at[Groups][2];
};

// Factors of mxfp4 are powers of two, which bfloat16 holds exactly: the decoded weights are multiplied by them. So
// they are by those of nvfp4.
template <typename T>
constexpr bool POWERS = FORMAT == MXFP4 && Decode<T>::HOLDS_E8M0;
template <typename T>
constexpr bool FOLDS = POWERS<T> || FORMAT == NVFP4;

// What e2m1 of each group is multiplied by. Of mxfp4, 2^126 by a factor up to 1 is one power of two; factors above, which
// are rare, follow 2^126: true, for a whole warp. Of nvfp4, powers by factors of e4m3 are exact; LEFT of these is what
// sums are multiplied by, with the factor of the whole weight.
template <typename T, typename Scales>
__device__ __forceinline__ bool powers_of(const Scales& scales, Pair (&larger)[GROUPS][2]) {
#pragma unroll
  for (int i = 0; i < 2 * GROUPS; ++i) larger[i / 2][i % 2] = Decode<T>::LARGER;
  if constexpr (FORMAT == NVFP4) {
#pragma unroll
    for (int i = 0; i < 2 * GROUPS; ++i) {
      const float factor = factor_of(scales.at[i / 2][i % 2]) * Decode<T>::BY_FACTOR;
      larger[i / 2][i % 2] = Decode<T>::of_floats(factor, factor);
    }
  }
  if constexpr (POWERS<T>) {
    const unsigned four = reinterpret_cast<const unsigned&>(scales);
    if (__any_sync(0xffffffffu, four & 0x80808080u)) return true;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      larger[i / 2][i % 2] = (four >> 8 * i & 0xFF) * 0x800080u + (126u << 7) * 0x10001u;
  }
  return false;
}

// Factors of a group multiply a fragment of its codes.
template <typename T, typename Scales>
__device__ __forceinline__ void multiply_by(const Scales& scales, int group, Pair (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float factor = factor_of(scales.at[group][i % 2]);
    a[i] = product(Decode<T>::pair_of(a[i]), Decode<T>::pair_of(Decode<T>::of_floats(factor, factor)));
  }
}
template <typename T>
__device__ __forceinline__ float factor_of_all(const float* weights, int group) {
  if constexpr (FORMAT == NVFP4) return weights[group] * Decode<T>::LEFT;
  else return 1;
}

}  // namespace quantised
