// A caller's function (epilogue.cuh) for the sums of wgmma, in the order in which lanes hold them.
#pragma once

#include "gemm/wgmma/skewed.cuh"  // first: it brings the element types

#include "epilogue.cuh"

#ifdef EPILOGUE
namespace fused {

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
      sums[s] = (*this)(sums[s], row + down, first_col + s / 4 * 8 + s % 2);
    }
  }
};

}  // namespace fused
#endif
