// float32 as slices of 8 bits, whose products int8 tensor cores add exactly (Ozaki's scheme I).
//
//   r = x * factor, 127 / largest of its line      |r| <= 127
//   r = s0 + s1 / 256 + s2 / 65536                 rounded to nearest; what is left is below 2^-23.9 of the largest
#pragma once

#include "config.cuh"

typedef signed char Part;
constexpr int PARTS = 3;
// below it 127 / largest is not a normal float with room for its own rounding
constexpr float LEAST_LARGEST = 1e-30f;

// Of a line: its largest magnitude, and the sum of all. A NaN, or infinity, stays in the sum.
struct Line {
  float largest = 0, sum = 0;
  __device__ __forceinline__ void take(float x) { largest = fmaxf(largest, fabsf(x)), sum += fabsf(x); }
  __device__ __forceinline__ void join(const Line& other) {
    largest = fmaxf(largest, other.largest), sum += other.sum;
  }
  __device__ __forceinline__ Line of_lane(int far) const {
    Line other;
    other.largest = __shfl_xor_sync(0xffffffffu, largest, far);
    other.sum = __shfl_xor_sync(0xffffffffu, sum, far);
    return other;
  }
  __device__ __forceinline__ float factor() const {
    return largest >= LEAST_LARGEST ? 127.0f / largest : 0.0f;
  }
  // What a sum of products is multiplied by: the inverse of the factor that was used, not largest / 127, which
  // is rounded in another way.
  __device__ __forceinline__ double scale() const { return factor() == 0 ? 0.0 : 1.0 / factor(); }
  // How far the largest is over the mean, on which the error of slices depends. Infinity: slices cannot hold it.
  __device__ __forceinline__ float span(int k) const {
    if (sum == 0) return 0;
    const bool finite = sum <= 3.4e38f && largest >= LEAST_LARGEST;
    return finite ? largest / (sum / k) : __int_as_float(0x7f800000);
  }
};

// A slice is the nearest integer, or the next one where what is left would be more than 127.5 / 256: the next
// slice then fits into 8 bits, which end at 127 and at -128. (Clamped in place of that, one number in 250 lost
// half of a slice, and results five bits.) Of the last slice halves are common, as a float of 64 and more ends
// there: they go to even numbers, else those of positive numbers would add up.
struct Cutter {
  float factor;
  __device__ __forceinline__ explicit Cutter(const Line& line) : factor(line.factor()) {}
  __device__ __forceinline__ void cut(float x, int (&parts)[PARTS]) const {
    float r = __fmul_rn(x, factor);  // else it may be fused with a difference below, by some compilers
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      const float nearest = i < PARTS - 1 ? floorf(r + (1 - 127.5f / 256)) : rintf(r);
      const float slice = fminf(nearest, 127.0f);
      parts[i] = static_cast<int>(slice);
      r = (r - slice) * 256.0f;  // exact
    }
  }
};
