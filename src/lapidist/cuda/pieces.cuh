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

// Words of as many lines as a word has elements, turned: word i then holds the i-th elements of all.
__device__ __forceinline__ void turn_words(unsigned (&)[1]) {}
__device__ __forceinline__ void turn_words(unsigned (&x)[2]) {
  const unsigned low = __byte_perm(x[0], x[1], 0x5410);
  x[1] = __byte_perm(x[0], x[1], 0x7632), x[0] = low;
}
__device__ __forceinline__ void turn_words(unsigned (&x)[4]) {
  const unsigned a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[2], x[3], 0x5140);
  const unsigned c = __byte_perm(x[0], x[1], 0x7362), d = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(a, b, 0x5410), x[1] = __byte_perm(a, b, 0x7632);
  x[2] = __byte_perm(c, d, 0x5410), x[3] = __byte_perm(c, d, 0x7632);
}
