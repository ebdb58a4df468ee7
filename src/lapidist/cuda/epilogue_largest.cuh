// The largest of all values of an epilogue: each thread keeps that of its own, and threads keep the larger one of
// two by atomics on whole numbers. Their order changes nothing, so the result is the same each time.
#pragma once

#include "config.cuh"
#include "epilogue_types.cuh"

namespace fused {

// A value as a whole number: the larger, the larger. NaN is larger than all, and 0 stands for no value.
template <int Absolute>
__device__ __forceinline__ unsigned word_of(float x) {
  if constexpr (Absolute) return __float_as_uint(fabsf(x));
  const unsigned bits = __float_as_uint(x);
  return x != x ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
}
template <int Absolute>
__device__ __forceinline__ unsigned long long word_of(double x) {
  if constexpr (Absolute) return __double_as_longlong(fabs(x));
  const unsigned long long bits = __double_as_longlong(x);
  return x != x ? ~0ull : bits >> 63 ? ~bits : bits | 1ull << 63;
}
template <int Absolute>
__device__ __forceinline__ float value_of(unsigned word) {
  if constexpr (Absolute) return __uint_as_float(word);
  return !word ? __int_as_float(0xff800000) : __uint_as_float(word >> 31 ? word & 0x7fffffffu : ~word);
}
template <int Absolute>
__device__ __forceinline__ double value_of(unsigned long long word) {
  if constexpr (Absolute) return __longlong_as_double(word);
  return !word ? __longlong_as_double(0xfff0000000000000ll)
               : __longlong_as_double(word >> 63 ? word & ~(1ull << 63) : ~word);
}

// Of a thread, through all its elements of a tile.
template <typename Word>
struct Largest {
  Word found = 0;
  __device__ __forceinline__ void add(Word word) { found = found < word ? word : found; }
  __device__ __forceinline__ void leave(long long slots) const {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (found)
      atomicMax(reinterpret_cast<Word*>(slots) + (block * blockDim.x + threadIdx.x) % LARGEST_SLOTS, found);
  }
};

}  // namespace fused
