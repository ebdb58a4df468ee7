// Where operands come from and go to, and where alpha and beta are, when strides and two numbers do not say
// it.
//
// The host says by macro what a problem uses; what is 0 costs nothing:
//   GATHER_A, GATHER_B          row i of A is row a_rows[i] of the memory; column j of B is column b_cols[j]
//   SCATTER_ROWS, SCATTER_COLS  row i of the product goes to row d_rows[i] of D (and takes its C from there); columns likewise.
//                               All four: 1, the same in each matrix of the batch; 2, each has indices of its own, one after another
//   PERMUTED                    rows of D come in groups, and so do columns: a four-dimensional array of any strides
//   ARRAYS                      A, B, C and D are each a list of pointers, one for each matrix of the batch: 1, passed with the
//                               launch; 2, in device memory
//   SCALARS                     alpha, beta, or both are read from device memory
//   ADDEND, ALPHA               0: there is no C, and no code for it; alpha is one (known only where there is no C)
#pragma once

#ifndef GATHER_A
#define GATHER_A 0
#define GATHER_B 0
#define SCATTER_ROWS 0
#define SCATTER_COLS 0
#endif
#ifndef PERMUTED
#define PERMUTED 0
#endif
#ifndef ARRAYS
#define ARRAYS 0
#endif
#ifndef SCALARS
#define SCALARS 0
#endif
#ifndef ADDEND
#define ADDEND 1
#endif
#ifndef ALPHA
#define ALPHA 1
#endif
#ifndef INDEX
#define INDEX int
#endif
typedef INDEX Index;
constexpr int ARRAYS_AT_ONCE = 64;  // lists that travel as kernel parameters: nothing is allocated or copied

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
  const void *alpha, *beta;  // null: the value that was passed
  // rows: groups of row_group, row_step apart
  long long row_group, row_step, col_group, col_step, col_stride;

  template <typename Scalar>
  __device__ __forceinline__ void read_scalars(Scalar& to_alpha, Scalar& to_beta) const {
    if (SCALARS && alpha) to_alpha = *static_cast<const Scalar*>(alpha);
    if (SCALARS && beta) to_beta = *static_cast<const Scalar*>(beta);
  }

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
