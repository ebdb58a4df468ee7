// The tiles of a grouped product (share/groups.cuh) for gemm/wgmma.cu. A warp of the producer finds them, a group
// in 32 at a time, and hands them to the other warps in a queue. So the consumers, which have no register to
// spare, neither search nor wait for the ends of groups; nor do loads wait for the next tile.
//
// A group may end inside a tile. Boxes of TMA then end with it: what lies behind is neither loaded nor stored.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/addend_of_tile.cuh"
#include "share/clipped_lines.cuh"
#include "share/cut_tiles.cuh"
#include "share/grouped_work.cuh"
#include "share/unit_queue.cuh"

constexpr bool D_CLIPPED = RAGGED == RAGGED_ROWS || RAGGED == RAGGED_COLS;
static_assert(!A_CLIPPED || A_M_MAJOR == (RAGGED == RAGGED_K), "the lines of A's map are what is ragged");
static_assert(!B_CLIPPED || B_N_MAJOR == (RAGGED == RAGGED_K), "the lines of B's map are");
static_assert(!D_CLIPPED || !D_COPY_ENGINE || D_M_MAJOR == (RAGGED == RAGGED_COLS),
              "the lines of D's map are");
// More rows than any tile has: no tile of a ragged operand holds all of them.
constexpr int MANY_LINES = 1 << 30;

// Store a box of D, whose lines end at `end` where groups do.
__device__ __forceinline__ void store_box(const TensorMap* map, int x, int line, int inner, int outer,
                                          int end, const void* from) {
  if constexpr (D_CLIPPED) {
    const ClippedLine at(line, end);
    tma_store(map, x, at.line, at.shift, CLIPPED_SHIFT, from);
  } else if constexpr (D_STREAMS) {
    tma_store_once(map, x, line, inner, outer, from);
  } else {
    tma_store(map, x, line, inner, outer, from);
  }
}

// What a block computes after a tile. Patches of a tile are held for a tile of as many steps: a part, or a tile of
// a shorter group, may end before all of them are stored.
enum { AS_MANY_STEPS_FOLLOW, OTHER_STEPS_FOLLOW, NOTHING_FOLLOWS };

struct WholeOfK {
  static constexpr int begin = 0;
  __device__ __forceinline__ static bool finishes() { return true; }
};
using StretchOfK = Choose<CUTS_TILES, PartOfK, Choose<CUTS_ALIKE, FixedPartOfK, WholeOfK>::Type>::Type;

// One tile, or a part of its k: its first row, column and k; its group, and where that ends; steps along k.
struct GroupedTile : StretchOfK {
  int row, col, inner, first_k, limit, end, follows;
  static constexpr int outer = 0;
};
using TileQueue = QueueOf<GroupedTile>;

// A warp's position among them. The kernel makes one before producer and consumers part, and none of them walks
// with it.
struct GroupedTiles : GroupedTile {
  __device__ __forceinline__ GroupedTiles() { follows = AS_MANY_STEPS_FOLLOW; }
  template <typename Extents, typename Order>
  __device__ __forceinline__ GroupedTiles(const Extents&, const Schedule&, const Order&) : GroupedTiles() {}
  template <typename Extents>
  __device__ __forceinline__ bool next(const Extents&, int) {
    return false;
  }
  __device__ __forceinline__ bool last() const { return follows != AS_MANY_STEPS_FOLLOW; }
  template <int Threads, int Rows, int Count>
  __device__ __forceinline__ bool combine(const Workspace& workspace, void*, Sum (&sums)[Rows][Count]) const {
    if constexpr (CUTS_TILES) return join_parts<Threads>(workspace, *this, sums);
    else return true;
  }
};

// Tiles of clusters that D has down and along.
template <typename Extents>
__device__ __forceinline__ int down(const Extents& e) {
  return ceil_div(e.M, BM * CLUSTER_M);
}
template <typename Extents>
__device__ __forceinline__ int along(const Extents& e) {
  return ceil_div(e.N, BN * CLUSTER_N);
}

// A cluster's units are whole tiles, and then shares of the last ones; or the fixed parts of these.
struct EvenUnits {
  const Ragged& ragged;
  GroupWalk<RAGGED == RAGGED_COLS ? BN * CLUSTER_N : BM * CLUSTER_M> walk;
  int at = blockIdx.x / CLUSTER;  // among the tiles of clusters, or their shares
  int done = 0, number, part;     // fixed parts of that tile, or of its share; the present tile, and its part
  CutTiles cut;
  Group group;

  template <typename Extents>
  __device__ __forceinline__ EvenUnits(const Ragged& ragged, const Extents& e)
      : ragged(ragged),
        walk(ragged, RAGGED == RAGGED_COLS ? down(e) : along(e)),
        cut(RAGGED == RAGGED_K ? ragged.groups * down(e) * along(e) : walk.count(), gridDim.x / CLUSTER,
            ceil_div(e.K, BK)) {
    if (RAGGED != RAGGED_K) walk.begin_at(cut.first_of(at));
  }
  __device__ __forceinline__ bool find(int each, int& tile, int& follows) {
    if (at >= cut.units()) return false;
    number = cut.tile_of(at, part);
    if (FIXED_PARTS > 1) done = cut.next_part(number, part, done);
    if (FIXED_PARTS == 1 || done == 0) at += gridDim.x / CLUSTER;
    bool as_many = !cut.is_share(at);
    if constexpr (RAGGED == RAGGED_K) {
      const int of = quotient(number, each);
      group = group_at(ragged, of), tile = number - of * each;
      as_many = at < (of + 1) * each;
    } else {
      walk.find(number, group, tile);
    }
    follows = at >= cut.units() ? NOTHING_FOLLOWS : as_many ? AS_MANY_STEPS_FOLLOW : OTHER_STEPS_FOLLOW;
    return true;
  }
  __device__ __forceinline__ void take(WholeOfK&, int&) const {}
  __device__ __forceinline__ void take(PartOfK& of, int& end) const {
    take_share(cut, number, part, of, end);
  }
  __device__ __forceinline__ void take(FixedPartOfK& of, int& end) const { of.take(cut, number, part, end); }
};

// Where groups cut k, stretches of all tiles (share/stretches.cuh). Of rows they were slower than shares: blocks at
// different places of k find less of each other's operands in the L2.
struct StretchedUnits : UnitsOfGroups<UnitOfGroup, BM * CLUSTER_M, BN * CLUSTER_N> {
  template <typename Extents>
  __device__ __forceinline__ StretchedUnits(const Ragged& ragged, const Extents& e)
      : UnitsOfGroups(ragged, e.M, e.N, e.K) {}
  __device__ __forceinline__ bool find(int each, int& tile, int& follows) {
    if (!find_unit(each, tile)) return false;
    const bool as_many = !stretch.cuts && at < (group.number + 1) * each;
    // Where tiles are cut, whole ones may follow: those of empty groups, which are not counted.
    follows = at >= stretch.whole && stretch.left == 0 ? NOTHING_FOLLOWS
              : as_many && at < stretch.whole          ? AS_MANY_STEPS_FOLLOW
                                                       : OTHER_STEPS_FOLLOW;
    return true;
  }
  __device__ __forceinline__ void take(PartOfK& of, int& end) const {
    of.begin = unit.k_begin, end = min_of(end, unit.k_end);
    of.peer = unit.peer, of.peers = unit.peers, of.slot = unit.slot;
  }
};

// The finder's side: all lanes of one warp find a tile, and the first one publishes it. A block knows how many
// tiles there are from the start, so consumers learn which tile is their last.
struct FoundTiles : GroupedTiles {
  TileQueue& queue;
  Turn turn;
  Choose<CUTS_TILES && RAGGED == RAGGED_K, StretchedUnits, EvenUnits>::Type units;

  template <typename Extents>
  __device__ __forceinline__ FoundTiles(const Ragged& ragged, const Extents& e, TileQueue& queue)
      : queue(queue), units(ragged, e) {}

  template <typename Extents>
  __device__ __forceinline__ bool find(const Extents& e, int rank) {
    int tile, height = down(e), width = along(e);
    if (!units.find(RAGGED == RAGGED_K ? height * width : 0, tile, follows)) return false;
    Group group = units.group;
    if (RAGGED == RAGGED_K && e.K == 0) group.end = group.begin;  // alpha = 0: nothing is read
    const int extent = group.end - group.begin;
    if (RAGGED == RAGGED_ROWS) height = ceil_div(extent, BM * CLUSTER_M);
    if (RAGGED == RAGGED_COLS) width = ceil_div(extent, BN * CLUSTER_N);
    int line, step;
    place_in_band(tile, ALONG_M ? width : height, ALONG_M ? height : width, RASTER, line, step);
    row = ((ALONG_M ? step : line) * CLUSTER_M + rank % CLUSTER_M) * BM;
    col = ((ALONG_M ? line : step) * CLUSTER_N + rank / CLUSTER_M) * BN;
    if (RAGGED == RAGGED_ROWS) row += group.begin;
    if (RAGGED == RAGGED_COLS) col += group.begin;
    inner = group.number, limit = group.end;
    first_k = RAGGED == RAGGED_K ? group.begin : 0;
    // of an empty group: one step of zeros from behind its end
    end = max_of(1, ceil_div(RAGGED == RAGGED_K ? extent : e.K, BK));
    units.take(*this, end);
    return true;
  }

  template <typename Extents>
  __device__ __forceinline__ bool next(const Extents& e, int rank) {
    if (follows == NOTHING_FOLLOWS) return false;
    const bool found = find(e, rank);
    if (threadIdx.x % 32 == 0) publish(queue, turn, static_cast<const GroupedTile&>(*this), found);
    return found;
  }
};

// The others' side: warps that multiply, or load factors. `Alone`: one thread of each warp that loads.
template <bool Alone = false>
struct ReceivedTiles : GroupedTiles {
  TileQueue& queue;
  Turn turn;
  __device__ __forceinline__ explicit ReceivedTiles(TileQueue& queue) : queue(queue) {}
  template <typename Extents>
  __device__ __forceinline__ bool next(const Extents&, int) {
    return follows != NOTHING_FOLLOWS && receive<Alone>(queue, turn, static_cast<GroupedTile&>(*this));
  }
};
