// The producer of gemm/wgmma.cu: warps that fill stages. They give most of their registers to the consumers.
//
//   first warps   one thread starts TMA's loads of A and B for tile after tile, as far ahead as stages are
//                 empty. For narrow tiles a thread of each of LOADERS warps does so, in turn
//   last          of groups: it finds tiles, and hands them to all others (grouped_tiles.cuh)
//   others        if rows of A are shifted, one thread of each of three warps loads them (misaligned_a.cuh);
//                 if factors change along k, the second warp loads them (scales.cuh)
//   all           if rows of A are gathered, they copy them (gathered_a.cuh)
#pragma once

#include "config.cuh"
#include "gemm/wgmma/arrivals.cuh"
#include "gemm/wgmma/gathered_a.cuh"
#include "gemm/wgmma/skinny.cuh"
#include "gemm/wgmma/product.cuh"

// The part of a tile of A that this block loads, and the blocks that receive it; the same for B. Blocks of a
// cluster whose tiles lie side by side share A, those with tiles below each other share B.
struct Shared {
  int below, beside;
  __device__ __forceinline__ explicit Shared(int rank) : below(rank % CLUSTER_M), beside(rank / CLUSTER_M) {}
  __device__ __forceinline__ int receivers_of_a() const {
    int blocks = 0;
#pragma unroll
    for (int i = 0; i < CLUSTER_N; ++i) blocks |= 1 << i * CLUSTER_M;
    return blocks << below;
  }
  __device__ __forceinline__ int receivers_of_b() const {
    return ((1 << CLUSTER_M) - 1) << beside * CLUSTER_M;
  }
};

// One thread loads a stage for each step of each tile, or for one of LOADERS steps, from the `turn`th on.
template <typename Tiles>
__device__ __forceinline__ void load_operands(const Product& p, Pipeline& pipeline, Tiles& tiles, int rank,
                                              const PackedParts& parts, const Workspace& workspace,
                                              int turn) {
  const int M = p.extents.M, N = p.extents.N;
  // all lanes receive tiles that another warp walks to; the first lane loads
  const bool leads = RAGGED || !(QUEUED && LOADERS > 1) || threadIdx.x % 32 == 0;
  Ring ring = {0, 1};
  const Shared shared(rank);
  const int to_a = shared.receivers_of_a(), to_b = shared.receivers_of_b();
  const int bytes =
      (A_SKEWED ? A_BYTES : loaded_bytes<A_M_MAJOR, A_LOADED>(M)) + loaded_bytes<B_N_MAJOR, BN>(N);
  if (PACKS) tma_prefetch_map(&p.a_map), tma_prefetch_map(&p.b_map);
  int known = 0;  // the last part that is known to be packed
  ArrivedRows arrived(p.arrivals);
  for (bool waits = PACKS; tiles.next(p.extents, rank);) {
    if (!leads) continue;
    const int a_in = p.a.inner ? tiles.inner : 0, a_out = p.a.outer ? tiles.outer : 0;
    const int b_in = p.b.inner ? tiles.inner : 0, b_out = p.b.outer ? tiles.outer : 0;
    int needed = PACKS_BESIDE ? parts.last_of(tiles.row, tiles.col) : 0;
#pragma unroll 1
    for (int step = tiles.begin; step < tiles.end; ++step, ring.go_on()) {
      if (LOADERS > 1) {
        if (turn-- > 0) continue;
        turn = LOADERS - 1;
      }
      Stage& stage = pipeline.stage[ring.stage];
      Barrier* full = &pipeline.barriers.full[ring.stage];
      barrier_wait(&pipeline.barriers.empty[ring.stage], ring.parity);
      barrier_arrive_expect(full, bytes);
      const int k = first_k_of(tiles) + (step + (p.extents.K == 0)) * BK;
      // as late as possible: everything else before the first load is done
      if (waits) wait_packed(workspace), waits = false;
      // parts are packed in order
      if (PACKS_BESIDE && known < PackedParts::PANELS && k >= parts.end_of(known))
        needed = max_of(needed, known + 1);
      if (PACKS_BESIDE && needed > known) wait_packed_beside(workspace, known = needed, PACKERS);
      if (ARRIVALS == ROWS_OF_A) arrived.wait(tiles.row, tiles.row + BM, M);
      load_tile<A_M_MAJOR, A_LOADED, CLUSTER_N, A_CLIPPED>(stage.A, &p.a_map, tiles.row, M, k, a_in, a_out,
                                                           shared.beside, to_a, full, p.a_once,
                                                           limit_of(tiles));
      if (ARRIVALS == ROWS_OF_B) arrived.wait(tiles.col, tiles.col + BN, N);
      load_tile<B_N_MAJOR, BN, CLUSTER_M, B_CLIPPED>(stage.B, &p.b_map, tiles.col, N, k, b_in, b_out,
                                                     shared.below, to_b, full, p.b_once, limit_of(tiles));
    }
  }
  // A block must not exit while others of its cluster may write to its memory. So wait until all its stages
  // were filled and freed.
  for (int i = 0; CLUSTER > 1 && leads && i < STAGES; ++i) {
    // stages are freed in order
    barrier_wait(&pipeline.barriers.empty[ring.stage], ring.parity);
    ring.go_on();
  }
  const int last = PACKS_BESIDE ? parts.last() : 0;
  if (last > 0) wait_packed_beside(workspace, last, PACKERS);
  if (PACKS) leave_packed(workspace, PACKS_BESIDE ? PackedParts::MOST : 0);
}

// Nothing is read here, as the last launch may not have ended.
__device__ __forceinline__ Packing packing_of(const Product& p, const Workspace& workspace) {
  return {p.extents, p.A, p.a.line, p.batch_of(p.a), p.B, p.b.line, p.batch_of(p.b), workspace};
}

// One warp loads the factors of each step, with the same stages. Those of rows arrive with their rows.
template <typename Tiles>
__device__ __forceinline__ void load_factors(const Product& p, Pipeline& pipeline, Tiles& tiles, int rank) {
  ArrivedRows arrived(p.arrivals);
  for (Ring ring = {0, 1}; tiles.next(p.extents, rank);) {
    if (ARRIVALS == ROWS_OF_A) arrived.wait_in_warp(tiles.row, tiles.row + BM, p.extents.M);
    if (ARRIVALS == ROWS_OF_B) arrived.wait_in_warp(tiles.col, tiles.col + BN, p.extents.N);
    const Scales& scales = scales_of(p, tiles);
    FactorSources<BM, BN> sources(scales, p.modes, tiles.row, tiles.col, tiles.begin,
                                  end_of_rows(tiles, p.extents), end_of_cols(tiles, p.extents));
    for (int step = tiles.begin; step < tiles.end; ++step, ring.go_on()) {
      barrier_wait(&pipeline.barriers.empty[ring.stage], ring.parity);
      sources.bring(pipeline.factors[ring.stage]);
      __syncwarp();  // lanes with more copies arrive together with the others
      barrier_arrive_after_copies(&pipeline.barriers.full[ring.stage]);
    }
  }
}

// One warp finds the tiles of groups, as far ahead as the queue has slots.
template <typename Found>
__device__ __forceinline__ void find_all(const Product& p, Found& tiles, int rank) {
#pragma unroll 1
  while (tiles.next(p.extents, rank)) {}
}

__device__ __forceinline__ void produce(const Product& p, Pipeline& pipeline, Tiles& tiles, int rank,
                                        const PackedParts& parts, const Workspace& whole,
                                        const Workspace& workspace) {
  const int warp = threadIdx.x / 32 - GROUPS * 4, lane = threadIdx.x % 32;
  if (!PACKS_EVENLY) give_registers_back<REGISTERS_LEFT>();
  if constexpr (GATHERS) {
    if (warp == 0) {
      auto walk = walk_of_producer(p, pipeline, tiles);
      load_gathered(p, pipeline, walk, rank);
    } else {
      auto walk = walk_of_consumers(p, pipeline, tiles);
      load_gathered(p, pipeline, walk, rank);
    }
    return;
  }
  const bool first = lane == 0, follows = warp > 0 && warp < LOADERS && (QUEUED || first);
  if (FINDS_APART ? warp == FINDER && (RAGGED != RAGGED_K || CUTS_TILES || first)
                  : threadIdx.x == GROUPS * 128) {
    auto walk = walk_of_producer(p, pipeline, tiles);
    if constexpr (FINDS_APART) find_all(p, walk, rank);
    else load_operands(p, pipeline, walk, rank, parts, workspace, 0);
  } else if (FINDS_APART ? warp < LOADERS && first : LOADERS > 1 && follows) {
    auto&& walk = walk_of_loader(p, pipeline, tiles);
    load_operands(p, pipeline, walk, rank, parts, workspace, warp);
  } else if (A_SKEWED && lane == 0) {
    bring_skewed(pipeline, tiles, p.extents, rank, &p.a_map, &p.d_map, p.A, p.a.line, warp - 1);
  } else if (PACKS_FEWER && warp > 0) {
    packing_of(p, whole).template pack_in_parts<4, 1, PackedParts::MOST>(parts, whole);
  } else if (FACTORS_ALONG_K && warp == 1) {
    auto walk = walk_of_factors(p, pipeline, tiles);
    load_factors(p, pipeline, walk, rank);
  }
  if (PEERS_IN_CLUSTER) cluster_barrier(), cluster_barrier();  // as the consumers do in their exchange
}
