// A thread's sums outside the tensor core: promoted, and multiplied by the factors of A and B (factors.cuh).
//
// Sums are promoted after each tile of BK elements of k, which divides 128. The tile's factors are loaded at
// its start; its products take longer than that.
#pragma once

#include "config.cuh"
#include "factors.cuh"
#include "gemm/mma/constants.cuh"

static_assert(!PROMOTED || 128 % BK == 0, "a tile of k has one factor");
#if SCALED
#define SCALES_PARAMETER , Scales scales
#define SCALES scales
#else
#define SCALES_PARAMETER
#define SCALES Scales()
#endif

template <int KIND, bool Gathered>
__device__ __forceinline__ float factor_of(const float* factors, const Index* from, int line, int lines,
                                           i64 step) {
  if (KIND == 1) return *factors;
  return factors[line_of_factor<Gathered>(from, line, lines) / (KIND == 4 ? 128 : 1) * step];
}

// The factors of a thread's Rows x 4 Cols sums from (row, col) on: either those that change along k, or the
// others.
template <int Rows, int Cols, bool AlongK>
struct Factors {
  static constexpr bool OF_A = A_FACTORS > 0 && A_ALONG_K == AlongK,
                        OF_B = B_FACTORS > 0 && B_ALONG_K == AlongK;
  float a[Rows][2], b[Cols][2];

  __device__ __forceinline__ void load(const Scales& scales, const Modes& modes, int row, int col, int k,
                                       int M, int N) {
    const int group = thread_now() % 32 / 4, pair = thread_now() % 4 * 2;
    if constexpr (OF_A)
#pragma unroll
      for (int i = 0; i < Rows * 2; ++i)
        a[i / 2][i % 2] =
            factor_of<A_FACTORS, (GATHER_A > 0)>(scales.a + k / 128 * scales.a_block, modes.a_rows,
                                                 row + AReader::outer_of(i, group), M, scales.a_line);
    if constexpr (OF_B)
#pragma unroll
      for (int i = 0; i < Cols * 2; ++i)
        b[i / 2][i % 2] = factor_of<B_FACTORS, (GATHER_B > 0)>(
            scales.b + k / 128 * scales.b_block, modes.b_cols, col + BReader::outer_of(i / 2, pair + i % 2),
            N, scales.b_line);
  }
  __device__ __forceinline__ float of(int m, int n, int i) const {
    return (OF_A ? a[m][i / 2] : 1.0f) * (OF_B ? b[n][i % 2] : 1.0f);
  }
};

template <int Rows, int Cols>
struct Totals {
  Scalar at[Rows][Cols * 4];

  __device__ __forceinline__ Totals() {
    if constexpr (PROMOTED) each([&](int m, int n, int i) { at[m][n * 4 + i] = 0; });
  }
  template <typename Do>
  static __device__ __forceinline__ void each(Do act) {
#pragma unroll
    for (int m = 0; m < Rows; ++m)
#pragma unroll
      for (int n = 0; n < Cols; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) act(m, n, i);
  }
  // Take the sums, if they were not promoted.
  __device__ __forceinline__ void take(const Sums (&sums)[Rows][Cols]) {
    if constexpr (!PROMOTED) each([&](int m, int n, int i) { at[m][n * 4 + i] = sums[m][n].sum(i); });
  }
  // Add the sums of a tile of k, and reset them to zero.
  __device__ __forceinline__ void promote(Sums (&sums)[Rows][Cols],
                                          const Factors<Rows, Cols, true>& factors) {
    each([&](int m, int n, int i) { at[m][n * 4 + i] += factors.of(m, n, i) * sums[m][n].sum(i); });
#pragma unroll
    for (int i = 0; i < Rows * Cols; ++i) sums[i / Cols][i % Cols] = Sums();
  }
  // Multiply by the factors that are the same for all of k.
  __device__ __forceinline__ void scale(const Scales& scales, const Modes& modes, int row, int col, int M,
                                        int N) {
    Factors<Rows, Cols, false> factors;
    if constexpr (factors.OF_A || factors.OF_B) {
      factors.load(scales, modes, row, col, 0, M, N);
      each([&](int m, int n, int i) { at[m][n * 4 + i] *= factors.of(m, n, i); });
    }
  }
};
