// Promoted sums, of 8-bit floats and bfloat16, and factors of A and B, of 8-bit floats.
//
// wgmma keeps 14 bits of a sum of 8-bit floats, and does not round others. So the products of each step (128
// bytes of k) start at zero, and CUDA cores add them up in float. The products need registers of their own, so
// large tiles are multiplied in parts. factors.cuh has the forms of factors.
#pragma once

#include "gemm/wgmma/a_from_registers.cuh"

#include "factors.cuh"
#include "config.cuh"

static_assert(!PROMOTED || BK * sizeof(T) == 128, "a step is what the cores add up");
// The part of a tile that is multiplied, and then promoted, at once: 64 rows and PART_COLS columns. A factor
// for each column takes further registers. With those, parts of 96 columns take a quarter longer than their
// share.

// The factors of one step of a tile, in shared memory, loaded as far ahead as A and B. If consumers loaded
// them, each step would wait 500 cycles, as long as its products take.
template <int Rows, int Cols>
struct TileFactors {
  static constexpr int OF_A = A_ALONG_K ? Rows : 0, OF_B = !B_ALONG_K ? 0 : B_FACTORS == 3 ? Cols : 2;
  static_assert(B_FACTORS != 4 || Cols <= 128 + (Cols & -Cols), "a tile touches two blocks of 128 columns");
  alignas(8) float of_b[OF_B + 1];
  float of_a[OF_A + 1];
};

// The addresses of the factors that each thread of the loading warp copies. (Three warps would arrive at
// barriers three times as often.) For lines outside the matrix the last one is repeated.
constexpr int BRINGERS = 32;
template <int Rows, int Cols>
struct FactorSources {
  typedef TileFactors<Rows, Cols> Tile;
  static constexpr int A_EACH = (Tile::OF_A + BRINGERS - 1) / BRINGERS,
                       B_EACH = (Tile::OF_B + BRINGERS - 1) / BRINGERS;
  const float *a[A_EACH + 1], *b[B_EACH + 1];
  const Scales& scales;
  const int me = threadIdx.x % 32;

  __device__ __forceinline__ FactorSources(const Scales& scales, const Modes& modes, int row, int col,
                                           int step, int M, int N)
      : scales(scales) {
    constexpr int tall = A_FACTORS == 4 ? 128 : 1, wide = B_FACTORS == 4 ? 128 : 1;
#pragma unroll
    for (int i = 0; i < A_EACH; ++i)
      a[i] = scales.a + step * scales.a_block +
             line_of_factor<(GATHER_A > 0)>(modes.a_rows, row + i * BRINGERS + me, M) / tall * scales.a_line;
#pragma unroll
    for (int i = 0; i < B_EACH; ++i)
      b[i] = scales.b + step * scales.b_block +
             min_of(col / wide + i * BRINGERS + me, (N - 1) / wide) * scales.b_line;
  }
  __device__ __forceinline__ void bring(Tile& to) {
#pragma unroll
    for (int i = 0; i < A_EACH; ++i, a[i - 1] += scales.a_block)
      if (i * BRINGERS + me < Tile::OF_A) cp_async<4>(&to.of_a[i * BRINGERS + me], a[i]);
#pragma unroll
    for (int i = 0; i < B_EACH; ++i, b[i - 1] += scales.b_block)
      if (i * BRINGERS + me < Tile::OF_B) cp_async<4>(&to.of_b[i * BRINGERS + me], b[i]);
  }
};

// A thread's factors for a part: of its two rows, and of columns 8 j + i behind its first. Blocks of 128
// columns begin only at multiples of ALIKE columns of a tile.
template <int Cols>
struct PartFactors {
  static constexpr int ALIKE = (Cols & -Cols) < 128 ? Cols & -Cols : 128;
  static constexpr int COLUMNS = B_FACTORS == 3 ? Cols / 4 : Cols / ALIKE;
  float a[2], b[COLUMNS];

  // `row`, `col`: the place of the thread's first sum. `first`: the part's first column in the tile.
  template <typename Tile>
  __device__ __forceinline__ void read(const Tile& tile, int row, int col, int first, int tile_col) {
    if constexpr (A_ALONG_K)
#pragma unroll
      for (int h = 0; h < 2; ++h) a[h] = tile.of_a[row + h * NEXT_ROW];
    if constexpr (B_ALONG_K)
#pragma unroll
      for (int i = 0; i < COLUMNS; ++i)
        if constexpr (B_FACTORS == 4) {
          b[i] = tile.of_b[tile_col % 128 + first + i * ALIKE >= 128];
        } else if (i % 2 == 0) {
          const float2 two = *reinterpret_cast<const float2*>(&tile.of_b[first + col + i * 4]);
          b[i] = two.x, b[i + 1] = two.y;
        }
  }
  __device__ __forceinline__ float of(int h, int j, int i) const {
    float factor = A_ALONG_K ? a[h] : 1.0f;
    if constexpr (B_FACTORS == 3) factor *= b[j * 2 + i];
    if constexpr (B_FACTORS == 4) factor *= b[j * 8 / ALIKE];
    return factor;
  }
  __device__ __forceinline__ void add(Sum* sums, const Sum (&products)[Cols / 2]) const {
#pragma unroll
    for (int s = 0; s < Cols / 2; ++s) sums[s] += of(s / 2 % 2, s / 4, s % 2) * products[s];
  }
};

// Apply factors that are the same for all of k: of rows and columns, to Count sums of a thread from (row,
// col) on.
template <int Count>
__device__ __forceinline__ void scale_in_the_end(Sum* sums, const Scales& scales, const Modes& modes, int row,
                                                 int col, int M, int N) {
  if constexpr ((A_FACTORS == 0 || A_FACTORS > 2) && (B_FACTORS == 0 || B_FACTORS > 2)) return;
  const float one_a = A_FACTORS == 1 ? *scales.a : 1.0f, one_b = B_FACTORS == 1 ? *scales.b : 1.0f;
  float of_row[2];
#pragma unroll
  for (int h = 0; h < 2; ++h)
    of_row[h] =
        (A_FACTORS == 2
             ? scales.a[line_of_factor<(GATHER_A > 0)>(modes.a_rows, row + h * NEXT_ROW, M) * scales.a_line]
             : one_a) *
        one_b;
#pragma unroll
  for (int j = 0; j < Count / 4; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float of_column =
          B_FACTORS == 2 ? scales.b[min_of(col + j * 8 + i, N - 1) * scales.b_line] : 1.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h) sums[j * 4 + h * 2 + i] *= of_row[h] * of_column;
    }
}
