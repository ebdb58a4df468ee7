// The producer of gemm/sgemm.cu: one thread starts TMA's loads of tile after tile, as far ahead as stages are
// empty. It walks through the same units as the consumers.
#pragma once

#include "config.cuh"
#include "gemm/sgemm/product.cuh"

// Load the steps of one unit, a stage each.
__device__ __forceinline__ void load_unit(const Product& p, Pipeline& pipeline, const WorkUnit& unit,
                                          Ring& ring) {
  const int row = unit.row * BM, col = unit.column * BN;
  const Place of_a = place_in(p.a.batch, unit.batch), of_b = place_in(p.b.batch, unit.batch);
  for (int k = unit.k_begin * BK; k < unit.k_end * BK; k += BK, ring.go_on()) {
    Stage& to = pipeline.stage[ring.stage];
    Barrier* const full = &pipeline.full[ring.stage];
    barrier_wait(&pipeline.empty[ring.stage], ring.parity);
    barrier_arrive_expect(full, sizeof(T) * (BM + BN) * BK);
    load_tile(to.A, &p.a_map, A_ALONG_K ? k : row, A_ALONG_K ? row : k, of_a, full);
    load_tile(to.B, &p.b_map, col, k, of_b, full);
  }
}

// The producer's warps give their registers to the consumers.
__device__ __forceinline__ void produce(const Product& p, Pipeline& pipeline, const Workspace& workspace) {
  give_registers_back<REGISTERS_LEFT>();
  if (threadIdx.x != CONSUMERS) return;
  if (PACKS) wait_packed(workspace);
  Work work(p.schedule);
  for (Ring ring = {0, 1}; work.next();) load_unit(p, pipeline, work.unit, ring);
  if (PACKS) leave_packed(workspace);
}
