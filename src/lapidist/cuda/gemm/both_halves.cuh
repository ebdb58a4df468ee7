// The second store of a symmetric D's tile: each element below the diagonal also goes to its mirror image. Of tiles
// that meet the diagonal, what lies above it is not stored: another tile's sums may be rounded otherwise.
#pragma once

#include "config.cuh"
#include "common.cuh"

// Elements of the lower triangle, to both places or to the mirror image alone. Rows and columns are ordered, so that a
// thread's stores go along lines of D.
template <bool Both, int Rows, int Cols, typename Stored, typename RowOf, typename ColOf>
__device__ __forceinline__ void store_mirrored(Stored* D, i64 d_row, int M, const Acc (&sums)[Rows][Cols],
                                               RowOf row_of, ColOf col_of) {
#pragma unroll
  for (int j = 0; j < Cols; ++j)
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      const int row = row_of(i), col = col_of(j);
      if (row >= M || col > row) continue;
      D[col * d_row + row] = Stored(sums[i][j]);
      if (Both && col < row) D[row * d_row + col] = Stored(sums[i][j]);
    }
}
