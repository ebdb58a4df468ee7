// Weights of few bits in 16, one row of D for each column: what other kernels multiply by many rows of x. A
// factor rounds its products to the type of D.
#include "config.cuh"
#include "quantised/decode.cuh"

typedef long long i64;
using namespace quantised;

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

// A warp decodes a tile; warps are tiles of n x blocks of k, along k first.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    decoded(const uint4* B, uint4* D, const Scales* scales, const Zeros* zeros, int n, int tiles, int blocks,
            int per_group) {
  const i64 warp = static_cast<i64>(blockIdx.x) * WARPS + threadIdx.x / 32;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (warp >= static_cast<i64>(tiles) * blocks) return;
  const int tile = static_cast<int>(warp / blocks), block = static_cast<int>(warp % blocks);
  Codes<FORMAT> codes;
#pragma unroll
  for (int i = 0; i < codes.VECTORS; ++i) codes.at[i] = B[(warp * codes.VECTORS + i) * 32 + lane];
  const i64 at = (static_cast<i64>(tile) * (blocks / per_group) + block / per_group) * 8 + g;
  const Scales of_columns = scales[at];
  Zeros points;
  if constexpr (ZEROS) points = zeros[at];
  Pair words[2][8];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int group = step * GROUPS / 4;
    unsigned of_both[2] = {8, 8};
    if constexpr (ZEROS) {
      of_both[0] = points.at[group][0];
      of_both[1] = points.at[group][1];
    }
    Pair a[4];
    codes.template decode<X>(step, of_both, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float factor = factor_of(of_columns.at[group][i % 2]);
      words[i % 2][2 * step + i / 2] =
          Decode<X>::of_floats(low_of(a[i], X()) * factor, high_of(a[i], X()) * factor);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = tile * 16 + half * 8 + g;
    if (row >= n) continue;
    uint4* const to = D + (static_cast<i64>(row) * blocks + block) * 8 + t;
    to[0] = make_uint4(words[half][0], words[half][1], words[half][2], words[half][3]);
    to[4] = make_uint4(words[half][4], words[half][5], words[half][6], words[half][7]);
  }
}
