// The units of a block, by the product that they are of: the whole one, or a group of a grouped product, of which
// each unit is a whole tile.
#pragma once

#include "config.cuh"
#include "share/groups.cuh"
#include "share/sharing.cuh"

// Of a product that is not ragged: all of them belong to the whole product.
struct WholeWork : Work {
  using Work::Work;
  __device__ __forceinline__ static int first_row() { return 0; }
  __device__ __forceinline__ static int first_col() { return 0; }
  __device__ __forceinline__ static int first_k() { return 0; }
  template <typename Product>
  __device__ __forceinline__ static const Product& part(const Product& whole) {
    return whole;
  }
};

// A tile of a group.
struct TileOfGroup {
  WorkUnit unit = {0, 0, 0, 0, 0, 0, 0, 1, -1, -1, -1};
  Group group = {};

  __device__ __forceinline__ int first_row() const { return RAGGED == RAGGED_ROWS ? group.begin : 0; }
  __device__ __forceinline__ int first_col() const { return RAGGED == RAGGED_COLS ? group.begin : 0; }
  __device__ __forceinline__ int first_k() const { return RAGGED == RAGGED_K ? group.begin : 0; }

  // The product, which ends where the group does. With K = 0 (so also with alpha = 0) nothing of A and B is read.
  template <typename Product>
  __device__ __forceinline__ Product part(const Product& whole) const {
    Product own = whole;
    if constexpr (RAGGED == RAGGED_K) own.K = whole.K > 0 ? group.end : group.begin;
    else (RAGGED == RAGGED_ROWS ? own.M : own.N) = group.end;
    return own;
  }

  // Each unit is a whole tile, of one block.
  __device__ __forceinline__ bool ends_tile() const { return true; }
  __device__ __forceinline__ bool owns_row(int) const { return true; }
  template <int ROWS>
  __device__ __forceinline__ unsigned owned_rows() const {
    return (1u << ROWS) - 1;
  }
  template <int THREADS, typename Sum, int ROWS, int COLS>
  __device__ __forceinline__ bool combine(const Workspace&, void*, Sum (&)[ROWS][COLS]) const {
    return true;
  }
};

// Finds the tiles of a block. All lanes of a warp call it together.
struct FoundGroupTiles : TileOfGroup {
  const Ragged& ragged;
  GroupWalk<RAGGED == RAGGED_COLS ? BN : BM> walk;
  int at = blockIdx.x;  // among the tiles of all groups

  __device__ __forceinline__ FoundGroupTiles(const Ragged& ragged, int M, int N)
      : ragged(ragged), walk(ragged, RAGGED == RAGGED_COLS ? ceil_div(M, BM) : ceil_div(N, BN)) {}

  template <int BAND>
  __device__ __forceinline__ bool find(int tiles_m, int tiles_n) {
    int tile;
    if constexpr (RAGGED == RAGGED_K) {
      const int number = at / (tiles_m * tiles_n);
      if (number >= ragged.groups) return false;
      group = group_at(ragged, number), tile = at - number * tiles_m * tiles_n;
    } else if (!walk.find(at, group, tile)) {
      return false;
    }
    const int extent = group.end - group.begin,
              lines = RAGGED == RAGGED_ROWS ? ceil_div(extent, BM) : tiles_m,
              steps = RAGGED == RAGGED_COLS ? ceil_div(extent, BN) : tiles_n;
    place_in_band(tile, lines, steps, BAND, unit.row, unit.column);
    unit.batch = group.number;
    at += gridDim.x;
    return true;
  }
};

// The same in place of Work (share/sharing.cuh), in kernels whose threads all find their units alike.
struct GroupedWork : FoundGroupTiles {
  using FoundGroupTiles::FoundGroupTiles;
  template <int BAND = 1>
  __device__ __forceinline__ bool next(int tiles_m, int tiles_n, int) {
    __syncthreads();  // shared memory is free for the next unit
    return find<BAND>(tiles_m, tiles_n);
  }
};
