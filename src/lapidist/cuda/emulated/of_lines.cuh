// What passes say of all lines of A and B, in words of four bytes:
//
//   | alpha, beta of what falls back | largest span of A, of B | scales of A, of B: doubles | spans of A |
//
// Spans are 0 or more, so their bits order as integers do. The pass over A sets both largest ones to zero, the
// pass over B, which follows it, adds up what there is: a launch less than one that looks at all spans.
#pragma once

#include "config.cuh"

struct OfLines {
  float* words;
  int rows, columns;

  __device__ __forceinline__ int* largest(bool of_b) const {
    return reinterpret_cast<int*>(words) + 2 + of_b;
  }
  __device__ __forceinline__ double* scales(bool of_b) const {
    return reinterpret_cast<double*>(words + 4) + (of_b ? rows : 0);
  }
  __device__ __forceinline__ float* spans() const { return words + 4 + 2 * (rows + columns); }

  // By a whole warp of each block, with the largest span of the block's lines.
  __device__ __forceinline__ void add_up(bool of_b, float span) const {
    if (!of_b) {
      if (blockIdx.x == 0 && threadIdx.x % 32 < 2) *largest(threadIdx.x % 32) = 0;
      return;
    }
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
  }
};
