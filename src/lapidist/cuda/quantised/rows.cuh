// The rows of x that a block multiplies: Lines of all, or of a group, whose weight is one of several that lie one
// behind another.
#pragma once
#include "config.cuh"
#include "modes.cuh"
#include "share/groups.cuh"

struct Rows {
  int group, begin, end;
};

// The row of x that makes a row of the product: its own, or the one that its index names.
__device__ __forceinline__ i64 row_of_x(const Modes& modes, int row) {
  return GATHER_A ? static_cast<i64>(modes.a_rows[row]) : row;
}

// Rows that have, or had, 8 bits have factors: a number for all, or an array.
#if X_FACTORS
#define X_FACTORS_PARAMETERS , float x_factor, const float *x_factors, i64 x_factors_step
#define X_FACTOR_OF(row) \
  (x_factors == nullptr ? x_factor : x_factors[row_of_x(MODES_PASSED, row) * x_factors_step])
#else
#define X_FACTORS_PARAMETERS
#define X_FACTOR_OF(row) 1.0f
#endif

// All lanes of a warp call it together. False: groups have fewer blocks than there may be.
template <int Lines>
__device__ __forceinline__ bool find_rows(const Ragged& ragged, int m, Rows& rows) {
  if constexpr (RAGGED == NOT_RAGGED) {
    rows = {0, static_cast<int>(blockIdx.y) * Lines, m};
    return true;
  } else {
    GroupWalk<Lines> walk(ragged, 1);
    Group group;
    int number;
    if (!walk.find(blockIdx.y, group, number)) return false;
    rows = {group.number, group.begin + number * Lines, group.end};
    return true;
  }
}
