// The units of a block, by the product that they are of: the whole one, or a group of a grouped product, of which
// each unit is a tile, or a part of the k of one (share/stretches.cuh).
//
// The FIXED_PARTS parts of a tile are units one after another of one block, which keeps their sums in the workspace:
//
//   unit   part 0: slot = sums | part 1: slot += sums | ... | the last one: sums += slot, epilogue
#pragma once

#include "config.cuh"
#include "share/groups.cuh"
#include "share/sharing.cuh"
#include "share/stretches.cuh"

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

// A tile of a group, or a part of its k.
struct UnitOfGroup {
  WorkUnit unit = {0, 0, 0, 0, 0, 0, 0, 1, -1, -1, -1};
  Group group = {};
};
struct TileOfGroup : UnitOfGroup {
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

  // Blocks have all rows of a tile.
  __device__ __forceinline__ bool ends_tile() const {
    return (!CUTS_TILES && FIXED_PARTS == 1) || unit.last();
  }
  __device__ __forceinline__ bool owns_row(int) const { return true; }
  template <int ROWS>
  __device__ __forceinline__ unsigned owned_rows() const {
    return (1u << ROWS) - 1;
  }
  template <int THREADS, typename Sum, int ROWS, int COLS>
  __device__ __forceinline__ bool combine(const Workspace& workspace, void*, Sum (&sums)[ROWS][COLS]) const {
    if constexpr (FIXED_PARTS > 1) return add_part<THREADS>(workspace, unit, sums);
    else return !CUTS_TILES || join_parts<THREADS>(workspace, unit, sums);
  }
};

// Finds the units of a block, or of a cluster that counts as one. All lanes of a warp call it together. DOWN x ALONG:
// elements of a tile, or of a cluster's tiles.
template <typename Unit, int DOWN, int ALONG>
struct UnitsOfGroups : Unit {
  using Unit::group;
  using Unit::unit;
  const Ragged& ragged;
  GroupWalk<CUTS_TILES && RAGGED == RAGGED_K ? BK : RAGGED == RAGGED_COLS ? ALONG : DOWN> walk;
  int at = block();  // among the tiles of all groups
  const int K;
  StretchOfSteps stretch;

  __device__ __forceinline__ UnitsOfGroups(const Ragged& ragged, int M, int N, int K)
      : ragged(ragged), walk(ragged, across(M, N)), K(K), stretch(walk, ragged, K, block(), blocks()) {}
  __device__ __forceinline__ static int block() { return blockIdx.x / CLUSTER; }
  __device__ __forceinline__ static int blocks() { return gridDim.x / CLUSTER; }
  // Tiles beside each other, of one line of tiles. Where steps of k are found: of each of them.
  __device__ __forceinline__ static int across(int M, int N) {
    const int down = ceil_div(M, DOWN), along = ceil_div(N, ALONG);
    return CUTS_TILES && RAGGED == RAGGED_K ? down * along : RAGGED == RAGGED_COLS ? down : along;
  }

  // The group of tile `number`, and the tile's number there.
  __device__ __forceinline__ bool find_tile(int number, int of_matrix, int& tile) {
    if constexpr (RAGGED == RAGGED_K) {
      const int matrix = number / of_matrix;
      if (matrix >= ragged.groups) return false;
      group = group_at(ragged, matrix), tile = number - matrix * of_matrix;
      return true;
    } else {
      if (CUTS_TILES && number < walk.before) walk.begin_anew();
      return walk.find(number, group, tile);
    }
  }
  // The next whole tile.
  __device__ __forceinline__ bool find_whole(int of_matrix, int& tile) {
    if constexpr (!CUTS_TILES) {
      if (!find_tile(at, of_matrix, tile)) return false;
      at += blocks();
      return true;
    } else {
#pragma unroll 1
      while (at < stretch.whole) {
        find_tile(at, of_matrix, tile);
        at += blocks();
        if (RAGGED != RAGGED_K || !stretch.cuts || group.begin == group.end) return true;
      }
      return false;
    }
  }
  // The part of a tile that comes next in the stretch.
  __device__ __forceinline__ void find_part(int of_matrix, int& tile) {
    const int last = stretch.last();
    int steps, first;  // the tile's, of those that are left
    if constexpr (RAGGED == RAGGED_K) {
      if (last < walk.before) walk.begin_anew();
      int step;
      walk.find(last, group, step);
      steps = steps_of(group), tile = quotient(step, steps), first = last - (step - tile * steps);
    } else {
      steps = max_of(1, ceil_div(K, BK));
      const int number = quotient(last, steps);
      first = number * steps;
      find_tile(stretch.whole + number, of_matrix, tile);
    }
    stretch.take(block(), first, steps, unit);
  }
  __device__ __forceinline__ bool find_unit(int of_matrix, int& tile) {
    if (find_whole(of_matrix, tile)) {
      if constexpr (FIXED_PARTS == 1)
        unit.k_begin = 0, unit.k_end = MANY_STEPS, unit.peer = 0, unit.peers = 1;
      return true;
    }
    if (stretch.left == 0) return false;
    find_part(of_matrix, tile);
    return true;
  }
};

// Finds the tiles of a block, and where each lies.
struct FoundGroupTiles : UnitsOfGroups<TileOfGroup, BM, BN> {
  using UnitsOfGroups::UnitsOfGroups;

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
    if (!find_unit(tiles_m * tiles_n, tile)) return false;
    const int extent = group.end - group.begin,
              lines = RAGGED == RAGGED_ROWS ? ceil_div(extent, BM) : tiles_m,
              steps = RAGGED == RAGGED_COLS ? ceil_div(extent, BN) : tiles_n;
    place_in_band(tile, lines, steps, BAND, unit.row, unit.column);
    unit.batch = group.number;
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
