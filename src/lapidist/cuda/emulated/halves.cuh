// float32 as two fp16, which together have 23 of its 24 bits.
//
//   y = x * 2^s, with the largest of its line in [2^14, 2^15)
//   y = p0 + p1 / 2^12, rounded to nearest                      |p1| <= 2^15
//
// What is left is at most 2^-23 of x, and |p1| / 2^12 is 2^-11 of x. fp16 ends at 2^-24. So numbers that lie 29
// binades below the largest, or more, leave up to 2^-37, and have a p1 / 2^12 of up to 2^-25.
//
// A line is held if its numbers lie 6 binades below its largest in the mean, or less. Then 7 of 13 lie at most 12
// below, in lines of A and of B: k / 13 products, or more, are of two such numbers. At most 6 of 29 lie 29 below.
// What these lose, with the products of two p1 that are left out, is then within 2^-23 of |A||B| for A, and for B.
#pragma once

#include "config.cuh"
#include "emulated/powers.cuh"

typedef unsigned short Part;
constexpr int PARTS = 2;
constexpr int TOP = 14, BELOW = 6;
constexpr unsigned LEAST_EXPONENT = 30;  // of the largest number: subnormals then are among those below 2^-28

// Of a line: bits of the largest magnitude, and the sum of all exponents.
struct Line {
  unsigned largest = 0, exponents = 0;
  __device__ __forceinline__ void take(float x) {
    const unsigned bits = __float_as_uint(fabsf(x));
    largest = max(largest, bits), exponents += bits >> 23;
  }
  __device__ __forceinline__ void join(const Line& other) {
    largest = max(largest, other.largest), exponents += other.exponents;
  }
  __device__ __forceinline__ Line of_lane(int far) const {
    Line other;
    other.largest = __shfl_xor_sync(0xffffffffu, largest, far);
    other.exponents = __shfl_xor_sync(0xffffffffu, exponents, far);
    return other;
  }
  __device__ __forceinline__ double scale() const { return inverse_power(largest, TOP); }
  // 1, or infinity where the line's numbers lie too far from each other
  __device__ __forceinline__ float span(int k) const {
    if (largest == 0) return 0;
    const unsigned top = largest >> 23;
    const bool holds = top >= LEAST_EXPONENT && top < 255 && (top - BELOW) * k <= exponents;
    return holds ? 1.0f : __int_as_float(0x7f800000);
  }
};

struct Cutter {
  Powers powers;
  __device__ __forceinline__ explicit Cutter(const Line& line) : powers(line.largest, TOP) {}
  __device__ __forceinline__ void cut(float x, int (&parts)[PARTS]) const {
    float y = powers.times(x);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      unsigned short part;
      float rounded;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(part) : "f"(y));
      asm("cvt.f32.f16 %0, %1;" : "=f"(rounded) : "h"(part));
      parts[i] = part;
      y = (y - rounded) * 0x1p12f;  // exact
    }
  }
};
