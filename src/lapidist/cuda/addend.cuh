// alpha and beta C for a thread's sums, in kernels on CUDA cores.
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "modes.cuh"

// A zero alpha from memory meets no infinity.
template <int Rows, int Cols>
__device__ __forceinline__ void scale_sums(Acc (&sums)[Rows][Cols], Acc alpha) {
  if (!ALPHA || alpha == Acc(1)) return;
#pragma unroll
  for (int i = 0; i < Rows; ++i)
#pragma unroll
    for (int j = 0; j < Cols; ++j) sums[i][j] = SCALARS && alpha == Acc(0) ? Acc(0) : alpha * sums[i][j];
}

// sums[i][j] += beta C[row_of(i), col_of(j)], where that element exists. beta = 0 never reads C: NaN there
// must not leak. One row of C after another, in code for one: behind a bounds check for each sum they took as
// long to compile as all else. Registers have no index, so a row looks for its sums.
template <int Rows, int Cols, typename Addend, typename RowOf, typename ColOf>
__device__ __forceinline__ void add_addend(Acc (&sums)[Rows][Cols], Acc beta, const Addend* C, i64 c_row,
                                           i64 c_col, int M, int N, const Modes& modes, RowOf row_of,
                                           ColOf col_of) {
  if (!ADDEND || beta == Acc(0)) return;
#pragma unroll 1
  for (int i = 0; i < Rows; ++i) {
    const int row = row_of(i);
    if (row >= M) continue;
    const Addend* const line = C + modes.c_row(row) * c_row;
    Acc found[Cols];
#pragma unroll
    for (int j = 0; j < Cols; ++j)
      found[j] = col_of(j) < N ? Acc(line[modes.c_col(col_of(j)) * c_col]) : Acc(0);
#pragma unroll
    for (int r = 0; r < Rows; ++r)
      if (r == i)
#pragma unroll
        for (int j = 0; j < Cols; ++j) sums[r][j] += beta * found[j];
  }
}
