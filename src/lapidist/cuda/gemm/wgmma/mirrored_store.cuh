// The second store of a symmetric D's tile, transposed, to its mirror image across the diagonal.
//
//   a warpgroup's sums, 64 rows x 16 columns   ->   16 lines of 64 elements   ->   D, by TMA
//
// Four such parts at once, one in each warp's buffer, and that warp sends it: boxes are those of D's patches.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/deferred_store.cuh"

static_assert(!BOTH_HALVES || TRIANGLE > 0, "what is stored twice is computed once");
static_assert(!BOTH_HALVES || (D_COPY_ENGINE && !D_M_MAJOR && sizeof(Out) == 2 && !A_IN_REGISTERS),
              "lines of 64 elements are made by stmatrix, and leave by TMA");
static_assert(!BOTH_HALVES || (D_COLS * sizeof(Out) == 128 && !OVERLAPS && !C_IN_PATCHES),
              "lines of the mirror image are as wide as a patch");

// A template, so that types and tiles without it do not compile it. Cols: of a patch of D, which four slabs of 16
// columns fill.
template <int Cols>
struct MirroredStore {
  static constexpr int ACROSS = BN / Cols, ALL = ROWS * ACROSS;  // turns of a warp's buffers
  Destination to;
  Patch<Cols, !D_COPY_ENGINE> (*buffers)[D_BUFFERS];  // of this warpgroup's four warps
  int row, col, inner, outer;                         // of the warpgroup's first sum

  // `turn`: patches that these warps have stored before, so that buffers are used in turn.
  __device__ __forceinline__ void store(const Sum (&sums)[ROWS][BN / 2], int turn, int limit) const {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const int line = lane / 16 * 8 + lane % 8, byte = warp * 32 + lane / 8 % 2 * 16;
    const unsigned place = line * 128 + (byte ^ line % 8 << 4);
#pragma unroll
    for (int i = 0; i < ALL; ++i) {
      const int slab = i / ACROSS, part = i % ACROSS, at = (turn + i) % D_BUFFERS;
      if (lane == 0) tma_store_wait_read<D_BUFFERS - 1>();
      group_barrier(threadIdx.x / 128);
#pragma unroll
      for (int of = 0; of < 4; ++of) {
        const Sum* const mine = sums[slab] + (part * Cols + of * 16) / 2;
        store_matrices<true>(shared_address(buffers[of][at].bytes) + place, Patch<Cols>::pair(mine),
                             Patch<Cols>::pair(mine + 2), Patch<Cols>::pair(mine + 4),
                             Patch<Cols>::pair(mine + 6));
      }
      proxy_fence();
      group_barrier(threadIdx.x / 128);
      if (lane == 0) {
        store_box(to, row + slab * NEXT_SLAB, col + part * Cols + warp * 16, inner, outer, limit,
                  buffers[warp][at].bytes);
        tma_store_commit();
      }
    }
    // Patches behind these would use their buffers in another order.
    if (ALL % D_BUFFERS > 0 && lane == 0) tma_store_wait_read<0>();
    if (ALL % D_BUFFERS > 0) __syncwarp();
  }
};
