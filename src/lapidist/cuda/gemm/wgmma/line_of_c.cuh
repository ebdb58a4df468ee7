// A C of one row, like a bias, or of one column. Each thread reads its own elements a few columns ahead of
// the sums that they are added to, the first ones while the last products run.
//
// Loaded in patches like a whole C, it took 10 to 60 % of the product's time at k = 1024: the same row was
// loaded for each row of D, and patches of D could not be held during the next tile's products.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/addend_of_tile.cuh"
#include "gemm/wgmma/pipeline.cuh"

// As in gemm/wgmma/addend_of_tile.cuh: beta C is rounded, then one instruction multiplies by alpha and adds it.
__device__ __forceinline__ float scaled_and(float alpha, float sum, float added) {
  return __fmaf_rn(alpha, sum, added);
}
__device__ __forceinline__ int scaled_and(int alpha, int sum, int added) { return alpha * sum + added; }

// C for 16 rows from `row` on and Cols columns from `col` on. If C is a row, elements[2 j + i] belongs to
// column 8 j + i behind the lane's first. Else elements[h] belongs to the lane's row h of two.
template <int Cols>
struct LineOfC {
  static constexpr int COUNT = C_SAME == 1 ? Cols / 4 : 2;
  alignas(2 * sizeof(Out)) Out elements[COUNT];

  __device__ __forceinline__ void fetch(const Addend& c, int row, int col) {
    const int lane = threadIdx.x % 32;
    const bool read = c.beta != Scalar(0);
    if constexpr (C_SAME == 1) {
      const int first = col + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < COUNT; i += 2) {
        const int at = first + i / 2 * 8;
        auto& two = reinterpret_cast<Vector<Out, 2>&>(elements[i]);
        if constexpr (C_BY_ELEMENTS) {
          elements[i] = read && at < c.cols ? c.C[at * c.col_step] : Out(0);
          elements[i + 1] = read && at + 1 < c.cols ? c.C[(at + 1) * c.col_step] : Out(0);
        } else {
          two = read && at < c.cols ? reinterpret_cast<const Vector<Out, 2>&>(c.C[at]) : Vector<Out, 2>{};
        }
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = row + lane / 4 * NEXT_GROUP + h * NEXT_ROW;
        elements[h] = read && at < c.rows ? c.C[at * c.row_step] : Out(0);
      }
    }
  }
  // wgmma leaves the sum of row h and column 8 j + i in sums[4 j + 2 h + i].
  __device__ __forceinline__ void add(const Addend& c, Sum* sums) const {
    Scalar added[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) added[i] = c.beta * Scalar(elements[i]);
#pragma unroll
    for (int i = 0; i < Cols / 2; ++i)
      sums[i] = scaled_and(c.alpha, sums[i], added[C_SAME == 1 ? i / 4 * 2 + i % 2 : i / 2 % 2]);
  }
  __device__ __forceinline__ static void add_one(const Addend& c, int row, int col, Sum* sums) {
    LineOfC line;
    line.fetch(c, row, col);
    line.add(c, sums);
  }
};

// C for a whole tile. `begin` loads its first elements, `add` the rest.
struct LinesOfC {
  LineOfC<LINE_COLS> ahead;

  __device__ __forceinline__ void begin(const Addend& c, int row, int col) { ahead.fetch(c, row, col); }
  __device__ __forceinline__ void add(const Addend& c, int row, int col, Sum (&sums)[ROWS][BN / 2]) {
    constexpr int PARTS = BN / LINE_COLS, ALL = ROWS * PARTS;
#pragma unroll
    for (int i = 0; i < ALL; ++i) {
      LineOfC<LINE_COLS> next = ahead;
      const int m = (i + 1) / PARTS, part = (i + 1) % PARTS;
      if (i + 1 < ALL && (C_SAME == 1 || part == 0))
        next.fetch(c, row + m * NEXT_SLAB, col + part * LINE_COLS);
      ahead.add(c, sums[i / PARTS] + i % PARTS * (LINE_COLS / 2));
      ahead = next;
    }
  }
};
