// The tiles of a grouped product (share/groups.cuh) for gemm/wgmma.cu. A warp of the producer finds them, a group
// in 32 at a time, and hands them to the other warps in a queue. So the consumers, which have no register to
// spare, neither search nor wait for the ends of groups; nor do loads wait for the next tile.
//
// A group may end inside a tile. Boxes of TMA then end with it: what lies behind is neither loaded nor stored.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/addend_of_tile.cuh"
#include "share/clipped_lines.cuh"
#include "share/groups.cuh"
#include "share/sharing.cuh"
#include "share/unit_queue.cuh"

// The last tiles of a grouped product, where fewer are left than there are clusters of blocks. Each is cut along k
// into parts, so that a large group does not keep a few blocks busy while the others wait. Only the device knows
// how many tiles there are. Every cluster counts them alike, so equal lengths of groups are cut alike, and give equal bits.
//
//   whole tiles, every cluster one at a time | ... | part 0 of all tiles that are left, part 1 of all, ...
//
// A part but the last leaves its sums in the workspace and raises the tile's flag. The last one waits for the others,
// adds their sums in the order of k, and finishes the tile. So it waits for clusters of lower numbers, which have started before.

constexpr bool CUTS_TILES = MOST_PARTS > 1;
static_assert(!CUTS_TILES || FIXED_PARTS == 1, "the device decides where k is cut, or the host");
static_assert(!CUTS_TILES || RAGGED == RAGGED_ROWS || RAGGED == RAGGED_COLS, "all groups have one k");
static_assert(!CUTS_TILES || !PING_PONG, "who shares a tile meets at barriers of all consumers");

// Which tiles are cut, in how many parts. A cluster's units are whole tiles, and then parts.
struct CutTiles {
  int whole, left = 0, parts = 1;

  // `steps`: of k.
  __device__ __forceinline__ CutTiles(int tiles, int clusters, int steps) : whole(tiles) {
    if (!CUTS_TILES) return;
    whole = tiles - tiles % clusters, left = tiles - whole;
    if (left > 0)
      parts = min_of(floor_div(clusters, left), min_of(MOST_PARTS, max_of(1, steps / LEAST_STEPS)));
  }
  __device__ __forceinline__ int units() const { return whole + left * parts; }
  __device__ __forceinline__ bool is_part(int unit) const { return parts > 1 && unit >= whole; }
  // The tile of a cluster's first unit.
  __device__ __forceinline__ int first_of(int cluster) const {
    return whole > 0 || left == 0 ? cluster : cluster % left;
  }
  // The tile of a unit, and the part of it.
  __device__ __forceinline__ int tile_of(int unit, int& part) const {
    part = is_part(unit) ? quotient(unit - whole, left) : 0;
    return unit - part * left;
  }
};

// The part of k of a tile that a unit computes. Parts of a tile are counted along k.
struct WholeOfK {
  static constexpr int begin = 0, part = 0, parts = 1;
  __device__ __forceinline__ void take(const CutTiles&, int, int, int&) {}
};
struct PartOfK {
  int begin, part, parts;
  int left;  // the tile's number among those that are left
  // `end`: the tile's steps of k, then those up to the end of its part.
  __device__ __forceinline__ void take(const CutTiles& cut, int tile, int number, int& end) {
    part = number, parts = tile < cut.whole ? 1 : cut.parts, left = tile - cut.whole;
    begin = end * part / parts, end = end * (part + 1) / parts;
  }
};
// All tiles are cut alike. A block computes the parts of a tile one after another, and threads
// keep the sums of those before in registers.
struct FixedPartOfK {
  int begin, part;
  static constexpr int parts = FIXED_PARTS;
  // With alpha = 0 there is one step, of zeros.
  __device__ __forceinline__ void take(const CutTiles&, int, int number, int& end) {
    const int steps = end;
    part = number, begin = min_of(begin_of_part(part, steps), steps - 1);
    end = max_of(begin_of_part(part + 1, steps), begin + 1);
  }
};
using StretchOfK = Choose<CUTS_TILES, PartOfK, Choose<(FIXED_PARTS > 1), FixedPartOfK, WholeOfK>::Type>::Type;
template <int Rows, int Count>
struct SumsOfParts {
  Sum at[Rows][Count];
  // Add those of a part. Returns whether the tile is complete.
  __device__ __forceinline__ bool add(const FixedPartOfK& own, const Sum (&sums)[Rows][Count]) {
#pragma unroll
    for (int i = 0; i < Rows * Count; ++i) {
      Sum& total = at[i / Count][i % Count];
      const Sum sum = sums[i / Count][i % Count];
      total = own.part > 0 ? total + sum : sum;
    }
    return own.part + 1 == FIXED_PARTS;
  }
};

// Leave the sums of a part for the last one, or add those of the others to the last one's. Returns whether the
// tile is complete. All consumers call it together.
template <int Threads, int Rows, int Count>
__device__ __forceinline__ bool join_parts(const Workspace& workspace, const PartOfK& own,
                                           Sum (&sums)[Rows][Count]) {
  if (own.parts == 1) return true;
  constexpr int EIGHTHS = Rows * Count / 8, SLOT = EIGHTHS * 2 * Threads;
  static_assert(Rows * Count == 8 * EIGHTHS, "all of a thread's sums are handed on");
  const int rank = blockIdx.x % CLUSTER;
  int* const flag = workspace.flags + own.left * CLUSTER + rank;
  // slots of a block's parts lie CLUSTER slots apart
  Piece<Sum>* slot = static_cast<Piece<Sum>*>(workspace.slots) + threadIdx.x +
                     static_cast<long long>(own.left * own.parts * CLUSTER + rank) * SLOT;
  if (own.part + 1 < own.parts) {
    slot += static_cast<long long>(own.part * CLUSTER) * SLOT;
#pragma unroll
    for (int i = 0; i < EIGHTHS; ++i) leave_eight<Threads>(&sums[0][0] + i * 8, slot + i * 2 * Threads);
    raise_flag(flag);
    return false;
  }
  wait_for_flag(flag, own.parts - 1);
  reset_flag(flag);
#pragma unroll 1
  for (int part = 0; part + 1 < own.parts; ++part, slot += CLUSTER * SLOT)
#pragma unroll
    for (int i = 0; i < EIGHTHS; ++i) add_eight<Threads>(&sums[0][0] + i * 8, slot + i * 2 * Threads);
  return true;
}

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
  } else {
    tma_store(map, x, line, inner, outer, from);
  }
}

// What a block computes after a tile. Patches of a tile are held for a tile of as many steps: a part, or a tile of
// a shorter group, may end before all of them are stored.
enum { AS_MANY_STEPS_FOLLOW, OTHER_STEPS_FOLLOW, NOTHING_FOLLOWS };

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
  __device__ __forceinline__ bool finishes() const { return part + 1 == parts; }
  template <int Threads, int Rows, int Count>
  __device__ __forceinline__ bool combine(const Workspace& workspace, void*, Sum (&sums)[Rows][Count]) const {
    if constexpr (CUTS_TILES) return join_parts<Threads>(workspace, *this, sums);
    else return true;
  }
};

// The finder's side: all lanes of one warp find a tile, and the first one publishes it. A block knows how many
// tiles there are from the start, so consumers learn which tile is their last.
struct FoundTiles : GroupedTiles {
  TileQueue& queue;
  const Ragged& ragged;
  Turn turn;
  GroupWalk<RAGGED == RAGGED_COLS ? BN * CLUSTER_N : BM * CLUSTER_M> walk;
  int at = blockIdx.x / CLUSTER;  // among the tiles of clusters, or their parts
  int next_part = 0;              // of fixed ones
  CutTiles cut;

  template <typename Extents>
  __device__ __forceinline__ FoundTiles(const Ragged& ragged, const Extents& e, TileQueue& queue)
      : queue(queue),
        ragged(ragged),
        walk(ragged, RAGGED == RAGGED_COLS ? down(e) : along(e)),
        cut(RAGGED == RAGGED_K ? ragged.groups * down(e) * along(e) : walk.count(), gridDim.x / CLUSTER,
            ceil_div(e.K, BK)) {
    if (RAGGED != RAGGED_K) walk.begin_at(cut.first_of(at));
  }

  template <typename Extents>
  __device__ __forceinline__ static int down(const Extents& e) {
    return ceil_div(e.M, BM * CLUSTER_M);
  }
  template <typename Extents>
  __device__ __forceinline__ static int along(const Extents& e) {
    return ceil_div(e.N, BN * CLUSTER_N);
  }

  template <typename Extents>
  __device__ __forceinline__ bool find(const Extents& e, int rank) {
    if (at >= cut.units()) return false;
    Group group;
    int tile, part, number = cut.tile_of(at, part), height = down(e), width = along(e);
    if (FIXED_PARTS > 1) part = next_part, next_part = next_part + 1 == FIXED_PARTS ? 0 : next_part + 1;
    if (FIXED_PARTS == 1 || next_part == 0) at += gridDim.x / CLUSTER;
    bool as_many = !cut.is_part(at);
    if constexpr (RAGGED == RAGGED_K) {
      const int each = height * width, of = quotient(number, each);
      group = group_at(ragged, of), tile = number - of * each;
      as_many = at < (of + 1) * each;
    } else {
      walk.find(number, group, tile);
    }
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
    take(cut, number, part, end);
    follows = at >= cut.units() ? NOTHING_FOLLOWS : as_many ? AS_MANY_STEPS_FOLLOW : OTHER_STEPS_FOLLOW;
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
