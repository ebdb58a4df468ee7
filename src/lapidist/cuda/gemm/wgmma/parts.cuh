// The parts in which A and B are packed beside the products that read them, in the order in which tiles need
// them. All warps pack part 0, and the producer's idle warps the others; each has a flag.
//
//   0          what the first tile of every block reads, of the first steps along k
//   1 ..       the same, further along k: panels
//   then       what the rest of the first band of tiles reads, slice by slice
//   last       the other bands
#pragma once

#include "gemm/wgmma/tiles.cuh"

#ifndef FIRST_EIGHTHS
#define FIRST_EIGHTHS 8
#endif
#ifndef ALL_EIGHTHS  // where nothing follows
#define ALL_EIGHTHS 3
#endif
#ifndef FURTHER_PANELS
#define FURTHER_PANELS 3
#endif
#ifndef SLICES
#define SLICES 4
#endif

#ifndef LEAST_PART
#define LEAST_PART 800000
#endif

struct Range {
  int begin, end;
  __device__ __forceinline__ static Range slice(int begin, int each, int number, int most) {
    return {min_of(begin + number * each, most), min_of(begin + (number + 1) * each, most)};
  }
  __device__ __forceinline__ bool empty() const { return begin >= end; }
};

// Rows of A, columns of B, and of k.
struct PackedPart {
  Range rows, cols, k;
  __device__ __forceinline__ bool empty() const {
    return k.empty() || ((!PACK_A || rows.empty()) && (!PACK_B || cols.empty()));
  }
};

struct PackedParts {
  static constexpr int BESIDE = FURTHER_PANELS + 2 * SLICES;  // parts that are packed beside products
  // first: what first tiles read. On: slices of the first band, and of the bands.
  int m, n, k, first_down, first_on, each_down, each_on, first_k;

  __device__ __forceinline__ explicit PackedParts(const Extents& e) : m(e.M), n(e.N), k(e.K) {
    const int high = BM * CLUSTER_M, wide = BN * CLUSTER_N, tiles_m = ceil_div(e.M, high),
              tiles_n = ceil_div(e.N, wide), blocks = gridDim.x / CLUSTER;
    const int lines = ALONG_M ? tiles_n : tiles_m, steps = ALONG_M ? tiles_m : tiles_n,
              of_line = ALONG_M ? wide : high, of_step = ALONG_M ? high : wide;
    const int of_band = min_of(RASTER, lines), bands = ceil_div(blocks, of_band * steps),
              first_lines = min_of(bands * of_band, lines),
              first_steps = bands > 1 ? steps : min_of(ceil_div(blocks, of_band), steps);
    first_down = first_lines * of_line, first_on = first_steps * of_step;
    const int least = LEAST_PART / (e.K + 1);
    each_down = ceil_div(max_of(ceil_div(lines - first_lines, SLICES) * of_line, least), of_line) * of_line;
    each_on = ceil_div(max_of(ceil_div(steps - first_steps, SLICES) * of_step, least), of_step) * of_step;
    const bool all = first_lines == lines && first_steps == steps;
    first_k = ceil_div(e.K, BK) * (all ? ALL_EIGHTHS : FIRST_EIGHTHS) / 8;
  }
  __device__ __forceinline__ int down() const { return ALONG_M ? n : m; }
  __device__ __forceinline__ int on() const { return ALONG_M ? m : n; }

  // Where a panel ends along k.
  __device__ __forceinline__ int panel_end(int panel) const {
    const int steps = ceil_div(k, BK) - first_k;
    return panel >= FURTHER_PANELS ? k : min_of(k, (first_k + ceil_div(steps * panel, FURTHER_PANELS)) * BK);
  }
  __device__ __forceinline__ PackedPart operator[](int part) const {
    const Range none = {0, 0}, all_k = {0, k}, of_down = {0, min_of(first_down, down())},
                of_on = {0, min_of(first_on, on())};
    Range lines = of_down, steps = of_on, along = all_k;
    if (part <= FURTHER_PANELS)
      along = {part > 0 ? panel_end(part - 1) : 0, panel_end(part)};
    else if (part <= FURTHER_PANELS + SLICES)
      lines = none, steps = Range::slice(first_on, each_on, part - FURTHER_PANELS - 1, on());
    else
      steps = none, lines = Range::slice(first_down, each_down, part - FURTHER_PANELS - SLICES - 1, down());
    return {ALONG_M ? steps : lines, ALONG_M ? lines : steps, along};
  }
  // The last part that a tile reads: 0 stands for all panels of what first tiles do.
  __device__ __forceinline__ int last_of(int row, int col) const {
    // slabs of an MN-major tile may end behind it
    constexpr int HIGH = A_M_MAJOR ? (BM + MN_MAJOR_COLS - 1) / MN_MAJOR_COLS * MN_MAJOR_COLS : BM,
                  WIDE = B_N_MAJOR ? (BN + MN_MAJOR_COLS - 1) / MN_MAJOR_COLS * MN_MAJOR_COLS : BN;
    const int row_end = min_of(row + HIGH, m), col_end = min_of(col + WIDE, n);
    const int line = (ALONG_M ? col_end : row_end) - 1 - first_down,
              step = (ALONG_M ? row_end : col_end) - 1 - first_on;
    if (line >= 0) return FURTHER_PANELS + SLICES + 1 + floor_div(line, each_down);
    if (step >= 0) return FURTHER_PANELS + 1 + floor_div(step, each_on);
    return 0;
  }
  // The last one up to this that has anything.
  __device__ __forceinline__ int filled(int part) const {
    while (part > 0 && (*this)[part].empty()) --part;
    return part;
  }
};
