// Parts in which A and B are packed during products, in the order in which tiles need them. All warps pack
// part 0, the producer's idle warps the others. Each part has a flag (packing/packing.cuh).
//
//   0         what the first tile of every block reads
//   1 ..      panels: the same further along k. Only if no other parts follow; first tiles then start with part 0
//   then      what else the first band of tiles reads, slice by slice
//   last      the other bands
//
// (With other parts behind them, panels made products up to 3 % slower. Idle warps pack half as fast as all
// warps do, so tiles wait for panels and for the slices behind them.)
#pragma once

#include "config.cuh"
#include "gemm/wgmma/tiles.cuh"

constexpr bool PACKS = PACK_A || PACK_B;

struct Range {
  int begin, end;
  __device__ __forceinline__ static Range slice(int begin, int each, int number, int most) {
    return {min_of(begin + number * each, most), min_of(begin + (number + 1) * each, most)};
  }
  __device__ __forceinline__ bool empty() const { return begin >= end; }
};

// Rows of A, columns of B, and elements along k. A part that is left out is neither packed nor waited for.
struct PackedPart {
  Range rows, cols, k;
  bool left_out;
};

struct PackedParts {
  static constexpr int PANELS = 3, SLICES = 4, MOST = PANELS + 2 * SLICES;
  static constexpr bool LINES_PACKED = ALONG_M ? PACK_B : PACK_A, STEPS_PACKED = ALONG_M ? PACK_A : PACK_B;
  // Each panel costs a fence, so operands have LEAST_IN_PANELS elements for each block. A slice has least ones,
  // so that all packing warps have work.
  static constexpr int LEAST_OF_SLICE = 18 << 10;
  // A band has several lines of tiles, and steps along n (with ALONG_M: along m). first_: rows and columns of
  // part 0, or all of an operand that is not packed. each_: of a slice.
  int m, n, k, first_lines, first_steps, each_lines, each_steps, first_k;

  __device__ __forceinline__ explicit PackedParts(const Extents& e) : m(e.M), n(e.N), k(e.K) {
    constexpr int HIGH = BM * CLUSTER_M, WIDE = BN * CLUSTER_N, LINE = ALONG_M ? WIDE : HIGH,
                  STEP = ALONG_M ? HIGH : WIDE;
    const int blocks = gridDim.x / CLUSTER, down = ALONG_M ? n : m, along = ALONG_M ? m : n,
              lines = ceil_div(down, LINE), steps = ceil_div(along, STEP), of_band = min_of(RASTER, lines);
    const int bands = ceil_div(blocks, of_band * steps), lines_now = min_of(bands * of_band, lines),
              steps_now = bands > 1 ? steps : min_of(ceil_div(blocks, of_band), steps);
    const int least = LEAST_OF_SLICE * gridDim.x / (k + 1);
    first_lines = LINES_PACKED ? min_of(lines_now * LINE, down) : down;
    first_steps = STEPS_PACKED ? min_of(steps_now * STEP, along) : along;
    each_lines = max_of(ceil_div(lines - lines_now, SLICES), ceil_div(least, LINE)) * LINE;
    each_steps = max_of(ceil_div(steps - steps_now, SLICES), ceil_div(least, STEP)) * STEP;
    const bool panels =
        first_lines == down && first_steps == along &&
        static_cast<i64>(PACK_A * m + PACK_B * n) * k >= LEAST_IN_PANELS * static_cast<i64>(gridDim.x);
    first_k = panels ? ceil_div(k, BK) * EIGHTHS / 8 * BK : k;
  }

  // Where a panel ends along k; panel 0 is part 0.
  __device__ __forceinline__ int end_of(int panel) const {
    return min_of(k, first_k + ceil_div(ceil_div(k - first_k, BK) * panel, PANELS) * BK);
  }
  // There are either all panels or none.
  __device__ __forceinline__ PackedPart operator[](int part) const {
    const bool panel = part <= PANELS, of_steps = part <= PANELS + SLICES;
    const int slice = part - 1 - (of_steps ? PANELS : PANELS + SLICES);
    const Range none = {0, 0}, all_k = {0, k}, of_k = {part > 0 ? end_of(part - 1) : 0, end_of(part)},
                next = of_steps ? Range::slice(first_steps, each_steps, slice, ALONG_M ? m : n)
                                : Range::slice(first_lines, each_lines, slice, ALONG_M ? n : m);
    const Range lines = panel      ? Range{0, first_lines}
                        : of_steps ? none
                                   : next,
                steps = panel      ? Range{0, first_steps}
                        : of_steps ? next
                                   : none;
    return {ALONG_M ? steps : lines, ALONG_M ? lines : steps, panel ? of_k : all_k,
            panel ? first_k >= k : next.empty()};
  }
  // The last part that a tile reads. 0: it reads what first tiles read, panel by panel.
  __device__ __forceinline__ int last_of(int row, int col) const {
    // slabs of an M-major or N-major tile may end behind the tile
    constexpr int HIGH = A_M_MAJOR ? (BM + MN_MAJOR_COLS - 1) / MN_MAJOR_COLS * MN_MAJOR_COLS : BM,
                  WIDE = B_N_MAJOR ? (BN + MN_MAJOR_COLS - 1) / MN_MAJOR_COLS * MN_MAJOR_COLS : BN;
    const int end_row = min_of(row + HIGH, m), end_col = min_of(col + WIDE, n),
              end_line = ALONG_M ? end_col : end_row, end_step = ALONG_M ? end_row : end_col;
    const bool later = end_line > first_lines;
    const int rest = later ? end_line - first_lines : end_step - first_steps;
    return rest > 0 ? PANELS + (later ? SLICES : 0) + ceil_div(rest, later ? each_lines : each_steps) : 0;
  }
  // The last of all parts. A warp that has packed it has packed those before it.
  __device__ __forceinline__ int last() const {
    const int of_tiles = last_of(m, n);
    return of_tiles > 0 ? of_tiles : first_k < k ? PANELS : 0;
  }
};
