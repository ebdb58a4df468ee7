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

// The others of the cluster: each thread adds the parts of four columns of a row, the first part first.
template <typename Element, typename Factor>
__device__ __forceinline__ void reduce(const char* room, const Target<Element>& target, int first_row,
                                       int first_column, int part, Factor factor_at) {
  struct alignas(16) Four {
    float at[4];
  };
  constexpr int ADDERS = 32 * CONSUMERS;
  sums_are_there();
  const int rows = min_of(BN, target.m - first_row);
  for (int at = part * ADDERS + threadIdx.x; at < rows * (COLUMNS / 4); at += PARTS * ADDERS) {
    const int row = at / (COLUMNS / 4), column = at % (COLUMNS / 4) * 4;
    const Four* const place =
        reinterpret_cast<const Four*>(reinterpret_cast<const float*>(room) + row * PITCH + column);
    Four sum = {};
    if constexpr (PARTS == 1) {
      sum = *place;
    } else {
#pragma unroll
      for (int peer = 0; peer < PARTS; ++peer) {
        const Four other = read_peer(place, peer);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum.at[i] += other.at[i];
      }
    }
    const int to = first_column + column;
    if (to >= target.n) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.at[i] *= factor_at(first_row + row, min_of(to + i, target.n - 1));
    target.finish(sum.at, first_row + row, to);
  }
  sums_were_read();
}
