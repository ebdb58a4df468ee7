// Tiles of groups that several blocks share, so that a large group does not keep a few blocks busy while the others
// wait. Only the device knows how many tiles there are, and how long. Every block counts them alike, so equal lengths
// of groups are cut alike, and give equal bits.
//
//   whole tiles, every block one at a time | a stretch for each block of the steps of k of all tiles that are left
//
// A cluster whose blocks have tiles beside each other (gemm/wgmma.cu) counts as one block.
//
// Where groups have one k, less than a wave is left. Where groups cut k itself, tiles have unequal steps, and all of
// them are left but those of empty groups, which have none. A block computes its stretch backwards:
//
//   block 0         block 1         block 2          the last block of a tile finishes it
//   [ tile 0   ......... ][ tile 1 .........  ]      1 leaves sums of tile 1 for 2, and then finishes tile 0
//
// So the sums that another block waits for come first, and a block waits, in the end, for those of lower numbers,
// which started before it.
#pragma once

#include "config.cuh"
#include "share/groups.cuh"
#include "share/partial_sums.cuh"
#include "share/sharing.cuh"

constexpr bool CUTS_TILES = RAGGED && MOST_PARTS > 1;
constexpr int MANY_STEPS = 1 << 30;  // a whole tile ends where its k does

// Of a group that cuts k.
__device__ __forceinline__ int steps_of(const Group& group) { return GroupWalk<BK>::lines_of(group); }

// The most steps that a tile of any group has. All lanes of a warp call it together.
__device__ __forceinline__ int most_steps(const Ragged& ragged) {
  int most = 1;
#pragma unroll 1
  for (int number = threadIdx.x % 32; number < ragged.groups; number += 32)
    most = max_of(most, steps_of(group_at(ragged, number)));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) most = max_of(most, __shfl_xor_sync(0xffffffffu, most, step));
  return most;
}

struct NoStretch {
  static constexpr int whole = 0, left = 0;
  static constexpr bool cuts = false;
  template <typename Walk>
  __device__ __forceinline__ NoStretch(Walk&, const Ragged&, int, int, int) {}
  __device__ __forceinline__ static int last() { return 0; }
  __device__ __forceinline__ static void take(int, int, int, WorkUnit&) {}
};
struct BlockStretch {
  int whole;  // tiles
  bool cuts;  // where groups cut k: all tiles but those of empty groups, which are stored whole
  int each;   // steps of a stretch
  int begin, left;

  // A tile is in MOST_PARTS stretches, or one more if these begin inside it.
  template <typename Walk>
  __device__ __forceinline__ BlockStretch(Walk& walk, const Ragged& ragged, int K, int block, int blocks) {
    // Tiles; where groups cut k, steps. `uncut`: the steps of the busiest block at most if tiles are whole.
    int all = walk.count(), longest, uncut;
    if constexpr (RAGGED == RAGGED_K) {
      longest = most_steps(ragged), whole = ragged.groups * walk.across;
      uncut = min_of(ceil_div(whole, blocks) * longest, ceil_div(walk.across, blocks) * (all / walk.across));
    } else {
      longest = max_of(1, ceil_div(K, BK)), whole = all - all % blocks;
      // the blocks of an SM take turns, so a tile alone there takes as long as its steps shared by all of them
      uncut = ceil_div((all - whole) * TOGETHER, blocks) * longest / TOGETHER;
      all = (all - whole) * longest;
    }
    each = max_of(ceil_div(all, blocks), max_of(LEAST_STEPS, ceil_div(longest, MOST_PARTS)));
    const bool pays = K > 0 && each + LEAST_STEPS <= uncut;  // to hand sums on takes as long as LEAST_STEPS
    if constexpr (RAGGED == RAGGED_K) {
      cuts = pays;
      if (!cuts) all = 0;
    } else if (!pays) {
      each = longest;
    }
    const bool has = block < ceil_div(all, each);
    begin = has ? block * each : 0, left = has ? min_of(each, all - begin) : 0;
  }
  __device__ __forceinline__ int last() const { return begin + left - 1; }
  // The part of the tile with `steps` steps from `first` on that is in the stretch.
  __device__ __forceinline__ void take(int block, int first, int steps, WorkUnit& unit) {
    unit.k_begin = max_of(0, begin - first), unit.k_end = begin + left - first;
    left -= unit.k_end - unit.k_begin;
    unit.slot = quotient(first, each);  // the first block
    unit.peer = block - unit.slot, unit.peers = quotient(first + steps - 1, each) - unit.slot + 1;
  }
};
using StretchOfSteps = Choose<CUTS_TILES, BlockStretch, NoStretch>::Type;

// The steps of k of a tile that a unit computes, up to an end that is kept elsewhere.
struct PartOfK {
  int begin, peer, peers, slot;
  __device__ __forceinline__ bool finishes() const { return peer + 1 == peers; }
};

// Leave the sums of a part for the last one, or add those of the others to the last one's, along k. Returns whether
// the tile is complete. All threads that have sums call it together. The tile's peers have slots from `unit.slot` on.
template <int THREADS, typename Part, typename Sum, int ROWS, int COLS>
__device__ __forceinline__ bool join_parts(const Workspace& workspace, const Part& unit,
                                           Sum (&sums)[ROWS][COLS]) {
  if (unit.peers == 1) return true;
  const auto slot_of = [&](int peer) { return (unit.slot + peer) * CLUSTER + blockIdx.x % CLUSTER; };
  const auto all = [](int) { return true; };
  int* const flag = workspace.flags + slot_of(unit.peers - 1);
  if (unit.peer + 1 < unit.peers) {
    if constexpr (SUMS_BY_EIGHTS)
      SlotOfEights<THREADS, Sum, ROWS, COLS>(workspace.slots, slot_of(unit.peer)).leave(sums);
    else each_piece<THREADS>(workspace.slots, slot_of(unit.peer), sums, all, LeavePiece<Sum>());
    raise_flag(flag);
    return false;
  }
  wait_for_flag(flag, unit.peer);
  reset_flag(flag);
#pragma unroll 1
  for (int peer = 0; peer < unit.peer; ++peer) {
    if constexpr (SUMS_BY_EIGHTS)
      SlotOfEights<THREADS, Sum, ROWS, COLS>(workspace.slots, slot_of(peer)).add_to(sums);
    else each_piece<THREADS>(workspace.slots, slot_of(peer), sums, all, AddPiece<Sum>());
  }
  return true;
}
