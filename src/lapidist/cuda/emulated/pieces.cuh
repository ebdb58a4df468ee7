// float32 as three bfloat16, which together have all of its 24 bits.
//
//   y = x * 2^s, with the largest of its line in [2^55, 2^56)
//   y = p0 + p1 + p2, rounded to nearest          |p1| <= 2^-9 |p0|, |p2| <= 2^-9 |p1| or so
//
// Products of the largest then add up below 2^128. The equation is exact where y is 2^-110 or more: bfloat16
// ends at 2^-133. Where lines have nothing below 2^-110 of their largest, y is 2^-55 or more. So the least
// product is 2^-110, and what tensor cores lose below 2^-149 does not matter.
#pragma once

#include "config.cuh"
#include "emulated/powers.cuh"

typedef unsigned short Part;
constexpr int PARTS = 3;
constexpr int TOP = 55;

// Of a line: bits of the largest magnitude, and of the least one that is not zero, less 1: then zero is the
// largest unsigned number. Infinity is above all finite numbers, NaN is above infinity.
struct Line {
  unsigned largest = 0, least = 0xffffffffu;
  __device__ __forceinline__ void take(float x) {
    const unsigned bits = __float_as_uint(fabsf(x));
    largest = max(largest, bits), least = min(least, bits - 1);
  }
  __device__ __forceinline__ void join(const Line& other) {
    largest = max(largest, other.largest), least = min(least, other.least);
  }
  __device__ __forceinline__ Line of_lane(int far) const {
    Line other;
    other.largest = __shfl_xor_sync(0xffffffffu, largest, far);
    other.least = __shfl_xor_sync(0xffffffffu, least, far);
    return other;
  }
  __device__ __forceinline__ double scale() const { return inverse_power(largest, TOP); }
  // 1, or infinity where the line's numbers lie too far from each other
  __device__ __forceinline__ float span(int) const {
    if (largest == 0) return 0;
    const double most = __uint_as_float(largest), few = __uint_as_float(least + 1);
    return largest < INFINITY_BITS && few >= most * 0x1p-110 ? 1.0f : __int_as_float(0x7f800000);
  }
};

struct Cutter {
  Powers powers;
  __device__ __forceinline__ explicit Cutter(const Line& line) : powers(line.largest, TOP) {}
  __device__ __forceinline__ void cut(float x, int (&parts)[PARTS]) const {
    float y = powers.times(x);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const unsigned bits = __float_as_uint(y), rounded = bits + 0x7fffu + (bits >> 16 & 1);
      parts[i] = static_cast<int>(rounded >> 16);
      y -= __uint_as_float(rounded & 0xffff0000u);  // exact
    }
  }
};
