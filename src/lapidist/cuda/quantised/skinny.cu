// D = x W for few rows of x, W in few bits: each warp streams tiles of 16 SIXTEENS columns of W through registers
// and decodes them into the A of mma.sync; x is its B. Warps of a block share k, and add up in shared memory.
//
//     block     16 SIXTEENS columns of W x 8 ROWS_OF_8 rows of x, all of k
//     warp w    blocks of 64 steps of k: w, w + WARPS, ...; TILES_AHEAD of them on their way
#include "config.cuh"
#include "ptx.cuh"
#include "quantised/decode.cuh"
#include "quantised/finish.cuh"
#include "quantised/norms.cuh"
#include "quantised/rows.cuh"
#if __CUDA_ARCH__ >= 900
#include "hopper.cuh"
#endif

using namespace quantised;

constexpr int BLOCK = 64, COLS = 16 * SIXTEENS, ROWS = 8 * ROWS_OF_8;
// Rows of x have registers for the next block, too, where there are few: else each product waits for the L1.
constexpr int X_AHEAD = ROWS_OF_8 <= 2 && TILES_AHEAD % 2 == 0 ? 2 : 1;
typedef Codes<FORMAT> Tile;

// Where a lane's part of each eight rows of x is, at the warp's next blocks. The last row stands for those that do
// not exist. Places move along: from numbers of blocks the compiler else computes addresses anew for each.
struct Lines {
  const X* at[ROWS_OF_8];
  __device__ __forceinline__ Lines(const X* x, i64 step, int first, int last, int g, int t,
                                   const Modes& modes) {
#pragma unroll
    for (int i = 0; i < ROWS_OF_8; ++i) {
      i64 place = row_of_x(modes, min_of(first + 8 * i + g, last - 1)) * step + 2 * t;
      opaque(place);  // of a pointer the compiler would forget that it is a global one
      at[i] = x + place;
    }
  }
  __device__ __forceinline__ void advance(int blocks) {
#pragma unroll
    for (int i = 0; i < ROWS_OF_8; ++i) at[i] += blocks * BLOCK;
  }
};

// Two steps of a row; 8 bits become halves, which are exact.
__device__ __forceinline__ Pair pair_at(const T* x) { return *reinterpret_cast<const Pair*>(x); }
#if X_OF_8_BITS
__device__ __forceinline__ Pair pair_at(const __nv_fp8_e4m3* x) {
  return Decode<__half>::e4m3(*reinterpret_cast<const unsigned short*>(x));
}
__device__ __forceinline__ Pair pair_at(const signed char* x) {
  const unsigned two = *reinterpret_cast<const unsigned short*>(x);
  return Decode<__half>::int8(two & 0xFF, two >> 8);
}
#endif

struct Activations {  // 2 of each 8 steps of a row of x, for each eight rows
  Pair at[ROWS_OF_8][8];
  __device__ __forceinline__ void read(const Lines& lines, int block) {
#pragma unroll
    for (int i = 0; i < ROWS_OF_8; ++i)
#pragma unroll
      for (int eight = 0; eight < 8; ++eight) at[i][eight] = pair_at(lines.at[i] + block * BLOCK + 8 * eight);
  }
};

// As many bytes as a load brings: parts of a word that was loaded would be taken apart, and waited for, at once.
template <int Bytes>
struct Word {
  typedef typename Choose<Bytes == 16, uint4, uint2>::Type Type;
};
template <>
struct Word<4> {
  typedef unsigned Type;
};
template <>
struct Word<2> {
  typedef unsigned short Type;
};
template <typename V>
struct OnItsWay {
  typename Word<sizeof(V)>::Type word;
  __device__ __forceinline__ void load(const V* from) {
    word = *reinterpret_cast<const typename Word<sizeof(V)>::Type*>(from);
  }
  __device__ __forceinline__ const V& value() const { return reinterpret_cast<const V&>(word); }
};
typedef OfColumns<Scale, GROUPS> Scales;
typedef OfColumns<unsigned char, GROUPS> Zeros;

struct Stage {
  Tile codes[SIXTEENS];
  OnItsWay<Scales> scales[SIXTEENS];
  OnItsWay<Zeros> zeros[SIXTEENS];
  __device__ __forceinline__ unsigned zero(int sixteen, int group, int column) const {
    return ZEROS ? zeros[sixteen].value().at[group][column] : 8;
  }
};

// Where a lane's codes and factors are, at the warp's block `block`.
struct Place {
  // Blocks that share a factor. Of columns with one factor each there is one group.
  static constexpr int SHARE = GROUP > BLOCK ? GROUP / BLOCK : 1;
  static constexpr bool MOVES = GROUP > 0 && WARPS % SHARE == 0;
  const uint4* codes;
  const Scales* scales;
  const Zeros* zeros;
  int block;
  __device__ __forceinline__ static int lines_to(int block) { return GROUP == 0 ? 0 : block / SHARE * 32; }
  __device__ __forceinline__ Place(const uint4* codes, const Scales* scales, const Zeros* zeros, int block)
      : codes(codes + static_cast<i64>(block) * 128 * Tile::VECTORS),
        scales(scales + (MOVES ? lines_to(block) : 0)),
        zeros(zeros + (MOVES ? lines_to(block) : 0)),
        block(block) {}
  __device__ __forceinline__ void load(Stage& stage, int ahead) const {
#pragma unroll
    for (int q = 0; q < SIXTEENS; ++q)
#pragma unroll
      for (int i = 0; i < Tile::VECTORS; ++i)
        stage.codes[q].at[i] = __ldcs(codes + ((ahead * 4 + q) * Tile::VECTORS + i) * 32);
    const int line = lines_to(MOVES ? ahead : block + ahead);
#pragma unroll
    for (int q = 0; q < SIXTEENS; ++q) {
      stage.scales[q].load(scales + line + q * 8);
      if constexpr (ZEROS) stage.zeros[q].load(zeros + line + q * 8);
    }
  }
  __device__ __forceinline__ void advance(int blocks) {
    codes += blocks * 128 * Tile::VECTORS;
    if constexpr (MOVES) scales += lines_to(blocks), zeros += lines_to(blocks);
    block += blocks;
  }
  // To the L2, the codes of a warp's first blocks: a launch before this one may still write.
  __device__ __forceinline__ void prefetch(int lane, int blocks) const {
#if __CUDA_ARCH__ >= 900
    if (lane < TILES_AHEAD && block + lane * WARPS < blocks)
      bulk_prefetch(reinterpret_cast<unsigned long long>(codes - lane + lane * WARPS * 128 * Tile::VECTORS),
                    512 * SIXTEENS * Tile::VECTORS);
#endif
  }
};

// Products of 64 steps of k and 16 columns. Where codes have their factors, sums of all groups are one.
__device__ __forceinline__ void multiply(const Stage& stage, int sixteen, const Activations& x,
                                         float (&sums)[ROWS_OF_8][4]) {
  const Scales scales = stage.scales[sixteen].value();
  Pair larger[GROUPS][2];
  const bool again = powers_of<T>(scales, larger);
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    const unsigned of_columns[2] = {stage.zero(sixteen, group, 0), stage.zero(sixteen, group, 1)};
    float of_group[ROWS_OF_8][4] = {};
#pragma unroll
    for (int s = 0; s < 4 / GROUPS; ++s) {
      const int step = group * (4 / GROUPS) + s;
      Pair a[4];
      stage.codes[sixteen].template decode<T>(step, of_columns, larger[group], a);
      if (POWERS<T> && again) multiply_by<T>(scales, group, a);
#pragma unroll
      for (int j = 0; j < ROWS_OF_8; ++j)
        Decode<T>::multiply(FOLDS<T> ? sums[j] : of_group[j], a, x.at[j][2 * step], x.at[j][2 * step + 1]);
    }
    if constexpr (FOLDS<T>) continue;
#pragma unroll
    for (int j = 0; j < ROWS_OF_8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[j][e] += factor_of(scales.at[group][e / 2]) * of_group[j][e];
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT)
    skinny(const X* A, const uint4* B, const Out* C, Out* D, const Scales* scales, const Zeros* zeros,
           i64 a_row, i64 d_row, int m, int n, int blocks,
           const float* weights X_FACTORS_PARAMETERS NORM_PARAMETERS MODES_PARAMETER RAGGED_PARAMETER
               EPILOGUE_PARAMETER) {
  __shared__ float parts[WARPS][ROWS][COLS + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#if __CUDA_ARCH__ >= 900
  let_next_launch_start();
  if constexpr (RAGGED) wait_for_last_launch();  // which may have written where groups end
#endif
  Rows rows;
  if (!find_rows<ROWS>(RAGGED_PASSED, m, rows)) return;
  const int first = rows.begin, last = rows.end, sixteen = blockIdx.x * SIXTEENS, quarter = sixteen % 4;
  const i64 tile = rows.group * (gridDim.x * SIXTEENS / 4) + sixteen / 4;
  const int groups = GROUP == 0 ? 1 : blocks / max_of(1, GROUP / BLOCK);
  const i64 factors = (tile * groups * 4 + quarter) * 8 + g;
  Place place(B + (tile * blocks * 4 + quarter) * 32 * Tile::VECTORS + lane, scales + factors,
              zeros + factors, warp);
#if __CUDA_ARCH__ >= 900
  if constexpr (!RAGGED) {
    place.prefetch(lane, blocks);
    wait_for_last_launch();
  }
#endif

  Stage stages[TILES_AHEAD];
#pragma unroll
  for (int i = 0; i < TILES_AHEAD; ++i)
    if (warp + i * WARPS < blocks) place.load(stages[i], i * WARPS);
  Activations x[X_AHEAD];
  Lines lines(A, a_row, first, last, g, t, MODES_PASSED);
  lines.advance(min_of(warp, blocks - 1));
  if constexpr (X_AHEAD > 1) x[0].read(lines, 0);
#if NORM
  for (int row = 0; row < min_of(ROWS, last - first); ++row)
    keep_squares<WARPS>(A + row_of_x(MODES_PASSED, first + row) * a_row, BLOCK * blocks,
                        parts[warp][row][COLS]);
#endif

  float sums[SIXTEENS][ROWS_OF_8][4] = {};
  while (place.block < blocks) {
#pragma unroll
    for (int i = 0; i < TILES_AHEAD; ++i) {
      const int block = place.block + i * WARPS;
      if (block >= blocks) break;
      if (X_AHEAD == 1 || block + WARPS < blocks)
        x[(i + X_AHEAD - 1) % X_AHEAD].read(lines, (i + X_AHEAD - 1) * WARPS);
#pragma unroll
      for (int q = 0; q < SIXTEENS; ++q) multiply(stages[i], q, x[i % X_AHEAD], sums[q]);
      if (block + WARPS * TILES_AHEAD < blocks) place.load(stages[i], (i + TILES_AHEAD) * WARPS);
    }
    place.advance(WARPS * TILES_AHEAD);
    lines.advance(WARPS * TILES_AHEAD);
  }

#pragma unroll
  for (int at = 0; at < SIXTEENS * ROWS_OF_8; ++at) {
    const int q = at / ROWS_OF_8, j = at % ROWS_OF_8;
#pragma unroll
    for (int e = 0; e < 4; ++e) parts[warp][8 * j + 2 * t + e % 2][16 * q + g + e / 2 * 8] = sums[q][j][e];
  }
  __syncthreads();
  const float of_all = factor_of_all<T>(weights, rows.group);
  const Target<Out> target{C, D, d_row, rows.group, last, n, EPILOGUE_PASSED, MODES_PASSED};
  for (int at = threadIdx.x; at < ROWS * COLS / 2; at += 32 * WARPS) {
    const int row = at / (COLS / 2), column = at % (COLS / 2) * 2, col = blockIdx.x * COLS + column;
    if (first + row >= last || col >= n) continue;
    float two[2] = {parts[0][row][column], parts[0][row][column + 1]},
          of_row = NORM ? parts[0][row][COLS] : 0;
#pragma unroll
    for (int w = 1; w < WARPS; ++w) {
      two[0] += parts[w][row][column];
      two[1] += parts[w][row][column + 1];
      if constexpr (NORM) of_row += parts[w][row][COLS];
    }
    if constexpr (NORM) two[0] *= NORM_OF(of_row), two[1] *= NORM_OF(of_row);
    if constexpr (FORMAT == NVFP4) two[0] *= of_all, two[1] *= of_all;
    if constexpr (X_OF_8_BITS) two[0] *= X_FACTOR_OF(first + row), two[1] *= X_FACTOR_OF(first + row);
    target.finish(two, first + row, col);
  }
}
