// Grouped products: matrices of a batch whose rows, columns or steps of k are stretches of one operand. Where a
// stretch ends lies in device memory, so the host need not know it (lapidist/problems/ragged.py).
//
//   RAGGED 1   rows of A, C and D           group g: [end of g - 1, end of g), with a B of its own
//   RAGGED 2   columns of B, C and D        the same of the transposed product
//   RAGGED 3   k: columns of A, rows of B   a D of its own
//
// Places stay those of the whole operand: a group's rows count from its first row in A. So a task of a group is
// a task of the whole product with another first row, and another last one.
#pragma once

#include "common.cuh"
#include "config.cuh"

enum { NOT_RAGGED, RAGGED_ROWS, RAGGED_COLS, RAGGED_K };

struct Ragged {
  const Index* ends;  // or, if `most` > 0, how many of each group's `most` there are
  int groups, total, most;
  i64 a_factors, b_factors;  // elements from the factors of a group to those of the next
};

#if RAGGED
#define RAGGED_PARAMETER , const __grid_constant__ Ragged ragged
#define RAGGED_PASSED ragged
#else
#define RAGGED_PARAMETER
#define RAGGED_PASSED Ragged()
#endif

// Where rows of groups shall have the bits that a product of one group gives them, and that cuts k, each tile is cut at
// the same places. Its parts are added in the order of k.
static_assert(FIXED_PARTS == 1 || RAGGED == RAGGED_ROWS || RAGGED == RAGGED_COLS, "all groups have one k");

// Where part `part` of a tile begins, of `steps` of k: as blocks of a schedule share them.
__device__ __forceinline__ int begin_of_part(int part, int steps) {
  return part * (steps / FIXED_PARTS) + min_of(part, steps % FIXED_PARTS);
}

// A stretch of the ragged extent. Ends that fall, or lie outside, give empty groups and shorter ones.
struct Group {
  int number, begin, end;
};

// The end of group `number`, or how many it has, inside [0, most].
__device__ __forceinline__ int end_of_group(const Ragged& ragged, int number, int most) {
  const long long end = ragged.ends[number];
  return static_cast<int>(end < 0 ? 0 : end < most ? end : most);
}
__device__ __forceinline__ Group group_at(const Ragged& ragged, int number) {
  if (ragged.most > 0) {
    const int begin = number * ragged.most;
    return {number, begin, begin + end_of_group(ragged, number, ragged.most)};
  }
  const int begin = number > 0 ? end_of_group(ragged, number - 1, ragged.total) : 0;
  return {number, begin, max_of(begin, end_of_group(ragged, number, ragged.total))};
}

// Finds the groups of tiles whose numbers rise. All lanes of a warp call it together: each looks at one group
// of 32, and a scan counts the tiles before it. Where groups cut k, it finds those of steps of tiles instead.
template <int Lines>
struct GroupWalk {
  const Ragged& ragged;
  const int across;                      // tiles of D beside each other, of one line of tiles
  int first = -32, before = 0, all = 0;  // the first group of these 32, tiles before it, tiles of the 32
  Group mine;
  int upto;  // tiles of the 32, up to the end of this lane's group

  __device__ __forceinline__ GroupWalk(const Ragged& ragged, int across) : ragged(ragged), across(across) {}

  __device__ __forceinline__ static int lines_of(const Group& group) {
    return ceil_div(group.end - group.begin, Lines);
  }
  __device__ __forceinline__ void look_at_next() {
    const int lane = threadIdx.x % 32;
    first += 32, before += all;
    mine = first + lane < ragged.groups ? group_at(ragged, first + lane) : Group{first + lane, 0, 0};
    upto = scanned(lines_of(mine) * across);
    all = __shfl_sync(0xffffffffu, upto, 31);
  }

  // The tiles of all groups. A lane takes neighbours, so that one latency of memory brings 256 of them to the
  // L1, where the walk finds them. `upto`: those up to the end of this lane's groups.
  static constexpr int NEIGHBOURS = 8;
  __device__ __forceinline__ int count() {
    int lines = 0;
#pragma unroll 1
    for (int first = threadIdx.x % 32 * NEIGHBOURS; first < ragged.groups; first += 32 * NEIGHBOURS) {
#pragma unroll
      for (int i = 0; i < NEIGHBOURS; ++i) {
        const Group group = group_at(ragged, min_of(first + i, ragged.groups - 1));
        if (first + i < ragged.groups) lines += lines_of(group);
      }
    }
    __syncwarp();
    upto = scanned(lines * across);
    return __shfl_sync(0xffffffffu, upto, 31);
  }
  // Begin with the first groups again, for a tile before those that were found.
  __device__ __forceinline__ void begin_anew() { first = -32, before = 0, all = 0; }
  // Begin with the 32 groups that tile `at` is among, behind count().
  __device__ __forceinline__ void begin_at(int at) {
    if (ragged.groups > 32 * NEIGHBOURS) return;  // a lane has groups of several places
    constexpr int LANES = 32 / NEIGHBOURS;        // that have 32 groups together
    const bool ends = threadIdx.x % LANES == LANES - 1;
    const int skipped = __popc(__ballot_sync(0xffffffffu, ends && upto <= at));
    before = __shfl_sync(0xffffffffu, upto, max_of(0, LANES * skipped - 1));
    first = 32 * skipped - 32;
    if (skipped == 0) before = 0;
  }
  __device__ __forceinline__ static int scanned(int value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, value, step);
      if (threadIdx.x % 32 >= step) value += other;
    }
    return value;
  }

  // The group of tile `at`, whose number in the group `tile` becomes. False: there is no such tile.
  __device__ __forceinline__ bool find(int at, Group& group, int& tile) {
    while (at >= before + all) {
      if (first + 32 >= ragged.groups) return false;
      look_at_next();
    }
    const unsigned there = __ballot_sync(0xffffffffu, at < before + upto);
    const int lane = __ffs(there) - 1, last = __shfl_sync(0xffffffffu, upto, lane > 0 ? lane - 1 : 0);
    group = {__shfl_sync(0xffffffffu, mine.number, lane), __shfl_sync(0xffffffffu, mine.begin, lane),
             __shfl_sync(0xffffffffu, mine.end, lane)};
    tile = at - before - (lane > 0 ? last : 0);
    return true;
  }
};

// A tile's place in bands of `band` lines: down the band, then one step on.
__device__ __forceinline__ void place_in_band(int tile, int lines, int steps, int band, int& line,
                                              int& step) {
  const int number = quotient(tile, band * steps), within = tile - number * band * steps;
  const int height = min_of(band, lines - number * band);
  step = quotient(within, height), line = number * band + within - step * height;
}
