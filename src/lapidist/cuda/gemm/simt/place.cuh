// Where a thread of gemm/simt.cu is in a tile, and its elements of one k.
#pragma once

#include "gemm/simt/config.cuh"

// Where a thread is in a tile: the first of its rows and columns, which come in groups of four.
struct Position {
  int row, col;
  __device__ __forceinline__ Position(int warp, int lane) {
    const int lane_m = (lane & 1) | (lane >> 1 & 2), lane_n = (lane >> 1 & 1) | (lane >> 2 & 6);
    row = warp / (BN / WN) * WM + lane_m * 4, col = warp % (BN / WN) * WN + lane_n * 4;
  }
};

// A thread's elements of one k, fours that lie Step apart. By index: where a pointer walked (read_fragment of
// common.cuh), sums came to lie in the banks of their operands, for 80 cycles of a round of 1270.
template <int Step, int Count, int Width>
__device__ __forceinline__ void read_fours(Acc (&fragment)[Count], const T (&row)[Width], int first) {
#pragma unroll
  for (int i = 0; i < Count; i += 4) {
    const Four<T> four = reinterpret_cast<const Four<T>&>(row[first + i / 4 * Step]);
#pragma unroll
    for (int e = 0; e < 4; ++e) fragment[i + e] = Acc(four.at[e]);
  }
}
