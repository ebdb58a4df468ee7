// Slices of k in gemm/sgemm.cu and gemm/simt.cu: small tiles need fewer warps than an SM wants, so each slice of a
// stage has its own.
//
//   stage of 32 k    | chunk 0 | chunk 1 | ... | chunk 7 |
//   two slices       |   warps 0 .. 3   |   warps 4 .. 7   |     all with the same 128 x 128 tile
//
// Each slice's threads hold sums of the whole tile. After its last stage these are added in shared memory,
// and each thread adds its own rows. The order is that of the slices, so a sum depends on k alone.
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "share/sharing.cuh"

constexpr int TILE_WARPS = BM / WM * (BN / WN), CONSUMERS = TILE_WARPS * SLICES * 32;
constexpr int OWN_ROWS = TM / SLICES;  // of a thread's sums

// Hides a number from the compiler. It would remove a loop with a single pass, and then operands of the main
// loop met in one register bank 47 times in 590 cycles.
__device__ __forceinline__ int unknown(int number) {
  asm("" : "+r"(number));
  return number;
}

struct Meeting {
  // [the slice that adds them][the slice that they come from]
  Four<Acc> at[SLICES][SLICES > 1 ? SLICES - 1 : 1][OWN_ROWS][TN / 4][CONSUMERS / SLICES];
};

__device__ __forceinline__ Four<Acc> four_of(const Acc (&row)[TN], int first) {
  return {row[first], row[first + 1], row[first + 2], row[first + 3]};
}

__device__ __forceinline__ void bring_together(Meeting& meeting, int slice, const Acc (&sums)[TM][TN],
                                               Acc (&whole)[OWN_ROWS][TN]) {
  const int thread = threadIdx.x % (CONSUMERS / SLICES);
  Acc own[OWN_ROWS][TN];
  sharers_barrier();  // all threads have read the last tile's sums
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
