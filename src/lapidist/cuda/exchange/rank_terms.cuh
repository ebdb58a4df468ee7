// Sums of the terms of several ranks, in their order or by the tree of neighbours.
#pragma once

#include "config.cuh"

struct alignas(sizeof(Term) * TOGETHER) Vector {
  Term at[TOGETHER];
};

// Sums of floats that are narrower than float32 are rounded once.
__device__ __forceinline__ Term sum_of(const Term (&terms)[RANKS]) {
  Sum sums[RANKS];
#pragma unroll
  for (int rank = 0; rank < RANKS; ++rank) sums[rank] = static_cast<Sum>(terms[rank]);
  if constexpr (BY_TREE) {
#pragma unroll
    for (int apart = 1; apart < RANKS; apart *= 2)
#pragma unroll
      for (int rank = 0; rank + apart < RANKS; rank += 2 * apart) sums[rank] += sums[rank + apart];
  } else {
#pragma unroll
    for (int rank = 1; rank < RANKS; ++rank) sums[0] += sums[rank];
  }
  return static_cast<Term>(sums[0]);
}

__device__ __forceinline__ Vector sum_of(const Vector (&vectors)[RANKS]) {
  Vector sum;
#pragma unroll
  for (int e = 0; e < TOGETHER; ++e) {
    Term terms[RANKS];
#pragma unroll
    for (int rank = 0; rank < RANKS; ++rank) terms[rank] = vectors[rank].at[e];
    sum.at[e] = sum_of(terms);
  }
  return sum;
}
