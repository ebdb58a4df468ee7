// Weights of few bits in 16, one row of D for each column: what other kernels multiply by many rows of x. A
// factor rounds its products to the type of D. With CODES_ALONE they are codes in e4m3, and `factors` has floats:
// a row for each group of k. Four groups of e2m1 share the largest of their factors, and codes have the rest,
// which e4m3 holds exactly if it is no less than 2^-14. `inexact` says of 16 columns and 64 steps whether it is less
// for a code that is not 0.
#include "common.cuh"
#include "config.cuh"
#include "quantised/decode.cuh"
#if __CUDA_ARCH__ >= 900
#include "overlap.cuh"
#endif

typedef long long i64;
using namespace quantised;

typedef Choose<CODES_ALONE != 0, unsigned short, Pair>::Type Word;  // two steps of k of a row
constexpr int WORDS = 64, VECTORS = WORDS * sizeof(Word) / 16;      // of a row of 128 steps; of 16 bytes
constexpr int PITCH = WORDS + 16 / sizeof(Word);  // words of such a row; eight rows further is another bank
constexpr int PER_GROUP = GROUP > 64 ? GROUP / 64 : 1;  // blocks of 64 steps

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

template <typename One, typename Other>
constexpr bool SAME = false;
template <typename One>
constexpr bool SAME<One, One> = true;
// Factors that D's type holds multiply codes in it: products are rounded once, as from floats, by a fifth of the
// instructions.
constexpr bool IN_T = SAME<T, Scale> || (FORMAT == MXFP4 && Decode<T>::HOLDS_E8M0);

constexpr bool FOLDED = CODES_ALONE && FORMAT == MXFP4;
constexpr int E8M0_NAN = 255;
constexpr int ROOM = 6;    // 6 by 2^6 is below 448, the largest number of e4m3
constexpr int EXACT = 14;  // and half of 2^(6 - 14) is its smallest
constexpr Pair SIGNS = 0x80008000u;

// A quarter of a tile and two blocks of k, of which the second may not exist: then it is the first once more.
struct Loaded {
  Codes<FORMAT> codes[2];
  Scales scales[2];
  Zeros zeros[2];
  int top[2];  // the largest factors of columns g and g + 8, of both blocks

  __device__ __forceinline__ Loaded(const uint4* B, const Scales* scales, const Zeros* zeros, i64 line,
                                    i64 group, int second, int groups_on, int lane) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const uint4* const from = B + (line + b * second * 4) * codes[b].VECTORS * 32 + lane;
#pragma unroll
      for (int i = 0; i < codes[b].VECTORS; ++i) codes[b].at[i] = from[i * 32];
      const i64 at = group + b * groups_on * 32 + lane / 4;
      this->scales[b] = scales[at];
      if constexpr (ZEROS) this->zeros[b] = zeros[at];
    }
    top[0] = top[1] = 0;
    if constexpr (FOLDED)
#pragma unroll
      for (int i = 0; i < 4 * GROUPS; ++i) {
        const int factor = stored(i / (2 * GROUPS), i / 2 % GROUPS, i % 2);
        if (factor != E8M0_NAN) top[i % 2] = max_of(top[i % 2], factor);
      }
  }
  __device__ __forceinline__ int stored(int block, int group, int column) const {
    return static_cast<int>(static_cast<unsigned char>(scales[block].at[group][column]));
  }
  __device__ __forceinline__ void decode(int block, int step, Pair (&a)[4]) const {
    unsigned of_both[2] = {8, 8};
    if constexpr (ZEROS) {
      of_both[0] = zeros[block].at[step * GROUPS / 4][0];
      of_both[1] = zeros[block].at[step * GROUPS / 4][1];
    }
    codes[block].template decode<T>(step, of_both, a);
  }
  // Halves by which codes of a group are multiplied that has less than the largest factor.
  __device__ __forceinline__ Pair rest(int block, int group, int column) const {
    const int factor = stored(block, group, column), less = min_of(top[column] - factor, 20);
    return (factor == E8M0_NAN ? 0x7E00u : static_cast<unsigned>(ROOM + 15 - less) << 10) * 0x10001u;
  }
  // Whether e4m3 holds the lane's codes of a block by what their factors have less. Hardly any factor is so small
  // that codes, which may be 0, must be looked at.
  __device__ __forceinline__ bool exact(int block) const {
    bool found = true;
#pragma unroll
    for (int i = 0; i < 2 * GROUPS; ++i)
      found = found && static_cast<unsigned>(top[i % 2] - stored(block, i / 2, i % 2)) <= EXACT;
    if (__all_sync(0xffffffffu, found)) return true;
    found = true;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Pair a[4];
      decode(block, step, a);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int factor = stored(block, step * GROUPS / 4, i);
        const bool small = top[i] - factor > EXACT && ((a[i] | a[i + 2]) & ~SIGNS);
        found = found && factor != E8M0_NAN && !small;
      }
    }
    return found;
  }
};

__device__ __forceinline__ Word as_codes(Pair pair) {
  const __half2_raw halves = Decode<__half>::pair_of(pair);
  return __nv_cvt_halfraw2_to_fp8x2(halves, __NV_SATFINITE, __NV_E4M3);
}

__device__ __forceinline__ Word as_numbers(Pair pair, float factor, Pair in_t) {
  if constexpr (IN_T) return product(Decode<T>::pair_of(pair), Decode<T>::pair_of(in_t));
  else return Decode<T>::of_floats(low_of(pair, T()) * factor, high_of(pair, T()) * factor);
}

// Columns g and g + 8 of a block, whose rows lie in shared memory.
__device__ __forceinline__ void decode_into(Word (&rows)[16][PITCH], const Loaded& loaded, int block, int g,
                                            int t, const float* weights) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int group = step * GROUPS / 4;
    Pair a[4];
    loaded.decode(block, step, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Word word;
      if constexpr (CODES_ALONE) {
        if constexpr (FOLDED)
          a[i] = product(Decode<T>::pair_of(a[i]), Decode<T>::pair_of(loaded.rest(block, group, i % 2)));
        word = as_codes(a[i]);
      } else {
        float factor = factor_of(loaded.scales[block].at[group][i % 2]);
        if constexpr (FORMAT == NVFP4) factor *= weights[0];
        word = as_numbers(a[i], factor, Decode<T>::of_floats(factor, factor));
      }
      rows[i % 2 * 8 + g][WORDS / 2 * block + 4 * (2 * step + i / 2) + t] = word;
    }
  }
}

// Blocks of threads have WARPS / 4 times 128 steps of a tile, along k first.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    decoded(const uint4* B, uint4* D, const Scales* scales, const Zeros* zeros, int n, int blocks,
            const float* weights, float* factors, unsigned char* inexact) {
  __shared__ alignas(16) Word rows[WARPS][16][PITCH];
#if __CUDA_ARCH__ >= 900
  let_next_launch_start();
  wait_for_last_launch();
#endif
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, quarter = warp % 4;
  const unsigned turns = (blocks + WARPS / 2 - 1) / (WARPS / 2), tile = blockIdx.x / turns;
  const int pair = (blockIdx.x - tile * turns) * (WARPS / 4) + warp / 4, block = 2 * pair;
  if (block >= blocks) return;
  const int second = block + 1 < blocks;
  const int groups = GROUP == 0 ? 1 : blocks / PER_GROUP, group = GROUP == 0 ? 0 : block / PER_GROUP;
  const i64 line = (static_cast<i64>(tile) * blocks + block) * 4 + quarter;
  const Loaded loaded(B, scales, zeros, line, ((static_cast<i64>(tile) * groups + group) * 4 + quarter) * 8,
                      second, GROUP != 0 && PER_GROUP == 1 ? second : 0, lane);
  if constexpr (CODES_ALONE) {
    if ((GROUP != 0 || pair == 0) && t < 2) {
      const int column = tile * 64 + quarter * 16 + 8 * t + g;
      float factor;
      if constexpr (FOLDED)
        factor =
            (1.0f / (1 << ROOM)) * factor_of(static_cast<unsigned char>(t ? loaded.top[1] : loaded.top[0]));
      else factor = t ? factor_of(loaded.scales[0].at[0][1]) : factor_of(loaded.scales[0].at[0][0]);
      if (column < n) factors[static_cast<i64>(pair) * n + column] = factor;
    }
  }
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    decode_into(rows[warp], loaded, b, g, t, weights);
    if constexpr (FOLDED) {
      const bool all = __all_sync(0xffffffffu, loaded.exact(b));
      if (lane == 0 && b <= second) inexact[line + b * 4] = !all;
    }
  }
  __syncwarp();
  // Lanes store vectors of 8 or 16 steps.
  const int vector = lane % VECTORS, first = tile * 64 + quarter * 16 + lane / VECTORS;
  uint4* to = D + (static_cast<i64>(first) * blocks + block) * (VECTORS / 2) + vector;
  if (!second && vector >= VECTORS / 2) return;
#pragma unroll
  for (int i = 0; i < VECTORS / 2; ++i) {
    constexpr int APART = 32 / VECTORS;  // rows of neighbouring stores
    if (first + APART * i < n)
      *to = *reinterpret_cast<const uint4*>(
          &rows[warp][APART * i + lane / VECTORS][vector * (16 / sizeof(Word))]);
    to += static_cast<i64>(APART * VECTORS / 2) * blocks;
  }
}
