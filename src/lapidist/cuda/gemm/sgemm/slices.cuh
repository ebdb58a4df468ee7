// Slices of k in gemm/sgemm.cu: small tiles leave warps over, so each slice of a stage has warps of its own.
//
//   stage of 32 k    | chunk 0 | chunk 1 | ... | chunk 7 |
//   two slices       |   warps 0 .. 3   |   warps 4 .. 7   |     all with the same 128 x 128 tile
//
// All threads hold sums of the whole tile. Behind its last stage they meet in shared memory, and each takes in
// its own rows of them: in the order of the slices, so that a sum depends on k alone.
#pragma once

#include "gemm/sgemm/config.cuh"
#include "share/sharing.cuh"

#define OWN_ROWS (TM / SLICES)  // of a thread's sums

// A number that the compiler does not see. Of a loop that goes round once it makes none; then registers of the
// main loop met in one bank 47 times in 590 cycles.
__device__ __forceinline__ int unknown(int number) {
  asm("" : "+r"(number));
  return number;
}

struct Meeting {
  // whose they are; from which of the others
  Four<Acc> at[SLICES][SLICES > 1 ? SLICES - 1 : 1][OWN_ROWS][TN / 4][CONSUMERS / SLICES];
};

__device__ __forceinline__ Four<Acc> four_of(const Acc (&row)[TN], int first) {
  return {row[first], row[first + 1], row[first + 2], row[first + 3]};
}

__device__ __forceinline__ void bring_together(Meeting& meeting, int slice, const Acc (&sums)[TM][TN],
                                               Acc (&whole)[OWN_ROWS][TN]) {
  const int thread = threadIdx.x % (CONSUMERS / SLICES);
  Acc own[OWN_ROWS][TN];
  sharers_barrier();  // everyone has taken in the last tile
#pragma unroll
  for (int whose = 0; whose < SLICES; ++whose)
    if (whose == slice) {
#pragma unroll
      for (int i = 0; i < OWN_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) own[i][j] = sums[whose * OWN_ROWS + i][j];
    } else {
      auto& room = meeting.at[whose][slice - (slice > whose)];
#pragma unroll
      for (int i = 0; i < OWN_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4) room[i][j / 4][thread] = four_of(sums[whose * OWN_ROWS + i], j);
    }
  sharers_barrier();
#pragma unroll
  for (int from = 0; from < SLICES; ++from)
#pragma unroll
    for (int i = 0; i < OWN_ROWS; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        const Four<Acc> found =
            from == slice ? four_of(own[i], j) : meeting.at[slice][from - (from > slice)][i][j / 4][thread];
#pragma unroll
        for (int e = 0; e < 4; ++e) whole[i][j + e] = from ? whole[i][j + e] + found.at[e] : found.at[e];
      }
}
