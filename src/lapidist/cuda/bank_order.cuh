// The products of a chunk of k by fmas, in an order that the register file's banks allow (the lesson of
// rung 18). The last rung on CUDA cores and gemm/sgemm.cu share it.
//
//   a fragment is read for the last time: the next one follows it
//
//   k     0        1        2        3         a quarter of an SM reads two registers a cycle, one even, one
//   A                                a0 .. a7  odd. An fma wants three. One stays from the fma before (its A,
//   B     b0       b1       b2       b3        or its B where columns turn back), one is B, one the sum:
//                                              column j's lies at j ^ 1, in the bank that its B is not in.
#pragma once

#include "common.cuh"

// The n-th column to visit: forth in even rows, back in odd ones, so that two rows meet in one column and
// share its B. A sum lies in the other bank than its B, and where two rows meet, A must lie in that of B.
// Where a thread loads A along k, it does if the column is even as k is: so the two columns there change
// places. No branches: those of a thousand calls took the compiler a second.
template <int Cols, bool AlongK>
__device__ constexpr int column(int row, int k, int n) {
  const int at = n ^ row % 2 * (Cols - 1), meeting = (1 - k % 2) * (Cols - 2);
  return AlongK ? at ^ (at / 2 == meeting / 2) : at;
}

// acc += a b^T, of a chunk: `a` has Held of the rows at once, `b` all columns. next() comes before the first
// load of the next chunk; load_a(i, k) when row i takes the place of one whose element k has been read for
// the last time, load_b(k) when all columns' have.
template <bool AlongK, int Rows, int Cols, int Held, typename Fragment, int VEC_K, int Loads, typename Next,
          typename LoadA, typename LoadB>
__device__ __forceinline__ void multiply_chunk(Acc (&acc)[Rows][Cols], const Fragment (&a)[Held],
                                               const Fragment (&b)[VEC_K][Loads], Next next, LoadA load_a,
                                               LoadB load_b) {
#pragma unroll
  for (int first = 0; first < Rows; first += Held) {
    if (first + Held == Rows) next();
#pragma unroll
    for (int k = 0; k < VEC_K; ++k) {
#pragma unroll
      for (int i = first; i < first + Held; ++i) {
#pragma unroll
        for (int n = 0; n < Cols; ++n) {
          const int j = column<Cols, AlongK>(i, k, n);
          acc[i][j ^ 1] += Acc(a[i % Held].at[k]) * Acc(b[k][j / VEC_K].at[j % VEC_K]);
        }
        load_a((i + Held) % Rows, k);
      }
      if (first + Held == Rows) load_b(k);
    }
  }
}
