// Schedules: which part of which tile a block computes, in which order, and which blocks it waits for.
//
// The functions are those of lapidist/schedule/units.py, which explains them. The host passes Schedule as a
// kernel parameter (device_words(schedule), in the order of the members here). A kernel's outer loop:
//
//   Walk walk = schedule.walk(blockIdx.x);
//   WorkUnit unit;
//   while (schedule.next(walk, unit)) {
//     compute iterations unit.k_begin .. unit.k_end of tile (unit.row, unit.column) of unit.batch;    no fragment: k is [0, 0)
//     if (unit.peers > 1) hand on the sum or add another one, see "partial sums" below;
//     if (schedule.finishes(unit)) epilogue;
//     __syncthreads();                                    shared memory is free for the next unit
//   }
//
// Partial sums. The workspace has an int flag for each shared tile, zero between launches, then slots of one
// tile of accumulators each. wait = wait_for_flag(flags + unit.flag, schedule.arrivals_needed(unit)); sums
// pass through slot unit.slot.
//   turnstile   wait; first peer: slot = sum; middle: slot += sum; both raise the flag. Last: reset the flag,
//               sum += slot, epilogue
//   atomic      the same, but the middle peers wait for the first one only and add with atomicAdd, in any
//               order
//   separate    each peer: slot = sum, raise flags unit.flag .. + fragments. Reduction block (fragment >= 0):
//               wait, reset its flag, sum fragment `fragment` of slots peer_slot(unit, 0 .. peers - 1),
//               epilogue for that fragment
#pragma once

#include "config.cuh"
#include "share/half_of_tiles.cuh"

enum Reduction {
  REDUCTION_NONE,
  REDUCTION_ATOMIC,
  REDUCTION_TURNSTILE,
  REDUCTION_SEPARATE,
  REDUCTION_CLUSTER
};

// Iterations k_begin .. k_end of one tile, as peer number `peer` of the `peers` blocks that share it, counted
// along k.
struct WorkUnit {
  int tile, row, column, batch, k_begin, k_end, peer, peers;
  int slot, flag;  // -1: none is needed
  int fragment;    // of a reduction block, else -1
  __device__ __forceinline__ bool first() const { return peer == 0; }
  __device__ __forceinline__ bool last() const { return peer == peers - 1 && fragment < 0; }
};

// The rest of a block's work: `count` whole tiles at, at + wave, ... below `end`; or iterations at .. end of
// block `number` of a region; or one fragment of a reduction.
struct Walk {
  enum Kind { NOTHING, WHOLE, SHARED, REDUCE } kind;
  int at, end, count, region, number;
  __device__ __forceinline__ static Walk none() { return Walk{NOTHING, 0, 0, 0, 0, 0}; }
};

// Division by a number that the host knows; divisors.py says why it is exact.
struct Divisor {
  unsigned factor, shift;
  __device__ __forceinline__ int of(int whole) const {
    return static_cast<int>(static_cast<unsigned long long>(static_cast<unsigned>(whole)) * factor >> shift);
  }
};

struct Schedule {
  int tiles_m, tiles_n, iterations;
  int along_m, panel, chunk;
  int sk_tiles, sk_blocks, regions, big_blocks, normal_iterations;
  int dp_tiles, dp_blocks, dp_first, first_wave_tiles, wave;
  int reduction, fragments, remap;
  int blocks;  // a persistent block does the work of block blockIdx.x, then of every gridDim.x-th below `blocks`
  Divisor by_regions, by_region_tiles, by_region_blocks, by_iterations, by_big, by_normal, by_fragments;
  Divisor by_matrix, by_panel, by_chunk, by_last_chunk, by_width, by_last_width;

  __device__ __forceinline__ int block_of_launch(int index) const {
    if (reduction == REDUCTION_CLUSTER && sk_blocks > 0) {
      const int group = by_region_blocks.of(index);
      return (index - group * by_regions.of(sk_blocks)) * regions + group;
    }
    return remap && index < 2 * wave ? index / 2 + index % 2 * wave : index;
  }

  __device__ __forceinline__ Walk walk(int launch_index) const {
    const int block = block_of_launch(launch_index);
    const int shared = block - (dp_first ? dp_blocks : 0), whole = block - (dp_first ? 0 : sk_blocks);
    const int reduce = block - sk_blocks - dp_blocks;
    if (shared >= 0 && shared < sk_blocks) return shared_walk(shared);
    if (whole >= 0 && whole < dp_blocks) return whole_walk(whole);
    if (reduce >= 0 && reduce < reduction_blocks()) return Walk{Walk::REDUCE, reduce, 0, 1, 0, 0};
    return Walk::none();
  }

  __device__ __forceinline__ bool next(Walk& walk, WorkUnit& unit) const {
    const bool found = walk.kind == Walk::WHOLE ? next_whole(walk, unit)
                       : walk.kind == Walk::SHARED
                           ? next_shared(walk, unit)
                           : WALK_OF_REDUCTION && walk.kind == Walk::REDUCE && next_reduction(walk, unit);
    if (found) locate(unit);  // here, so that its code stands once
    return found;
  }

  // How often the flag must have been raised before the unit's sum may be handed on or finished.
  __device__ __forceinline__ int arrivals_needed(const WorkUnit& unit) const {
    if (unit.fragment >= 0) return unit.peers;
    if (reduction == REDUCTION_SEPARATE || reduction == REDUCTION_CLUSTER || unit.peers == 1) return 0;
    return reduction == REDUCTION_ATOMIC && !unit.last() ? (unit.peer > 0) : unit.peer;
  }

  __device__ __forceinline__ bool finishes(const WorkUnit& unit) const {
    return unit.fragment >= 0 || unit.peers == 1 || reduction == REDUCTION_CLUSTER ||
           (unit.last() && reduction != REDUCTION_SEPARATE);
  }

  __device__ __forceinline__ int peer_slot(const WorkUnit& unit, int peer) const {
    return peer == 0 ? unit.slot : (unit.slot / slots_per_block() + peer) * slots_per_block();
  }

  // ---- from block to units ----

  __device__ __forceinline__ Walk whole_walk(int block) const {
    const int skipped = block < wave ? 0 : (first_wave_tiles - 1) * wave;
    return Walk{Walk::WHOLE, block + skipped, dp_tiles, block < wave ? first_wave_tiles : 1, 0, 0};
  }

  __device__ __forceinline__ bool next_whole(Walk& walk, WorkUnit& unit) const {
    if (walk.count-- <= 0 || walk.at >= walk.end) return false;
    unit = of_tile(walk.at + (dp_first ? 0 : sk_tiles), 0, iterations);
    walk.at += wave;
    return true;
  }

  __device__ __forceinline__ Walk shared_walk(int block) const {
    const int number = by_regions.of(block);
    const int begin = number * normal_iterations + (number < big_blocks ? number : big_blocks);
    return Walk{
        Walk::SHARED, begin, begin + normal_iterations + (number < big_blocks), 0, block - number * regions,
        number};
  }

  // Backwards: first the tile that another block finishes, last the one that this block finishes.
  __device__ __forceinline__ bool next_shared(Walk& walk, WorkUnit& unit) const {
    if (walk.end <= walk.at) return false;
    const int within = by_iterations.of(walk.end - 1), tile_begin = within * iterations;
    const int start = walk.at > tile_begin ? walk.at : tile_begin;
    const int first = owner(tile_begin), last = owner(tile_begin + iterations - 1);
    const int tile = walk.region * by_regions.of(sk_tiles) + within;
    const int region_block = walk.region * by_regions.of(sk_blocks);
    unit = of_tile((dp_first ? dp_tiles : 0) + tile, start - tile_begin, walk.end - tile_begin);
    walk.end = start;
    if (last == first) return true;
    unit.peer = walk.number - first;
    unit.peers = last - first + 1;
    if (reduction == REDUCTION_CLUSTER) return true;
    if (reduction == REDUCTION_SEPARATE) {
      unit.slot = slot_of(region_block + walk.number, unit.peer);
      unit.flag = tile * fragments;
    } else {
      unit.slot = unit.flag = sk_blocks < sk_tiles ? region_block + first : tile;
    }
    return true;
  }

  __device__ __forceinline__ bool next_reduction(Walk& walk, WorkUnit& unit) const {
    const int tile = by_fragments.of(walk.at), region = by_region_tiles.of(tile),
              within = tile - region * by_regions.of(sk_tiles);
    const int first = owner(within * iterations), last = owner(within * iterations + iterations - 1);
    if (walk.count-- <= 0 || last == first) return false;
    unit = of_tile((dp_first ? dp_tiles : 0) + tile, 0, 0);
    unit.peers = last - first + 1;
    unit.slot = slot_of(region * by_regions.of(sk_blocks) + first, 0);
    unit.flag = walk.at;
    unit.fragment = walk.at - tile * fragments;
    return true;
  }

  // ---- parts ----

  __device__ __forceinline__ int reduction_blocks() const {
    const bool shares = big_blocks > 0 || (iterations > 0 && normal_iterations % iterations != 0);
    return reduction == REDUCTION_SEPARATE && shares ? sk_tiles * fragments : 0;
  }

  // The block of a region that computes this iteration; the first `big_blocks` have one more than the others.
  __device__ __forceinline__ int owner(int iteration) const {
    const int in_big = big_blocks * (normal_iterations + 1);
    return iteration < in_big ? by_big.of(iteration) : big_blocks + by_normal.of(iteration - in_big);
  }

  __device__ __forceinline__ int slots_per_block() const { return regions == sk_tiles ? 1 : 2; }

  __device__ __forceinline__ int slot_of(int shared_block, int peer) const {
    return shared_block * slots_per_block() + (peer == 0 && slots_per_block() == 2);
  }

  __device__ __forceinline__ WorkUnit make(int tile, int k_begin, int k_end) const {
    WorkUnit unit = of_tile(tile, k_begin, k_end);
    locate(unit);
    return unit;
  }
  __device__ __forceinline__ static WorkUnit of_tile(int tile, int k_begin, int k_end) {
    return WorkUnit{tile, 0, 0, 0, k_begin, k_end, 0, 1, -1, -1, -1};
  }
  __device__ __forceinline__ void locate(WorkUnit& unit) const {
    unit.batch = by_matrix.of(unit.tile);
    const HalfOfTiles half(panel);
    const int of_matrix = TRIANGLE ? half.count(tiles_m, tiles_n) : tiles_m * tiles_n;
    const int index = unit.tile - unit.batch * of_matrix;
    if constexpr (TRIANGLE > 0) half.place(index, tiles_m, tiles_n, unit.row, unit.column);
    else place(index, unit.row, unit.column);
  }

  // Panels of `panel` lines, walked `chunk` steps at a time; the last ones may be smaller.
  __device__ __forceinline__ void place(int index, int& row, int& column) const {
    const int lines = along_m ? tiles_n : tiles_m, steps = along_m ? tiles_m : tiles_n;
    // A panel is cut to the lines that exist: the order is the same, and panel * steps cannot overflow.
    const int deep = panel < lines ? panel : lines, wide = chunk < steps ? chunk : steps;
    const int panel_index = by_panel.of(index), in_panel = index - panel_index * deep * steps;
    const int below = lines - panel_index * deep, height = deep < below ? deep : below;
    const int chunk_index = (below <= deep ? by_last_chunk : by_chunk).of(in_panel);
    const int in_chunk = in_panel - chunk_index * height * wide, beside = steps - chunk_index * wide;
    const int down = (beside <= wide ? by_last_width : by_width).of(in_chunk);
    const int line = panel_index * deep + down,
              step = chunk_index * wide + in_chunk - down * (wide < beside ? wide : beside);
    row = along_m ? step : line;
    column = along_m ? line : step;
  }
};

#include "share/flags.cuh"
