// The producer of gemm/sgemm.cu: one thread starts TMA's loads of tile after tile, as far ahead as stages are
// empty. It walks through the same units as the consumers.
#pragma once

#include "config.cuh"
#include "gemm/sgemm/units.cuh"

// Load the steps of one unit, a stage each.
template <typename Work>
__device__ __forceinline__ void load_unit(const Product& p, Pipeline& pipeline, const Work& work,
                                          Ring& ring) {
  const WorkUnit& unit = work.unit;
  const int row = unit.row * BM + work.first_row(), col = unit.column * BN;
  const Place of_a = place_in(p.a.batch, unit.batch), of_b = place_in(p.b.batch, unit.batch);
  for (int k = unit.k_begin * BK; k < unit.k_end * BK; k += BK, ring.go_on()) {
    Stage& to = pipeline.stage[ring.stage];
    Barrier* const full = &pipeline.full[ring.stage];
    barrier_wait(&pipeline.empty[ring.stage], ring.parity);
    barrier_arrive_expect(full, sizeof(T) * (BM + BN) * BK);
    const int at_k = k + work.first_k(), end = work.end();
    load_tile<A_CLIPPED>(to.A, &p.a_map, A_ALONG_K ? at_k : row, A_ALONG_K ? row : at_k, of_a, end, full);
    load_tile<B_CLIPPED>(to.B, &p.b_map, col, at_k, of_b, end, full);
  }
}

// The producer's warps give their registers to the consumers.
__device__ __forceinline__ void produce(const Product& p, Pipeline& pipeline, const Workspace& workspace) {
  give_registers_back<REGISTERS_LEFT>();
  // to find rows of groups, or parts of tiles, takes a warp, of which one thread loads
  constexpr bool BY_WARP = RAGGED == RAGGED_ROWS || CUTS_TILES;
  if (BY_WARP ? threadIdx.x >= CONSUMERS + 32 : threadIdx.x != CONSUMERS) return;
  const bool loads = !BY_WARP || threadIdx.x == CONSUMERS;
  if (PACKS && loads) wait_packed(workspace);
  UnitsToLoad work(p, pipeline);
  for (Ring ring = {0, 1}; work.next();)
    if (loads) load_unit(p, pipeline, work, ring);
  if (PACKS && loads) leave_packed(workspace);
}
