// D = x W for few rows of x, W in few bits: each warp streams tiles of 16 columns of W through registers and
// decodes them into the A of mma.sync; x is its B. Warps of a block share k, and add up in shared memory.
//
//     block     16 columns of W x 8 ROWS_OF_8 rows of x, all of k
//     warp w    blocks of 64 steps of k: w, w + WARPS, ...; TILES_AHEAD of them on their way
#include "config.cuh"
#include "quantised/decode.cuh"
#include "quantised/finish.cuh"

using namespace quantised;

constexpr int BLOCK = 64, COLS = 16, ROWS = 8 * ROWS_OF_8;
typedef Codes<FORMAT> Tile;

struct Rows {  // 2 of each 8 steps of a row of x, for each eight rows
  Pair at[ROWS_OF_8][8];
  __device__ __forceinline__ void read(const X* x, i64 step, int k, int row, int m) {
#pragma unroll
    for (int i = 0; i < ROWS_OF_8; ++i)
#pragma unroll
      for (int eight = 0; eight < 8; ++eight)
        at[i][eight] =
            row + 8 * i < m ? *reinterpret_cast<const Pair*>(x + (row + 8 * i) * step + k + 8 * eight) : 0;
  }
};

typedef OfColumns<Scale, GROUPS> Scales;
typedef OfColumns<unsigned char, GROUPS> Zeros;

struct Stage {
  Tile codes;
  Scales scales;
  Zeros zeros;
  __device__ __forceinline__ unsigned zero(int group, int column) const {
    return ZEROS ? zeros.at[group][column] : 8;
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    skinny(const X* A, const uint4* B, const X* C, X* D, const Scales* scales, const Zeros* zeros, i64 a_row,
           i64 d_row, int m, int n, int blocks, int per_group EPILOGUE_PARAMETER) {
  __shared__ float parts[WARPS][ROWS][COLS + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first = blockIdx.y * ROWS;
  const i64 tile = blockIdx.x / 4;
  const int quarter = blockIdx.x % 4;
  const uint4* const codes = B + (tile * blocks * 4 + quarter) * 32 * Tile::VECTORS + lane;
  const i64 factors = (tile * (blocks / per_group) * 4 + quarter) * 8 + g;

  const auto load = [&](Stage& stage, int block) {
#pragma unroll
    for (int i = 0; i < Tile::VECTORS; ++i)
      stage.codes.at[i] = __ldcs(codes + (static_cast<i64>(block) * 4 * Tile::VECTORS + i) * 32);
    stage.scales = scales[factors + block / per_group * 32];
    if constexpr (ZEROS) stage.zeros = zeros[factors + block / per_group * 32];
  };

  Stage stages[TILES_AHEAD];
#pragma unroll
  for (int i = 0; i < TILES_AHEAD; ++i)
    if (warp + i * WARPS < blocks) load(stages[i], warp + i * WARPS);

  float sums[ROWS_OF_8][4] = {};
  for (int begin = warp; begin < blocks; begin += WARPS * TILES_AHEAD) {
#pragma unroll
    for (int i = 0; i < TILES_AHEAD; ++i) {
      const int block = begin + i * WARPS;
      if (block >= blocks) break;
      Rows rows;
      rows.read(A, a_row, block * BLOCK + 2 * t, first + g, m);
#pragma unroll
      for (int group = 0; group < GROUPS; ++group) {
        const unsigned of_columns[2] = {stages[i].zero(group, 0), stages[i].zero(group, 1)};
        float of_group[ROWS_OF_8][4] = {};
#pragma unroll
        for (int s = 0; s < 4 / GROUPS; ++s) {
          const int step = group * (4 / GROUPS) + s;
          Pair a[4];
          stages[i].codes.template decode<X>(step, of_columns, a);
#pragma unroll
          for (int j = 0; j < ROWS_OF_8; ++j) {
            Decode<X>::multiply(of_group[j], a, rows.at[j][2 * step], rows.at[j][2 * step + 1]);
          }
        }
#pragma unroll
        for (int j = 0; j < ROWS_OF_8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sums[j][e] += factor_of(stages[i].scales.at[group][e / 2]) * of_group[j][e];
      }
      if (block + WARPS * TILES_AHEAD < blocks) load(stages[i], block + WARPS * TILES_AHEAD);
    }
  }

#pragma unroll
  for (int j = 0; j < ROWS_OF_8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) parts[warp][8 * j + 2 * t + e % 2][g + e / 2 * 8] = sums[j][e];
  __syncthreads();
  const Target<X> target{C, D, d_row, m, n, EPILOGUE_PASSED};
  for (int at = threadIdx.x; at < ROWS * COLS / 2; at += 32 * WARPS) {
    const int row = at / (COLS / 2), column = at % (COLS / 2) * 2, col = blockIdx.x * COLS + column;
    if (first + row >= m || col >= n) continue;
    float two[2] = {parts[0][row][column], parts[0][row][column + 1]};
#pragma unroll
    for (int w = 1; w < WARPS; ++w) {
      two[0] += parts[w][row][column];
      two[1] += parts[w][row][column + 1];
    }
    target.finish(two, first + row, col);
  }
}
