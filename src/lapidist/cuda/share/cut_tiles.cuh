// Tiles of groups of rows or columns whose k is cut (gemm/wgmma/grouped_tiles.cuh). Where groups cut k itself:
// share/stretches.cuh, which also adds the sums of parts.
//
// The last tiles, where fewer are left than there are clusters of blocks, are shared: a large group does not keep a few
// blocks busy while the others wait. Only the device knows how many tiles there are. Every cluster counts them alike,
// so equal lengths of groups are cut alike, and give equal bits.
//
//   whole tiles, every cluster one at a time | ... | share 0 of all tiles that are left, share 1 of all, ...
//
// The last share of a tile waits for the others, adds their sums, and finishes the tile. So it waits for clusters of
// lower numbers, which have started before.
//
// MOST_PARTS    the shares are the parts: as many as there are blocks for
// FIXED_PARTS   every tile is cut at the same places, those of a product of one group. A block computes its parts one
//               after another. The last share has the first ones, to which it adds the others in the order of k
#pragma once

#include "config.cuh"
#include "share/groups.cuh"
#include "share/partial_sums.cuh"
#include "share/stretches.cuh"

constexpr bool SHARES_TILES = MOST_PARTS > 1 && RAGGED != RAGGED_K, CUTS_ALIKE = FIXED_PARTS > 1;
static_assert(!SHARES_TILES || !CUTS_ALIKE, "the device decides where k is cut, or the host");
static_assert(!(SHARES_TILES || CUTS_ALIKE) || !PING_PONG,
              "who shares a tile meets at barriers of all consumers");

// Which tiles are shared, by how many blocks. A cluster's units are whole tiles, and then a share.
struct CutTiles {
  int whole, left = 0, shares = 1;

  // `steps`: of k.
  __device__ __forceinline__ CutTiles(int tiles, int clusters, int steps) : whole(tiles) {
    if (!SHARES_TILES && !CUTS_ALIKE) return;
    whole = tiles - tiles % clusters, left = tiles - whole;
    if (CUTS_ALIKE) {
      for (shares = FIXED_PARTS; left * shares > clusters || FIXED_PARTS % shares > 0;) --shares;
    } else if (left > 0) {
      shares = min_of(floor_div(clusters, left), min_of(MOST_PARTS, max_of(1, steps / LEAST_STEPS)));
    }
  }
  __device__ __forceinline__ int units() const { return whole + left * shares; }
  __device__ __forceinline__ bool is_share(int unit) const { return shares > 1 && unit >= whole; }
  __device__ __forceinline__ int shares_of(int tile) const { return tile < whole ? 1 : shares; }
  // The tile of a cluster's first unit.
  __device__ __forceinline__ int first_of(int cluster) const {
    return whole > 0 || left == 0 ? cluster : cluster % left;
  }
  // The tile of a unit, and the share of it.
  __device__ __forceinline__ int tile_of(int unit, int& share) const {
    share = is_share(unit) ? quotient(unit - whole, left) : 0;
    return unit - share * left;
  }
  // The fixed part behind `done` ones of a share, in place of the share. Returns how many are done then; 0: all of them.
  __device__ __forceinline__ int next_part(int tile, int& share, int done) const {
    const int own = FIXED_PARTS / shares_of(tile);
    share = (shares_of(tile) - 1 - share) * own + done;
    return done + 1 == own ? 0 : done + 1;
  }
};

// The part of a tile that a unit computes. `end`: the tile's steps of k, then those up to the end of the part.
__device__ __forceinline__ void take_share(const CutTiles& cut, int tile, int share, PartOfK& of, int& end) {
  of.peer = share, of.peers = cut.shares_of(tile), of.slot = (tile - cut.whole) * of.peers;
  of.begin = end * share / of.peers, end = end * (share + 1) / of.peers;
}
struct FixedPartOfK {
  int begin, part, left;  // parts of a tile are counted along k; the tile's number among those that are left
  int own;                // parts of each block
  __device__ __forceinline__ void take(const CutTiles& cut, int tile, int number, int& end) {
    const int steps = end;  // with alpha = 0 there is one, of zeros
    part = number, own = FIXED_PARTS / cut.shares_of(tile), left = tile - cut.whole;
    begin = min_of(begin_of_part(part, steps), steps - 1),
    end = max_of(begin_of_part(part + 1, steps), begin + 1);
  }
  __device__ __forceinline__ bool finishes() const { return part + 1 == own; }
};

// A thread's sums of the fixed parts before.
template <int Rows, int Count>
struct SumsOfParts {
  Sum at[Rows][Count];
  // Add those of a part, or leave them for the last share. Returns whether the tile is complete.
  template <int Threads>
  __device__ __forceinline__ bool add(const Workspace& workspace, const FixedPartOfK& now,
                                      const Sum (&sums)[Rows][Count]) {
    typedef SlotOfEights<Threads, Sum, Rows, Count> Slot;
    const int others = FIXED_PARTS - now.own, rank = blockIdx.x % CLUSTER;
    int* const flag = workspace.flags + now.left * CLUSTER + rank;
    const auto slot_of = [&](int part) { return (now.left * others + part) * CLUSTER + rank; };
    if (now.part >= now.own) {
      Slot(workspace.slots, slot_of(now.part - now.own)).leave(sums);
      if ((now.part + 1) % now.own == 0) raise_flag(flag);
      return false;
    }
#pragma unroll
    for (int i = 0; i < Rows * Count; ++i) {
      Sum& total = at[i / Count][i % Count];
      const Sum sum = sums[i / Count][i % Count];
      total = now.part > 0 ? total + sum : sum;  // added to zero, -0 would become +0
    }
    if (!now.finishes()) return false;
    if (others == 0) return true;
    wait_for_flag(flag, others / now.own);
    reset_flag(flag);
#pragma unroll 1
    for (int part = 0; part < others; ++part) Slot(workspace.slots, slot_of(part)).add_to(at);
    return true;
  }
};
