// A caller's function (epilogue.cuh) for the sums of wgmma, in the order in which lanes hold them.
#pragma once

#include "gemm/wgmma/skewed.cuh"  // first: it brings the element types

#include "epilogue.cuh"

#ifdef EPILOGUE
namespace fused {

// Columns of which a thread's sums are finished at once: a part of the tile's that is whole eights.
__device__ constexpr int columns_at_once(int columns) {
  int eights = 12;
  while (columns / 8 % eights) --eights;
  return eights * 8;
}

struct Fragments : Epilogue<InOrder> {
  __device__ __forceinline__ Fragments(const Operands* operands, long long inner, long long outer, int M,
                                       int N)
      : Epilogue(operands, inner, outer, M, N, InOrder()) {}

  // Count sums of this thread, of the 16 rows from `row` on and the columns from `col` on: sums[4 j + 2 h + i]
  // is that of column 8 j + i behind the lane's first, in its row h of two.
  template <int Count>
  __device__ __forceinline__ void finish(Sum* sums, int row, int col) const {
    const int group = threadIdx.x % 32 / 4, first_col = col + threadIdx.x % 4 * 2;
#pragma unroll
    for (int s = 0; s < Count; ++s) {
      const int h = s / 2 % 2;
      const int down = A_SKEWED ? PatchRows::of(group + h * 8) : group * NEXT_GROUP + h * NEXT_ROW;
      sums[s] = of_pair(sums[s], row + down, first_col + s / 4 * 8, s % 2);
    }
  }

  // use(i, sum) for each of a part's Count sums, behind a branch: the compiler would choose for each of all
  // the sums whether it is one.
  template <int Count, int Rows, int Half, typename Use>
  __device__ __forceinline__ static void of_part(Sum (&sums)[Rows][Half], int part, Use use) {
#pragma unroll
    for (int p = 0; p < Rows * Half / Count; ++p) {
      if (p != part) continue;
      asm volatile("");
#pragma unroll
      for (int i = 0; i < Count; ++i) use(i, sums[p * Count / Half][p * Count % Half + i]);
    }
  }

  // All sums of a thread, in a loop: written out, a function of twenty instructions took 350 KB, which no
  // cache of instructions holds, and up to 20 s to compile. Registers have no index: each turn looks for its.
  template <int Rows, int Half>
  __device__ __forceinline__ void finish_all(Sum (&sums)[Rows][Half], int row, int col) const {
    constexpr int COLS = columns_at_once(Half * 2), COUNT = COLS / 2, PARTS = Half / COUNT;
#pragma unroll 1
    for (int part = 0; part < Rows * PARTS; ++part) {
      Sum mine[COUNT];
      of_part<COUNT>(sums, part, [&](int i, Sum& sum) { mine[i] = sum; });
      finish<COUNT>(mine, row + part / PARTS * NEXT_SLAB, col + part % PARTS * COLS);
      of_part<COUNT>(sums, part, [&](int i, Sum& sum) { sum = mine[i]; });
    }
  }
};

}  // namespace fused
#endif
