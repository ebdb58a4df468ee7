// Lines are scaled by a power of two that brings their largest magnitude into [2^top, 2^(top + 1)).
#pragma once

#include "config.cuh"

// 2^exponent, of a normal float.
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

constexpr unsigned INFINITY_BITS = 0x7f800000u;

// The power's exponent, by bits of the largest magnitude; subnormals have no exponent until they are multiplied.
__device__ __forceinline__ int shift_of(unsigned largest, int top) {
  const bool normal = largest >= 0x00800000u;
  const unsigned bits = normal ? largest : __float_as_uint(__uint_as_float(largest) * 0x1p64f);
  return top + 127 - static_cast<int>(bits >> 23) + (normal ? 0 : 64);
}

// The power as two factors, as it may be no float. Both are 0 for a line of zeros, and one that is not finite.
struct Powers {
  float first, second;
  __device__ __forceinline__ Powers(unsigned largest, int top) : first(0), second(0) {
    if (largest >= INFINITY_BITS || largest == 0) return;
    const int shift = shift_of(largest, top), half = shift / 2;
    first = power_of_two(half), second = power_of_two(shift - half);
  }
  __device__ __forceinline__ float times(float x) const { return x * first * second; }
};

// What sums are multiplied by in the end.
__device__ __forceinline__ double inverse_power(unsigned largest, int top) {
  const Powers powers(largest, top);
  return powers.first == 0 ? 0.0 : 1.0 / (static_cast<double>(powers.first) * powers.second);
}
