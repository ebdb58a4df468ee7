// The last tiles of a grouped product, where fewer are left than there are clusters of blocks. Each is cut along k
// into parts, so that a large group does not keep a few blocks busy while the others wait. Only the device knows
// how many tiles there are. Every cluster counts them alike, so equal lengths of groups are cut alike, and give equal bits.
//
//   whole tiles, every cluster one at a time | ... | part 0 of all tiles that are left, part 1 of all, ...
//
// A part but the last leaves its sums in the workspace and raises the tile's flag. The last one waits for the others,
// adds their sums in the order of k, and finishes the tile. So it waits for clusters of lower numbers, which have started before.
#pragma once

#include "config.cuh"
#include "share/groups.cuh"
#include "share/sharing.cuh"

constexpr bool CUTS_TILES = MOST_PARTS > 1;
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
using StretchOfK = Choose<CUTS_TILES, PartOfK, WholeOfK>::Type;

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
