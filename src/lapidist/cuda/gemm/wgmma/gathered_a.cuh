// Rows of A by their indices, as of the tokens of experts. Hopper's TMA loads neighbours alone, so the
// four warps of the producer copy them, 16 bytes a lane, to the places that TMA's swizzle gives.
//
//   a lane   16 bytes of every 16th row, at one place of the swizzle
//   a step   | copies | arrive when they are there | ...
//
// If factors change along k, the last warp also copies those of each step, and arrives once for both.
//
// wgmma reads through another proxy than cp.async writes by, so consumers fence when a stage is full.
#pragma once

#include "config.cuh"
#include "modes.cuh"
#include "gemm/wgmma/product.cuh"

constexpr bool GATHERS = GATHER_A > 0;
static_assert(!GATHERS || (RAGGED == RAGGED_ROWS && GATHER_A == OF_ALL),
              "rows are found by the groups' ends");
static_assert(!GATHERS || (!A_M_MAJOR && !PACK_A && !A_SKEWED && !A_IN_REGISTERS),
              "a row is copied as it lies");
static_assert(!GATHERS || (BM <= 128 && CLUSTER_N == 1),
              "a lane holds eight indices, of its own block's rows");
static_assert(!GATHERS || LOADERS == 1, "all warps of the producer copy rows");

constexpr int ROWS_AT_ONCE = 16, COPIES = BM / ROWS_AT_ONCE;

struct GatheredRows {
  static constexpr int EACH = 16 / sizeof(T);
  const Product& p;
  const int row = threadIdx.x / 32 % 4 * 4 + threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
  const T* from[COPIES];  // the lane's places in the rows
  unsigned exist;         // bit i: the group has row i

  __device__ __forceinline__ explicit GatheredRows(const Product& p) : p(p) {}

  template <typename Tile>
  __device__ __forceinline__ void find(const Tile& tile) {
    exist = 0;
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int at = tile.row + row + i * ROWS_AT_ONCE;
      const bool there = at < tile.limit;
      from[i] = p.A + chunk * EACH + (there ? static_cast<i64>(p.modes.a_rows[at]) * p.a.line : 0);
      exist |= there << i;
    }
  }
  // Copy the elements of a step from k on.
  __device__ __forceinline__ void copy(char* tile, int k) const {
    const int left = p.extents.K - k - chunk * EACH,
              bytes = max_of(0, min_of(left, EACH)) * static_cast<int>(sizeof(T));
    const unsigned to = shared_address(tile) + row * 128 + (chunk ^ row % 8) * 16;
#pragma unroll
    for (int i = 0; i < COPIES; ++i)
      cp_async_fill<16>(to + i * ROWS_AT_ONCE * 128, from[i] + k, exist >> i & 1 ? bytes : 0);
  }
};

// All warps of the producer call this. The first one finds the tiles, and its first lane loads B.
template <typename Tiles>
__device__ __forceinline__ void load_gathered(const Product& p, Pipeline& pipeline, Tiles& tiles, int rank) {
  const bool leads = threadIdx.x == GROUPS * 128,
             brings = FACTORS_ALONG_K && threadIdx.x >= GROUPS * 128 + 96;
  const int below = rank % CLUSTER_M, receivers = (1 << CLUSTER_M) - 1, N = p.extents.N;
  const int bytes = loaded_bytes<B_N_MAJOR, BN>(N);
  Ring ring = {0, 1};
  GatheredRows rows(p);
  while (tiles.next(p.extents, rank)) {
    rows.find(tiles);
    const Scales& scales = scales_of(p, tiles);
    FactorSources<BM, BN> sources(scales, p.modes, tiles.row, tiles.col, tiles.begin, tiles.limit,
                                  p.extents.N);
    const int inner = p.b.inner ? tiles.inner : 0, outer = p.b.outer ? tiles.outer : 0;
#pragma unroll 1
    for (int step = tiles.begin; step < tiles.end; ++step, ring.go_on()) {
      barrier_wait(&pipeline.barriers.empty[ring.stage], ring.parity);
      Stage& stage = pipeline.stage[ring.stage];
      const int k = (step + (p.extents.K == 0)) * BK;
      Barrier* const full = &pipeline.barriers.full[ring.stage];
      if (leads) {
        barrier_arrive_expect(full, bytes);
        load_tile<B_N_MAJOR, BN, CLUSTER_M, B_CLIPPED>(stage.B, &p.b_map, tiles.col, N, k, inner, outer,
                                                       below, receivers, full, p.b_once, limit_of(tiles));
      }
      rows.copy(stage.A, k);
      if (brings) sources.bring(pipeline.factors[ring.stage]);
      barrier_arrive_after_copies(full);
    }
  }
  // no block exits while others of its cluster may write to its memory
  for (int i = 0; CLUSTER > 1 && leads && i < STAGES; ++i, ring.go_on())
    barrier_wait(&pipeline.barriers.empty[ring.stage], ring.parity);
}
