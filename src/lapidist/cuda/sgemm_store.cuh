// The way out of a tile of gemm/sgemm.cu: D = alpha * sums + beta * C, to wherever D's rows and columns are.
//
// A thread holds quads of neighbours in a row, and eight lanes hold 32 of them. Where a quad leaves in one move, a warp writes
// whole lines of the caches. Where rows of D start anywhere it would write every fourth element, so a warp lays four of its rows
// down in shared memory first and takes them up along the row:
//
//   lay    lane 0: [0 .. 3]  lane 2: [4 .. 7]  lane 8: [8 .. 11] ...        take    lane 0: [0]  lane 1: [1]  lane 2: [2] ...
#pragma once

#include "modes.cuh"

constexpr int PATCH_ROWS = 4, PATCH_COLS = 64;

struct Patch {
  T at[PATCH_ROWS][PATCH_COLS + 8];  // rows start 8 banks apart: 8 lanes lay down two quads of each
};

// Where a row of D starts, and one of C.
struct Line { T* d; const T* c; };

// One matrix of D, and of C.
struct Output {
  const Modes& modes;
  T* D;
  const T* C;
  i64 d_row, c_row, c_col;
  int N;
  Acc alpha, beta;

  __device__ __forceinline__ Line line(int row) const { return {D + modes.to_row(row, d_row), C + modes.c_row(row) * c_row}; }

  // beta = 0 never reads C; a zero alpha from memory meets no infinity.
  __device__ __forceinline__ T result(const Line& line, int col, Acc sum) const {
    Acc value = SCALARS && alpha == Acc(0) ? Acc(0) : alpha * sum;
    if (beta != Acc(0) && col < N) value += beta * line.c[modes.c_col(col) * c_col];
    return T(value);
  }

  __device__ __forceinline__ void store(const Line& line, int col, Acc sum) const {
    const T value = result(line, col, sum);
    if (col < N) line.d[modes.to_col(col)] = value;
  }

  // Neighbours lie in memory as they do in the row, and D's rows start on 16 bytes.
  __device__ __forceinline__ void store_four(const Line& line, int col, const Four<Acc>& sums) const {
    Four<T> four;
#pragma unroll
    for (int e = 0; e < 4; ++e) four.at[e] = result(line, col + e, sums.at[e]);
    if (col + 4 <= N) {
      *reinterpret_cast<Four<T>*>(line.d + modes.to_col(col)) = four;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (col + e < N) line.d[modes.to_col(col + e)] = four.at[e];
    }
  }
};
