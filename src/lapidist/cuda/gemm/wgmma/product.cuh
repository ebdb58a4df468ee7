// What producer and consumers of gemm/wgmma.cu share: the launch's parameters by name, and the ring of
// stages.
#pragma once

#include "config.cuh"
#include "modes.cuh"
#include "gemm/wgmma/arrivals.cuh"
#include "gemm/wgmma/pipeline.cuh"

#include "gemm/wgmma/epilogue_of_tile.cuh"

// Elements to the next line of a matrix, and along the two dimensions of a batch.
struct Steps {
  i64 line, inner, outer;
};

constexpr int GATHERERS = GATHER_A ? 4 : 0;  // warps that copy gathered rows of A

// The launch's parameters. Tensor maps stay in parameter memory, where TMA needs them.
struct Product {
  Extents extents;
  Scalar alpha, beta;
  const TensorMap &a_map, &b_map, &d_map;
  const T *A, *B;
  const Out* C;
  Out* D;
  Steps a, b, d;
  i64 c_row, c_col, c_inner, c_outer;
  const Schedule& schedule;
  const Scales& scales;
  const Ragged& ragged;
  const Modes& modes;
  const Arrivals& arrivals;
  const fused::Operands* operands;  // of the caller's function
  // whether no other tile reads the same part of A, or of B
  bool a_once, b_once;

  __device__ __forceinline__ Batch batch_of(const Steps& steps) const {
    return {extents.batch, extents.batches, steps.inner, steps.outer};
  }
  __device__ __forceinline__ Out* d_of(int inner, int outer) const {
    return D + inner * d.inner + outer * d.outer;
  }
  __device__ __forceinline__ const Out* c_of(int inner, int outer) const {
    return C + inner * c_inner + outer * c_outer;
  }
};

// A position in the ring of stages, with the parity of the barrier phase to wait for. Stages are empty at
// first, so the producer starts with parity 1, and consumers with 0.
struct Ring {
  int stage, parity;
  __device__ __forceinline__ void go_on() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  // Skip the stages of a tile that the other warpgroup multiplies.
  __device__ __forceinline__ void skip(int steps) {
    stage += steps, parity ^= stage / STAGES & 1, stage %= STAGES;
  }
};

// ---- tiles: with a schedule, or groups, the producer finds them and hands them on in a queue ----

// Groups' tiles are found by a warp that does nothing else, since to find one takes as long as a short step's
// products; where all warps copy rows, by the first of these. Lanes without work leave: those that wait at a
// barrier ahead of a lane hold it up, as they are one warp (H200: gradients of one step a tile took 24 % longer).
constexpr bool FINDS_APART = RAGGED > 0 && !GATHER_A;
constexpr int FINDER = 3;
static_assert(!FINDS_APART || LOADERS <= FINDER, "a warp is left that finds tiles");

template <typename Pipeline>
__device__ __forceinline__ decltype(auto) walk_of_producer(const Product& p, Pipeline& pipeline,
                                                           Tiles& tiles) {
  if constexpr (RAGGED > 0) return FoundTiles(p.ragged, p.extents, pipeline.barriers.queue);
  else if constexpr (QUEUED) return TilesOf<PublishedWork>(p.schedule, pipeline.barriers.queue);
  else return (tiles);
}
template <typename Pipeline>
__device__ __forceinline__ decltype(auto) walk_of_consumers(const Product& p, Pipeline& pipeline,
                                                            Tiles& tiles) {
  if constexpr (RAGGED > 0) return ReceivedTiles<>(pipeline.barriers.queue);
  else if constexpr (QUEUED) return TilesOf<ReceivedWork>(p.schedule, pipeline.barriers.queue);
  else return (tiles);
}
// Of a thread that loads what another warp finds.
template <typename Pipeline>
__device__ __forceinline__ decltype(auto) walk_of_loader(const Product& p, Pipeline& pipeline, Tiles& tiles) {
  if constexpr (FINDS_APART) return ReceivedTiles<true>(pipeline.barriers.queue);
  else return walk_of_consumers(p, pipeline, tiles);
}
// The factors of the tile's group, or of all of the product.
template <typename Tiles>
__device__ __forceinline__ decltype(auto) scales_of(const Product& p, const Tiles& tiles) {
  if constexpr (RAGGED > 0) return scales_of_group(p.scales, p.ragged, tiles.inner);
  else return (p.scales);
}
// Of the warp that loads factors.
template <typename Pipeline>
__device__ __forceinline__ auto walk_of_factors(const Product&, Pipeline& pipeline, Tiles& tiles) {
  if constexpr (RAGGED > 0) return ReceivedTiles<>(pipeline.barriers.queue);
  else return tiles;
}
template <typename Pipeline>
__device__ __forceinline__ void init_queue(Pipeline& pipeline) {
  if constexpr (QUEUED)
    pipeline.barriers.queue.init(SHARERS / 32 + (FINDS_APART && FACTORS_ALONG_K) + LOADERS - !FINDS_APART +
                                 GATHERERS - (GATHERERS > 0));
}
