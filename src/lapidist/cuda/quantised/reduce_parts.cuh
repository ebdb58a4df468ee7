// The end of quantised/streamed.cu: the sums of a block lie in shared memory, where its cluster adds them up.
#pragma once
#include "config.cuh"
#include "quantised/finish.cuh"
#include "quantised/stages.cuh"

constexpr int PITCH = COLUMNS + 4;  // floats of a row of x; lanes of a warp then store to 32 banks
static_assert(BN * PITCH * 4 <= STAGES * STAGE, "sums lie where stages were");

// Sums of 16 columns of W, at places that hold stages no more.
__device__ __forceinline__ void keep_sums(char* room, const float (&sums)[BN / 2], int warp, int lane) {
  float* const to = reinterpret_cast<float*>(room) + lane % 4 * 2 * PITCH + warp * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < BN / 2; ++i) to[(i / 4 * 8 + i % 2) * PITCH + i / 2 % 2 * 8] = sums[i];
}

// Sums of all parts are there; then no block leaves while others read its sums.
__device__ __forceinline__ void sums_are_there() {
  if constexpr (PARTS > 1) cluster_barrier();
  else __syncthreads();
}
__device__ __forceinline__ void sums_were_read() {
  if constexpr (PARTS > 1) cluster_barrier();
}

// Warps that loaded have no registers for sums.
__device__ __forceinline__ void meet_while_others_reduce() {
  __syncthreads();
  sums_are_there();
  sums_were_read();
}

template <typename Four>
__device__ __forceinline__ Four sum_of_parts(const Four* place) {
  Four sum = {};
#pragma unroll
  for (int peer = 0; peer < PARTS; ++peer) {
    const Four other = read_peer(place, peer);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.at[i] += other.at[i];
  }
  return sum;
}

// The others of the cluster: each thread adds the parts of four columns of a row, the first part first. It loads those
// of several rows before it uses one, as another block's shared memory answers late, and so do factors of rows.
template <typename Element, typename Factor>
__device__ __forceinline__ void reduce(const char* room, const Target<Element>& target, int first_row,
                                       int first_column, int part, Factor factor_at) {
  struct alignas(16) Four {
    float at[4];
  };
  constexpr int FOURS = COLUMNS / 4, STRIDE = PARTS * 32 * CONSUMERS;
  constexpr int TURNS = (BN * FOURS + STRIDE - 1) / STRIDE;
  constexpr int MOST = PARTS > 4 ? 1 : 8 / PARTS, AT_ONCE = TURNS < MOST ? TURNS : MOST;
  sums_are_there();
  const int rows = min_of(BN, target.m - first_row), end = rows * FOURS;
  for (int at = part * 32 * CONSUMERS + threadIdx.x; at < end; at += AT_ONCE * STRIDE) {
    Four sums[AT_ONCE];
    float factors[AT_ONCE][4];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {  // what lies behind the end is loaded once more, and not stored
      const int here = min_of(at + i * STRIDE, end - 1), row = here / FOURS, column = here % FOURS * 4;
      const Four* const place =
          reinterpret_cast<const Four*>(reinterpret_cast<const float*>(room) + row * PITCH + column);
      if constexpr (PARTS == 1) sums[i] = *place;
      else sums[i] = sum_of_parts(place);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        factors[i][j] = factor_at(first_row + row, min_of(first_column + column + j, target.n - 1));
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int here = at + i * STRIDE, to = first_column + here % FOURS * 4;
      if (here >= end || to >= target.n) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i].at[j] *= factors[i][j];
      target.finish(sums[i].at, first_row + here / FOURS, to);
    }
  }
  sums_were_read();
}
