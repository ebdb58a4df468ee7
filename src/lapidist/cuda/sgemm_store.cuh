// The way out of a tile of gemm/sgemm.cu: D = alpha * sums + beta * C, to wherever D's rows and columns are.
//
// A thread holds quads of neighbours in a row, and eight lanes hold 32 of them. Where a quad leaves in one move, a warp writes
// whole lines of the caches. Where rows of D start anywhere it would write every fourth element, so a warp lays four of its rows
// down in shared memory first and takes them up along the row:
//
//   lay    lane 0: [0 .. 3]  lane 2: [4 .. 7]  lane 8: [8 .. 11] ...        take    lane 0: [0]  lane 1: [1]  lane 2: [2] ...
#pragma once

#include "addend.cuh"

constexpr int PATCH_ROWS = 4, PATCH_COLS = 64;

struct Patch {
  T at[PATCH_ROWS][PATCH_COLS + 8];  // rows start 8 banks apart: 8 lanes lay down two quads of each
};

// One matrix of D.
struct Output {
  const Modes& modes;
  T* D;
  i64 d_row;
  int N;

  __device__ __forceinline__ T* line(int row) const { return D + modes.to_row(row, d_row); }

  __device__ __forceinline__ void store(T* line, int col, T value) const {
    if (col < N) line[modes.to_col(col)] = value;
  }

  // Neighbours lie in memory as they do in the row, D's rows start on 16 bytes, and N is a whole number of fours.
  __device__ __forceinline__ void store_four(T* line, int col, const Four<T>& four) const {
    if (col < N) *reinterpret_cast<Four<T>*>(line + modes.to_col(col)) = four;
  }
};
