// The parts in which A and B are packed beside the products that read them, in the order in which tiles need
// them. All warps pack part 0, and the producer's idle warps the others. Each has a flag (packing/packing.cuh).
//
//   0         what the first tile of every block reads
//   1 ..      the same further along k, in panels: where nothing else follows, these tiles begin with part 0 alone
//   then      what the first band of tiles reads besides, slice by slice
//   last      the other bands
//
// (Panels where something follows made products up to 3 % slower: idle warps pack half as fast as all do, and
// tiles then wait for panels, and for slices behind them.)
#pragma once

#include "gemm/wgmma/tiles.cuh"

constexpr bool PACKS = PACK_A || PACK_B;

struct Range {
  int begin, end;
  __device__ __forceinline__ static Range slice(int begin, int each, int number, int most) {
    return {min_of(begin + number * each, most), min_of(begin + (number + 1) * each, most)};
  }
  __device__ __forceinline__ bool empty() const { return begin >= end; }
};

// Rows of A, columns of B, and their elements along k.
struct PackedPart {
  Range rows, cols, k;
  __device__ __forceinline__ bool empty() const {
    return k.empty() || ((!PACK_A || rows.empty()) && (!PACK_B || cols.empty()));
  }
};

struct PackedParts {
  static constexpr int PANELS = 3, SLICES = 4, LAST = PANELS + 2 * SLICES;
  // Eighths of k in part 0, where panels follow; and elements for each block: of all operands before there are
  // panels, since each costs a fence, and of a slice, so that all warps that pack it have some.
  static constexpr int EIGHTHS = 3, LEAST_IN_PANELS = 52 << 10, LEAST_OF_SLICE = 18 << 10;
  // Lines of tiles, one of which is a step of a band: along n, with ALONG_M along m. first: those of part 0.
  int m, n, k, first_lines, first_steps, each_lines, each_steps, first_k;

  __device__ __forceinline__ explicit PackedParts(const Extents& e) : m(e.M), n(e.N), k(e.K) {
    constexpr int HIGH = BM * CLUSTER_M, WIDE = BN * CLUSTER_N, LINE = ALONG_M ? WIDE : HIGH,
                  STEP = ALONG_M ? HIGH : WIDE;
    const int blocks = gridDim.x / CLUSTER, lines = ceil_div(ALONG_M ? n : m, LINE),
              steps = ceil_div(ALONG_M ? m : n, STEP), of_band = min_of(RASTER, lines);
    const int bands = ceil_div(blocks, of_band * steps), lines_now = min_of(bands * of_band, lines),
              steps_now = bands > 1 ? steps : min_of(ceil_div(blocks, of_band), steps);
    const int least = LEAST_OF_SLICE * gridDim.x / (k + 1);
    first_lines = min_of(lines_now * LINE, ALONG_M ? n : m);
    first_steps = min_of(steps_now * STEP, ALONG_M ? m : n);
    each_lines = max_of(ceil_div(lines - lines_now, SLICES), ceil_div(least, LINE)) * LINE;
    each_steps = max_of(ceil_div(steps - steps_now, SLICES), ceil_div(least, STEP)) * STEP;
    const bool panels =
        lines == lines_now && steps == steps_now &&
        static_cast<i64>(PACK_A * m + PACK_B * n) * k >= LEAST_IN_PANELS * static_cast<i64>(gridDim.x);
    first_k = panels ? ceil_div(k, BK) * EIGHTHS / 8 * BK : k;
  }

  // Where what is packed with a panel ends along k; panel 0 is part 0.
  __device__ __forceinline__ int end_of(int panel) const {
    return min_of(k, first_k + ceil_div(ceil_div(k - first_k, BK) * panel, PANELS) * BK);
  }
  __device__ __forceinline__ PackedPart operator[](int part) const {
    const Range none = {0, 0};
    Range lines = {0, first_lines}, steps = {0, first_steps}, along = {0, k};
    if (part <= PANELS) along = {part > 0 ? end_of(part - 1) : 0, end_of(part)};
    else if (part <= PANELS + SLICES)
      lines = none, steps = Range::slice(first_steps, each_steps, part - PANELS - 1, ALONG_M ? m : n);
    else
      steps = none,
      lines = Range::slice(first_lines, each_lines, part - PANELS - SLICES - 1, ALONG_M ? n : m);
    return {ALONG_M ? steps : lines, ALONG_M ? lines : steps, along};
  }
  // The last part that a tile reads. 0: it reads what first tiles do, panel after panel.
  __device__ __forceinline__ int last_of(int row, int col) const {
    // slabs of an MN-major tile may end behind it
    constexpr int HIGH = A_M_MAJOR ? (BM + MN_MAJOR_COLS - 1) / MN_MAJOR_COLS * MN_MAJOR_COLS : BM,
                  WIDE = B_N_MAJOR ? (BN + MN_MAJOR_COLS - 1) / MN_MAJOR_COLS * MN_MAJOR_COLS : BN;
    const int last_row = min_of(row + HIGH, m) - 1, last_col = min_of(col + WIDE, n) - 1,
              line = (ALONG_M ? last_col : last_row) - first_lines,
              step = (ALONG_M ? last_row : last_col) - first_steps;
    if (line >= 0) return PANELS + SLICES + 1 + floor_div(line, each_lines);
    return step >= 0 ? PANELS + 1 + floor_div(step, each_steps) : 0;
  }
  // The last one up to this in which there is something: nobody waits for others.
  __device__ __forceinline__ int filled(int part) const {
    while (part > 0 && (*this)[part].empty()) --part;
    return part;
  }
};
