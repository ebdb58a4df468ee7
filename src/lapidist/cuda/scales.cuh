// What models ask of 8-bit floats: sums that leave the tensor core every 128 of k, and factors of A and B.
//
//   PROMOTED   wgmma keeps 14 bits of a sum of 8-bit floats. The products of each step (BK is 128 of k) start at zero, and the
//              cores add them up in float. Their registers are a second set of sums: at most 96 a thread, else they spill.
//   A_FACTORS, B_FACTORS
//     0  none          1  one for the whole matrix       2  one for each row of A, or column of B
//     3  one for each row or column and 128 of k         4  one for 128 rows or columns and 128 of k
//
// Factors that change along k multiply each step's products, so they need PROMOTED; the others multiply the sums at the end.
#pragma once

#include "wgmma.cuh"

#ifndef PROMOTED
#define PROMOTED 0
#endif
#ifndef A_FACTORS
#define A_FACTORS 0
#define B_FACTORS 0
#endif
static_assert(!PROMOTED || BK == 128, "a step is what the cores add up");
static_assert(PROMOTED || (A_FACTORS < 3 && B_FACTORS < 3), "factors that change along k multiply promoted sums");

// Steps between factors, in elements: to the next row or column (or 128 of them), to the next 128 of k.
struct Scales { const float *a, *b; i64 a_line, a_block, b_line, b_block; };

// The factors of one step for the sums of a thread: rows h * 8 and columns j * 8 + i of those that start at (row, col).
template <int Rows, int Cols> struct StepFactors {
  static constexpr bool ALONG_K_A = A_FACTORS > 2, ALONG_K_B = B_FACTORS > 2;
  static constexpr int COLUMNS = B_FACTORS == 3 ? Cols / 4 : 2;
  static_assert(B_FACTORS != 4 || Cols <= 128 + (Cols & -Cols), "a tile touches two blocks of 128 columns");
  float a[Rows][2], b[COLUMNS];
  int first_of_second;  // j from which on columns lie in the second block

  // Loaded before the wait for the step's tiles: they are there when its products are. Lines that do not exist repeat the last.
  __device__ __forceinline__ void load(const Scales& scales, int row, int col, int step, int M, int N) {
    if constexpr (ALONG_K_A) {
      const float* from = scales.a + step * scales.a_block;
#pragma unroll
      for (int m = 0; m < Rows; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) a[m][h] = from[min_of(row + m * 64 + h * 8, M - 1) / (A_FACTORS == 4 ? 128 : 1) * scales.a_line];
    }
    const float* from = scales.b + step * scales.b_block;
    if constexpr (B_FACTORS == 3) {
#pragma unroll
      for (int i = 0; i < COLUMNS; ++i) b[i] = from[min_of(col + i / 2 * 8 + i % 2, N - 1) * scales.b_line];
    } else if constexpr (B_FACTORS == 4) {
      const int block = col / 128, last = (N - 1) / 128;
      first_of_second = 16 - col % 128 / 8;
#pragma unroll
      for (int i = 0; i < 2; ++i) b[i] = from[min_of(block + i, last) * scales.b_line];
    }
  }
  __device__ __forceinline__ float of(int m, int h, int j, int i) const {
    float factor = ALONG_K_A ? a[m][h] : 1.0f;
    if constexpr (B_FACTORS == 3) factor *= b[j * 2 + i];
    if constexpr (B_FACTORS == 4) factor *= 128 % Cols == 0 || j < first_of_second ? b[0] : b[1];
    return factor;
  }
  __device__ __forceinline__ void add(Sum (&sums)[Rows][Cols / 2], const Sum (&products)[Rows][Cols / 2]) const {
#pragma unroll
    for (int m = 0; m < Rows; ++m)
#pragma unroll
      for (int s = 0; s < Cols / 2; ++s) sums[m][s] += of(m, s / 2 % 2, s / 4, s % 2) * products[m][s];
  }
};

// What the whole of k has in common: factors of rows and columns, for Count sums of a thread that start at (row, col).
template <int Count> __device__ __forceinline__ void scale_in_the_end(Sum* sums, const Scales& scales, int row, int col, int M, int N) {
  if constexpr ((A_FACTORS == 0 || A_FACTORS > 2) && (B_FACTORS == 0 || B_FACTORS > 2)) return;
  const float one_a = A_FACTORS == 1 ? *scales.a : 1.0f, one_b = B_FACTORS == 1 ? *scales.b : 1.0f;
  float of_row[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) of_row[h] = (A_FACTORS == 2 ? scales.a[min_of(row + h * 8, M - 1) * scales.a_line] : one_a) * one_b;
#pragma unroll
  for (int j = 0; j < Count / 4; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float of_column = B_FACTORS == 2 ? scales.b[min_of(col + j * 8 + i, N - 1) * scales.b_line] : 1.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h) sums[j * 4 + h * 2 + i] *= of_row[h] * of_column;
    }
}
