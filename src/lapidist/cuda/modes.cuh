// Where operands come from and go to, and where alpha and beta are, when strides and two numbers do not say
// it.
// config.cuh says what a problem uses; what is 0 costs nothing.
#pragma once

#include "config.cuh"

#if ARRAYS == 2
struct Pointers {
  const void* const* at;
};
#else
struct Pointers {
  const void* at[ARRAYS_AT_ONCE];
};
#endif
struct Lists {
  Pointers a, b, c, d;
};
#if ARRAYS
#define LISTS , const __grid_constant__ Lists lists
#define LISTS_PASSED &lists
#else
#define LISTS
#define LISTS_PASSED nullptr
#endif

enum { OF_ALL = 1, OF_EACH };  // whose the indices are

struct Modes {
  const Index *a_rows, *b_cols, *d_rows, *d_cols;
  const void *alpha, *beta;  // null: the value that was passed; alpha of a guarded launch: its guard
  // rows: groups of row_group, row_step apart
  long long row_group, row_step, col_group, col_step, col_stride;

  template <typename Scalar>
  __device__ __forceinline__ void read_scalars(Scalar& to_alpha, Scalar& to_beta) const {
    if (SCALARS && alpha) to_alpha = *static_cast<const Scalar*>(alpha);
    if (SCALARS && beta) to_beta = *static_cast<const Scalar*>(beta);
  }

  // Whether nothing is to be done: another launch decided so, in device memory.
  __device__ __forceinline__ bool is_off() const { return GUARDED && *static_cast<const float*>(alpha) == 0; }

  // With the indices of one matrix of the batch.
  __device__ __forceinline__ Modes of(long long matrix, int M, int N) const {
    Modes own = *this;
    if (GATHER_A == OF_EACH) own.a_rows += matrix * M;
    if (GATHER_B == OF_EACH) own.b_cols += matrix * N;
    if (SCATTER_ROWS == OF_EACH) own.d_rows += matrix * M;
    if (SCATTER_COLS == OF_EACH) own.d_cols += matrix * N;
    return own;
  }

  // Row and column of C.
  __device__ __forceinline__ long long c_row(int row) const {
    return SCATTER_ROWS ? static_cast<long long>(d_rows[row]) : row;
  }
  __device__ __forceinline__ long long c_col(int col) const {
    return SCATTER_COLS ? static_cast<long long>(d_cols[col]) : col;
  }

  // Elements between D's first one and the start of a row; between that and a column.
  __device__ __forceinline__ long long to_row(int row, long long d_row) const {
    return PERMUTED ? row / row_group * row_step + row % row_group * d_row : c_row(row) * d_row;
  }
  __device__ __forceinline__ long long to_col(int col) const {
    return PERMUTED ? col / col_group * col_step + col % col_group * col_stride : c_col(col);
  }
};

// Of kernels that have the parameter only where they need it.
#if GATHER_A || SCATTER_ROWS || GUARDED
#define MODES_PARAMETER , const __grid_constant__ Modes modes
#define MODES_PASSED modes
#else
#define MODES_PARAMETER
#define MODES_PASSED Modes()
#endif
