// Weights of few bits in 16, one row of D for each column: what other kernels multiply by many rows of x. A
// factor rounds its products to the type of D. With CODES_ALONE they are codes in e4m3, which are exact.
#include "config.cuh"
#include "quantised/decode.cuh"

typedef long long i64;
using namespace quantised;

// Two steps of k of a row.
template <bool Codes>
struct Two {
  typedef Pair Type;
  static __device__ __forceinline__ Pair of(float low, float high) { return Decode<T>::of_floats(low, high); }
};
template <>
struct Two<true> {
  typedef unsigned short Type;
  static __device__ __forceinline__ Type of(float low, float high) {
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
  }
};
typedef Two<CODES_ALONE != 0>::Type Word;
constexpr int VECTORS = 64 * sizeof(Word) / 32;  // of 16 bytes in a row of 64 steps
constexpr int PITCH = 32 + 16 / sizeof(Word);    // words of such a row; eight rows further is another bank

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

// A warp decodes a quarter of a tile; tiles are numbered along k first.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    decoded(const uint4* B, uint4* D, const Scales* scales, const Zeros* zeros, int n, int tiles, int blocks,
            int per_group, const float* weights) {
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
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float factor = CODES_ALONE ? 1 : factor_of(of_columns.at[group][i % 2]);
      if constexpr (FORMAT == NVFP4) factor *= weights[0];
      words[i % 2][2 * step + i / 2] =
          Two<CODES_ALONE != 0>::of(low_of(a[i], T()) * factor, high_of(a[i], T()) * factor);
    }
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
