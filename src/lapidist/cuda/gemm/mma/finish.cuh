// The epilogue of gemm/mma.cu, for complete sums of a warp.
//
//   factors -> shared memory, patch by patch -> alpha, beta C -> the caller's function -> D's type -> D
#pragma once

#include "config.cuh"
#include "gemm/mma/scales.cuh"
#include "gemm/mma/store.cuh"

// The position of a thread's warp in a tile.
struct Position {
  int warp, row, col;
  __device__ __forceinline__ explicit Position(int warp)
      : warp(warp), row(warp / (BN / WN) * WM), col(warp % (BN / WN) * WN) {}
};

typedef LaidDown<AReader, BReader, ROWS, WN, STAGES * STAGE / (THREADS / 32)> Patches;

__device__ __forceinline__ void finish(const Product& p, const Task& task, const Units& work,
                                       const Position& position, const Scales& scales,
                                       Totals<ROWS, WN / 8>& totals, char* shared) {
  const int row = task.row + position.row, col = task.col + position.col;
  totals.scale(scales, task.modes, row, col, p.M, p.N);
  __syncthreads();  // all threads have read the last tile
  Patches(shared, position.warp).each(totals.at, [&](int number, const Scalar* patch) {
    if (!work.owns_row(number)) return;
    Out* const D = task.D + p.d.to_matrix(task.inner, task.outer);
    const int first = row + number * Patches::LINES;
    store_patch<Patches::LINES, WN, Patches::PITCH>(
        patch, task.C + p.c.to_matrix(task.inner, task.outer), p.c.row, p.c.col, D, p.d.row, first, col, p.M,
        p.N, p.alpha,
        p.beta IF_EPILOGUE(, fused::Epilogue(p.operands, task.inner, task.outer, p.M, p.N, task.modes)),
        task.modes);
    if constexpr (BOTH_HALVES)
      store_mirrored_patch<Patches::LINES, WN, Patches::PITCH>(patch, D, p.d.row, first, col, p.M);
  });
}
