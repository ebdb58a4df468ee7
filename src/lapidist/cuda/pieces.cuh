// Pieces of 16 bytes that do not start where the memory's do: two neighbours, shifted.
#pragma once

#include "common.cuh"

struct alignas(16) Words { unsigned at[4]; };

// The 16 bytes that start `skew` bytes, less than 16, into `low`; `high` follows it.
__device__ __forceinline__ Words shifted(const Words& low, const Words& high, unsigned skew) {
  unsigned words[8] = {low.at[0], low.at[1], low.at[2], low.at[3], high.at[0], high.at[1], high.at[2], high.at[3]};
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = skew & 8 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = skew & 4 ? words[i + 1] : words[i];
  Words found;
#pragma unroll
  for (int i = 0; i < 4; ++i) found.at[i] = __funnelshift_r(words[i], words[i + 1], skew % 4 * 8);
  return found;
}

template <typename Element> __device__ __forceinline__ unsigned skew_of(const Element* place) {
  return reinterpret_cast<unsigned long long>(place) % 16;
}
