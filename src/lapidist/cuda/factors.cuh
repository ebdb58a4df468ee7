// Which factors A and B have, for what models ask of 8-bit floats: gemm/wgmma/scales.cuh is for wgmma, gemm/mma/scales.cuh
// for mma.sync.
//
// Factors that change along k multiply each step's products, so they need PROMOTED; the others multiply the
// sums at the end.
#pragma once

#include "config.cuh"
#include "modes.cuh"
#include "share/groups.cuh"
#include "tensor.cuh"

static_assert(PROMOTED || (A_FACTORS < 3 && B_FACTORS < 3),
              "factors that change along k multiply promoted sums");

// Steps between factors, in elements: to the next row or column (or 128 of them), to the next 128 of k.
struct Scales {
  const float *a, *b;
  i64 a_line, a_block, b_line, b_block;
};

// Those of one group.
__device__ __forceinline__ Scales scales_of_group(const Scales& scales, const Ragged& ragged, int group) {
  Scales own = scales;
  own.a += group * ragged.a_factors, own.b += group * ragged.b_factors;
  return own;
}

// The line of A, or of B, whose factor a line of the product has: indices pick factors with their lines. For lines
// outside the product it is that of the last one.
template <bool Gathered>
__device__ __forceinline__ int line_of_factor(const Index* lines, int line, int count) {
  line = min_of(line, count - 1);
  return Gathered ? static_cast<int>(lines[line]) : line;
}

constexpr bool A_ALONG_K = A_FACTORS > 2, B_ALONG_K = B_FACTORS > 2, FACTORS_ALONG_K = A_ALONG_K || B_ALONG_K;
