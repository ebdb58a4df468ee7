// The tiles of a symmetric D that meet one of its triangles; the other half is their mirror (deferred_store.cuh,
// second/mirror.cu).
//
// D is walked by squares as wide as the larger side of a cluster's tiles. Those on the diagonal are computed
// whole. Bands of BAND lines are for the L2, here of two:
//
//   0                    the first columns of a band have all of its lines,
//   1  2                 each of the last ones a line fewer
//   3  5  7
//   4  6  8  9
#pragma once

#include "config.cuh"
#include "gemm/wgmma/addend_of_tile.cuh"
#include "share/sharing.cuh"

constexpr int TILES_HIGH = BM * CLUSTER_M, TILES_WIDE = BN * CLUSTER_N;
constexpr int SQUARE = TILES_HIGH > TILES_WIDE ? TILES_HIGH : TILES_WIDE;
static_assert(!TRIANGLE || (SQUARE % TILES_HIGH == 0 && SQUARE % TILES_WIDE == 0), "tiles fill squares");
static_assert(!TRIANGLE || !(SCHEDULED || RAGGED || PACK_A || PACK_B), "tiles come in this order");

struct TriangleTiles {
  static constexpr int DOWN = SQUARE / TILES_HIGH, TILES = DOWN * (SQUARE / TILES_WIDE);
  static constexpr int BAND = RASTER > DOWN ? RASTER / DOWN : 1;
  static constexpr int begin = 0;
  int lines, per_matrix, count, at;
  int row, col, inner, outer, end;
  bool on_diagonal;  // in a square of which both halves are computed

  template <typename Extents, typename Order>
  __device__ __forceinline__ TriangleTiles(const Extents& e, const Schedule&, const Order& order) {
    lines = ceil_div(e.M, SQUARE);
    per_matrix = before(lines) * TILES;
    count = per_matrix * e.batch * e.batches;
    at = blockIdx.x / CLUSTER - gridDim.x / CLUSTER;
    if (CLUSTER == 2) at += order.further[blockIdx.x / CLUSTER];
    end = e.K > 0 ? ceil_div(e.K, BK) : 1;  // K = 0: one step of zeros from outside the matrix
  }

  // Squares in the lines before this one.
  __device__ __forceinline__ static int before(int line) { return line * (line + 1) / 2; }

  // The line that a square would be in, if they were counted line by line. Its band is the same.
  __device__ __forceinline__ static int line_of(int square) {
    int line = static_cast<int>((sqrtf(8.0f * square + 1.0f) - 1.0f) * 0.5f);
    while (before(line) > square) --line;  // the root is rounded
    while (before(line + 1) <= square) ++line;
    return line;
  }

  template <typename Extents>
  __device__ __forceinline__ bool next(const Extents& e, int rank) {
    at += gridDim.x / CLUSTER;
    if (at >= count) return false;
    const int matrix = BATCHED ? floor_div(at, per_matrix) : 0, tile = at - matrix * per_matrix;
    const int part = tile % TILES, square = tile / TILES, first = line_of(square) / BAND * BAND;
    const int height = min_of(BAND, lines - first);
    int rest = square - before(first), line = first, step = first + 1;
    if (rest < step * height) {
      step = floor_div(rest, height);
      line += rest - step * height;
    } else {
      for (rest -= step * height; rest >= height + first - step; ++step) rest -= height + first - step;
      line = step + rest;
    }
    const int down = TRIANGLE == 2 ? step : line, across = TRIANGLE == 2 ? line : step;
    on_diagonal = down == across;
    row = down * SQUARE + (part % DOWN * CLUSTER_M + rank % CLUSTER_M) * BM;
    col = across * SQUARE + (part / DOWN * CLUSTER_N + rank / CLUSTER_M) * BN;
    outer = BATCHED ? floor_div(matrix, e.batch) : 0, inner = BATCHED ? matrix - outer * e.batch : 0;
    return true;
  }
  __device__ __forceinline__ bool last() const { return at + static_cast<int>(gridDim.x / CLUSTER) >= count; }
  template <int Threads, int Rows, int Count>
  __device__ __forceinline__ bool combine(const Workspace&, void*, Sum (&)[Rows][Count]) const {
    return true;
  }
};
