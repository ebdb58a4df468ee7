// The tiles of a symmetric D that meet one of its triangles; the other half is their mirror (deferred_store.cuh,
// second/mirror.cu).
//
// D is walked by squares as wide as the larger side of a cluster's tiles, in the order of share/triangle.cuh. Those
// on the diagonal are computed whole.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/addend_of_tile.cuh"
#include "share/sharing.cuh"

constexpr int TILES_HIGH = BM * CLUSTER_M, TILES_WIDE = BN * CLUSTER_N;
static_assert(SQUARE_DOWN == 1 || SQUARE_ACROSS == 1, "tiles fill squares");
static_assert(!TRIANGLE || !(SCHEDULED || RAGGED || PACK_A || PACK_B), "tiles come in this order");

struct TriangleTiles {
  static constexpr int begin = 0;
  const HalfOfTiles half;
  int tiles_m, tiles_n, per_matrix, count, at;  // tiles of clusters
  int row, col, inner, outer, end;
  bool on_diagonal;  // in a square of which both halves are computed

  template <typename Extents, typename Order>
  __device__ __forceinline__ TriangleTiles(const Extents& e, const Schedule&, const Order& order)
      : half(RASTER), tiles_m(ceil_div(e.M, TILES_HIGH)), tiles_n(ceil_div(e.N, TILES_WIDE)) {
    per_matrix = half.count(tiles_m, tiles_n);
    count = per_matrix * e.batch * e.batches;
    at = blockIdx.x / CLUSTER - gridDim.x / CLUSTER;
    if (CLUSTER == 2) at += order.further[blockIdx.x / CLUSTER];
    end = e.K > 0 ? ceil_div(e.K, BK) : 1;  // K = 0: one step of zeros from outside the matrix
  }

  template <typename Extents>
  __device__ __forceinline__ bool next(const Extents& e, int rank) {
    at += gridDim.x / CLUSTER;
    if (at >= count) return false;
    const int matrix = BATCHED ? floor_div(at, per_matrix) : 0, tile = at - matrix * per_matrix;
    int down, across;
    half.place(tile, tiles_m, tiles_n, down, across);
    on_diagonal = down / SQUARE_DOWN == across / SQUARE_ACROSS;
    row = (down * CLUSTER_M + rank % CLUSTER_M) * BM;
    col = (across * CLUSTER_N + rank / CLUSTER_M) * BN;
    outer = BATCHED ? floor_div(matrix, e.batch) : 0, inner = BATCHED ? matrix - outer * e.batch : 0;
    return true;
  }
  __device__ __forceinline__ bool last() const { return at + static_cast<int>(gridDim.x / CLUSTER) >= count; }
  template <int Threads, int Rows, int Count>
  __device__ __forceinline__ bool combine(const Workspace&, void*, Sum (&)[Rows][Count]) const {
    return true;
  }
};
