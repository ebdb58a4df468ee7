// Rows of D to their indices, as the results of experts to their tokens. Hopper's TMA stores neighbours alone, so
// a warp's lanes read a patch back from shared memory, and store it 16 bytes each.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/grouped_tiles.cuh"
#include "gemm/wgmma/product.cuh"

constexpr bool SCATTERS = SCATTER_ROWS > 0;
static_assert(!SCATTERS || (RAGGED == RAGGED_ROWS && SCATTER_ROWS == OF_ALL),
              "rows are found by the groups' ends");
static_assert(!SCATTERS || (D_COPY_ENGINE && !D_M_MAJOR && !OVERLAPS),
              "rows of D are made of 16 bytes, each stored once");
static_assert(!SCATTERS || (!ADDEND && !EPILOGUE_STORES), "C would lie where D does");

// Where patches of D go: to rows by their indices, to rows' owners, or to boxes of TMA's map.
struct ScatteredRows {
  const Product* p;
};
#if OWNERS
static_assert(D_COPY_ENGINE && !SCATTERS && !BATCHED && !RAGGED && !TRIANGLE && !A_SKEWED,
              "owners have rows of one plain matrix");
static_assert(!ADDEND && !FUSED, "sums travel as they are");
using Destination = RowsOfOwners;
// Lines of a box are rows of D, also if it is M-major.
__device__ __forceinline__ void store_box(const RowsOfOwners& to, int x, int line, int, int, int,
                                          const void* from) {
  store_line(*to.owners, x, line, from);
}
#else
using Destination = Choose<SCATTERS, ScatteredRows, const TensorMap*>::Type;
#endif
template <typename Parameters>
__device__ __forceinline__ Destination destination_of(const Parameters& p) {
  if constexpr (SCATTERS) return {&p};
  else if constexpr (OWNERS) return {p.extents.owners};
  else return &p.d_map;
}

// All lanes of a warp store a patch whose first element is (row, col). Rows from `end` on are another group's.
__device__ __forceinline__ void store_box(const ScatteredRows& to, int col, int row, int, int, int end,
                                          const void* from) {
  constexpr int PIECES = D_COLS * sizeof(Out) / 16, ROWS_AT_ONCE = 32 / PIECES, EACH = 16 / sizeof(Out);
  const Product& p = *to.p;
  const int lane = threadIdx.x % 32, byte = lane % PIECES * 16;
  col += lane % PIECES * EACH;
#pragma unroll
  for (int line = lane / PIECES; line < 16; line += ROWS_AT_ONCE) {
    if (row + line >= end || col >= p.extents.N) continue;
    const unsigned place = static_cast<const Patch<D_COLS>*>(from)->place(line, byte);
    *reinterpret_cast<uint4*>(p.D + p.modes.d_rows[row + line] * p.d.line + col) =
        *static_cast<const uint4*>(__cvta_shared_to_generic(place));
  }
}
