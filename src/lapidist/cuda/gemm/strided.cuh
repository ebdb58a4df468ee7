// What gemm/simt.cu and gemm/mma.cu share: the launch's parameters by name, and the part of the product that
// a unit of work computes. The including file defines T, Out, Scalar and the tile's macros.
#pragma once

#include "config.cuh"
#include "epilogue.cuh"
#include "modes.cuh"
#include "share/grouped_work.cuh"
#include "share/sharing.cuh"

// Elements to the next row and column of a matrix, and along the two dimensions of a batch.
struct Strides {
  i64 row, col, inner, outer;
  __device__ __forceinline__ i64 to_matrix(i64 inner_index, i64 outer_index) const {
    return inner_index * inner + outer_index * outer;
  }
};

// The launch's parameters.
struct Product {
  int M, N, K;
  Scalar alpha, beta;
  const T *A, *B;
  const Out* C;
  Out* D;
  Strides a, b, c, d;
  int batch;  // the inner extent
  const Modes& modes;
  const Lists* lists;               // of an array batch
  const fused::Operands* operands;  // of the caller's function
};

struct WorkOfWhole : WholeWork {
  __device__ __forceinline__ WorkOfWhole(const Schedule& schedule, const Ragged&, int, int, int)
      : WholeWork(schedule) {}
  template <typename Scales>
  __device__ __forceinline__ static const Scales& factors(const Scales& scales) {
    return scales;
  }
};
struct WorkOfGroups : GroupedWork {
  __device__ __forceinline__ WorkOfGroups(const Schedule&, const Ragged& ragged, int M, int N, int K)
      : GroupedWork(ragged, M, N, K) {}
  template <typename Scales>
  __device__ __forceinline__ Scales factors(const Scales& scales) const {
    return scales_of_group(scales, ragged, group.number);
  }
};
using Units = Choose<(RAGGED > 0), WorkOfGroups, WorkOfWhole>::Type;

// Which tile of which matrix, and how much of k.
struct Task {
  int row, col;      // the tile's first row and column
  int k, count;      // the first k, and how many
  i64 inner, outer;  // the matrix in its batch
  const T *A, *B;
  const Out* C;
  Out* D;
  Modes modes;

  __device__ __forceinline__ Task(const Product& p, const Units& work)
      : row(uniform(work.unit.row) * BM + work.first_row()),
        col(uniform(work.unit.column) * BN + work.first_col()),
        A(p.A),
        B(p.B),
        C(p.C),
        D(p.D) {
    const int matrix = uniform(work.unit.batch);
    const int begin = uniform(work.unit.k_begin) * BK;
    k = begin + work.first_k();
    const int there = work.ends_tile() ? p.K - k : uniform(work.unit.k_end) * BK - begin;
    count = SCALARS && p.alpha == Scalar(0) ? 0 : there;  // alpha = 0 never reads A and B
    inner = matrix % p.batch, outer = matrix / p.batch;
    modes = p.modes.of(matrix, p.M, p.N);
    if constexpr (ARRAYS) {
      A = static_cast<const T*>(p.lists->a.at[matrix]);
      B = static_cast<const T*>(p.lists->b.at[matrix]);
      C = static_cast<const Out*>(p.lists->c.at[matrix]);
      D = static_cast<Out*>(const_cast<void*>(p.lists->d.at[matrix]));
    }
  }
};
