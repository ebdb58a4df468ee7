// float32 as slices of 8 bits, whose products int8 tensor cores add exactly (Ozaki's scheme I).
//
//   r = x * 127 / largest of its line        |r| <= 127
//   r = s0 + s1 / 256 + s2 / 65536           rounded to nearest; what is left is below 2^-24 of the largest
//
// A slice has the steps of k side by side, padded with zeros to whole vectors. Slices of B stand in reversed
// order: then those products of slices whose numbers add up to L are one product of a stretch of k.
//
//   A  [ s0 | s1 | s2 ]            L = 0: k of s0          with B's s0
//   B  [ s2 | s1 | s0 ]            L = 1: k of s0, s1      with B's s1, s0
//                                  L = 2: all of k
#pragma once

#include "config.cuh"

typedef long long i64;
constexpr int SLICES = 3;
// below it 127 / largest is not a normal float with room for its own rounding
constexpr float LEAST_LARGEST = 1e-30f;

// A slice is the nearest integer, or the next one where what is left would be more than 127.5 / 256: the next
// slice then fits into 8 bits, which end at 127 and at -128. (Clamped in place of that, one number in 250 lost
// half of a slice, and results five bits.)
struct Slices {
  int at[SLICES];
  __device__ __forceinline__ explicit Slices(float r) {
#pragma unroll
    for (int i = 0; i < SLICES; ++i) {
      const float slice = fminf(floorf(r + (1 - 127.5f / 256)), 127.0f);
      at[i] = static_cast<int>(slice);
      r = (r - slice) * 256.0f;  // exact
    }
  }
};

__device__ __forceinline__ int packed(int a, int b, int c, int d) {
  return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24;
}

// Of a line: its largest magnitude, and the sum of all. A NaN, or infinity, stays in the sum.
struct Extremes {
  float largest = 0, sum = 0;
  __device__ __forceinline__ void take(float x) { largest = fmaxf(largest, fabsf(x)), sum += fabsf(x); }
  __device__ __forceinline__ void join(const Extremes& other) {
    largest = fmaxf(largest, other.largest), sum += other.sum;
  }
  __device__ __forceinline__ float factor() const {
    return largest >= LEAST_LARGEST ? 127.0f / largest : 0.0f;
  }
  // How far the largest is over the mean, on which the error of slices depends. Infinity: slices cannot hold it.
  __device__ __forceinline__ float span(int k) const {
    if (sum == 0) return 0;
    const bool finite = sum <= 3.4e38f && largest >= LEAST_LARGEST;
    return finite ? largest / (sum / k) : __int_as_float(0x7f800000);
  }
};
