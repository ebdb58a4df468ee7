// Stages of quantised/streamed.cu: what lies where in shared memory, and the warp that loads it.
#pragma once
#include "config.cuh"
#include "quantised/decode.cuh"
#include "quantised/rows.cuh"
#include "wgmma_instructions.cuh"

using namespace quantised;

typedef OfColumns<Scale, GROUPS> Scales;
typedef OfColumns<unsigned char, GROUPS> Zeros;

constexpr int COLUMNS = 64 * COLUMN_GROUPS, CONSUMERS = 4 * COLUMN_GROUPS;  // warps
constexpr int LOADERS = 4;  // warps, as registers are handed to four at once
constexpr int THREADS = 32 * (CONSUMERS + LOADERS);

// Bytes of a tile of 64 columns and 64 steps of k; factors of 128 steps are halved here.
constexpr int CODES = 2048 * Codes<FORMAT>::VECTORS;
constexpr int SCALES = GROUP ? 64 * 64 * static_cast<int>(sizeof(Scale)) / GROUP : 0;
constexpr int POINTS = GROUP && ZEROS ? 64 * 64 / GROUP : 0;
constexpr int X_BYTES = BN * 128;  // of a box: 64 steps of k of 16 bits, 128 of 8
constexpr int BLOCKS_OF_BOX = 2 / static_cast<int>(sizeof(T));
// Where they begin in a stage, which has two blocks of x, then those of each tile.
constexpr int CODES_AT = 2 / BLOCKS_OF_BOX * X_BYTES, SCALES_AT = CODES_AT + COLUMN_GROUPS * 2 * CODES;
constexpr int POINTS_AT = SCALES_AT + COLUMN_GROUPS * 2 * SCALES;
constexpr int STAGE = (POINTS_AT + COLUMN_GROUPS * 2 * POINTS + 1023) / 1024 * 1024;

// Where a thread reads in a stage: codes from those of a lane on, factors and zero points of columns g and g + 8.
// Computed once: the compiler else repeats the arithmetic for each block.
struct Place {
  unsigned codes, scales, points;
  unsigned zeros[2];  // zero points of whole columns
  __device__ __forceinline__ Place(int warp, int lane, int first_lane) {
    const int tile = warp / 4, quarter = warp % 4, columns = quarter * 8 + lane / 4;
    codes = CODES_AT + tile * 2 * CODES + quarter * (CODES / 4) + first_lane * 16;
    scales = SCALES_AT + tile * 2 * SCALES + columns * static_cast<int>(sizeof(Scales));
    points = POINTS_AT + tile * 2 * POINTS + columns * static_cast<int>(sizeof(Zeros));
    opaque(codes);
    opaque(scales);
    if (ZEROS) opaque(points);
    zeros[0] = zeros[1] = 8;
  }
};
constexpr int STEP_OF_FACTORS = GROUP == 128 ? 0 : 32;  // lanes' factors of the next block
__device__ __forceinline__ const Scales& scales_of(const char* stage, const Place& place, int block) {
  return reinterpret_cast<const Scales*>(stage + place.scales)[block * STEP_OF_FACTORS];
}
__device__ __forceinline__ const Zeros& points_of(const char* stage, const Place& place, int block) {
  return reinterpret_cast<const Zeros*>(stage + place.points)[block * STEP_OF_FACTORS];
}

// The stages of one part of k, numbered through all of it. The last has one block where k ends in half a stage.
struct Range {
  int begin, end, blocks;
  __device__ __forceinline__ Range(int blocks, int part) : blocks(blocks) {
    const int stages = (blocks + 1) / 2;
    begin = stages * part / PARTS;
    end = stages * (part + 1) / PARTS;
  }
  __device__ __forceinline__ bool has_two(int number) const { return 2 * number + 1 < blocks; }
};

// Where in the ring of stages a warp is: bytes from the first, and how many behind it.
struct Turn {
  int at = 0, slot = 0, parity;
  __device__ __forceinline__ explicit Turn(int parity) : parity(parity) {}
  __device__ __forceinline__ void advance() {
    at += STAGE;
    if (++slot == STAGES) at = slot = 0, parity ^= 1;
  }
};

__device__ __forceinline__ void bulk_load(void* shared, const char* from, int bytes, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// The packed weight, and the tiles that this block has of it. Tiles behind the last one are the last once more.
struct Lines {
  const char *codes, *scales, *zeros;
  int first_tile, tiles, blocks;
  __device__ __forceinline__ i64 block_at(int group, int number) const {
    const int tile = first_tile + min_of(blockIdx.x * COLUMN_GROUPS + group, tiles - 1);
    return static_cast<i64>(tile) * blocks + 2 * number;
  }
  // To the L2, as much as the stages will hold: a launch before this one may still write.
  __device__ __forceinline__ void prefetch(const Range& range) const {
    const int ahead = min_of(2 * STAGES, min_of(2 * range.end, blocks) - 2 * range.begin);
    if (ahead <= 0) return;
#pragma unroll
    for (int i = 0; i < COLUMN_GROUPS; ++i)
      bulk_prefetch(reinterpret_cast<unsigned long long>(codes + block_at(i, range.begin) * CODES),
                    ahead * CODES);
  }
  template <int Bytes>
  __device__ __forceinline__ void load(char* to, const char* from, int number, int count,
                                       Barrier* full) const {
    barrier_arrive_expect(full, count * COLUMN_GROUPS * Bytes);
#pragma unroll
    for (int i = 0; i < COLUMN_GROUPS; ++i)
      bulk_load(to + i * 2 * Bytes, from + block_at(i, number) * Bytes, count * Bytes, full);
  }
};

// Rows of x as they lie: boxes of TMA, which one thread starts.
struct Boxes {
  static constexpr int ARRIVALS = 1;
  const TensorMap* x;
  int first_row;
  __device__ __forceinline__ Boxes(const TensorMap* x, const Modes&, const Rows& rows, int)
      : x(x), first_row(rows.begin) {}
  __device__ __forceinline__ void load(int loader, int lane, char* stage, int number, int count,
                                       Barrier* full) const {
    if (loader > 0 || lane > 0) return;
    const int boxes = BLOCKS_OF_BOX == 2 ? 1 : count;
    barrier_arrive_expect(full, boxes * X_BYTES);
    for (int i = 0; i < boxes; ++i) tma_load(stage + i * X_BYTES, x, (2 * number + i) * 64, first_row, full);
  }
};

// Rows of x by their indices, as of the tokens of experts. TMA loads neighbours alone, so all warps that load copy
// them, 16 bytes a lane, to the places that its swizzle gives. The last row stands for those that do not exist.
struct GatheredRows {
  static constexpr int ARRIVALS = 32 * LOADERS, AT_ONCE = 4 * LOADERS, COPIES = BN / AT_ONCE;
  const char* x;  // the lane's place in a row
  i64 line;       // bytes of a row
  int place;      // of the lane's first copy, in a box
  int rows_of_x[COPIES];
  __device__ __forceinline__ GatheredRows(const char* x, const Modes& modes, const Rows& rows, int blocks) {
    const int row = threadIdx.x / 32 % 4 * 4 + threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
    this->x = x + chunk * 16;
    line = blocks * 64 * static_cast<i64>(sizeof(T));
    place = row * 128 + (chunk ^ row % 8) * 16;
#pragma unroll
    for (int i = 0; i < COPIES; ++i)
      rows_of_x[i] = static_cast<int>(row_of_x(modes, min_of(rows.begin + row + i * AT_ONCE, rows.end - 1)));
  }
  __device__ __forceinline__ void load(int, int lane, char* stage, int number, int count,
                                       Barrier* full) const {
    const int bytes = count * 64 * static_cast<int>(sizeof(T));  // of a row
    const char* const from = x + number * 128 * static_cast<i64>(sizeof(T));
#pragma unroll
    for (int box = 0; box < 2 / BLOCKS_OF_BOX; ++box) {
      if (box * 128 + lane % 8 * 16 >= bytes) continue;
#pragma unroll
      for (int i = 0; i < COPIES; ++i)
        cp_async<16>(stage + box * X_BYTES + place + i * AT_ONCE * 128,
                     from + rows_of_x[i] * line + box * 128);
    }
    barrier_arrive_after_copies(full);
  }
};
constexpr bool GATHERS = GATHER_A > 0;
typedef Choose<GATHERS, GatheredRows, Boxes>::Type RowsOfX;

// Of the rest a stage has so many loads: codes, factors, zero points.
constexpr int LOADS = 1 + (SCALES > 0) + (POINTS > 0), ARRIVALS_OF_X = RowsOfX::ARRIVALS;

// A stage is full. wgmma reads x through another proxy than copies write by.
template <typename Place>
__device__ __forceinline__ void wait_for_stage(Place full, int parity) {
  barrier_wait(full, parity);
  if constexpr (GATHERS) proxy_fence();
}

// Each warp that loads has x or one of them; its first lane starts the copies.
__device__ __forceinline__ void produce(int loader, int lane, char* room, Barrier* full, Barrier* empty,
                                        Turn& turn, const Range& range, const RowsOfX& x, const Lines& lines) {
  if (!GATHERS && ((loader == 2 && SCALES == 0) || (loader == 3 && POINTS == 0))) return;
  for (int number = range.begin; number < range.end; ++number) {
    const int count = range.has_two(number) ? 2 : 1;
    char* const stage = room + turn.at;
    Barrier* const arrival = full + turn.slot;
    barrier_wait(empty + turn.slot, turn.parity);
    if (lane == 0) {
      if (loader == 1) {
        lines.load<CODES>(stage + CODES_AT, lines.codes, number, count, arrival);
      } else if (loader == 2) {
        if (SCALES > 0) lines.load<SCALES>(stage + SCALES_AT, lines.scales, number, count, arrival);
      } else if (loader == 3) {
        if (POINTS > 0) lines.load<POINTS>(stage + POINTS_AT, lines.zeros, number, count, arrival);
      }
    }
    x.load(loader, lane, stage, number, count, arrival);
    __syncwarp();
    turn.advance();
  }
}
