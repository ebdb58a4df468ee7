// What producer and consumers of gemm/sgemm.cu walk through: units of a schedule, which each side finds itself, or
// tiles of groups (share/groups.cuh). The first warp of the producer finds those, as all lanes of a warp take part,
// and consumers have no register to spare. It hands them on in a queue.
//
// A group may end inside a tile. Boxes of TMA then end with it: what lies behind is neither loaded nor stored.
#pragma once

#include "config.cuh"
#include "gemm/sgemm/product.cuh"
#include "share/grouped_work.cuh"
#include "share/unit_queue.cuh"

static_assert(RAGGED != RAGGED_COLS && (!RAGGED || A_ALONG_K == (RAGGED == RAGGED_ROWS)),
              "groups cut operands between their lines");

struct UnitsOfSchedule : WholeWork {
  template <typename Pipeline>
  __device__ __forceinline__ UnitsOfSchedule(const Product& p, Pipeline&) : WholeWork(p.schedule) {}
  __device__ __forceinline__ static int depth(const Product& p) { return p.K; }
  __device__ __forceinline__ static int rows(const Product& p) { return p.M; }
  __device__ __forceinline__ static int end() { return 0; }
};

// Steps along k of the unit's matrix.
__device__ __forceinline__ int depth_of(const TileOfGroup& tile, const Product& p) {
  return RAGGED == RAGGED_K && p.K > 0 ? tile.group.end - tile.group.begin : p.K;
}

struct FoundUnits : FoundGroupTiles {
  const Product& p;
  QueueOf<TileOfGroup>& queue;
  Turn turn;
  template <typename Pipeline>
  __device__ __forceinline__ FoundUnits(const Product& p, Pipeline& pipeline)
      : FoundGroupTiles(p.ragged, p.M, p.N, p.K), p(p), queue(pipeline.queue) {}
  __device__ __forceinline__ bool next() {
    const bool more = find<RASTER>(ceil_div(p.M, BM), ceil_div(p.N, BN), ceil_div(p.K, BK));
    if constexpr (FIXED_PARTS == 1) unit.k_end = min_of(unit.k_end, ceil_div(depth_of(*this, p), BK));
    if (threadIdx.x % 32 == 0) publish(queue, turn, static_cast<const TileOfGroup&>(*this), more);
    return more;
  }
  __device__ __forceinline__ int end() const { return group.end; }
};
struct ReceivedUnits : TileOfGroup {
  QueueOf<TileOfGroup>& queue;
  Turn turn;
  template <typename Pipeline>
  __device__ __forceinline__ ReceivedUnits(const Product&, Pipeline& pipeline) : queue(pipeline.queue) {}
  __device__ __forceinline__ bool next() { return receive(queue, turn, static_cast<TileOfGroup&>(*this)); }
  __device__ __forceinline__ int depth(const Product& p) const { return depth_of(*this, p); }
  __device__ __forceinline__ int rows(const Product& p) const {
    return RAGGED == RAGGED_ROWS ? group.end : p.M;
  }
};

using UnitsToLoad = Choose<(RAGGED > 0), FoundUnits, UnitsOfSchedule>::Type;
using Units = Choose<(RAGGED > 0), ReceivedUnits, UnitsOfSchedule>::Type;
