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
constexpr int BOXES = BLOCKS / BLOCKS_OF_BOX;
constexpr int CODES_AT = BOXES * X_BYTES, SCALES_AT = CODES_AT + COLUMN_GROUPS * BLOCKS * CODES;
constexpr int POINTS_AT = SCALES_AT + COLUMN_GROUPS * BLOCKS * SCALES;
constexpr int STAGE = (POINTS_AT + COLUMN_GROUPS * BLOCKS * POINTS + 1023) / 1024 * 1024;

// Where a thread reads in a stage: codes from those of a lane on, factors and zero points of columns g and g + 8.
// Computed once: the compiler else repeats the arithmetic for each block.
struct Place {
  unsigned codes, scales, points;
  unsigned zeros[2];  // zero points of whole columns
  __device__ __forceinline__ Place(int warp, int lane, int first_lane) {
    const int tile = warp / 4, quarter = warp % 4, columns = quarter * 8 + lane / 4;
    codes = CODES_AT + tile * BLOCKS * CODES + quarter * (CODES / 4) + first_lane * 16;
    scales = SCALES_AT + tile * BLOCKS * SCALES + columns * static_cast<int>(sizeof(Scales));
    points = POINTS_AT + tile * BLOCKS * POINTS + columns * static_cast<int>(sizeof(Zeros));
    opaque(codes);
    opaque(scales);
    if (ZEROS) opaque(points);
    zeros[0] = zeros[1] = 8;
  }
};
// Lanes' factors of a block: two of them share those of 128 steps.
__device__ constexpr int factors_of(int block) { return (GROUP == 128 ? block / 2 : block) * 32; }
__device__ __forceinline__ const Scales& scales_of(const char* stage, const Place& place, int block) {
  return reinterpret_cast<const Scales*>(stage + place.scales)[factors_of(block)];
}
__device__ __forceinline__ const Zeros& points_of(const char* stage, const Place& place, int block) {
  return reinterpret_cast<const Zeros*>(stage + place.points)[factors_of(block)];
}

// The stages of one part of k, numbered through all of it. The last has one of two blocks where k ends there.
struct Range {
  int begin, end, blocks;
  __device__ __forceinline__ Range(int blocks, int part) : blocks(blocks) {
    const int stages = (blocks + BLOCKS - 1) / BLOCKS;
    begin = stages * part / PARTS;
    end = stages * (part + 1) / PARTS;
  }
  __device__ __forceinline__ int count(int number) const { return min_of(BLOCKS, blocks - BLOCKS * number); }
  // The end of those that have all blocks.
  __device__ __forceinline__ int whole_stages() const { return min_of(end, blocks / BLOCKS); }
};

// Where in the ring of stages a warp is. All of it moves along: from the number of a stage the compiler computes
// addresses anew each time, a third of what a warp then issues.
struct Turn {
  int at = 0, slot = 0, parity;
  unsigned address, word, full;  // of the stage, of its descriptor of x, of the barrier that says it is full
  __device__ __forceinline__ Turn(int parity, const char* room, const Barrier* barriers)
      : parity(parity), address(shared_address(room)), word(low_word(room)), full(shared_address(barriers)) {}
  __device__ __forceinline__ unsigned empty() const { return full + STAGES * 8; }
  __device__ __forceinline__ void advance() {
    const bool last = ++slot == STAGES;
    move(last ? 1 - STAGES : 1);
    if (last) slot = 0, parity ^= 1;
  }
  __device__ __forceinline__ void move(int by) {
    at += by * STAGE;
    address += by * STAGE;
    word += by * (STAGE / 16);
    full += by * 8;
  }
};

// By one lane of a warp whose lanes all agree on the rest. A branch round the copy would hide that from the
// assembler, which then moves each operand to a uniform register in a loop over lanes.
__device__ __forceinline__ void bulk_load(unsigned shared, const char* from, unsigned bytes,
                                          unsigned barrier) {
  asm volatile(
      "{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\n"
      "@one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n}" ::"r"(
          shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void expect_bytes(unsigned barrier, unsigned bytes) {
  asm volatile(
      "{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\n"
      "@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n}" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void box_load(unsigned shared, const TensorMap* map, int inner, int outer,
                                         unsigned barrier) {
  asm volatile(
      "{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\n"
      "@one cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], "
      "[%4];\n}" ::"r"(shared),
      "l"(map), "r"(inner), "r"(outer), "r"(barrier)
      : "memory");
}

// The packed weight, and the tiles that this block has of it. Tiles behind the last one are the last once more.
struct Lines {
  const char *codes, *scales, *zeros;
  int first_tile, tiles, blocks;
  __device__ __forceinline__ i64 block_at(int group, int number) const {
    const int tile = first_tile + min_of(blockIdx.x * COLUMN_GROUPS + group, tiles - 1);
    return static_cast<i64>(tile) * blocks + BLOCKS * number;
  }
  // To the L2, as much as the stages will hold: a launch before this one may still write.
  __device__ __forceinline__ void prefetch(const Range& range) const {
    const int ahead = min_of(BLOCKS * STAGES, min_of(BLOCKS * range.end, blocks) - BLOCKS * range.begin);
    if (ahead <= 0) return;
#pragma unroll
    for (int i = 0; i < COLUMN_GROUPS; ++i)
      bulk_prefetch(reinterpret_cast<unsigned long long>(codes + block_at(i, range.begin) * CODES),
                    ahead * CODES);
  }
};

// What a warp brings to each stage: codes, factors or zero points, by its number; so many bytes of a block of k and 64
// columns.
struct Brought {
  const char* from[COLUMN_GROUPS];
  unsigned bytes, place;
  __device__ __forceinline__ Brought(const Lines& lines, int loader, int number)
      : bytes(loader == 1   ? CODES
              : loader == 2 ? SCALES
              : loader == 3 ? POINTS
                            : 0),
        place(loader == 1   ? CODES_AT
              : loader == 2 ? SCALES_AT
                            : POINTS_AT) {
    const char* const array = loader == 1 ? lines.codes : loader == 2 ? lines.scales : lines.zeros;
#pragma unroll
    for (int i = 0; i < COLUMN_GROUPS; ++i) from[i] = array + lines.block_at(i, number) * bytes;
  }
  __device__ __forceinline__ void load(unsigned stage, int count, unsigned full) {
    expect_bytes(full, count * COLUMN_GROUPS * bytes);
#pragma unroll
    for (int i = 0; i < COLUMN_GROUPS; ++i) {
      bulk_load(stage + place + i * BLOCKS * bytes, from[i], count * bytes, full);
      from[i] += BLOCKS * bytes;
    }
  }
};

// Rows of x as they lie: boxes of TMA, which one thread starts. A row behind the end takes TMA several times as long
// as one that exists: of 192 of them, each stage of 256 rows took an H200 twice as long. So there are boxes of
// ROWS_OF_BOX, and those without a row are left out; no result has what lies there.
struct Boxes {
  static constexpr int ARRIVALS = 1;
  const TensorMap* x;
  int first_row, count;
  __device__ __forceinline__ Boxes(const TensorMap* x, const Modes&, const Rows& rows, int)
      : x(x),
        first_row(rows.begin),
        count((min_of(BN, rows.end - rows.begin) + ROWS_OF_BOX - 1) / ROWS_OF_BOX) {}
  // The second box of the last stage may lie behind the end of k: it is all zeros.
  __device__ __forceinline__ void load(int loader, int, char*, const Turn& turn, int number, int) const {
    if (loader > 0) return;
    expect_bytes(turn.full, BOXES * count * (ROWS_OF_BOX * 128));
#pragma unroll
    for (int i = 0; i < BOXES; ++i)
#pragma unroll
      for (int rows = 0; rows < BN / ROWS_OF_BOX; ++rows)
        if (rows < count)
          box_load(turn.address + i * X_BYTES + rows * (ROWS_OF_BOX * 128), x,
                   (BLOCKS * number + i * BLOCKS_OF_BOX) * 64, first_row + rows * ROWS_OF_BOX, turn.full);
  }
};

// Rows of x by their indices, as of the tokens of experts. TMA loads neighbours alone, so all warps that load copy
// them, 16 bytes a lane, to the places that its swizzle gives. The last row stands for those that do not exist.
struct GatheredRows {
  static constexpr int ARRIVALS = 32 * LOADERS, AT_ONCE = 4 * LOADERS, COPIES = (BN + AT_ONCE - 1) / AT_ONCE;
  const char* x;  // the lane's place in a row
  i64 line;       // bytes of a row; steps of the codes behind it are zeros
  int place;      // of the lane's first copy, in a box
  int rows_of_x[COPIES];
  __device__ __forceinline__ GatheredRows(const char* x, const Modes& modes, const Rows& rows, int blocks) {
    const int row = threadIdx.x / 32 % 4 * 4 + threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
    this->x = x + chunk * 16;
    line = (blocks * 64 - STEPS_BEHIND) * static_cast<i64>(sizeof(T));
    place = row * 128 + (chunk ^ row % 8) * 16;
#pragma unroll
    for (int i = 0; i < COPIES; ++i)
      rows_of_x[i] = static_cast<int>(row_of_x(modes, min_of(rows.begin + row + i * AT_ONCE, rows.end - 1)));
  }
  __device__ __forceinline__ void load(int, int lane, char* room, const Turn& turn, int number,
                                       int count) const {
    const int bytes = count * 64 * static_cast<int>(sizeof(T));  // of a row
    const char* const from = x + number * BLOCKS * 64 * static_cast<i64>(sizeof(T));
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      const int at = box * 128 + lane % 8 * 16;
      if (at >= bytes) continue;
      const bool exists = STEPS_BEHIND == 0 || number * BLOCKS * 64 * static_cast<i64>(sizeof(T)) + at < line;
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        char* const to = room + turn.at + box * X_BYTES + place + i * AT_ONCE * 128;
        const char* const row = from + rows_of_x[i] * line;
        if constexpr (STEPS_BEHIND > 0) cp_async_fill<16>(to, exists ? row + box * 128 : x, exists ? 16 : 0);
        else cp_async<16>(to, row + box * 128);
      }
    }
    barrier_arrive_after_copies(turn.full);
  }
};
constexpr bool GATHERS = GATHER_A > 0;
static_assert(!GATHERS || BN >= GatheredRows::AT_ONCE, "copies fill a block of rows");
typedef Choose<GATHERS, GatheredRows, Boxes>::Type RowsOfX;

// Of the rest a stage has so many loads: codes, factors, zero points.
constexpr int LOADS = 1 + (SCALES > 0) + (POINTS > 0), ARRIVALS_OF_X = RowsOfX::ARRIVALS;

// A stage is full. wgmma reads x through another proxy than copies write by.
__device__ __forceinline__ void wait_for_stage(const Turn& turn) {
  barrier_wait(turn.full, turn.parity);
  if constexpr (GATHERS) proxy_fence();
}

// Each warp that loads has x or one of them. What all its lanes agree on lies in uniform registers.
__device__ __forceinline__ void produce(int loader, int lane, char* room, Turn& turn, const Range& range,
                                        const RowsOfX& x, const Lines& lines) {
  Brought brought(lines, loader, range.begin);
  if (!GATHERS && loader > 0 && brought.bytes == 0) return;
  for (int number = range.begin; number < range.end; ++number) {
    const int count = range.count(number);
    barrier_wait(turn.empty(), turn.parity);
    if (brought.bytes > 0) brought.load(turn.address, count, turn.full);
    x.load(loader, lane, room, turn, number, count);
    turn.advance();
  }
}
