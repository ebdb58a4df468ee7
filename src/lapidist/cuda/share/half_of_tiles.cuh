// The tiles that kernels with TRIANGLE compute, in the order of share/triangle.cuh. The upper triangle is the
// lower one of the transposed matrix.
#pragma once

#include "config.cuh"
#include "share/triangle.cuh"

struct HalfOfTiles {
  static constexpr bool UPPER = TRIANGLE == 2;
  static constexpr int DOWN = UPPER ? SQUARE_ACROSS : SQUARE_DOWN,
                       ACROSS = UPPER ? SQUARE_DOWN : SQUARE_ACROSS;
  Triangle triangle;

  // `panel`: rows of tiles in a band.
  __device__ __forceinline__ explicit HalfOfTiles(int panel)
      : triangle{DOWN, ACROSS, panel > DOWN ? panel / DOWN : 1} {}
  __device__ __forceinline__ int count(int tiles_m, int tiles_n) const {
    return UPPER ? triangle.count(tiles_n, tiles_m) : triangle.count(tiles_m, tiles_n);
  }
  __device__ __forceinline__ void place(int index, int tiles_m, int tiles_n, int& row, int& column) const {
    if constexpr (UPPER) triangle.place(index, tiles_n, column, row);
    else triangle.place(index, tiles_m, row, column);
  }
};
