// A thread's position in a tile of gemm/simt.cu, and its elements of one k.
#pragma once

#include "config.cuh"
#include "gemm/simt/constants.cuh"

// A thread's slice of k, and its first row and column in a tile; both come in groups of four.
struct Position {
  int slice, row, col;
  __device__ __forceinline__ Position(int warp, int lane) {
    const int lane_m = (lane & 1) | (lane >> 1 & 2), lane_n = (lane >> 1 & 1) | (lane >> 2 & 6);
    slice = SLICES > 1 ? warp / TILE_WARPS : 0;
    const int of_tile = SLICES > 1 ? warp % TILE_WARPS : warp;
    row = of_tile / (BN / WN) * WM + lane_m * 4, col = of_tile % (BN / WN) * WN + lane_n * 4;
  }
};

// A thread's elements of one k, in fours that are Step apart. Indexed: with an advancing pointer
// (read_fragment of common.cuh) sums were put in the banks of their operands, which took 80 of the 1270
// cycles of a tile.
template <int Step, int Count, int Width>
__device__ __forceinline__ void read_fours(Acc (&fragment)[Count], const T (&row)[Width], int first) {
#pragma unroll
  for (int i = 0; i < Count; i += 4) {
    const Four<T> four = reinterpret_cast<const Four<T>&>(row[first + i / 4 * Step]);
#pragma unroll
    for (int e = 0; e < 4; ++e) fragment[i + e] = Acc(four.at[e]);
  }
}
