// Weights of few bits in 16, one row of D for each column: what other kernels multiply by many rows of x. A
// factor rounds its products to the type of D. With CODES_ALONE they are codes in e4m3, and `factors` has floats:
// a row for each group of k. Four groups of e2m1 share the largest of their factors, and codes have the rest,
// which e4m3 holds exactly if it is no less than 2^-14. `inexact` says of 16 columns and 64 steps whether it is less
// for a code that is not 0.
#include "common.cuh"
#include "config.cuh"
#include "quantised/decode.cuh"

typedef long long i64;
using namespace quantised;

typedef Choose<CODES_ALONE != 0, unsigned short, Pair>::Type Word;  // two steps of k of a row
constexpr int VECTORS = 64 * sizeof(Word) / 32;                     // of 16 bytes in a row of 64 steps
constexpr int PITCH = 32 + 16 / sizeof(Word);  // words of such a row; eight rows further is another bank

typedef OfColumns<Scale, GROUPS> Scales;
typedef OfColumns<unsigned char, GROUPS> Zeros;

__device__ __forceinline__ float low_of(Pair pair, __half) {
  return __low2float(Decode<__half>::pair_of(pair));
}
__device__ __forceinline__ float high_of(Pair pair, __half) {
  return __high2float(Decode<__half>::pair_of(pair));
}
__device__ __forceinline__ float low_of(Pair pair, __nv_bfloat16) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_of(Pair pair, __nv_bfloat16) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

constexpr bool FOLDED = CODES_ALONE && FORMAT == MXFP4;
constexpr int E8M0_NAN = 255;
constexpr int ROOM = 6;    // 6 by 2^6 is below 448, the largest number of e4m3
constexpr int EXACT = 14;  // and half of 2^(6 - 14) is its smallest
constexpr Pair SIGNS = 0x80008000u;

// The largest factors of columns g and g + 8 in the blocks of k that share one.
__device__ __forceinline__ void largest_of(const Scales& of_columns, int (&top)[2]) {
#pragma unroll
  for (int i = 0; i < 2 * GROUPS; ++i) {
    const int factor = static_cast<int>(static_cast<unsigned char>(of_columns.at[i / 2][i % 2]));
    if (factor != E8M0_NAN) top[i % 2] = max_of(top[i % 2], factor);
  }
}

// Halves by which codes of a group are multiplied that has `less` powers of two than the largest.
__device__ __forceinline__ Pair rest_of(int stored, int less) {
  const unsigned half =
      stored == E8M0_NAN ? 0x7E00u : static_cast<unsigned>(ROOM + 15 - min_of(less, 20)) << 10;
  return half * 0x10001u;
}

__device__ __forceinline__ Word as_codes(Pair pair) {
  const __half2_raw halves = Decode<__half>::pair_of(pair);
  return __nv_cvt_halfraw2_to_fp8x2(halves, __NV_SATFINITE, __NV_E4M3);
}

// A warp decodes a quarter of a tile; tiles are numbered along k first.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    decoded(const uint4* B, uint4* D, const Scales* scales, const Zeros* zeros, int n, int tiles, int blocks,
            int per_group, const float* weights, float* factors, unsigned char* inexact) {
  const i64 warp = static_cast<i64>(blockIdx.x) * WARPS + threadIdx.x / 32;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (warp >= static_cast<i64>(tiles) * blocks * 4) return;
  const int tile = static_cast<int>(warp / 4 / blocks), block = static_cast<int>(warp / 4 % blocks);
  const int quarter = static_cast<int>(warp % 4);
  Codes<FORMAT> codes;
#pragma unroll
  for (int i = 0; i < codes.VECTORS; ++i) codes.at[i] = B[(warp * codes.VECTORS + i) * 32 + lane];
  const i64 at = ((static_cast<i64>(tile) * (blocks / per_group) + block / per_group) * 4 + quarter) * 8 + g;
  const Scales of_columns = scales[at];
  int top[2] = {0, 0};
  bool exact = true;
  if constexpr (FOLDED) {  // with the other block of 128 steps, if there is one
    largest_of(of_columns, top);
    if ((block ^ 1) < blocks) largest_of(scales[at + (block % 2 ? -32 : 32)], top);
  }
  if constexpr (CODES_ALONE) {
    const int steps = FOLDED ? 2 : per_group;
    if (block % steps == 0 && t < 2) {
      const int column = tile * 64 + quarter * 16 + 8 * t + g;
      const float factor = FOLDED
                               ? (1.0f / (1 << ROOM)) * factor_of(static_cast<unsigned char>(top[t ? 1 : 0]))
                               : factor_of(t ? of_columns.at[0][1] : of_columns.at[0][0]);
      if (column < n) factors[static_cast<i64>(block / steps) * n + column] = factor;
    }
  }
  Zeros points;
  if constexpr (ZEROS) points = zeros[at];
  Word words[2][8];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int group = step * GROUPS / 4;
    unsigned of_both[2] = {8, 8};
    if constexpr (ZEROS) {
      of_both[0] = points.at[group][0];
      of_both[1] = points.at[group][1];
    }
    Pair a[4];
    codes.template decode<T>(step, of_both, a);
    Pair rest[2];
    if constexpr (FOLDED) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int stored = static_cast<unsigned char>(of_columns.at[group][i]), less = top[i] - stored;
        exact = exact && stored != E8M0_NAN && (less <= EXACT || !((a[i] | a[i + 2]) & ~SIGNS));
        rest[i] = rest_of(stored, less);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Word& word = words[i % 2][2 * step + i / 2];
      if constexpr (CODES_ALONE) {
        if constexpr (FOLDED) a[i] = product(Decode<T>::pair_of(a[i]), Decode<T>::pair_of(rest[i % 2]));
        word = as_codes(a[i]);
      } else {
        float factor = factor_of(of_columns.at[group][i % 2]);
        if constexpr (FORMAT == NVFP4) factor *= weights[0];
        word = Decode<T>::of_floats(low_of(a[i], T()) * factor, high_of(a[i], T()) * factor);
      }
    }
  }
  if constexpr (FOLDED) {
    const bool all = __all_sync(0xffffffffu, exact);
    if (lane == 0) inexact[warp] = !all;
  }
  // Through shared memory, so that lanes store vectors of 8 steps.
  __shared__ alignas(16) Word rows[WARPS][16][PITCH];
  Word(&here)[16][PITCH] = rows[threadIdx.x / 32];
#pragma unroll
  for (int i = 0; i < 16; ++i) here[i / 8 * 8 + g][4 * (i % 8) + t] = words[i / 8][i % 8];
  __syncwarp();
#pragma unroll
  for (int i = 0; i < VECTORS / 2; ++i) {
    const int column = 32 / VECTORS * i + lane / VECTORS, row = tile * 64 + quarter * 16 + column;
    const int vector = lane % VECTORS;
    if (row < n)
      D[(static_cast<i64>(row) * blocks + block) * VECTORS + vector] =
          *reinterpret_cast<const uint4*>(&here[column][vector * (32 / VECTORS)]);
  }
}
