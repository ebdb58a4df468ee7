// What passes say of all lines of A and B, in words of four bytes:
//
//   | whether parts hold, and not | largest span of A, of B | blocks that are done | - |
//   | scales of A, of B: doubles | spans of A |
//
// Spans are 0 or more, so their bits order as integers do. The pass over A sets the first words to zero. The pass
// over B, which follows it, adds up what there is, and its last block decides: a launch less than one that looks
// at all spans. Launches that multiply are guarded by one of the two answers.
#pragma once

#include "config.cuh"

struct OfLines {
  float* words;
  int rows, columns;
  static constexpr int FIRST = 6;

  __device__ __forceinline__ int* largest(bool of_b) const {
    return reinterpret_cast<int*>(words) + 2 + of_b;
  }
  __device__ __forceinline__ double* scales(bool of_b) const {
    return reinterpret_cast<double*>(words + FIRST) + (of_b ? rows : 0);
  }
  __device__ __forceinline__ float* spans() const { return words + FIRST + 2 * (rows + columns); }

  // By a whole warp of the first block over A, before anything is said.
  __device__ __forceinline__ void begin() const {
    if (threadIdx.x % 32 < FIRST) words[threadIdx.x % 32] = 0;
  }

  // By one thread. Lines of zeros beside infinite spans: NaN, which no limit holds.
  __device__ __forceinline__ void decide(int of_a, int of_b, float limit) const {
    const bool hold = __int_as_float(of_a) * __int_as_float(of_b) <= limit;
    words[0] = hold, words[1] = !hold;
  }

  // By a whole warp of each block over B, with the largest span of the block's lines.
  __device__ __forceinline__ void add_up(float span, float limit) const {
    int of_a = 0, of_block = __float_as_int(span);
    for (int i = blockIdx.x * 32 + threadIdx.x % 32; i < rows; i += gridDim.x * 32)
      of_a = max(of_a, __float_as_int(spans()[i]));
#pragma unroll
    for (int far = 16; far > 0; far /= 2) {
      of_a = max(of_a, __shfl_xor_sync(0xffffffffu, of_a, far));
      of_block = max(of_block, __shfl_xor_sync(0xffffffffu, of_block, far));
    }
    if (threadIdx.x % 32 > 0) return;
    if (of_a > 0) atomicMax(largest(false), of_a);
    atomicMax(largest(true), of_block);
    __threadfence();
    if (atomicAdd(reinterpret_cast<int*>(words) + 4, 1) + 1 < gridDim.x) return;
    decide(atomicMax(largest(false), 0), atomicMax(largest(true), 0), limit);
  }
};
