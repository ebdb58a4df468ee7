// The epilogue of gemm/simt.cu, for complete sums of a thread.
//
//   alpha -> beta C -> the caller's function -> D's type -> D
#pragma once

#include "addend.cuh"
#include "config.cuh"
#include "gemm/both_halves.cuh"
#include "gemm/simt/multiply.cuh"

// Store one row of a thread's sums to D's `line`, D_VECTOR elements at a time.
__device__ __forceinline__ void store_row(Out* line, const Modes& modes, int first_col, int cols,
                                          const Acc (&sums)[TN]) {
#pragma unroll
  for (int j = 0; j < TN; j += D_VECTOR) {
    const int col = first_col + spread<32>(j);
    if (SCATTER_COLS && col >= cols) continue;
    Vector<D_VECTOR, Out> result;
#pragma unroll
    for (int e = 0; e < D_VECTOR; ++e) result.at[e] = Out(sums[j + e]);
    Out* const place = line + modes.to_col(col);
    if (col + D_VECTOR <= cols) {
      *reinterpret_cast<Vector<D_VECTOR, Out>*>(place) = result;
    } else {
#pragma unroll
      for (int e = 0; e < D_VECTOR; ++e)
        if (col + e < cols) place[e] = result.at[e];
    }
  }
}

__device__ __forceinline__ void store(const Product& p, const Task& task, const Units& work,
                                      const Position& position, Acc (&sums)[OWN_ROWS][TN]) {
  const int first_row = task.row + position.row, first_col = task.col + position.col;
  const auto row_of = [&](int i) { return first_row + spread<16>(position.slice * OWN_ROWS + i); };
  const auto own_row = [&](int i) { return work.owns_row(i) ? row_of(i) : p.M; };
  const auto col_of = [&](int j) { return first_col + spread<32>(j); };
  scale_sums(sums, p.alpha);
  add_addend(sums, p.beta, task.C + p.c.to_matrix(task.inner, task.outer), p.c.row, p.c.col, p.M, p.N,
             task.modes, own_row, col_of);
  IF_EPILOGUE(fused::finish(sums, fused::Epilogue(p.operands, task.inner, task.outer, p.M, p.N, task.modes),
                            own_row, col_of);)
  if constexpr (EPILOGUE_STORES) return;  // the function has stored everything
  Out* const D = task.D + p.d.to_matrix(task.inner, task.outer);
  if constexpr (BOTH_HALVES) {
    if (task.row < task.col + BN - 1) return store_mirrored<true>(D, p.d.row, p.M, sums, own_row, col_of);
    store_mirrored<false>(D, p.d.row, p.M, sums, own_row, col_of);
  }
#pragma unroll
  for (int i = 0; i < OWN_ROWS; ++i)
    if (row_of(i) < p.M && work.owns_row(i))
      store_row(D + task.modes.to_row(row_of(i), p.d.row), task.modes, first_col, p.N, sums[i]);
}

// Add the slices' sums, then those of peers; store what the thread has.
template <int Rows>
__device__ __forceinline__ void finish(const Product& p, const Task& task, const Units& work,
                                       const Workspace& workspace, char* shared, const Position& position,
                                       Acc (&acc)[Rows][TN]) {
  if constexpr (Rows > OWN_ROWS) {
    Acc sums[OWN_ROWS][TN];
    bring_together(*reinterpret_cast<Meeting*>(shared), position.slice, acc, sums);
    if (work.combine<THREADS>(workspace, shared, sums)) store(p, task, work, position, sums);
  } else {
    if (work.combine<THREADS>(workspace, shared, acc)) store(p, task, work, position, acc);
  }
}
