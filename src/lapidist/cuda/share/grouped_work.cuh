// The units of a block, by the product that they are of: the whole one, or a group of a grouped product, of which
// each unit is a whole tile.
//
// The FIXED_PARTS parts of a tile are units one after another of one block, which keeps their sums in the workspace:
//
//   unit   part 0: slot = sums | part 1: slot += sums | ... | the last one: sums += slot, epilogue
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

// Add a thread's sums of a part to those of the parts before, which only it reads and writes. Returns whether the tile
// is complete.
template <int THREADS, typename Sum, int ROWS, int COLS>
__device__ __forceinline__ bool add_part(const Workspace& workspace, const WorkUnit& unit,
                                         Sum (&sums)[ROWS][COLS]) {
  constexpr int EACH = 16 / sizeof(Sum), PIECES = COLS / EACH;
  static_assert(COLS % EACH == 0, "a row is made of whole pieces");
  Piece<Sum>* const slot = static_cast<Piece<Sum>*>(workspace.slots) +
                           static_cast<long long>(blockIdx.x) * (ROWS * PIECES * THREADS) + thread_now();
  const bool first = unit.first(), last = unit.last();
#pragma unroll
  for (int i = 0; i < ROWS * PIECES; ++i) {
    Sum* const own = sums[i / PIECES] + i % PIECES * EACH;
    Piece<Sum> before = {};
    if (!first) before = load(slot[i * THREADS]);
#pragma unroll
    for (int e = 0; e < EACH; ++e)  // zero alone would make +0 of -0
      own[e] = FROM_ZERO || !first ? before.at[e] + own[e] : own[e];
    if (last) continue;
    Piece<Sum> after;
#pragma unroll
    for (int e = 0; e < EACH; ++e) after.at[e] = own[e];
    slot[i * THREADS] = after;
  }
  return last;
}

// A tile of a group, or a part of it.
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

  // A tile has one block.
  __device__ __forceinline__ bool ends_tile() const { return FIXED_PARTS == 1 || unit.last(); }
  __device__ __forceinline__ bool owns_row(int) const { return true; }
  template <int ROWS>
  __device__ __forceinline__ unsigned owned_rows() const {
    return (1u << ROWS) - 1;
  }
  template <int THREADS, typename Sum, int ROWS, int COLS>
  __device__ __forceinline__ bool combine(const Workspace& workspace, void*, Sum (&sums)[ROWS][COLS]) const {
    if constexpr (FIXED_PARTS > 1) return add_part<THREADS>(workspace, unit, sums);
    else return true;
  }
};

// Finds the tiles of a block. All lanes of a warp call it together.
struct FoundGroupTiles : TileOfGroup {
  const Ragged& ragged;
  GroupWalk<RAGGED == RAGGED_COLS ? BN : BM> walk;
  int at = blockIdx.x;  // among the tiles of all groups

  __device__ __forceinline__ FoundGroupTiles(const Ragged& ragged, int M, int N)
      : ragged(ragged), walk(ragged, RAGGED == RAGGED_COLS ? ceil_div(M, BM) : ceil_div(N, BN)) {}

  // `iterations`: steps of k.
  template <int BAND>
  __device__ __forceinline__ bool find(int tiles_m, int tiles_n, int iterations) {
    if constexpr (FIXED_PARTS > 1) {
      unit.peer = unit.last() ? 0 : unit.peer + 1, unit.peers = FIXED_PARTS;
      unit.k_begin = begin_of_part(unit.peer, iterations),
      unit.k_end = begin_of_part(unit.peer + 1, iterations);
      if (unit.peer > 0) return true;
    }
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
  __device__ __forceinline__ bool next(int tiles_m, int tiles_n, int iterations) {
    __syncthreads();  // shared memory is free for the next unit
    return find<BAND>(tiles_m, tiles_n, iterations);
  }
};
