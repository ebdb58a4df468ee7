// What a float32 is cut into: three 8-bit integers (slices.cuh), three bfloat16 (pieces.cuh), or two fp16
// (halves.cuh). Each header defines the type of a Part, the statistic of a Line, and Parts of a number.
//
// A line's parts have the steps of k side by side, padded with zeros to whole vectors. Parts of B stand in
// reversed order: then those products of parts whose numbers add up to L are one product of a stretch of k.
//
//   A  [ p0 | p1 | p2 ]            L = 0: k of p0          with B's p0
//   B  [ p2 | p1 | p0 ]            L = 1: k of p0, p1      with B's p1, p0
//                                  L = 2: all of k
#pragma once

#include "config.cuh"

typedef long long i64;

#if FLOATS == 2
#include "emulated/halves.cuh"
#elif FLOATS
#include "emulated/pieces.cuh"
#else
#include "emulated/slices.cuh"
#endif

constexpr int BYTES = sizeof(Part), IN_WORD = 4 / BYTES;  // parts in a word

// Neighbouring parts in a word each IN_WORD, the first one lowest.
__device__ __forceinline__ void put(int* words, int e, int part) {
  words[e / IN_WORD] |= (part & ((1u << 8 * BYTES) - 1)) << e % IN_WORD * (8 * BYTES);
}

// Statistics of the 32 lanes, joined in all of them.
__device__ __forceinline__ Line of_all_lanes(Line line) {
#pragma unroll
  for (int far = 16; far > 0; far /= 2) line.join(line.of_lane(far));
  return line;
}
